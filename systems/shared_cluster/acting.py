"""What acts of an agent beside a live function (models/control/contract/acting.py)."""

from collections.abc import Mapping, Sequence
from typing import Any

from models.control.contract.controller import RuleFamily
from models.verification.closed_loop.answer import GuaranteeCheck
from systems.shared_cluster import observer, rules

OBSERVER = observer.FunctionObserver
RULES: Mapping[str, RuleFamily] = rules.RULES


def check_guarantee(content: bytes, model: bytes, properties: Sequence[Mapping[str, Any]],
                    settings: Mapping[str, float], levels: Mapping[str, Sequence[float]],
                    seconds: float) -> GuaranteeCheck:
    """See `GuaranteeChecker`: what is proved of the model says all that this needs of it."""
    from systems.shared_cluster import guarantee

    return guarantee.check(content, properties)
