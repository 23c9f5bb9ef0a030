"""Agents by a rule, of all services in one process, beside a coordinator: what a policy is held against, live.

A program of its own: `python -m benchmarks.control.live_rules rule.yaml`, until it is ended. The file:

    {"system": NAME, "rule": "aimd", "settings": {}, "node": "node.yaml", "state": "/run/assay"}

They read, observe, and set as a controller of the product does (the system's observer,
serving/actuators/looked_at_limit.py), by the rates of the control; only nothing is proved, shielded or logged.
"""

import json
import sys
import time
from importlib import import_module
from pathlib import Path

import numpy as np

from feature_store.errors import AssayError
from feature_store.strict_yaml import read_located_yaml
from serving.actuators.looked_at_limit import LookedAtLimit, Named, Target
from serving.control.coordinator import read_shared
from serving.control.file_part import FilePart

_WITHIN_S, _POLL_S = 20.0, 0.02


def main(path: str) -> None:
    """Acts until it is ended."""
    told = read_located_yaml(Path(path), "file of a rule")[0]
    acting, coordinator, interface = (import_module(f"systems.{told['system']}.{part}")
                                      for part in ("acting", "coordinator", "interface"))
    teller, (control,) = coordinator.TELLER, interface.CONTROLS
    shared = read_shared(Path(told["node"]), teller)
    named = Named(teller.many, control.name, control.current)
    state = FilePart(told, "", path).folder("state")
    limits = [LookedAtLimit(Target(name, group, shared.look, _WITHIN_S, state, shared.root, shared.host_cores), named)
              for name, group in shared.groups.items()]
    observers = [acting.OBSERVER() for _ in limits]
    rule = acting.RULES[told["rule"]].make(told["settings"])
    rule.start(len(limits))
    for one in limits:
        if other := one.acquire("rule"):
            raise AssayError(f"nobody else must set {one.name}, got {other}")
    began, last = time.monotonic(), ""
    while True:
        try:
            look = json.loads(shared.look.read_text())["look"]
        except (OSError, ValueError, KeyError):
            look = last
        if look == last:
            time.sleep(_POLL_S)
            continue
        last = look
        present = [one.present() for one in limits]
        seen = [observer.observe(one.read().values, now, shared.every_s)
                for observer, one, now in zip(observers, limits, present, strict=True)]
        targets = rule.act({name: np.array([one[name] for one in seen]) for name in seen[0]},
                           time.monotonic() - began)[control.name]
        for one, now, target in zip(limits, present, targets, strict=True):
            cores = now[control.current]
            least, most = (1.0 - control.most_down) * cores, (1.0 + control.most_up) * cores
            try:
                one.apply({control.name: float(np.clip(target, max(least, control.low), min(most, control.high)))})
            except AssayError as error:  # such as a look that came meanwhile: decided again at the next
                print(f"{one.name}: {error}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
