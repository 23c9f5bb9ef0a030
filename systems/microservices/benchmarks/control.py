"""The generic policy beside the rules, on applications that nobody was tuned on (control/generic_policies.py).

    python -m benchmarks microservices-policies [--seeds 3]

As section 3.3 measures FIRM: how long an objective stays missed once it is, seconds that violate, CPU that is asked
for, requests that are dropped.
"""

from collections.abc import Mapping
from functools import partial
from statistics import fmean, mode
from typing import Any

from benchmarks.control import default_runs
from benchmarks.control.generic_policies import POLICY, add_seeds, measure, output_of
from benchmarks.harness.markdown import mean_and_spread, paragraph, table
from systems.microservices.interface import STEP_SECONDS

OUTPUT, add_options, run = output_of("microservices"), add_seeds, partial(measure, "microservices")


def _figures(results: Mapping[str, Any], name: str, figure: str) -> list[float]:
    """Of a controller, by seed."""
    return [one["controllers"][name][figure][0] for one in results["entries"]]


def _seconds(results: Mapping[str, Any], name: str) -> list[float]:
    """How long an objective stays missed, by seed: seconds that miss it over those that begin to."""
    both = zip(_figures(results, name, "missed"), _figures(results, name, "begins"), strict=True)
    return [STEP_SECONDS * missed / begins if begins else 0.0 for missed, begins in both]


def headline(results: Mapping[str, Any], runs: Mapping[str, Any]) -> tuple[str, str]:
    """Of the policy and of the rule that most seeds find best: CPU, and how long an objective stays missed; verdicts of
    the default run."""
    rule = mode(one["best_rule"] for one in results["entries"])
    of_policy, of_rule = (
        f"{100 * fmean(_figures(results, name, 'limits')):.0f} % of the node's cores set, an objective held again "
        f"after {fmean(_seconds(results, name)):.1f} s" for name in (POLICY, rule))
    return f"{of_policy}; the rule {rule}: {of_rule}", default_runs.verdict_of(runs, "microservices")


def mitigation_table(results: Mapping[str, Any]) -> str:
    """A row a controller, the soonest first."""
    entries, of, seconds = results["entries"], partial(_figures, results), partial(_seconds, results)
    rows = [[f"**{name}**" if name == POLICY else name, mean_and_spread(seconds(name), 1),
             mean_and_spread(of(name, "begins"), 1, 60.0 / STEP_SECONDS),
             f"{mean_and_spread(of(name, 'missed'), 2, 100.0)} %", mean_and_spread(of(name, "limits"), 3),
             f"{mean_and_spread(of(name, 'usage'), 1, 100.0)} %", f"{mean_and_spread(of(name, 'dropped'), 2, 100.0)} %"]
            for name in sorted(entries[0]["controllers"], key=lambda name: sum(seconds(name)))]
    columns = ("controller", "s until it holds again", "misses a minute", "seconds that miss",
               "CPU asked for, of the node", "of it used", "requests dropped")
    return "\n".join([
        table(columns, rows, range(1, 7)), "",
        paragraph(f"Means of {len(entries)} seeds of training and tuning ± their standard deviation, "
                  f"{entries[0]['episodes']} held-out episodes each, the same for all. Dropped: at the service that "
                  "drops most.")])
