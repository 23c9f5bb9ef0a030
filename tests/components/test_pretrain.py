"""What an earlier run pretrained is taken where telemetry has no part in it, and of the very same work alone."""

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from components import pretrain as module
from components.pretrain import run_pretrain
from models.tasks.control.task import ControlTask
from models.tasks.kind import PretrainsWithoutTelemetry
from models.tasks.kinds import kind_of
from models.tasks.task import load_task


@dataclass
class Made:
    """A kind that counts its pretrainings."""

    times: list[str] = field(default_factory=list)

    def pretrain(self, task: Any, workloads: Sequence[str], seed: int, features: Path, output: Path, *_: Any) -> str:
        self.times.append(str(task))
        output.write_text(f"pretrained {len(self.times)}")
        return ""


class Alone(Made):
    def pretrains_from(self, task: Any) -> str:
        return str(task)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    @dataclass
    class Configuration:
        home: Path = tmp_path / "state"

    monkeypatch.setattr(module, "project_configuration", Configuration)
    monkeypatch.setattr(module, "checkpoints", lambda *_: nullcontext(tmp_path))
    monkeypatch.delenv("ASSAY_RESUME", raising=False)

    def again(kind: Any, task: str = "t", seed: int = 1, code: str = "c", status: str = "") -> str:
        monkeypatch.setattr(module, "task_and_kind", lambda _: (task, kind))
        (tmp_path / "status.json").write_text(json.dumps({"web": status}))
        run_pretrain("yaml", seed, code, tmp_path, tmp_path / "out" / "pretrained")
        return (tmp_path / "out" / "pretrained").read_text()

    return again


def test_the_very_same_pretraining_is_done_once(work: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    kind = Alone()
    assert [work(kind), work(kind)] == ["pretrained 1", "pretrained 1"]
    for other in ({"task": "u"}, {"seed": 2}, {"code": "d"}):
        work(kind, **other)
    assert len(kind.times) == 4
    monkeypatch.setenv("ASSAY_RESUME", "0")
    assert work(kind) == "pretrained 5", "--fresh takes nothing"


def test_where_telemetry_has_a_part_it_is_done_again(work: Callable[..., str]) -> None:
    kind = Made()
    assert [work(kind), work(kind)] == ["pretrained 1", "pretrained 2"]


def test_nothing_is_taken_where_no_workload_is_left(work: Callable[..., str]) -> None:
    kind = Alone()
    work(kind)
    assert work(kind, status="failed") == ""


def test_a_control_policy_is_pretrained_for_all_workloads_alike_and_for_nothing_else() -> None:
    task = load_task(str(Path(__file__).parents[1] / "environments" / "backlog.yaml"))
    kind = kind_of("control", "task")
    assert isinstance(task, ControlTask) and isinstance(kind, PretrainsWithoutTelemetry)
    first = kind.pretrains_from(task)
    one = task.model_copy(update={"workloads": dict(list(task.workloads.items())[:1])})
    assert kind.pretrains_from(one) == first
    later = {"finetune_rounds": 3, "finetune_aims": (0.3,), "finetune_reward_weight": 0.5}
    training = task.training.model_copy(update=later)
    assert kind.pretrains_from(task.model_copy(update={"training": training})) == first
    for change in ({"hidden": (8,)}, {"training": task.training.model_copy(update={"rounds": 3})},
                   {"objective": task.objective.model_copy(update={"violating_share": 0.5})}):
        assert kind.pretrains_from(task.model_copy(update=change)) != first
    assert not isinstance(kind_of("prediction", "task"), PretrainsWithoutTelemetry)
