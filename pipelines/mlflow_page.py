"""MLflow's web page on loopback: a port, the server with its workers, and their end."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from feature_store.errors import AssayError
from feature_store.process_end import sigterm_as_exit
from pipelines.process_group import start_group, stop_group

HOST = "127.0.0.1"
START_S = 120.0  # until the page answers: 5 to 10 s on two idle cores


def free_port(port: int) -> tuple[int, str]:
    """The port where it can be had, else any free one; and why it is another ("" where it is not)."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            probe.bind((HOST, 0))
            return probe.getsockname()[1], f"port {port} could not be had ({error.strerror}), so another was taken"
        return probe.getsockname()[1], ""


def serve(tracking_uri: str, port: int, log: Path, on_ready: Callable[[str], None]) -> int:
    """Runs the server until it ends, or this process is told to (SIGTERM, Ctrl-C); no worker is left behind.

    Args:
        log: file for what the server prints.
        on_ready: called with the page's address once it answers.

    Returns:
        The server's exit status.

    Raises:
        AssayError: it ended before it answered, or did not answer in time.
    """
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", tracking_uri, "--host", HOST, "--port",
               str(port), "--workers", "1"]
    address, deadline = f"http://{HOST}:{port}", time.monotonic() + START_S
    log.parent.mkdir(parents=True, exist_ok=True)
    with sigterm_as_exit(), log.open("wb") as output:
        child = start_group(command, env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"}, stdin=subprocess.DEVNULL,
                            stdout=output, stderr=subprocess.STDOUT)
        try:
            while not _answers(address):
                if child.poll() is not None or time.monotonic() > deadline:
                    got = "none" if child.returncode is None else f"exit status {child.returncode}"
                    raise AssayError(f"MLflow's page: expected an answer within {START_S:g} s, got {got} ({address}); "
                                     f"its output: {log}")
                time.sleep(0.2)
            on_ready(address)
            return child.wait()
        finally:
            stop_group(child)


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=2):
            return True
    except (urllib.error.URLError, OSError):
        return False
