"""The log of a shadow of a server with a queue, as a controller writes it, and a policy of it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from onnx import TensorProto, helper, numpy_helper

from models.control.training.trajectory_log import Header, Step, TrajectoryLog
from models.tasks.control.task import ControlTask
from models.tasks.shadowed_kind import ShadowedPolicy
from models.tasks.task import parse_task
from tests.environments.backlog_acting import CONTROLS, SIGNALS, STEP_S, TICK, BacklogObserver

START = datetime(2026, 11, 23, tzinfo=UTC)
RATE, SET = 10.0, 30.0
HEADER = Header("backlog", tuple((one.name, one.unit) for one in SIGNALS),
                tuple((one.name, one.unit) for one in CONTROLS))
TASK = Path(__file__).parents[4] / "environments" / "backlog.yaml"


def task_of(environment: str = "tests.environments.replayed_backlog") -> ControlTask:
    task = parse_task({**yaml.safe_load(TASK.read_text()), "environment": environment}, "task.yaml")
    assert isinstance(task, ControlTask)
    return task


def shadow_step(number: int, *, rate: float = RATE, is_set: float = SET, wait_s: float = TICK, actor: str = "policy",
                reason: str = "", episode: int = 0, seconds: float | None = None, **detail: Any) -> Step:
    """One step; `seconds` since the start, where they are not as many steps."""
    seen = {"capacity_rps": is_set, "rate_rps": rate, "mean_rate_rps": rate, "wait_s": wait_s, "slo_s": 2.0}
    outcome = BacklogObserver().outcome(seen)
    at = START + timedelta(seconds=number * STEP_S if seconds is None else seconds)
    targets = {} if actor == "nobody" else {CONTROLS[0].name: 0.75 * is_set}
    return Step("shop", episode, number, "fallback", tuple(seen[one.name] for one in SIGNALS), (is_set,),
                outcome["reward"], outcome["cost"], outcome["violation"], outcome["violated"], "measured", {
                    "at": at.isoformat(), "actor": actor, "reason": reason, "version": "v1", "shadow": True,
                    "targets": targets, "changes": (), "strange": (), "troubles": (), "interval_s": STEP_S, **detail})


def write_log(folder: Path, steps: list[Step]) -> Path:
    TrajectoryLog(folder / "steps", HEADER).append(steps)
    return folder


def double_of_the_load() -> ShadowedPolicy:
    """Whose capacity is twice the load, and whose fallback's is four times."""
    weights = np.zeros((len(SIGNALS), 1), np.float32)
    weights[[one.name for one in SIGNALS].index("rate_rps")] = 2.0
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["observation", "w"], ["targets"])], "policy",
        [helper.make_tensor_value_info("observation", TensorProto.FLOAT, ["batch", len(SIGNALS)])],
        [helper.make_tensor_value_info("targets", TensorProto.FLOAT, ["batch", 1])],
        [numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    return ShadowedPolicy(model.SerializeToString(), "v1", "headroom", {"factor": 4.0})
