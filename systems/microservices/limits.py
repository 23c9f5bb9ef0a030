"""A service's limit of cores by the coordinator's looks (serving/actuators/looked_at_limit.py).

    assay control --actuator systems.microservices.limits --controller cart.yaml ...
"""

from serving.actuators.looked_at_limit import Named, kind_of
from systems.microservices.interface import CONTROLS

NAMED = Named("services", CONTROLS[0].name, CONTROLS[0].current)
ACTUATOR = kind_of("service", NAMED)
