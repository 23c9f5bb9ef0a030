"""Steps that are forked from a warm process end as those of kfp.local do."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.tiny import ROOT

# A step writes what it was given, and what was loaded before it began; `end` is how it ends.
SOURCE = """
import sys
LOADED = [name for name in ("torch", "mlflow", "pandas") if name in sys.modules]
def step(word: str, end: str):
    import json, os, signal
    from pathlib import Path
    print("said", word)
    Path(word).write_text(json.dumps({"loaded": LOADED, "variable": os.environ.get("GIVEN"),
                                      "kfp": os.environ.get("_KFP_RUNTIME")}))
    if end == "exit":
        sys.exit(7)
    if end == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if end == "raise":
        raise ValueError("as it should")
"""
RUN = """
import json, sys
from pipelines.warm_steps import run_steps_warm
if __name__ == "__main__":
    run_steps_warm()
    from kfp.local import subprocess_task_handler
    print(json.dumps([subprocess_task_handler.run_local_subprocess(*one) for one in json.loads(sys.argv[1])]))
"""


def command(word: str, end: str, folder: Path) -> list[str]:
    given = {"inputs": {"parameterValues": {"word": word, "end": end}},
             "outputs": {"outputFile": str(folder / "out" / word / "executor_output.json")}}
    return ["sh", "-ec", "the script", SOURCE, "--executor_input", json.dumps(given), "--function_to_execute", "step"]


@pytest.fixture(scope="module", params=["short", "long" * 30])
def ended(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Four steps, whose names are how they end; what was printed. Also where temporary files have a long path."""
    folder = tmp_path_factory.mktemp("warm")
    temporary = folder / request.param
    temporary.mkdir()
    (folder / "program.py").write_text(RUN)
    steps = [(command(end, end, folder), {"GIVEN": end} if end == "well" else None)
             for end in ("well", "exit", "kill", "raise")]
    done = subprocess.run([sys.executable, "program.py", json.dumps(steps)], cwd=folder, capture_output=True, text=True,
                          env={"PYTHONPATH": str(ROOT), "TMPDIR": str(temporary), "PATH": "/usr/bin:/bin"}, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout + done.stderr


def test_a_step_ends_as_its_process_does(ended: tuple[Path, str]) -> None:
    assert "[0, 7, -9, 1]" in ended[1]


def test_what_it_says_and_raises_is_in_the_log(ended: tuple[Path, str]) -> None:
    assert "said well" in ended[1] and "ValueError: as it should" in ended[1]


def test_it_has_its_variables_and_what_was_imported_before_it_began(ended: tuple[Path, str]) -> None:
    found = {end: json.loads((ended[0] / end).read_text()) for end in ("well", "exit", "kill", "raise")}
    assert {end: one["variable"] for end, one in found.items()} == {
        "well": "well", "exit": None, "kill": None, "raise": None}
    assert all(one["loaded"] == ["torch", "mlflow", "pandas"] and one["kfp"] == "true" for one in found.values())


def test_another_form_of_command_is_refused(tmp_path: Path) -> None:
    from pipelines.warm_steps import _run_local_subprocess

    with pytest.raises(RuntimeError, match="command of a step must begin with sh -ec, got bash -c"):
        _run_local_subprocess(["bash", "-c", "script", SOURCE])


SIDE_BY_SIDE = """
import json, random, sys, threading, time
from multiprocessing import forkserver
from pipelines.warm_steps import run_steps_warm
if __name__ == "__main__":
    run_steps_warm()
    from kfp.local import subprocess_task_handler
    read, codes = forkserver.read_signed, []
    def slowly(sentinel):  # so that who else looks after this step does so at the same time
        time.sleep(0.3 * random.random())
        return read(sentinel)
    forkserver.read_signed = slowly
    def run(steps):
        codes.extend(subprocess_task_handler.run_local_subprocess(one) for one in steps)
    commands = json.loads(sys.argv[1])
    threads = [threading.Thread(target=run, args=(commands[number::3],)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps(codes))
"""


def test_steps_side_by_side_do_not_take_each_others_exit_codes(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(SIDE_BY_SIDE)
    steps = [command(f"well{number}", "well", tmp_path) for number in range(12)]
    done = subprocess.run([sys.executable, "program.py", json.dumps(steps)], cwd=tmp_path, capture_output=True,
                          text=True, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}, check=False)
    assert done.returncode == 0 and json.dumps([0] * 12) in done.stdout, done.stdout + done.stderr
