"""Autoscaling as a task file names it: randomised applications, and the twin of a workload (twin.py)."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feature_store.schema import Column
from models.control.contract.own_service import Service
from models.control.contract.setting import Setting
from systems.autoscaling.rules.rules import RULES, RuleFamily
from systems.autoscaling.simulator.applications import generate
from systems.autoscaling.simulator.episodes import Episodes
from systems.autoscaling.simulator.simulator import Autoscaling
from systems.autoscaling.twin.recorded_applications import recorded_applications
from systems.autoscaling.twin.twin import SETTINGS, replay, twin

if TYPE_CHECKING:
    import pandas as pd


TELEMETRY = Path(__file__).resolve().parents[2] / "data" / "autoscaling" / "load.parquet"


class AutoscalingSystem(Autoscaling):
    """Implements `ControlledSystem`, `GuaranteedSystem` and `OwnServiceSystem`."""

    columns: Mapping[str, Column] = {"rate_rps": Column("1/s", 0.0, None, "requests that came, a second")}
    settings: Sequence[Setting] = SETTINGS
    telemetry: Path | None = TELEMETRY
    largest_reward = 2.0  # of a step: the objective met, CPU and memory used to the full (`outcome` in equations.py)
    acting: str = "systems.autoscaling.acting"
    rules: Mapping[str, RuleFamily] = RULES

    def twin(self, telemetry: "pd.DataFrame", settings: Mapping[str, float | str],
             limits: Mapping[str, tuple[float, float]]) -> Autoscaling:
        """See twin.py."""
        return twin(telemetry, settings, limits)

    def begin(self, service: Service, tell: Callable[[str], None]) -> Mapping[str, str]:
        """See service/begin.py."""
        from systems.autoscaling.service.begin import begin

        return begin(service, tell)

    def replay(self, telemetry: "pd.DataFrame", settings: Mapping[str, float | str],
               limits: Mapping[str, tuple[float, float]], *, bounded: bool = True) -> tuple[Autoscaling, Episodes]:
        """See twin.py."""
        return replay(telemetry, settings, limits, bounded)

    def guarantees(self, model: bytes, properties: Sequence[Mapping[str, Any]], settings: Mapping[str, float | str],
                   limits: Mapping[str, tuple[float, float]]) -> Mapping[str, Any]:
        """See guarantees.py."""
        from systems.autoscaling.guarantee.guarantee_check import ASSUMED
        from systems.autoscaling.guarantee.guarantees import WORDS, autoscaling_guarantees

        found, shipped = autoscaling_guarantees(model, properties, settings, limits)
        return {"assumed": ASSUMED, "words": WORDS, "found": found, "shipped": shipped}


ENVIRONMENT = AutoscalingSystem(generate(recorded=recorded_applications()))
