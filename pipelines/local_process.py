"""Compiles the pipeline and runs it with kfp.local; a process of its own, started by local_run.py.

Everything kfp prints goes to this process's output, which is the run's log file.
Usage: python -m pipelines.local_process REQUEST.json
"""

import json
import os
import signal
import sys
import warnings
from pathlib import Path
from typing import Any


def main(path: Path) -> None:
    """Executes {"package" (where the YAML goes), "arguments", "pipeline_root", "workspace_root", "cache_root"|null}."""
    from pipelines.warm_steps import run_steps_warm

    run_steps_warm()
    from kfp import components, local

    from pipelines.compiled import compile_train

    # the steps run in this environment on purpose, not in the image that their specification names
    warnings.filterwarnings("ignore", message="You may be attemping to run a task that uses custom")
    request = json.loads(path.read_text())
    cache = request["cache_root"]
    local.init(runner=local.SubprocessRunner(use_venv=False), pipeline_root=request["pipeline_root"],
               workspace_root=request["workspace_root"], enable_caching=cache is not None, cache_root=cache)
    pipeline = components.load_component_from_file(str(compile_train(Path(request["package"]), request["parallelism"])))
    pipeline(**request["arguments"])


def _end_with_all_steps(*_: Any) -> None:
    """The kernel sends SIGTERM to this process alone when `assay run` was killed: the steps must end too."""
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    if os.getpgrp() == os.getpid():  # started by local_run.py, as the leader of a group of its own
        signal.signal(signal.SIGTERM, _end_with_all_steps)
    main(Path(sys.argv[1]))
