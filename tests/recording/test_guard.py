"""Nothing outlives the recorder: processes, control groups and temporary files, however it ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from feature_store.errors import InputError
from recording import processes, reaper
from recording.processes import ACCOUNT, Guard, unprivileged
from recording.reaper import session_members
from tests.recording.test_campaign import needs_root, open_scratch

# A recorder in small: a server that ignores SIGTERM and has a child, a group and a temporary file. It prints
# the session's id once both are up, then waits.
RECORDER = """
import signal, sys, time
from pathlib import Path
from recording.processes import Guard

signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background of a script inherits "ignore"
with Guard(Path(sys.argv[1])) as guard:
    group = Path(sys.argv[2])
    guard.register(f"group {group}")
    group.mkdir()
    script = "trap '' TERM; sleep 1000 & echo up; while :; do sleep 1; done"
    running = guard.start("stubborn", ["/bin/sh", "-c", script], output=guard.folder / "out")
    while "up" not in (guard.folder / "out").read_text():
        time.sleep(0.01)
    print(running.session, flush=True)
    if len(sys.argv) > 3:
        raise RuntimeError("crash")
    time.sleep(1000)
"""


def start_recorder(scratch: Path, group: Path, *more: str) -> tuple[subprocess.Popen[str], int]:
    recorder = subprocess.Popen(
        [sys.executable, "-c", RECORDER, str(scratch), str(group), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert recorder.stdout is not None
    return recorder, int(recorder.stdout.readline())


def assert_nothing_left(scratch: Path, group: Path, session: int) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if not (session_members({session}) or group.exists() or list(scratch.iterdir())):
            return
        time.sleep(0.05)
    raise AssertionError(f"left: {session_members({session})} {group.exists()} {list(scratch.iterdir())}")


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_after_a_signal(number: signal.Signals, scratch: Path, tmp_path: Path) -> None:
    recorder, session = start_recorder(scratch, tmp_path / "group")
    assert len(session_members({session})) >= 2
    recorder.send_signal(number)
    recorder.communicate()
    assert_nothing_left(scratch, tmp_path / "group", session)


def test_nothing_is_left_after_an_exception(scratch: Path, tmp_path: Path) -> None:
    recorder, session = start_recorder(scratch, tmp_path / "group", "crash")
    recorder.communicate()
    assert recorder.returncode == 1
    assert_nothing_left(scratch, tmp_path / "group", session)


def test_a_process_that_leaves_its_group_is_stopped_with_its_session(scratch: Path) -> None:
    with Guard(scratch) as guard:
        fork = "import os, time; os.fork() or os.setpgid(0, 0); time.sleep(1000)"
        running = guard.start("jobs", [sys.executable, "-c", fork], output=guard.folder / "out")
        deadline = time.monotonic() + 5
        while len({os.getpgid(pid) for pid in session_members({running.session})}) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        guard.stop([running], grace_s=0)
        assert session_members({running.session}) == []
    assert list(scratch.iterdir()) == []


def test_a_session_that_could_not_be_ended_is_ended_with_the_guard(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaper, "kill_sessions", lambda sessions: False)  # it sits in the kernel, and cannot be killed
    with Guard(scratch) as guard:
        running = guard.start("stuck", ["sleep", "1000"], output=guard.folder / "out")
        guard.stop([running], grace_s=0)
        assert session_members({running.session})
    assert session_members({running.session}) == [] and running.process.wait(5) == -signal.SIGKILL


@needs_root
def test_a_server_of_root_has_an_account_of_its_own_that_reaches_its_folders_alone(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").touch()
    with open_scratch() as scratch, Guard(scratch) as guard:
        home = guard.folder / "home"
        (home / "data").mkdir(parents=True, mode=0o700)
        (home / "data" / "file").touch(mode=0o600)
        (home / "link").symlink_to(tmp_path / "elsewhere")
        try_all = (f"id -u; echo 1 >{home}/data/file && echo may;"
                   f"echo 1 >{tmp_path}/elsewhere || ls {guard.folder} || echo no")
        guard.call("server", [*unprivileged(home), "/bin/sh", "-c", try_all], output=guard.folder / "out")
        said = [line for line in (guard.folder / "out").read_text().splitlines() if "denied" not in line]
        assert said == [str(ACCOUNT), "may", "no"]
        assert (tmp_path / "elsewhere").stat().st_uid == 0
        for_others = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "test", "-e", home]
        assert subprocess.run(for_others, check=False).returncode == 1


@needs_root
def test_a_folder_that_the_servers_account_cannot_enter_is_refused(scratch: Path) -> None:
    scratch.chmod(0o700)
    with Guard(scratch) as guard, pytest.raises(InputError, match=f"must be open to the account {ACCOUNT}.* TMPDIR"):
        unprivileged(guard.folder)


@pytest.mark.parametrize(("setpriv", "told"), [
    ("echo 'setpriv: setresuid failed: Operation not permitted' >&2; exit 127", "setresuid failed: Operation not perm"),
    ("", r"No such file or directory: 'setpriv'")])
def test_what_setpriv_says_is_told_and_not_taken_for_a_folder_that_cannot_be_entered(
    setpriv: str, told: str, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if setpriv:
        (scratch / "setpriv").write_text(f"#!/bin/sh\n{setpriv}\n")
        (scratch / "setpriv").chmod(0o755)
    monkeypatch.setenv("PATH", str(scratch))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(processes, "_hand_over", lambda folder: None)
    with pytest.raises(InputError, match=f"^setpriv must start servers under the account {ACCOUNT}.*{told}") as caught:
        unprivileged(scratch)
    assert "TMPDIR" not in str(caught.value)


def test_an_ordinary_users_servers_are_that_users(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert unprivileged(scratch) == []


def test_a_server_gets_time_to_end_itself(scratch: Path) -> None:
    with Guard(scratch) as guard:
        ended = scratch / "ended"
        script = f"trap 'echo end >{ended}; exit' TERM; echo up; while :; do sleep 0.05; done"
        running = guard.start("polite", ["/bin/sh", "-c", script], output=guard.folder / "out")
        while "up" not in (guard.folder / "out").read_text():
            time.sleep(0.01)
        guard.stop([running], grace_s=5)
        assert ended.exists()
        ended.unlink()


def test_a_program_joins_its_groups_before_it_starts(scratch: Path, tmp_path: Path) -> None:
    (tmp_path / "cgroup.procs").touch()
    with Guard(scratch) as guard:
        status = guard.call("true", ["/bin/true"], output=guard.folder / "out")
        assert status == 0
        running = guard.start("joiner", ["/bin/true"], output=guard.folder / "out", groups=[tmp_path])
        assert running.process.wait(5) == 0
        assert (tmp_path / "cgroup.procs").read_text().split() == [str(running.session)]


def test_a_program_that_cannot_join_its_group_is_not_started(scratch: Path, tmp_path: Path) -> None:
    with Guard(scratch) as guard:
        marker = tmp_path / "marker"
        running = guard.start(
            "loner", ["/bin/sh", "-c", f"touch {marker}"], output=guard.folder / "out", groups=[tmp_path / "none"]
        )
        assert running.process.wait(5) == 125
        assert not marker.exists()


def test_a_call_that_takes_too_long_is_ended(scratch: Path) -> None:
    with Guard(scratch) as guard:
        started = time.monotonic()
        assert guard.call("slow", ["sleep", "100"], output=guard.folder / "out", timeout_s=0.2) is None
        assert time.monotonic() - started < 5


def test_the_reaper_ends_with_the_guard(scratch: Path) -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    with Guard(scratch):
        assert len({child.pid for child in psutil.Process().children(recursive=True)} - before) == 1
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


def test_a_guard_without_a_reaper_does_not_begin(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(FileNotFoundError):
        Guard(scratch)
    assert list(scratch.iterdir()) == []
