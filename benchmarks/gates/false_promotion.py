"""How often a model that is no better would replace the champion, and how often a better one would not.

    python -m benchmarks false-promotion [--repeats 1000]

Simulated are the errors of a champion and of a challenger on the same test rows: one part of each error is the target's
own noise, which both share, the other is the model's own; both parts have the same variance. An equal challenger's own
part has the champion's variance; of one that is 5 % (20 %) better it is smaller by so much that its mean squared error
is 5 % (20 %) lower. models/paired_comparison.py decides with the defaults of mlflow.yaml, as a registration does.
Resumable: a cell that is there for the same code and number of repeats is kept.
"""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.machine import describe_machine, now_utc
from benchmarks.harness.markdown import paragraph, table
from benchmarks.harness.result_file import RESULTS, read_results, write_results
from models.paired_comparison import ComparisonRule, compare

OUTPUT = RESULTS / "false_promotion.json"
ROWS = (35, 100, 350, 1000, 5000)
IMPROVEMENTS = (0.0, 0.05, 0.2)
REPEATS, REPEATS_BETTER = 1000, 400
PERSISTENCE = 0.9  # of the autocorrelated errors: correlation of neighbouring windows
TEST_SHARE = 0.2
WARM_UP = 200  # windows, after which the first error is forgotten
TAIL = 3  # degrees of freedom: squared errors have no variance
STALL = 1.5  # standard deviation of the logarithm of an error's size

Array = NDArray[np.float64]
Noise = Callable[[int, np.random.Generator], Array]


def gaussian(rows: int, rng: np.random.Generator) -> Array:
    return rng.normal(size=rows)


def heavy_tailed(rows: int, rng: np.random.Generator) -> Array:
    return rng.standard_t(TAIL, rows) / np.sqrt(TAIL / (TAIL - 2))


def stalls(rows: int, rng: np.random.Generator) -> Array:
    return rng.normal(size=rows) * np.exp(STALL * rng.normal(size=rows) - STALL**2)


def every_window(rows: int, rng: np.random.Generator) -> Array:
    steps = rng.normal(size=rows + WARM_UP) * np.sqrt(1 - PERSISTENCE**2)
    return np.asarray(lfilter([1.0], [1.0, -PERSISTENCE], steps)[WARM_UP:])


def split_windows(rows: int, rng: np.random.Generator) -> Array:
    """As the split by windows leaves them: each is a test row with probability TEST_SHARE. Both models' are the same
    windows, and their gaps are drawn from the number of rows alone."""
    gaps = np.random.default_rng(rows).geometric(TEST_SHARE, rows)
    at = np.cumsum(gaps)
    return every_window(int(at[-1]) + 1, rng)[at]


ERRORS: dict[str, tuple[Noise, str]] = {
    "gaussian": (gaussian, "Gaussian"),
    "heavy_tailed": (heavy_tailed, "heavy-tailed (Student's t, 3 degrees of freedom)"),
    "stalls": (stalls, "stalls (Gaussian, size log-normal with 1.5)"),
    "split_windows": (split_windows, "autocorrelated, 0.9 from window to window, a fifth of them test rows"),
    "every_window": (every_window, "autocorrelated, 0.9 from test row to test row"),
}


def squared_errors(noise: Noise, rows: int, improvement: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """(rows,) each: the challenger's and the champion's."""
    shared, own, other = (noise(rows, rng) for _ in range(3))
    return (shared + np.sqrt(1 - 2 * improvement) * other) ** 2, (shared + own) ** 2


def promoted_share(kind: str, rows: int, improvement: float, repeats: int) -> float:
    """Share of the repeats in which the challenger would replace the champion."""
    rng = np.random.default_rng([list(ERRORS).index(kind), rows, round(1000 * improvement)])
    noise, rule = ERRORS[kind][0], ComparisonRule()
    won = [compare(*squared_errors(noise, rows, improvement, rng), "smaller", rule).wins for _ in range(repeats)]
    return float(np.mean(won))


def measure(path: Path, repeats: int, repeats_better: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Runs every cell that is not there yet; writes after each."""
    code = code_digest("models.paired_comparison", "models")
    known = read_results(path) or {}
    kept = [cell for cell in known.get("cells", []) if cell["code"] == code]
    results: dict[str, Any] = {"format": "assay-false-promotion/1", "cells": [], "rule": vars(ComparisonRule())}
    for kind in ERRORS:
        for improvement in IMPROVEMENTS:
            for rows in ROWS:
                wanted = {"errors": kind, "rows": rows, "improvement": improvement, "code": code,
                          "repeats": repeats_better if improvement else repeats}
                cell = next((one for one in kept if wanted.items() <= one.items()), None)
                if cell is None:
                    cell = {**wanted, "promoted": promoted_share(kind, rows, improvement, wanted["repeats"])}
                    say(f"{kind}, {rows} rows, {improvement:.0%} better: promoted {cell['promoted']:.1%}")
                results["cells"].append(cell)
                write_results(path, {**results, "machine": {**describe_machine(), "date": now_utc()}})
    return results


def equal_table(results: Mapping[str, Any]) -> str:
    """Share of equal models that would be promoted."""
    return _table(results, 0.0, lambda share: f"{100 * share:.1f} %")


def missed_table(results: Mapping[str, Any]) -> str:
    """Share of models that are 5 % better and would not be promoted."""
    return _table(results, 0.05, lambda share: f"{100 * (1 - share):.0f} %")


def missed_more_table(results: Mapping[str, Any]) -> str:
    """Share of models that are 20 % better and would not be promoted."""
    return _table(results, 0.2, lambda share: f"{100 * (1 - share):.0f} %")


def conditions_line(results: Mapping[str, Any]) -> str:
    """Repeats, rule and machine."""
    if not results.get("cells"):
        return "*Not measured yet.*"
    repeats = {bool(cell["improvement"]): cell["repeats"] for cell in results["cells"]}
    rule = results["rule"]
    return paragraph(
        f"{repeats[False]:,} simulated pairs a cell with equal models, {repeats[True]:,} with better ones;",
        f"minimum_improvement {rule['minimum_improvement']:g}, confidence {rule['confidence']:g}.",
        f"{results['machine']['date'][:10]}.")


def _table(results: Mapping[str, Any], improvement: float, show: Callable[[float], str]) -> str:
    found = {(cell["errors"], cell["rows"]): cell["promoted"] for cell in results.get("cells", ())
             if cell["improvement"] == improvement}
    if not found:
        return "*Not measured yet.*"
    counts = sorted({rows for _, rows in found})
    rows = [[label, *(show(found[kind, count]) if (kind, count) in found else "" for count in counts)]
            for kind, (_, label) in ERRORS.items()]
    return table(["errors", *(f"{count:,} test rows" for count in counts)], rows, range(1, len(counts) + 1))


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--repeats", type=int, default=REPEATS, help="simulated pairs of equal models a cell")
    parser.add_argument("--repeats-better", type=int, default=REPEATS_BETTER, help="of a better challenger")


def run(options: argparse.Namespace) -> None:
    """Runs every cell that is not there yet."""
    measure(options.output, options.repeats, options.repeats_better, lambda line: print(line, flush=True))
