"""What acts of an agent beside a live service (models/control/contract/acting.py)."""

from collections.abc import Mapping

from models.control.contract.controller import RuleFamily
from systems.microservices import guarantee, observer, rules

OBSERVER = observer.ServiceObserver
RULES: Mapping[str, RuleFamily] = rules.RULES
check_guarantee = guarantee.LIMITS.check_guarantee
