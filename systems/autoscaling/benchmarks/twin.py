"""How far the environment's queueing law is from real servers, on points and on servers that it was not fitted to.

    python -m benchmarks autoscaling-twin [--data data/scaling] [--splits 5]

The law (systems/autoscaling/twin/recorded_law.py) is fitted to the 99th percentiles of recorded points:
- half: to half of a server's points, judged on the other half;
- demand: to four points of a server, its CPU time a request alone; the rest of the law is the other servers' median;
- few: to the same four points, every parameter;
- own CPU: to half of the points, and told of each judged point what CPU time a request took in it: what is left is the
  law's own error, and not that of a CPU time which depends on load and neighbours;
- nearest: no law, but the point of the fitted half whose load is nearest, for comparison.
As the simulator has it, where a quota stops a server once it has run out and does not slow it down before; and without
bursts, where it slows every request down.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.entries import Entries
from benchmarks.harness.machine import describe_machine, now_utc
from benchmarks.harness.result_file import RESULTS
from systems.autoscaling.twin.recorded_applications import (
    FREE,
    FREE_WITHOUT_BURSTS,
    halves,
    points_of,
    read_card,
    read_points,
)
from systems.autoscaling.twin.recorded_law import LawParameters, Points, fit, predict_p99_ms

OUTPUT = RESULTS / "autoscaling_twin.json"
FORMAT = "assay-autoscaling-twin/1"
FEW = 4
SPLITS = 5
LAWS: Mapping[str, tuple[str, ...]] = {"simulator": FREE, "without bursts": FREE_WITHOUT_BURSTS}
Json = dict[str, Any]


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--data", type=Path, default=RESULTS.parents[1] / "data" / "scaling",
                        help="folder of a scaling campaign")
    parser.add_argument("--splits", type=int, default=SPLITS, help="random halves and draws of few points")


def run(options: argparse.Namespace) -> None:
    """Fits and judges; see the module."""
    servers = read_servers(options.data)
    code = (code_digest("systems.autoscaling.twin.recorded_applications", ("models", "systems"))
            + code_digest("systems.autoscaling.benchmarks.twin", "benchmarks"))
    content = (options.data / "points.parquet").read_bytes()
    made_of = {"code": code, "bytes": len(content), "sum": int(np.frombuffer(content, dtype=np.uint8).sum())}
    results = Entries(options.output, FORMAT, _key, lambda _, entry: made_of.items() <= entry.items())
    card = read_card(options.data)
    results.content |= {"machine": {**describe_machine(), "date": now_utc()}, "recorded_utc": card["recorded_utc"],
                        "few": FEW, "points": {name: len(points) for name, points in servers.items()}}
    for law in LAWS:
        every: dict[str, LawParameters] | None = None
        for name, points in servers.items():
            if results.has((law, name)):
                continue
            every = every or {other: fit(others, LAWS[law]) for other, others in servers.items()}
            rest = {other: parameters for other, parameters in every.items() if other != name}
            judged = [one for seed in range(options.splits) for one in _judged(points, law, rest, seed)]
            results.add({"law": law, "server": name, **made_of, "parameters": vars(every[name]), "judged": judged,
                         "measured": _as_lists(points), "fitted_p99_ms": predict_p99_ms(every[name], points).tolist()})
            print(f"{law}, {name}: {len(points)} points")


def read_servers(folder: Path) -> dict[str, Points]:
    """The points of each server. Raises InputError where there are none."""
    table = read_points(folder)
    settings = read_card(folder)["settings"]
    return {str(name): points_of(rows, settings) for name, rows in table.groupby("server", sort=False)}


def _key(entry: Mapping[str, Any]) -> tuple[str, str]:
    return entry["law"], entry["server"]


def _as_lists(points: Points) -> Json:
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in vars(points).items()}


def _judged(points: Points, law: str, others: Mapping[str, LawParameters], seed: int) -> list[Json]:
    """Errors of each way of fitting on the points that it did not see: ln(predicted / measured)."""
    free = LAWS[law]
    first, second = halves(points.load, seed)
    fitted = fit(points.take(first), free)
    few = np.sort(np.random.default_rng([seed, 4]).choice(len(points), FEW, replace=False))
    rest = np.setdiff1d(np.arange(len(points)), few)
    start = _typical(others)
    told = fit(points.take(first), free, own_cpu=True)
    rows = [
        _errors("half", seed, points.take(second), predict_p99_ms(fitted, points.take(second))),
        _errors("own CPU", seed, points.take(second), predict_p99_ms(told, points.take(second), own_cpu=True)),
        _errors("nearest", seed, points.take(second), _nearest(points, first, second))]
    for how, names in (("demand", ("cpu_ms",)), ("few", free)):
        found = fit(points.take(few), names, start)
        rows.append(_errors(how, seed, points.take(rest), predict_p99_ms(found, points.take(rest))))
    return rows


def _errors(how: str, seed: int, points: Points, predicted_ms: NDArray[np.float64]) -> Json:
    return {"how": how, "seed": seed, "load": points.load.tolist(),
            "log_ratio": np.log(predicted_ms / points.p99_ms).round(4).tolist()}


def _nearest(points: Points, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.float64]:
    """The measured percentile of the fitted point with the nearest load, of these the one with the nearest quota."""
    far = (np.abs(points.load[second][:, None] - points.load[first]) * 100.0
           + np.abs(np.log(points.quota[second][:, None] / points.quota[first]))
           + np.abs(np.log(points.instances[second][:, None] / points.instances[first])))
    return np.asarray(points.p99_ms[first][np.argmin(far, axis=1)])


def _typical(others: Mapping[str, LawParameters]) -> LawParameters:
    """Medians over the servers; the fixed latency as a share of the CPU time."""
    def middle(name: str) -> float:
        return float(np.median([getattr(one, name) for one in others.values()]))

    return LawParameters(**{name: middle(name) for name in vars(next(iter(others.values())))})
