"""What acts of a sender beside a live one (models/control/contract/acting.py)."""

from collections.abc import Mapping

from models.control.contract.controller import RuleFamily
from systems.congestion import observer, rules

OBSERVER = observer.CongestionObserver
RULES: Mapping[str, RuleFamily] = rules.RULES
