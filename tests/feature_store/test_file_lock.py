"""One holder at a time, among processes and threads; what the run lock and the ledger build on."""

import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest
from filelock import Timeout

from feature_store.file_lock import file_lock, shared_lock

ROOT = Path(__file__).parents[2]


def test_a_thread_takes_its_own_lock_again_and_never_waits_for_itself(tmp_path: Path) -> None:
    lock = file_lock(tmp_path / "lock")
    with lock, lock:
        with pytest.raises(RuntimeError, match="already held"), file_lock(tmp_path / "lock"):
            pytest.fail("two holders")
    assert (tmp_path / "lock").exists(), "without the file two processes would lock two inodes"


def test_another_thread_waits(tmp_path: Path) -> None:
    lock, refused = file_lock(tmp_path / "lock"), []

    def second() -> None:
        try:
            lock.acquire(timeout=0.05)
        except Timeout:
            refused.append(True)

    with lock:
        thread = Thread(target=second)
        thread.start()
        thread.join()
    assert refused == [True]


def test_a_killed_process_frees_its_lock(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from feature_store.file_lock import file_lock\n"
        "with file_lock(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    )
    arguments = [sys.executable, "-c", program, str(tmp_path / "lock")]
    with subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(Timeout):
            file_lock(tmp_path / "lock").acquire(blocking=False)
        process.kill()
        process.wait(timeout=60)
    with file_lock(tmp_path / "lock").acquire(blocking=False):
        pass


def test_many_share_a_lock_or_one_has_it_alone(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with pytest.raises(FileNotFoundError), shared_lock(path, alone=False):
        pytest.fail("made")
    with shared_lock(path, alone=True) as one, shared_lock(path, alone=False) as other:
        assert (one, other) == (True, False)
    with shared_lock(path, alone=False) as one, shared_lock(path, alone=False) as other:
        with shared_lock(path, alone=True, patience_s=0.05) as third:
            assert (one, other, third) == (True, True, False)
    with shared_lock(path, alone=True) as one:
        assert one


def test_a_killed_process_frees_a_lock_that_it_shared(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from feature_store.file_lock import shared_lock\n"
        "with shared_lock(Path(sys.argv[1]), alone=False): print('held', flush=True); time.sleep(60)"
    )
    path = tmp_path / "lock"
    path.touch()
    with subprocess.Popen([sys.executable, "-c", program, str(path)], cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with shared_lock(path, alone=True) as free:
            assert not free
        process.kill()
        process.wait(timeout=60)
    with shared_lock(path, alone=True) as free:
        assert free
