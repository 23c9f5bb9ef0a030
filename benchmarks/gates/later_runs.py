"""How often a later run of the same recipe is rejected or promoted by luck: other seed, more data, overlapping data.

    python -m benchmarks later-runs [--repeats 6] [--series 60]

Rows are the recorded telemetry of the task `performance` (data/base), a workload at a time, in order of time. Champion
and challenger are one recipe, scikit-learn's multilayer perceptron, which differs in its seed. A quarter of the windows
is kept aside: on these one sees afterwards which of the two is better. Three ways to choose and judge, each with the
gate `champion_mse` and the comparison of mlflow.yaml:

    by seed   as it was: each run splits by its own seed, the champion is judged by all of the new test rows, and the
              gate by the means alone
    by row    a window's side is its own (feature_store/splits.py), and what the champion has seen is left out; the gate
              by the means alone
    as it is  by row, and what is worse by no more than luck explains is not rejected (models/gate_report.py)

And series of challengers against one champion that is as good, each on test rows of its own: how often at least one of
them is promoted, where each is let in on the confidence of mlflow.yaml, and where all attempts share it.
"""

import argparse
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.gates.simulated_cases import ERRORS
from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.machine import describe_machine, now_utc
from benchmarks.harness.markdown import paragraph, table
from benchmarks.harness.result_file import RESULTS, read_results, write_results
from benchmarks.harness.task_digest import with_task
from feature_store import splits
from feature_store.recorded import DEFAULT_TELEMETRY
from feature_store.splits import on_test_side
from feature_store.trained_rows import TrainedRows
from models.gate_report import evaluate_gates
from models.gates import CHAMPION, MetricGate
from models.paired_cases import Cases
from models.paired_comparison import ComparisonRule, compare
from models.tasks.task import load_task

OUTPUT = RESULTS / "later_runs.json"
REPEATS, SERIES, ATTEMPTS, ROWS = 6, 60, 40, 350
GATE = MetricGate("champion_mse", "test_mse", "smaller", 1.05, "ratio", CHAMPION, 30)  # of mlflow.yaml
# Which part of the rows, in order of time, the champion and the challenger are given.
SITUATIONS: Mapping[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "same data, other seed": ((0.0, 1.0), (0.0, 1.0)),
    "more data": ((0.0, 0.6), (0.0, 1.0)),
    "overlapping data": ((0.0, 0.7), (0.3, 1.0)),
}
WAYS = ("by seed", "by row", "as it is")
ASIDE, ASIDE_SHARE = 1_000_000, 0.25

Array = NDArray[np.float64]
Json = dict[str, Any]


@dataclass(frozen=True)
class Telemetry:
    """One workload's rows in order of time; columns: features and, last, the target."""

    rows: pd.DataFrame
    columns: tuple[str, ...]
    split_by: tuple[str, ...]
    test_share: float

    def part(self, share: tuple[float, float]) -> pd.DataFrame:
        """From one share of the rows to another."""
        low, high = (round(len(self.rows) * end) for end in share)
        return self.rows.iloc[low:high]

    def side(self, rows: pd.DataFrame, salt: int, share: float) -> NDArray[np.bool_]:
        """[rows]: whether they are among a share of the windows, another one for each salt."""
        with patch.object(splits, "SALT", salt):
            return on_test_side(rows, self.split_by, share)


def load() -> dict[str, Telemetry]:
    """By workload."""
    task, frame = load_task("performance"), pd.read_parquet(DEFAULT_TELEMETRY)
    return {name: Telemetry(
        frame[frame["workload"] == name].sort_values("window_start", kind="stable").reset_index(drop=True),
        tuple(task.telemetry_schema(name).numeric), task.split_by, task.test_share) for name in task.workloads}


