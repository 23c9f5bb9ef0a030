"""Agents of functions that together never ask for more than the cluster (models/control/contract/shared_limits.py)."""

from models.control.contract.shared_limits import SharedLimits
from systems.shared_cluster.interface import CONTROLS, STEP_SECONDS

LIMITS = SharedLimits("assay-cluster-limits/1", "function", "cluster", "allotment_cores", CONTROLS[0], STEP_SECONDS)
