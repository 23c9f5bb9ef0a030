"""The load generator: arrivals wait for nobody, and latency counts from the time at which a request was due."""

import json
import resource
import socket
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from recording.loopback import free_port
from recording.scaling.open_loop import (
    ANSWERED,
    ERROR,
    TIMED_OUT,
    Job,
    OpenLoop,
    Result,
    Target,
    main,
    read_result,
)
from recording.scaling.protocols import answers, http_get
from tests.recording.scaling.tiny_server import TinyServer

REQUESTS = [http_get("/found"), http_get("/missing")]


def run(targets: tuple[Target, ...], due: np.ndarray, *, connections: int = 2, timeout_s: float = 5.0,
        choices: np.ndarray | None = None) -> Result:
    job = Job("http", targets, connections, timeout_s, "", "", "", time.monotonic() + 0.05, "")
    chosen = np.zeros(len(due), dtype=int) if choices is None else choices
    return OpenLoop(job, REQUESTS, due, chosen).run()


def test_a_stall_is_seen_by_every_request_that_was_due_in_it() -> None:
    due = np.arange(200) / 100.0
    with TinyServer(stall_at=50, stall_s=0.6) as server:
        started = time.monotonic()
        result = run((Target(server.address),), due)
        assert server.stalled is not None
        stall_end = server.stalled[1] - server.stalled[0]
    assert (result.status == ANSWERED).all() and server.requests == 200
    latency_s = result.latency_ms(5.0) / 1000.0
    # The request that stalled waited for the whole stall. A closed loop with two connections would have held the next
    # ones back: two slow answers in all. Here those due in the stall waited until its end.
    stalled = int(np.argmax(latency_s))
    end = due[stalled] + latency_s[stalled]
    within = (due > due[stalled]) & (due < end - 0.05)
    assert latency_s[stalled] >= stall_end > 0.55 and within.sum() > 40
    assert (latency_s[within] >= end - due[within] - 1e-6).all()
    assert np.median(latency_s[due < due[stalled] - 0.2]) < 0.1
    assert time.monotonic() - started < 30


def test_arrivals_leave_when_they_are_due() -> None:
    due = np.sort(np.random.default_rng(0).random(100))
    with TinyServer() as server:
        result = run((Target(server.address),), due, connections=8)
    np.testing.assert_allclose(result.due, due, atol=1e-9)
    assert (result.noticed >= result.due).all() and (result.sent >= result.noticed).all()
    assert (result.done > result.sent).all()
    assert np.median(result.noticed - result.due) < 0.05


def test_clients_give_up_and_what_was_never_sent_is_not_sent_late() -> None:
    due = np.arange(60) / 100.0
    with TinyServer(stall_at=5, stall_s=1.0) as server:
        result = run((Target(server.address),), due, connections=1, timeout_s=0.3)
    assert (result.status[:5] == ANSWERED).all()
    given_up = result.status == TIMED_OUT
    assert given_up[5] and np.isnan(result.sent[given_up]).sum() > 10
    assert (result.latency_ms(0.3)[given_up] == 300.0).all()
    assert server.requests < 60


def test_an_answer_that_is_no_success_is_an_error() -> None:
    with TinyServer() as server:
        result = run((Target(server.address),), np.arange(4) / 50.0, choices=np.array([0, 1, 0, 1]))
    assert result.status.tolist() == [ANSWERED, ERROR, ANSWERED, ERROR]
    assert (result.latency_ms(5.0)[[1, 3]] == 5000.0).all()


@pytest.mark.parametrize("says", [True, False], ids=["and says so", "without a word"])
def test_a_server_that_closes_after_each_answer_is_no_error(says: bool) -> None:
    with TinyServer(closes=True, says=says) as server:
        result = run((Target(server.address),), np.arange(30) / 100.0, connections=2)
    assert (result.status == ANSWERED).all()


@pytest.mark.parametrize(("hangs_up_at", "failed"), [({3}, []), ({3, 4}, [3])], ids=["once", "again"])
def test_a_request_on_which_the_server_hangs_up_is_sent_once_more(hangs_up_at: set[int], failed: list[int]) -> None:
    with TinyServer(hangs_up_at=hangs_up_at) as server:
        result = run((Target(server.address),), np.arange(10) / 50.0, connections=1)
    assert np.flatnonzero(result.status == ERROR).tolist() == failed and server.requests == 11
    assert (result.status == ANSWERED).sum() == 10 - len(failed)


def test_more_connections_than_select_can_name() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    try:
        with socket.create_server(("127.0.0.1", 0), backlog=2000) as nobody:
            address = f"127.0.0.1:{nobody.getsockname()[1]}"
            result = run((Target(address),), np.zeros(1100), connections=1100, timeout_s=0.3)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert (result.status == TIMED_OUT).all() and np.isfinite(result.sent).all()


def test_instances_get_the_same_share_and_a_stalled_one_is_passed_by() -> None:
    due = np.arange(200) / 200.0
    with TinyServer(stall_at=20, stall_s=0.5) as first, TinyServer() as second:
        result = run((Target(first.address), Target(second.address)), due, connections=4)
        assert (result.status == ANSWERED).all()
        assert first.requests + second.requests == 200 and first.requests >= 40
        assert second.requests > first.requests


def test_an_instance_joins_once_its_file_is_there(tmp_path: Path) -> None:
    due = np.arange(100) / 100.0
    ready = tmp_path / "ready"
    with TinyServer() as first, TinyServer() as second:
        timer = threading.Timer(0.4, lambda: ready.write_text(second.address))
        timer.start()
        result = run((Target(first.address), Target("", str(ready))), due)
        timer.join()
        assert (result.status == ANSWERED).all() and 5 < second.requests < 60


def test_a_job_is_run_from_its_files(tmp_path: Path) -> None:
    np.save(tmp_path / "arrivals.npy", np.array([0.0, 0.1]))
    np.save(tmp_path / "choices.npy", np.array([0, 1]))
    (tmp_path / "requests.json").write_text(json.dumps([one.decode("latin-1") for one in REQUESTS]))
    with TinyServer() as server:
        files = [str(tmp_path / name) for name in ("requests.json", "arrivals.npy", "choices.npy")]
        job = Job("http", (Target(server.address),), 1, 2.0, *files, time.monotonic() + 0.1, str(tmp_path / "out.npz"))
        job.write(tmp_path / "job.json")
        assert Job.read(tmp_path / "job.json") == job
        assert main([str(tmp_path / "job.json")]) == 0
    assert read_result(tmp_path / "out.npz").status.tolist() == [ANSWERED, ERROR]


def test_nobody_there_is_said() -> None:
    with pytest.raises(ConnectionRefusedError):
        run((Target(f"127.0.0.1:{free_port()}"),), np.array([0.0]))
    assert not answers("http", f"127.0.0.1:{free_port()}", REQUESTS[0], 0.5)
