"""TLS of the service: the certificate that it shows, and takes anew when its files are rewritten."""

import ssl
import threading
from collections.abc import Callable
from pathlib import Path

from feature_store.errors import InputError
from serving.polling import poll_in_thread

RENEWAL_S = 10.0  # between two looks at the files


class Tls:
    """A server's side of TLS.

    Attributes:
        context: what a server is given; handshakes after a renewal use the new certificate.
    """

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None, tell: Callable[[str], None]) -> None:
        """Reads the files.

        Args:
            certificate: PEM, the server's own first, then those between it and its issuer.
            key: PEM, its private key, without a password.
            client_ca: PEM; only clients with a certificate that one of these issued are answered. None: all are.
            tell: called with a line for every renewal, and for each that fails.

        Raises:
            InputError: a file cannot be read, or certificate and key do not belong together.
        """
        self._certificate, self._key, self._tell = certificate, key, tell
        self._seen, self._said = self._changed(), ""
        self.context = _context(certificate, key)
        if client_ca is not None:
            try:
                self.context.load_verify_locations(client_ca)
            except OSError as error:  # of which ssl.SSLError is one
                raise InputError(f"--tls-client-ca must be certificates as PEM, got {error} ({client_ca})") from error
            self.context.verify_mode = ssl.CERT_REQUIRED

    def look(self) -> None:
        """Takes over a certificate whose files have changed; one that is unusable leaves the one before, and is tried
        again at the next look."""
        seen, said = self._changed(), ""
        if seen != self._seen:
            try:
                _context(self._certificate, self._key)  # tried apart: a failure must not leave half of it
                self.context.load_cert_chain(self._certificate, self._key, password="")
                self._seen = seen
                self._tell(f"TLS certificate was renewed ({self._certificate})")
            except (InputError, OSError, ValueError) as error:
                said = f"TLS certificate stays as it was: {error}"
        if said and said != self._said:
            self._tell(said)
        self._said = said

    def follow(self, stopped: threading.Event) -> threading.Thread:
        """Looks in a thread of its own until `stopped`."""
        return poll_in_thread(self.look, RENEWAL_S, stopped, "certificate")

    def _changed(self) -> list[tuple[int, int]]:
        """Time (ns) and inode of both files, behind the links that a Kubernetes secret is mounted with."""
        try:
            return [(found.st_mtime_ns, found.st_ino) for found in (self._certificate.stat(), self._key.stat())]
        except OSError:
            return []


def _context(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, password="")  # "": never asks a terminal for one
    except (OSError, ValueError) as error:
        raise InputError(f"--tls-certificate and --tls-key must be a certificate and its key as PEM, without a "
                         f"password, got {error} ({certificate}, {key})") from error
    return context
