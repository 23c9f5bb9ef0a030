"""The steps of a local run, each in a process that is forked from one which has imported what most of them need.

kfp.local starts Python anew for every step, which costs more than many a step's own work: torch, MLflow and
scikit-learn take some five seconds to import. Here Python's fork server imports them once, while the pipeline is
compiled, and kfp.local runs its steps in forks of it. Nothing but imports is shared: the server computes nothing.
"""

import multiprocessing
import os
import tempfile
import threading
from multiprocessing.connection import wait
from pathlib import Path

# What more than one step imports. Great Expectations is for one step alone, and takes as long as all of these.
PRELOADED = ("kfp.dsl.executor_main", "pandas", "onnxruntime", "sklearn.linear_model", "scipy.stats", "torch",
             "mlflow.store.tracking.sqlalchemy_store")
RUNTIME = "_KFP_RUNTIME"  # kfp then imports what a step needs, and no compiler
SHORT, LONGEST = "/tmp", 60  # where the server's socket stands if this process's own place is longer: a path of 107
# Starting a process also looks after those that ended; two threads that look after the same one both read its exit
# code, which is there once: the second takes the end of the file for code 255.
_REAPING = threading.Lock()
SHELL = ("sh", "-ec")  # how a command of kfp.local begins; a script, the step's source and its arguments follow


def run_steps_warm() -> None:
    """Starts the server, and makes kfp.local fork its steps from it. Raises RuntimeError where kfp knows no such place.

    The server ends with this process.
    """
    from multiprocessing import forkserver

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    os.environ[RUNTIME] = "true"
    place, tempfile.tempdir = tempfile.tempdir, SHORT if len(tempfile.gettempdir()) > LONGEST else tempfile.tempdir
    try:
        forkserver.ensure_running()
    finally:
        del os.environ[RUNTIME]
        tempfile.tempdir = place
    from kfp.local import subprocess_task_handler

    for place in ("run_local_subprocess", "replace_python_executable"):
        if not hasattr(subprocess_task_handler, place):
            raise RuntimeError(f"kfp.local must run steps by {place}, got a version without it")
    subprocess_task_handler.run_local_subprocess = _run_local_subprocess
    subprocess_task_handler.replace_python_executable = _as_it_is


def _as_it_is(full_command: list[str], new_executable: str) -> list[str]:
    """kfp.local's own puts a Python's path in place of `python3` in all arguments, also within the name of a file, such
    as telemetry in lib/python3.11; a step that is forked starts no Python."""
    return full_command


def _run_local_subprocess(full_command: list[str], env_vars: dict[str, str] | None = None) -> int:
    """Runs a step's command and waits for it; its exit status, negative where a signal ended it."""
    *shell, _, source = full_command[:4]
    if tuple(shell) != SHELL:
        raise RuntimeError(f"command of a step must begin with {' '.join(SHELL)}, got {' '.join(shell)}")
    step = multiprocessing.get_context("forkserver").Process(target=_step, args=(source, full_command[4:],
                                                                                 env_vars or {}))
    with _REAPING:
        step.start()
    wait([step.sentinel])
    with _REAPING:
        step.join()
    assert step.exitcode is not None
    return step.exitcode


def _step(source: str, arguments: list[str], variables: dict[str, str]) -> None:
    """What the script of kfp's commands does: writes the source to a file, and executes it."""
    import sys

    from kfp.dsl.executor_main import executor_main

    os.environ.update({**variables, RUNTIME: "true"})
    file = Path(tempfile.mkdtemp()) / "ephemeral_component.py"
    file.write_text(source)
    sys.argv = ["executor_main", "--component_module_path", str(file), *arguments]
    executor_main()
