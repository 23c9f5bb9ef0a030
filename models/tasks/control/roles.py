"""Which signal stands for what, so that a page can draw any environment."""

from typing import Any

from models.control.contract.environment import Environment
from models.tasks.control.task import ControlTask


def roles(task: ControlTask, environment: Environment, load: tuple[str, ...]) -> dict[str, Any]:
    """Names of signals: the load, what is set at present by control, what is bounded and its objective ("": none).

    Args:
        load: columns of the telemetry.
    """
    signals = {signal.name for signal in environment.signals}
    bounded = task.by_construction
    return {"load": [name for name in load if name in signals],
            "present": {control.name: control.current for control in environment.controls},
            "metric": bounded.metric if bounded else "", "objective": bounded.objective if bounded else ""}
