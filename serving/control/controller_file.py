"""The file that an operator writes of one controller: where measurements come from, what may be set, when it waits.

    prometheus: http://127.0.0.1:9090
    timeout_s: 3                        # for all queries of a step
    newest: 'max(timestamp(up{job="shop"}))'   # Unix time of the newest sample; with it ages are known
    fresh_s: 45                         # older measurements count as none
    signals:                            # of the inputs that have to be measured; each must give one number
      rate_rps: 'sum(rate(http_requests_total{app="shop"}[30s]))'
      p99_ms: {query: '...', scale: 1000, fresh_s: 30, newest: '...'}
      cpu_utilization: {of: cpu_used_cores, over: [ready_replicas, cpu_limit_cores]}   # a measurement over what was set
    fixed: {io_utilization: 0.0}        # in place of a measurement that there is none of
    settings: {slo_ms: 200}             # in place of the bundle's, inside of the box that is proved
    shield:
      hold: [target_replicas]           # stays as it is
      hysteresis: 0.02                  # of the present value
      cool_down_s: 60
      budgets: [{name: cores, of: [target_replicas, target_cpu_limit_cores], most: 16}]
    out_of_distribution:                # of what training saw; the fallback acts then
      margin: 1.5                       # default: the bundle's
      ignore: [io_utilization]          # inputs that count for nothing there
    hand_back_after: 4                  # good steps until the policy acts again
    deadline_s: 5                       # for a policy's answer
    log: {keep_mb: 4096}                # most of the log that is kept, in whole parts of 64 MB
    dry_run: {cpu_limit_cores: 1, memory_limit_mib: 256, replicas: 2, ready_replicas: 2}
    kubernetes: {namespace: shop, deployment: web, container: web}
    cgroup: {group: nginx, parent: services, state: /run/assay}
    watch: {signals: {replicas: '...', cpu_limit_cores: 2}}    # of a shadow that asks the same server what is set

An actuator that measures by itself (`ActuatorKind.measures`) needs no server: what is said of one is left out.

Read without pydantic, for it is read beside a controller.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from feature_store.errors import InputError, nearest
from feature_store.strict_yaml import read_yaml
from serving.actuators.actuators import ACTUATORS, actuator_kind
from serving.control.checks import Distribution
from serving.control.file_part import FilePart
from serving.control.parts import Settings, Share
from serving.control.query import FRESH_S, TIMEOUT_S, Query, read_query
from serving.control.shield import Budget

LEAST_WAIT_S, MOST_WAIT_S = 0.01, 86_400.0  # what nothing answers within; no wait is longer than a day
KEEP_MB = 4096.0  # some ten million steps: years
_KEYS = ("prometheus", "timeout_s", "newest", "fresh_s", "signals", "fixed", "settings", "shield",
         "out_of_distribution", "hand_back_after", "deadline_s", "log")
_OF_SERVER = ("prometheus", "timeout_s", "newest", "fresh_s", "signals", "fixed")
_SHIELD = ("hold", "hysteresis", "cool_down_s", "budgets")


@dataclass(frozen=True)
class ControllerFile:
    """What an operator says of one controller."""

    prometheus: str
    signals: Mapping[str, Query]
    shares: Mapping[str, Share] = field(default_factory=dict)
    fixed: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, float] = field(default_factory=dict)
    timeout_s: float = TIMEOUT_S
    hold: tuple[str, ...] = ()
    hysteresis: float = 0.0
    cool_down_s: float = 0.0
    budgets: tuple[Budget, ...] = ()
    distribution: Distribution = field(default_factory=Distribution)
    hand_back_after: int = Settings.hand_back_after
    deadline_s: float = Settings.deadline_s
    keep_mb: float = KEEP_MB
    actuators: Mapping[str, Any] = field(default_factory=dict)  # part of the file -> what its actuator read there

    def require_all(self, measured: Mapping[str, str] | tuple[str, ...]) -> None:
        """Raises InputError: an input that has to be measured is not asked for, or one that is none is."""
        if twice := sorted({*self.signals, *self.shares} & {*self.fixed}):
            raise InputError(f"each input must be measured or fixed, got both for {', '.join(twice)}")
        given = {*self.signals, *self.shares, *self.fixed}
        for name, share in self.shares.items():
            if share.of not in self.signals:
                raise InputError(f"signals.{name}.of must be a signal with a query, got {share.of!r}; "
                                 f"{nearest(share.of, tuple(self.signals))}")
        for name in sorted(given - set(measured)):
            raise InputError(f"signals must be of {', '.join(measured)}, got {name!r}; {nearest(name, measured)}")
        if missing := [name for name in measured if name not in given]:
            raise InputError(f"signals must have a query for each of {', '.join(measured)}, got none for "
                             f"{', '.join(missing)}; what cannot be measured stands under `fixed`")


def read_controller_file(path: Path, actuator: str = "dry-run") -> ControllerFile:
    """Reads it; each part of an actuator as that actuator reads it.

    Args:
        actuator: which one acts; one that stands at an import path has its part beside those of the table.

    Raises:
        InputError: it is no YAML, a key is unknown or missing, a value is of a wrong type or out of range.
    """
    data = FilePart(read_yaml(path, "controller file"), "", str(path))
    acts = actuator_kind(actuator)
    targets = {kind.section: kind for kind in (*ACTUATORS.values(), acts)}
    data.only((*_KEYS, *targets))
    if acts.measures and (asked := [name for name in _OF_SERVER if name in data.names]):
        raise InputError(f"{asked[0]} must be left out, for {actuator} measures by itself, got it ({path})")
    shield = data.part("shield", {})
    shield.only(_SHIELD)
    log = data.part("log", {})
    log.only(("keep_mb",))
    newest, fresh_s = data.text("newest", ""), data.number("fresh_s", FRESH_S)
    signals = data.part("signals", {} if acts.measures else None)
    shares = {name: _share(signals, name) for name in signals.names
              if signals.has_mapping(name) and "of" in signals.part(name).names}
    return ControllerFile(
        prometheus="" if acts.measures else data.text("prometheus"),
        signals={name: read_query(signals, name, newest, fresh_s) for name in signals.names if name not in shares},
        shares=shares,
        fixed=data.part("fixed", {}).numbers(),
        settings=data.part("settings", {}).numbers(),
        timeout_s=data.number("timeout_s", TIMEOUT_S, LEAST_WAIT_S, MOST_WAIT_S),
        hold=shield.texts("hold"),
        hysteresis=shield.number("hysteresis", 0.0, least=0.0),
        cool_down_s=shield.number("cool_down_s", 0.0, least=0.0),
        budgets=tuple(_budget(one, f"{path}") for one in shield.items("budgets")),
        distribution=_distribution(data.part("out_of_distribution", {})),
        hand_back_after=data.whole("hand_back_after", Settings.hand_back_after),
        deadline_s=data.number("deadline_s", Settings.deadline_s, LEAST_WAIT_S, MOST_WAIT_S),
        keep_mb=log.number("keep_mb", KEEP_MB),
        actuators={name: kind.read(data.part(name)) for name, kind in targets.items() if name in data.names})


def _share(signals: FilePart, name: str) -> Share:
    one = signals.part(name)
    one.only(("of", "over"))
    if not (over := one.texts("over")):
        raise InputError(f"signals.{name}.over must be a list of what is set, got none (controller file)")
    return Share(one.text("of"), over)


def _distribution(part: FilePart) -> Distribution:
    part.only(("margin", "ignore"))
    return Distribution(part.number("margin", 1.0, least=1.0) if "margin" in part.names else None,
                        part.texts("ignore"))


def _budget(value: Any, where: str) -> Budget:
    part = FilePart(value, "shield.budgets", where)
    part.only(("name", "of", "most"))
    if not (of := part.texts("of")):
        raise InputError(f"shield.budgets.of must be a list of targets, got none ({where})")
    return Budget(part.text("name"), of, part.number("most", math.nan))
