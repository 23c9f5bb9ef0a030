"""Recorded servers as applications of the environment: their parameters, fitted to data/scaling.

    python -m systems.autoscaling.twin.recorded_applications [data/scaling]

writes recorded_applications.json beside this file: for each server the parameters that `applications.generate` varies,
fitted to one half of its points (recorded_law.py); the other half and whole servers held out tell how far the twin is
from the servers (docs/benchmarks/autoscaling-twin.md).
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from feature_store.errors import InputError
from feature_store.whole_files import write_file
from systems.autoscaling.twin.recorded_law import Array, LawParameters, Points, fit, told_by

if TYPE_CHECKING:
    import pandas as pd

FILE = Path(__file__).with_name("recorded_applications.json")
FORMAT = "assay-recorded-applications/1"
# Fitted where the points tell them (`told_by`): the simulator's law; and that of a quota that slows down.
FREE_WITHOUT_BURSTS = ("cpu_ms", "cv2", "fixed_ms", "contention")
FREE = (*FREE_WITHOUT_BURSTS, "burst_periods")
SPLIT_SEED = 0
# Of the environment's payloads the one that a server's requests differ in; cost is proportional to its size, as the
# requests were drawn (a file, a basket of keys, a range of rows, words of a query).
_PAYLOADS = {"nginx": "file", "redis": "table", "mysql": "table", "search": "text"}


def recorded_applications(file: Path = FILE) -> list[Mapping[str, Any]]:
    """Parameters of the recorded servers, by the names of `applications.Segment` and a few more.

    Raises:
        InputError: the file is not what this module writes.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        applications: list[Mapping[str, Any]] = content["applications"]
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"recorded applications must be JSON with `applications`, got {error!r} ({file})") from error
    return applications


def read_points(folder: Path) -> "pd.DataFrame":
    """points.parquet of a scaling campaign, without points that gave no percentile.

    Raises:
        InputError: there is none.
    """
    import pandas as pd

    path = folder / "points.parquet"
    try:
        table = pd.read_parquet(path)
        return table[np.isfinite(table["latency_p99_ms"]) & (table["completed_per_s"] > 0)].reset_index(drop=True)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            f"scaling data must have points.parquet with latency_p99_ms, got {error} ({folder}): make it with "
            "`assay record --task autoscaling`") from error


def read_card(folder: Path) -> Mapping[str, Any]:
    """card.json of a scaling campaign. Raises InputError where there is none."""
    path = folder / "card.json"
    try:
        card: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        _ = card["settings"], card["recorded_utc"]
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"scaling data must have card.json with settings, got {error!r} ({folder})") from error
    return card


def points_of(table: "pd.DataFrame", settings: Mapping[str, Any]) -> Points:
    """The points of one server as the law takes them.

    Args:
        table: rows of points.parquet.
        settings: of the campaign, from its card.json.
    """
    def column(name: str) -> Array:
        return np.array(table[name], dtype=float)  # a copy: pandas hands out read-only views

    workers = column("workers")
    quota = np.where(np.isfinite(column("quota_cores")), column("quota_cores"), workers)
    return Points(
        rate=column("offered_per_s"), quota=quota, workers=workers, instances=column("instances"),
        load=column("planned_utilisation"), cpu_ms=1000.0 * column("cpu_cores") / column("completed_per_s"),
        p99_ms=column("latency_p99_ms"), begin_s=float(settings["warm_up_s"]), seconds=float(settings["point_s"]),
        timeout_s=float(settings["timeout_s"]))


def halves(load: Array, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Two halves of the points, each with every load: of neighbours in the order of load one goes here, one there."""
    random = np.random.default_rng(seed)
    order = np.lexsort((random.random(len(load)), load))
    swapped = random.random(len(order) // 2 + 1) < 0.5
    first = np.array([bool(swapped[place // 2]) == bool(place % 2) for place in range(len(order))], dtype=bool)
    return np.sort(order[first]), np.sort(order[~first])


def fit_application(points: "pd.DataFrame", events: "pd.DataFrame", settings: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of one server, fitted to half of its points.

    Args:
        points: its rows of points.parquet.
        events: its rows of events.parquet.
        settings: of the campaign.
    """
    every = points_of(points, settings)
    half, _ = halves(every.load, SPLIT_SEED)
    law = fit(every.take(half), FREE)
    at_rest, a_request = memory_line(points.iloc[half])
    starts = events[events["event"] == "start"]
    name = str(points["server"].iloc[0])
    return {
        "name": name, "payload": _PAYLOADS.get(name, "text"), **_rounded(vars(law)),
        "memory_mib": round(at_rest, 2), "request_mib": round(a_request, 4),
        # neither disk nor network was a limit on loopback
        "io": 0.0, "network": 0.0, "elasticity": 1.0,
        "startup_s": round(float(starts["took_s"].median()), 3),
        "warm_up_s": round(float(starts["settled_s"].median()), 2),
        "not_told": [name for name in FREE if name not in told_by(every.take(half), FREE)]}


def memory_line(points: "pd.DataFrame") -> tuple[float, float]:
    """Memory of an instance at rest and of a request in it, MiB: least squares, neither below 0."""
    from scipy.optimize import nnls

    busy = (points["in_flight"] / points["instances"]).to_numpy(dtype=float)
    used = (points["memory_mib"] / points["instances"]).to_numpy(dtype=float)
    (at_rest, a_request), _ = nnls(np.stack([np.ones_like(busy), busy], axis=1), used)
    return float(at_rest), float(a_request)


def fit_campaign(folder: Path) -> dict[str, Any]:
    """The content of recorded_applications.json for a scaling campaign in `folder`."""
    import pandas as pd

    points, events = read_points(folder), pd.read_parquet(folder / "events.parquet")
    card = read_card(folder)
    servers: Sequence[str] = list(dict.fromkeys(points["server"]))
    return {
        "format": FORMAT, "recorded_utc": card["recorded_utc"], "split_seed": SPLIT_SEED,
        "applications": [
            fit_application(points[points["server"] == name].reset_index(drop=True), events[events["server"] == name],
                            card["settings"])
            for name in servers]}


def _rounded(parameters: Mapping[str, float]) -> dict[str, float]:
    return {name: float(f"{round(value, 6):.5g}") for name, value in parameters.items()}


def main(arguments: Sequence[str]) -> int:
    """Fits and writes the file; 2 where the data cannot be used."""
    try:
        content = fit_campaign(Path(arguments[0] if arguments else "data/scaling"))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    write_file(FILE, json.dumps(content, indent=1) + "\n")
    print(f"wrote {FILE.name}")
    return 0


def law_of(application: Mapping[str, Any]) -> LawParameters:
    """The law's parameters of one of the applications."""
    return LawParameters(*(float(application[name]) for name in FREE))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
