"""What is set of a service, as a Prometheus server knows it: for a shadow that may ask nobody else (shadow.py).

    watch:
      signals:
        replicas: 'kube_deployment_spec_replicas{deployment="web"}'
        memory_limit_mib: {query: 'max(kube_pod_container_resource_limits{resource="memory"})', scale: 9.5367e-7}
        cpu_limit_cores: 2              # what never changes
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from feature_store.errors import InputError, SourceError, nearest
from serving.actuators.actuator import Actuator, ActuatorError
from serving.actuators.kind import ActuatorKind, Server
from serving.contract import Contract
from serving.control.file_part import FilePart
from serving.control.prometheus_reader import PrometheusReader
from serving.control.query import Query, read_query


@dataclass(frozen=True)
class WatchTarget:
    """Signal -> what to ask, or its value where it never changes."""

    queries: Mapping[str, Query]
    constants: Mapping[str, float]


class PrometheusWatch:
    """Implements `Watched`. Raises InputError: the address is unusable."""

    def __init__(self, target: WatchTarget, server: Server) -> None:
        self._reader = PrometheusReader(server.address, target.queries, target.constants, server.timeout_s)

    @property
    def name(self) -> str:
        """See `Watched`."""
        return f"what {self._reader.address} knows"

    def present(self) -> Mapping[str, float]:
        """See `Watched`: without what the server does not know, or what is too old."""
        try:
            found = self._reader.read()
        except SourceError as error:
            raise ActuatorError("unreachable", str(error)) from error
        most_s = self._reader.fresh_s
        return {name: value for name, value in found.values.items()
                if math.isfinite(value) and found.ages_s.get(name, 0.0) <= most_s.get(name, math.inf)}


def _read(part: FilePart) -> WatchTarget:
    part.only(("signals",))
    signals = part.part("signals")
    constants = {name: signals.number(name, 0.0, least=0.0) for name in signals.names if signals.has_number(name)}
    return WatchTarget({name: read_query(signals, name) for name in signals.names if name not in constants}, constants)


def _make(target: WatchTarget, contract: Contract | None, held: Collection[str]) -> Actuator:
    raise InputError("actuator must be one that can set something, got watch, which only looks; with --shadow nothing "
                     "is set")


def _watch(target: WatchTarget, contract: Contract, held: Collection[str], server: Server) -> PrometheusWatch:
    assert contract.driving is not None
    given: dict[str, Any] = {**target.queries, **target.constants}
    for name in given:
        if name not in contract.input_names:
            raise InputError(f"watch.signals must be of {', '.join(contract.input_names)}, got {name!r}; "
                             f"{nearest(name, contract.input_names)}")
    if missing := sorted(set(contract.driving.current.values()) - set(given)):
        raise InputError(f"watch.signals must say what is set, got nothing for {', '.join(missing)} (controller file)")
    return PrometheusWatch(target, server)


KIND = ActuatorKind("watch", "say by which queries what is set is known (signals)", _read, _make, keeps=False,
                    watch=_watch)
