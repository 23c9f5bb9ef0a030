"""What acts of a governor beside a live processor (models/control/contract/acting.py)."""

from collections.abc import Mapping, Sequence
from typing import Any

from models.control.contract.controller import RuleFamily
from models.verification.closed_loop.answer import GuaranteeCheck
from systems.cpu_frequency import observer, rules

OBSERVER = observer.FrequencyObserver
RULES: Mapping[str, RuleFamily] = rules.RULES


def check_guarantee(content: bytes, model: bytes, properties: Sequence[Mapping[str, Any]],
                    settings: Mapping[str, float], levels: Mapping[str, Sequence[float]],
                    seconds: float) -> GuaranteeCheck:
    """See `GuaranteeChecker`: what is proved of the model, and the levels, say all that this needs."""
    from systems.cpu_frequency import guarantee

    return guarantee.check(content, properties, levels)
