"""A function's limit of cores by the coordinator's looks (serving/actuators/looked_at_limit.py).

    assay control --actuator systems.shared_cluster.groups --controller resize.yaml ...
"""

from serving.actuators.looked_at_limit import Named, kind_of
from systems.shared_cluster.interface import CONTROLS

NAMED = Named("functions", CONTROLS[0].name, CONTROLS[0].current)
ACTUATOR = kind_of("function", NAMED)
