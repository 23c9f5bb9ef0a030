"""How a base learner is trained: the `training` of a task file."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from feature_store.errors import InputError, nearest
from models.tasks.fields import check_number, located, mapping_at, refuse_unknown

METHODS = ("plain", "counterexample_guided", "monotone", "certified", "certified_guided")
_MAY_BE_ZERO = ("pretrain_epochs", "iterations", "hinge_margin", "certified_margin")


@dataclass(frozen=True)
class TrainingSettings:
    """How a base learner is trained: Adam and mean squared error, vPALs, section "DNN Training"."""

    method: str = "monotone"
    learning_rate: float = 2e-3
    batch_size: int = 64
    epochs: int = 150
    pretrain_epochs: int = 30
    trunk_width: int = 300
    iterations: int = 20  # limit of the train-verify loop after the planned epochs (Algorithm 1, epsilon)
    epochs_per_iteration: int = 10
    counterexamples_per_iteration: int = 256
    hinge_margin: float = 2e-3  # by how much a counterexample pair shall be ordered, scaled target units
    certified_weight: float = 10.0  # of the certified loss beside the mean squared error, at full ramp
    certified_margin: float = 5e-3  # slope that it asks for, scaled units
    certified_boxes: int = 4  # boxes bounded in a step of it
    loop_verify_seconds: float = 15.0
    verify_seconds: float = 60.0  # budget of the final proof

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise InputError(f"training method must be one of {', '.join(METHODS)}, got {self.method!r}; "
                             + nearest(str(self.method), METHODS))
        for entry in fields(self):
            if entry.name != "method":
                check_number(getattr(self, entry.name), entry.name, entry.type is int, entry.name in _MAY_BE_ZERO)


def parse_training(data: Any, where: str) -> TrainingSettings:
    """From parsed YAML. Raises InputError: a field is unknown or of the wrong kind."""
    settings: Mapping[str, Any] = mapping_at(data, where)
    refuse_unknown(settings, {entry.name for entry in fields(TrainingSettings)}, where)
    with located(where):
        return TrainingSettings(**settings)
