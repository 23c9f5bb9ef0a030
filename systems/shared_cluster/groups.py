"""A function's limit of cores by the coordinator's looks (serving/actuators/looked_at_limit.py).

    assay control --actuator systems.shared_cluster.groups --controller resize.yaml ...
"""

from functools import partial

from serving.actuators.looked_at_limit import LookedAtLimit, Named, kind_of
from serving.actuators.looked_at_limit import Target as Target
from systems.shared_cluster.interface import CONTROLS

_NAMED = Named("functions", CONTROLS[0].name, CONTROLS[0].current)
FunctionLimit = partial(LookedAtLimit, named=_NAMED)
ACTUATOR = kind_of("function", _NAMED)
