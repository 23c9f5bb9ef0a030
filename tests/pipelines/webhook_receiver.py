"""A real HTTP server on loopback that keeps what is posted to it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Receiver:
    """Answers each post with `status`; `posts` are headers and body.

    Attributes:
        drip: bytes of an answer that never ends (here 5 s): its start, and what follows it, over and over.
    """

    url: str = ""
    status: int = 200
    drip: tuple[bytes, bytes] | None = None
    posts: list[tuple[Message, bytes]] = field(default_factory=list)


@contextmanager
def receiver() -> Iterator[Receiver]:
    """Listens for the length of the block."""
    made, over = Receiver(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            made.posts.append((self.headers, self.rfile.read(int(self.headers["Content-Length"]))))
            if made.drip:
                with suppress(OSError):  # the other end does not wait
                    self.wfile.write(made.drip[0])
                    for _ in range(100):
                        if over.wait(0.05):
                            break
                        self.wfile.write(made.drip[1])
                self.close_connection = True
                return
            self.send_response(made.status)
            self.send_header("Location", made.url)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made.url = f"http://127.0.0.1:{server.server_port}/hook"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield made
        finally:
            over.set()
            server.shutdown()
            thread.join()
