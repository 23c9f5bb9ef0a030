"""What acts of an agent beside a live function (models/control/contract/acting.py)."""

from collections.abc import Mapping

from models.control.contract.controller import RuleFamily
from systems.shared_cluster import guarantee, observer, rules

OBSERVER = observer.FunctionObserver
RULES: Mapping[str, RuleFamily] = rules.RULES
check_guarantee = guarantee.LIMITS.check_guarantee
