"""How often a model that is no better would replace the champion, and how often a better one would not.

    python -m benchmarks false-promotion [--repeats 500] [--repeats-better 200]

Simulated are the paired cases of a champion and of a challenger (simulated_cases.py): squared errors of test rows, and
rewards of episodes, which are negative and have heavy tails; and two autoscalers are run in a workload's environment
many times (autoscaled_cases.py). models/paired_comparison.py decides with the defaults of
mlflow.yaml, as a registration does. Three more parts are for decision 11: what the margin of a reward should be a share
of (the same pairs with the reward's zero moved, and with other shares of the spread), and how long blocks should be.
Resumable: a cell that is there for the same code and number of repeats is kept.
"""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.gates import autoscaled_cases
from benchmarks.gates.simulated_cases import ERRORS, FAMILIES, REWARDS, Simulation, Traded
from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.columns import columns_table, left, percent, right
from benchmarks.harness.machine import describe_machine, now_utc
from benchmarks.harness.markdown import paragraph
from benchmarks.harness.result_file import RESULTS, read_results, write_results
from benchmarks.harness.task_digest import with_task
from models import paired_comparison
from models.paired_comparison import ComparisonRule, compare
from models.tasks.task import load_task

OUTPUT = RESULTS / "false_promotion.json"
CASES = (35, 100, 350, 1000, 5000)
IMPROVEMENTS = (0.0, 0.05, 0.2)
REPEATS, REPEATS_BETTER = 500, 200
DAYS = 125  # repeats of each workload
MARGIN_KIND, MARGIN_CASES = "student_t", 1000
SHARES = (0.0, 0.01, 0.05, 0.1)  # of the champion's spread
ZEROS = (0.0, 1.0, 10.0, 100.0)  # how far the reward's mean lies below zero, in spreads
BLOCKS_KIND, BLOCKS_CASES = "sequence", (35, 100, 350, 1000)
# Length of a block in lengths of Politis and White, and the fewest blocks: theirs, and what is used.
BLOCKS = ((1, 4), (paired_comparison.LENGTHENED, paired_comparison.FEWEST_CORRELATED_BLOCKS))

Json = dict[str, Any]


def promoted_share(simulation: Simulation, cases: int, improvement: float, repeats: int) -> float:
    """Share of the repeats in which the challenger would replace the champion."""
    rng = np.random.default_rng([simulation.number, cases, round(1000 * improvement)])
    rule = ComparisonRule()
    won = [compare(*simulation.draw(cases, improvement, rng), simulation.better, rule, block=simulation.block).wins
           for _ in range(repeats)]
    return float(np.mean(won))


def margins(repeats: int) -> list[Json]:
    """Share of promoted challengers where the margin is a share of the champion's spread, or 1 % of its mean's size."""
    simulation, found = REWARDS[MARGIN_KIND], []
    for improvement in IMPROVEMENTS:
        rng = np.random.default_rng([7, round(1000 * improvement)])
        ends, spreads, means = [], [], []
        for _ in range(repeats):
            challenger, champion = simulation.draw(MARGIN_CASES, improvement, rng)
            result = compare(challenger, champion, simulation.better, ComparisonRule(), block=simulation.block)
            ends.append(result.lower_end)
            spreads.append(champion.std())
            means.append(champion.mean())
        end, spread, mean = (np.array(values) for values in (ends, spreads, means))
        level = mean.mean()  # moved, so that the mean lies `zero` spreads below zero
        found.append({
            "improvement": improvement, "repeats": repeats,
            "of_spread": {str(share): float((end > share * spread).mean()) for share in SHARES},
            "of_mean": {str(zero): float((end > 0.01 * np.abs(mean - level - zero)).mean()) for zero in ZEROS}})
    return found


def block_lengths(repeats: int) -> list[Json]:
    """Share of equal models that would be promoted, with blocks of several lengths."""
    found = []
    for length, fewest in BLOCKS:
        with patch.multiple(paired_comparison, LENGTHENED=length, FEWEST_CORRELATED_BLOCKS=fewest):
            found += [{"length": length, "fewest": fewest, "cases": cases,
                       "promoted": promoted_share(REWARDS[BLOCKS_KIND], cases, 0.0, repeats)} for cases in BLOCKS_CASES]
    return found


def code_of_autoscalers() -> str:
    """Digest of what their part depends on."""
    return with_task(load_task("autoscaling"), code_digest("benchmarks.gates.autoscaled_cases", ""),
                     code_digest("systems.autoscaling.environment", ""))


def code_of_decision_and_simulation() -> str:
    """Digest of what a cell depends on."""
    return (code_digest("models.paired_comparison", "models")
            + code_digest("benchmarks.gates.simulated_cases", "benchmarks"))