def fitted(rows: pd.DataFrame, columns: tuple[str, ...], seed: int) -> Callable[[pd.DataFrame], Array]:
    """Squared errors of the recipe, trained on these rows, of any rows; in units of the scaled target."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPRegressor
    from threadpoolctl import threadpool_limits

    values = rows[list(columns)].to_numpy(dtype=np.float64)
    low, span = values.min(axis=0), np.ptp(values, axis=0)
    span = np.where(span > 0, span, 1.0)
    scaled = (values - low) / span
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # 60 epochs are the recipe
        model = MLPRegressor(hidden_layer_sizes=(32, 32), learning_rate_init=0.005, max_iter=60, tol=0.0,
                             n_iter_no_change=1000, random_state=seed).fit(scaled[:, :-1], scaled[:, -1])

    def errors(asked: pd.DataFrame) -> Array:
        new = asked[list(columns)].to_numpy(dtype=np.float64)
        predicted = model.predict(((new - low) / span)[:, :-1]) * span[-1] + low[-1]
        return np.asarray((predicted - new[:, -1]) ** 2, dtype=np.float64)

    return errors


def judged(telemetry: Telemetry, situation: str, way: str, repeat: int) -> Json:
    """What becomes of the challenger (rejected, promoted, challenger or unclaimed), and its share of the champion's
    error on the rows that were kept aside."""
    seeds = (2 * repeat, 2 * repeat + 1)
    salts = seeds if way == "by seed" else (splits.SALT, splits.SALT)
    given = [telemetry.part(share) for share in SITUATIONS[situation]]
    aside = telemetry.rows[telemetry.side(telemetry.rows, ASIDE, ASIDE_SHARE)]
    parts = [rows[~telemetry.side(rows, ASIDE, ASIDE_SHARE)] for rows in given]
    sides = [telemetry.side(rows, salt, telemetry.test_share) for rows, salt in zip(parts, salts, strict=True)]
    trained = [rows[~side] for rows, side in zip(parts, sides, strict=True)]
    champion, challenger = (fitted(rows, telemetry.columns, seed) for rows, seed in zip(trained, seeds, strict=True))
    test = parts[1][sides[1]]
    if way != "by seed":
        seen = TrainedRows.of(trained[0], telemetry.columns, telemetry.split_by, telemetry.test_share)
        test = test[~seen.among(test)]
    truth = float(challenger(aside).mean() / champion(aside).mean())
    if len(test) < GATE.least_cases:
        return {"outcome": "unclaimed", "truth": truth}
    new, old = challenger(test), champion(test)
    if not holds(new, old, paired=way == "as it is"):
        return {"outcome": "rejected", "truth": truth}
    wins = compare(new, old, "smaller", ComparisonRule().at_attempt(1)).wins
    return {"outcome": "promoted" if wins else "challenger", "truth": truth}


def holds(new: Array, old: Array, paired: bool) -> bool:
    """The gate, with the cases or on the means alone."""

    def measured(errors: Array) -> Json:
        cases = Cases("squared error", GATE.metric, "smaller", "1", tuple(errors.tolist()), "0" * 64)
        return {"metrics": {GATE.metric: cases.mean}, "case_counts": {GATE.metric: len(errors)},
                **({"cases": cases.to_json()} if paired else {})}

    return evaluate_gates(measured(new), measured(old), [GATE]).passed


def in_series(series: int) -> Json:
    """Share of series of ATTEMPTS equal challengers in which at least one is promoted."""
    simulation, rule = ERRORS["gaussian"], ComparisonRule()
    won = np.zeros((2, series), dtype=bool)
    for number in range(series):
        rng = np.random.default_rng([11, number])
        for attempt in range(1, ATTEMPTS + 1):
            pair = simulation.draw(ROWS, 0.0, rng)
            for k, used in enumerate((rule, rule.at_attempt(attempt))):
                won[k, number] |= compare(*pair, simulation.better, used, block=simulation.block).wins
    each, shared = won.mean(axis=1)
    return {"attempts": ATTEMPTS, "rows": ROWS, "series": series, "each": float(each), "shared": float(shared)}


def measure(path: Path, repeats: int, series: int, say: Callable[[str], None]) -> Json:
    """Runs every cell that is not there yet; writes after each."""
    code = with_task(load_task("performance"), *(code_digest(name, top) for name, top in (
        ("models.gate_report", "models"), ("feature_store.trained_rows", "feature_store"),
        ("benchmarks.gates.later_runs", "benchmarks.gates"))))
    known = read_results(path) or {}
    results: Json = {"format": "assay-later-runs/1", "cells": [], "repeats": repeats}

    def write() -> None:
        write_results(path, {**results, "machine": {**describe_machine(), "date": now_utc()}})

    for name, telemetry in load().items():
        for situation in SITUATIONS:
            for way in WAYS:
                wanted: Json = {"workload": name, "situation": situation, "way": way, "repeats": repeats, "code": code}
                cell = next((one for one in known.get("cells", ()) if wanted.items() <= one.items()), None)
                if cell is None:
                    cell = {**wanted, "outcomes": [judged(telemetry, situation, way, k) for k in range(repeats)]}
                    say(f"{name}, {situation}, {way}: " + ", ".join(
                        f"{one['outcome']} ({one['truth']:.2f})" for one in cell["outcomes"]))
                results["cells"].append(cell)
                write()
    old = known.get("series", {})
    same = old.get("code") == code and old.get("series") == series
    results["series"] = old if same else {"code": code, **in_series(series)}
    write()
    return results


def later_runs_table(results: Mapping[str, Any]) -> str:
    """Shares of runs that were rejected, promoted or kept, and of those of which the rows kept aside say otherwise."""
    rows = []
    for situation in SITUATIONS:
        for way in WAYS:
            found = [one for cell in results["cells"] if (cell["situation"], cell["way"]) == (situation, way)
                     for one in cell["outcomes"]]
            counts = [
                sum(one["outcome"] == "rejected" for one in found),
                sum(one["outcome"] == "rejected" and one["truth"] <= GATE.limit for one in found),
                sum(one["outcome"] == "promoted" for one in found),
                sum(one["outcome"] == "promoted" and one["truth"] >= 1 for one in found),
                sum(one["outcome"] == "challenger" for one in found),
                sum(one["outcome"] == "unclaimed" for one in found)]
            rows.append([situation, way, str(len(found)), *(f"{100 * count / len(found):.0f} %" for count in counts)])
    return table(["the later run has", "split and judged", "runs", "rejected", "wrongly", "promoted", "wrongly",
                  "stays challenger", "nothing claimed"], rows, range(2, 9))


def series_line(results: Mapping[str, Any]) -> str:
    """How often one of many equal challengers is promoted."""
    found = results["series"]
    return paragraph(
        f"Of {found['series']} series of {found['attempts']} equal challengers, each on {found['rows']} test rows of",
        f"its own, at least one was promoted in {100 * found['each']:.0f} % where each was let in at 99 %, and in",
        f"{100 * found['shared']:.0f} % where all attempts share it. {results['machine']['date'][:10]}.")


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--repeats", type=int, default=REPEATS, help="pairs of runs of each workload and situation")
    parser.add_argument("--series", type=int, default=SERIES, help="series of challengers")


def run(options: argparse.Namespace) -> None:
    """Runs every cell that is not there yet."""
    measure(options.output, options.repeats, options.series, lambda line: print(line, flush=True))
