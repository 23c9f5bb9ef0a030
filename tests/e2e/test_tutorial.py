"""The tutorial from end to end: the commands that stand on the page, in its order, each in a process of its own.

`make run` and `assay run` take a smaller task of the same name, under the shipped gates and promotion rule: two of the
workloads on their recorded telemetry, smaller networks, fewer epochs. So what the page says of a second seed holds or
not for the reasons that hold for its readers. What records this machine is left to tests/recording, and what trains on
such a recording with it.
"""

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml

from serving.ledger import Ledger
from tests.components.steps import IGNORED_WARNING
from tests.e2e import tiny
from tests.e2e.documents import Command, commands_of
from tests.e2e.test_documented_commands import WORKLOADS, small_task

pytestmark = pytest.mark.filterwarnings(IGNORED_WARNING)

TUTORIAL = "docs/tutorial.md"


class Reader:
    """Somebody with a clone who types what the page says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        task = small_task()
        task["training"] |= {"epochs": 40, "pretrain_epochs": 5}
        configuration = yaml.safe_load((tiny.ROOT / "mlflow.yaml").read_text())
        configuration["gates"]["performance"]["latency"]["at_most"] = 20_000  # a busy machine must not decide
        telemetry = pd.read_parquet(tiny.ROOT / "data" / "base" / "samples.parquet")
        telemetry[telemetry["workload"].isin(WORKLOADS)].reset_index(drop=True).to_parquet(folder / "samples.parquet")
        self.small = ("--task", str(tiny.write_yaml(task, folder / "task.yaml")), "--telemetry",
                      str(folder / "samples.parquet"))
        tiny.write_yaml(configuration, folder / "mlflow.yaml")
        self.said: dict[tuple[str, ...], str] = {}

    def types(self, command: Command) -> None:
        """Runs it as it stands; nothing may fail."""
        match command.words:
            case ("make", "run"):
                arguments = ["assay", "run", *self.small]
            case ("assay", "run", *options) if not {"--telemetry", "--task"} & set(options):
                arguments = ["assay", "run", *options, *self.small]
            case ("assay", "run" | "record", *_) | ("sudo" | "python", *_):
                return  # campaigns on this machine, a fit to what one recorded, and runs on it
            case words:
                arguments = list(words)
        program = Path(sys.executable).with_name(arguments[0])
        done = subprocess.run(
            [program, *arguments[1:]], cwd=self.folder, capture_output=True, text=True, timeout=900,
            env={**os.environ, "ASSAY_HOME": str(self.folder / ".assay"), "OMP_NUM_THREADS": "1",
                 "ASSAY_CONFIG": str(self.folder / "mlflow.yaml")})
        assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        self.said[command.words] = " ".join(done.stdout.split())


def test_the_tutorial_from_end_to_end(tmp_path: Path) -> None:
    (tmp_path / "clone").mkdir()
    reader = Reader(tmp_path / "clone")
    commands = commands_of(TUTORIAL, tmp_path / "page")
    for command in commands:
        reader.types(command)
    typed = [words[:2] for words in reader.said]
    for expected in (("make", "run"), ("assay", "run"), ("assay", "check"), ("model_signing", "verify"),
                     ("assay", "predict"), ("assay", "promote"), ("assay", "rollback"), ("assay", "history")):
        assert expected in typed, "the page does not say it any more"
    state = reader.folder / ".assay"
    moves = [entry.move for entry in Ledger(state / "ledger/promotions.jsonl", state / "keys/assay.pub").verify()]
    assert [(move.action, move.version) for move in moves if move.workload == "redis"] == [
        ("register", 1), ("challenger", 1), ("champion", 1), ("register", 2), ("challenger", 2), ("approve", 2),
        ("rollback", 1)]
    assert not [move for move in moves if move.action == "reject"], "no seed is rejected for its rows"