def measure(path: Path, repeats: int, repeats_better: int, say: Callable[[str], None], days: int = DAYS) -> Json:
    """Runs every cell that is not there yet; writes after each."""
    code = code_of_decision_and_simulation()
    known = read_results(path) or {}
    kept = [cell for cell in known.get("cells", []) if cell.get("code") == code]
    results: Json = {"format": "assay-false-promotion/2", "cells": [], "rule": vars(ComparisonRule())}

    def write() -> None:
        write_results(path, {**results, "machine": {**describe_machine(), "date": now_utc()}})

    for family, simulations in FAMILIES.items():
        for kind, simulation in simulations.items():
            for improvement in IMPROVEMENTS[:1] if isinstance(simulation, Traded) else IMPROVEMENTS:
                for cases in CASES:
                    wanted: Json = {"family": family, "kind": kind, "cases": cases, "improvement": improvement,
                                    "code": code, "repeats": repeats_better if improvement else repeats}
                    cell = next((one for one in kept if wanted.items() <= one.items()), None)
                    if cell is None:
                        cell = {**wanted, "promoted": promoted_share(simulation, cases, improvement, wanted["repeats"])}
                        say(f"{family}, {kind}, {cases} cases, {improvement:.0%} better: {cell['promoted']:.1%}")
                    results["cells"].append(cell)
                    write()

    def autoscalers(count: int) -> list[Json]:
        return autoscaled_cases.measure(count, say)

    for part, work, count, own in (("margins", margins, repeats_better, code), ("blocks", block_lengths, repeats, code),
                                   ("autoscalers", autoscalers, days, code + code_of_autoscalers())):
        old = known.get(part, {})
        same = old.get("code") == own and old.get("repeats") == count
        results[part] = old if same else {"code": own, "repeats": count, "rows": work(count)}
        write()
    return results


def equal_table(family: str) -> Callable[[Mapping[str, Any]], str]:
    """Share of equal models that would be promoted."""
    return lambda results: _table(results, family, 0.0, percent(1))


def missed_table(family: str, improvement: float) -> Callable[[Mapping[str, Any]], str]:
    """Share of models that are better by that share and would not be promoted."""
    return lambda results: _table(results, family, improvement, lambda share: f"{100 * (1 - share):.0f} %")


def conditions_line(results: Mapping[str, Any]) -> str:
    """Repeats, rule and machine."""
    repeats = {bool(cell["improvement"]): cell["repeats"] for cell in results["cells"]}
    rule = results["rule"]
    return paragraph(
        f"{repeats[False]:,} simulated pairs a cell with equal models, {repeats[True]:,} with better ones;",
        f"minimum_improvement {rule['minimum_improvement']:g}, minimum_improvement_of_spread",
        f"{rule['minimum_improvement_of_spread']:g}, confidence {rule['confidence']:g}.",
        f"{results['machine']['date'][:10]}.")


def margin_table(results: Mapping[str, Any]) -> str:
    """Share of promoted challengers by the share of the champion's spread that is asked."""
    return _margin_table(results, "of_spread", "share of the spread", lambda share: f"{100 * float(share):g} %")


def zero_table(results: Mapping[str, Any]) -> str:
    """Share of promoted challengers where 1 % of the mean is asked, by where the reward's zero lies."""
    return _margin_table(results, "of_mean", "mean reward, in spreads", lambda zero: f"{-float(zero) + 0.0:g}")


def block_table(results: Mapping[str, Any]) -> str:
    """Share of equal models that would be promoted, by the length of the blocks."""
    found = {(row["length"], row["fewest"], row["cases"]): row["promoted"] for row in results["blocks"]["rows"]}
    return columns_table(
        BLOCKS, left("lengths of Politis and White", lambda block: f"{block[0]}, at least {block[1]} blocks"),
        *(right(f"{cases:,} episodes", lambda block, cases=cases: found[*block, cases], percent(1))
          for cases in BLOCKS_CASES))


def autoscaler_table(results: Mapping[str, Any]) -> str:
    """Share of autoscalers that are promoted, by how much better they are."""
    return columns_table(
        results["autoscalers"]["rows"], left("luck of", "luck"), left("compared by", "figure"),
        left("the challenger is", "improvement", _better), right("replaces the champion", "promoted", percent(1)),
        right("passes a gate that asks for a saving", "gate", percent(1)))


def _margin_table(results: Mapping[str, Any], key: str, label: str, show: Callable[[str], str]) -> str:
    rows = results["margins"]["rows"]
    return columns_table(rows[0][key], right(label, str, show), *(
        right(_better(row["improvement"]), row[key].__getitem__, percent(1)) for row in rows))


def _better(improvement: float) -> str:
    return f"{100 * improvement:g} % better" if improvement else "equal"


def _table(results: Mapping[str, Any], family: str, improvement: float, show: Callable[[float], str]) -> str:
    found = {(cell["kind"], cell["cases"]): cell["promoted"] for cell in results["cells"]
             if cell["improvement"] == improvement and cell["family"] == family}
    kinds = [kind for kind in FAMILIES[family] if any(kind == other for other, _ in found)]
    what = "test rows" if FAMILIES[family] is ERRORS else "episodes"
    return columns_table(kinds, left(family, lambda kind: FAMILIES[family][kind].label), *(
        right(f"{count:,} {what}", lambda kind, count=count: found.get((kind, count)), show)
        for count in sorted({cases for _, cases in found})))


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--repeats", type=int, default=REPEATS, help="simulated pairs of equal models a cell")
    parser.add_argument("--repeats-better", type=int, default=REPEATS_BETTER, help="of a better challenger")
    parser.add_argument("--days", type=int, default=DAYS, help="repeats of each workload, for two autoscalers")


def run(options: argparse.Namespace) -> None:
    """Runs every cell that is not there yet."""
    measure(options.output, options.repeats, options.repeats_better, lambda line: print(line, flush=True),
            options.days)
