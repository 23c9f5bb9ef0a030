"""What acts of a governor beside a live processor (models/control/contract/acting.py)."""

from collections.abc import Mapping

from models.control.contract.controller import RuleFamily
from systems.cpu_frequency import observer, rules

OBSERVER = observer.FrequencyObserver
RULES: Mapping[str, RuleFamily] = rules.RULES
