"""What acts of autoscaling beside a live service (models/control/contract/acting.py)."""

from collections.abc import Mapping, Sequence
from typing import Any

from models.control.contract.controller import RuleFamily
from models.verification.closed_loop.answer import GuaranteeCheck
from systems.autoscaling import observer
from systems.autoscaling.rules import rules

OBSERVER = observer.AutoscalingObserver
RULES: Mapping[str, RuleFamily] = rules.RULES


def check_guarantee(content: bytes, model: bytes, properties: Sequence[Mapping[str, Any]],
                    settings: Mapping[str, float], levels: Mapping[str, Sequence[float]],
                    seconds: float) -> GuaranteeCheck:
    """See `GuaranteeChecker`. Imports onnx."""
    from systems.autoscaling.guarantee.guarantee_check import check_shipped

    return check_shipped(content, model, properties, settings, seconds)
