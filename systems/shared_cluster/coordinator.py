"""Looks at all functions once an interval and writes what their agents need of each other: SIMPPO's coordinator.

    python -m systems.shared_cluster.coordinator cluster.yaml [--looks 60]

    cores: 8                          # of this host that are to be shared
    look: /run/assay/look.json        # written here
    status: /run/functions            # NAME.json, STATUS of the last interval by whoever fronts it
    groups: {resize: functions/resize, hash: functions/hash}    # control group of each function
    every_s: 10
    root: /sys/fs/cgroup              # where control groups are mounted

A look is of one moment: limits as the control groups hold them, and the allotments that follow. It is written whole;
an agent acts on a look once, and only on the last one (groups.py). A function whose status is
missing or old keeps its place with what its limit is, and its agent is blind.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from feature_store.errors import InputError
from feature_store.strict_yaml import read_located_yaml
from feature_store.whole_files import write_file
from serving.actuators.actuator import ActuatorError
from serving.actuators.cgroup import Cgroup
from serving.control.file_part import FilePart
from systems.shared_cluster import interface as law
from systems.shared_cluster.interface import NUMBERS

STATUS = ("rate_rps", "served_rps", "used_cores", "latency_ms", "most_latency_ms")


@dataclass(frozen=True)
class Cluster:
    """Of a coordinator's file."""

    cores: float
    look: Path
    status: Path
    groups: Mapping[str, str]
    every_s: float
    root: Path


def read_cluster(path: Path) -> Cluster:
    """Raises InputError."""
    part = FilePart(read_located_yaml(path, "cluster file")[0], "cluster", str(path))
    part.only(("cores", "look", "status", "groups", "every_s", "root"))
    names = part.part("groups")
    groups = {name: names.text(name) for name in names.names}
    if not groups or any("/" in name or name.startswith(".") for name in groups):
        raise InputError(f"groups must name the control group of each function, got {', '.join(groups) or 'none'} "
                         f"({path})")
    return Cluster(part.number("cores", math.nan), Path(part.text("look")), Path(part.text("status")), groups,
                   part.number("every_s", law.STEP_SECONDS), Path(part.text("root", "/sys/fs/cgroup")))


def demand_cores(status: Mapping[str, float]) -> float:
    """Requests that arrive x core seconds of one; NaN where none was served."""
    served = status["served_rps"]
    return status["rate_rps"] * status["used_cores"] / served if served > 0 else math.nan


def looked_at(capacity: float, limits: Mapping[str, float], status: Mapping[str, Mapping[str, float]],
              before: Mapping[str, float], needs: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Function -> measured signals; NaN where a function's own status does not say it.

    Args:
        capacity: cores that are to be shared.
        limits: function -> cores that it may use.
        status: function -> STATUS.
        before: `limits` an interval before; what is not there did not change.
        needs: function -> mean demand, cores; over these what is free is divided.
    """
    total, all_needs = sum(limits.values()), sum(needs.values())
    changes = {name: (cores - before.get(name, cores)) / capacity for name, cores in limits.items()}
    own: dict[str, dict[str, float]] = {}
    for name, cores in limits.items():
        of = status[name]
        preserved = law.preserved(of, NUMBERS) if of["latency_ms"] > 0 else math.nan
        own[name] = {"usage": min(of["used_cores"] / cores, 1.0), "demand_cores": demand_cores(of),
                     "preserved": preserved}
    found = {}
    for name, cores in limits.items():
        others = [one for other, one in own.items() if other != name] or [own[name]]
        shares = {part: [one[part] for one in others if math.isfinite(one[part])] or [1.0]
                  for part in ("preserved", "usage")}
        found[name] = {
            **{part: status[name][part] for part in ("rate_rps", "latency_ms", "most_latency_ms")},
            "usage": own[name]["usage"], "demand_cores": own[name]["demand_cores"],
            "allotment_cores": law.allotment(cores, total, capacity, needs[name] / all_needs, NUMBERS),
            "fair_cores": capacity / len(limits), "cluster_limits": total / capacity,
            "cluster_change": sum(changes.values()) - changes[name],
            "others_preserved": fmean(shares["preserved"]), "others_preserved_spread": pstdev(shares["preserved"]),
            "others_usage": fmean(shares["usage"]), "others_usage_spread": pstdev(shares["usage"])}
    return found


class Coordinator:
    """Remembers what a look needs of those before it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._groups = {name: Cgroup(group, cluster.look.parent, root=cluster.root)
                        for name, group in cluster.groups.items()}
        self._limits: dict[str, float] = {}
        self._needs: dict[str, float] = {}

    def look(self) -> None:
        """Looks, and writes what it saw.

        Raises:
            ActuatorError: a control group is gone, or cannot be read.
            OSError: what was seen cannot be written.
        """
        cluster = self._cluster
        status = {name: self._status(name) for name in self._groups}
        limits = {name: group.present()["cpu_limit_cores"] for name, group in self._groups.items()}
        for name, of in status.items():
            demand = demand_cores(of)
            mean = self._needs.get(name, demand)
            known = mean + law.MEAN_WEIGHT * (demand - mean) if math.isfinite(demand) else mean
            self._needs[name] = known if math.isfinite(known) and known > 0 else limits[name]
        found = looked_at(cluster.cores, limits, status, self._limits, self._needs)
        self._limits = limits
        told = {name: {part: value for part, value in of.items() if math.isfinite(value)} for name, of in found.items()}
        write_file(cluster.look, json.dumps({"look": str(time.time_ns()), "every_s": cluster.every_s,
                                             "functions": told}))

    def _status(self, name: str) -> dict[str, float]:
        """What the function's front says; NaN where it does not."""
        path, unknown = self._cluster.status / f"{name}.json", dict.fromkeys(STATUS, math.nan)
        try:
            if time.time() - path.stat().st_mtime > 2.0 * self._cluster.every_s:
                return unknown
            said = json.loads(path.read_text())
            return {part: float(said.get(part, math.nan)) for part in STATUS}
        except (OSError, ValueError, TypeError, AttributeError):
            return unknown


def main(arguments: list[str] | None = None) -> int:
    """Looks until it is ended. Exit codes: 0 done, 2 bad input."""
    parser = argparse.ArgumentParser(prog="python -m systems.shared_cluster.coordinator", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="the cluster's file")
    parser.add_argument("--looks", type=int, default=0, help="end after so many; default: never")
    given: Any = parser.parse_args(arguments)
    try:
        cluster = read_cluster(given.file)
        coordinator, due = Coordinator(cluster), time.monotonic()
        for number in range(given.looks or sys.maxsize):
            try:
                coordinator.look()
            except (ActuatorError, OSError) as error:  # nobody acts on what was not seen whole
                print(f"no look: {error}", file=sys.stderr)
            if number + 1 != given.looks:
                due += cluster.every_s
                time.sleep(max(0.0, due - time.monotonic()))
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
