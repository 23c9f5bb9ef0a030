"""Agents of services that together never ask for more than the node (models/control/contract/shared_limits.py)."""

from models.control.contract.shared_limits import SharedLimits
from systems.microservices.interface import CONTROLS, STEP_SECONDS

LIMITS = SharedLimits("assay-node-limits/1", "service", "node", "allotment_cores", CONTROLS[0], STEP_SECONDS)
