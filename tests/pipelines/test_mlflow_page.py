"""`assay ui` as a user starts it: the port it takes and why, the address of the models page, and a clean end."""

import signal
import socket
import time
import urllib.request
from pathlib import Path

from pipelines.mlflow_page import free_port
from tests.e2e.processes import new_project, processes_of, wait_until


def test_a_port_that_is_free_is_taken_without_a_word() -> None:
    port, why = free_port(0)
    assert free_port(port) == (port, "") and why == ""


def test_a_port_that_is_taken_is_named_with_the_reason() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        port, why = free_port(taken)
    assert port != taken and why == f"port {taken} could not be had (Address already in use), so another was taken"


def test_it_says_where_the_models_are_and_leaves_no_process_behind(tmp_path: Path) -> None:
    project = new_project(tmp_path)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        command = project.start("ui", "--port", str(other.getsockname()[1]))
        assert command.stdout is not None
        lines: list[str] = []
        while not (lines and lines[-1].startswith("registered models: ")):
            lines.append(command.stdout.readline())
            assert lines[-1], "".join(lines)
    assert "could not be had" in lines[0]
    address = lines[-1].split()[-1]
    assert address.endswith("/#/models")
    with urllib.request.urlopen(address, timeout=30) as page:
        assert page.status == 200
    assert len(processes_of(project.home)) > 1  # the command, MLflow, its worker
    began = time.monotonic()
    command.send_signal(signal.SIGTERM)
    assert command.wait(timeout=60) == 128 + signal.SIGTERM and time.monotonic() - began < 30
    wait_until(lambda: not processes_of(project.home), 20, "no process is left")
    command.communicate()
