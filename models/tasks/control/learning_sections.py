"""Sections about how a policy came about: pretraining, its place among the rules then, adaptation to the workload.

Flow: as of sections.py. Sources: thesis, Figure 5.8 (adaptation), Table 5.3 (early training).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from models.metrics import finite_number
from models.reporting import control_plots
from models.reporting.control_plots import Panel, Point
from models.reporting.document import Note, Part, Plot, Table, figures, text
from models.reporting.formatting import count, percent
from models.reporting.plots import FULL_WIDTH
from models.reporting.reading import at, column, mapping, mappings
from models.tasks.control.evidence_reading import cost_unit, interval, name_at, percent_signed

Json = Mapping[str, Any]
CURVES = (("reward", "reward a step"), ("cost", "cost"), ("violating_share", "violating steps"))
QUARTERS = ("first quarter", "second", "third", "last")
_LEAST_POINTS = 2  # of a curve


def pretraining(evidence: Json | None, page: str) -> tuple[Part, ...]:
    """Curves over randomised environments, and the policies of the end among the rules on held-out ones."""
    allowed = finite_number(at(evidence, "objective", "violating_share"))
    levels = {} if allowed is None else {"violating_share": {f"allowed, {percent(allowed)}": allowed}}
    curves = _curves(evidence, ("training", "pretraining", "history"), levels, f"{page}-pretraining",
                     "The generic policies: training episodes of randomised environments, judged every few rounds; "
                     "means over those that were trained.")
    return (*_by(evidence), *curves, *generic_front(evidence, f"{page}-generic"))


def _by(evidence: Json | None) -> tuple[Part, ...]:
    """The method, and how much others did that it learned from."""
    found = mapping(evidence, "training", "pretraining")
    name, steps = name_at(found, "method"), finite_number(found.get("experience"))
    if not name:
        return ()
    watched = "" if steps is None else f" It learned from {steps:,.0f} steps of the fallback and never acted."
    return (Note(f"Method: {name.replace('_', ' ')}.{watched}"),)


def generic_front(evidence: Json | None, name: str) -> tuple[Part, ...]:
    """Every policy that was trained, each for a share of violating steps of its own, and the rules."""
    found = mapping(evidence, "training", "pretraining", "held_out")
    best = name_at(found, "best_rule")
    rules = [Point(rule if rule == best else "", "rule", interval(found, rule, "violating_share"),
                   interval(found, rule, "cost")) for rule in mapping(found, "controllers") if rule != "policy"]
    trained = [Point("", "policy", (share, np.nan, np.nan), (cost, np.nan, np.nan))
               for share, cost in zip(*(column(mappings(found, "front"), key) for key in ("violating_share", "cost")),
                                      strict=True)]
    kept = Point("policy", "policy", interval(found, "policy", "violating_share"), interval(found, "policy", "cost"))
    points = [point for point in (*rules, *trained, kept) if np.isfinite([point.share[0], point.cost[0]]).all()]
    if not points:
        return (Note("The generic policy was not judged on held-out environments.", "missing"),)
    metrics = mapping(found, "metrics")
    saved, low, high = (percent_signed(metrics.get(f"cost_saved{end}")) for end in ("", "_lower", "_upper"))
    plot = control_plots.front(points, finite_number(at(evidence, "objective", "violating_share")), cost_unit(evidence),
                               name)
    violating = percent(metrics.get("violating_share"))
    return (Plot(plot, FULL_WIDTH, "Held-out environments. Each policy was trained for a share of violating steps of "
                 "its own; the one that stays is named. Bars: intervals, each end at 99 %."),
            Note(f"On held-out environments the generic policy violates in {violating} of the steps. Cost saved "
                 f"against the best rule ({best or 'none'}): {saved}, between {low} and {high}."))


def adaptation(evidence: Json | None, page: str) -> tuple[Part, ...]:
    """Curves in the workload's own environment beside the fallback (thesis, Figure 5.8 and Table 5.3)."""
    fallback, score = name_at(evidence, "fallback", "name"), mapping(evidence, "fallback", "score")
    levels = {key: {f"{fallback}, tuned to it": value} for key, _ in CURVES
              if (value := finite_number(score.get(key))) is not None}
    curves = _curves(evidence, ("training", "history"), levels, f"{page}-adaptation",
                     "From the generic policy on, in the twin of this workload: training episodes, judged every few "
                     "rounds.")
    steps = finite_number(at(evidence, "training", "experience"))
    learned = () if steps is None else (Note(f"It learned from {steps:,.0f} steps that others took."),)
    return (*learned, *curves, *_early(mappings(evidence, "training", "history"), score, fallback),
            Note(_taken(evidence)))


def _curves(evidence: Json | None, keys: Sequence[str], levels: Mapping[str, Mapping[str, float]], name: str,
            caption: str) -> tuple[Part, ...]:
    history = mappings(evidence, *keys)
    rounds = column(history, "epoch")
    known = np.isfinite(rounds)
    if known.sum() < _LEAST_POINTS:
        return (Note("No curve was recorded.", "missing"),)
    panels = [Panel(label, {"policy": column(history, key)[known]}, levels.get(key, {}), share=key == "violating_share")
              for key, label in CURVES]
    unit = f" Cost: {cost_unit(evidence)}." if cost_unit(evidence) else ""
    return (Plot(control_plots.learning_curves(rounds[known], panels, name), FULL_WIDTH, caption + unit),)


def _early(history: Sequence[Json], score: Json, fallback: str) -> tuple[Part, ...]:
    """What the policy lost to the fallback while it adapted, quarter by quarter, and how soon it was there."""
    if len(history) < len(QUARTERS) or not score:
        return ()
    rows = []
    for key, label in CURVES:
        reference, values = finite_number(score.get(key)), column(history, key)
        quarters = [part[np.isfinite(part)] for part in np.array_split(values, len(QUARTERS))]
        if reference is None or not all(len(part) for part in quarters):
            continue
        means = [float(part.mean()) for part in quarters]
        if key == "violating_share":
            shown = [f"{mean / reference:.2g} times" if reference > 0 else percent(mean) for mean in means]
        else:
            shown = [f"{100 * (mean - reference) / abs(reference):+.1f}\N{NO-BREAK SPACE}%" if reference else ""
                     for mean in means]
        rows.append((text(label[0].upper() + label[1:]), *figures(shown)))
    if not rows:
        return ()
    return (Table(("Against the fallback", *QUARTERS), tuple(rows), f"Early training, against {fallback} (Table 5.3)",
                  f"Means over the judgements of a quarter.{_soon(history)} All of it is lost in the twin, not in "
                  "production: a policy acts only after its proof and its gates."),)


def _soon(history: Sequence[Json]) -> str:
    """After how many rounds 95 % of the way to the last reward were gone."""
    rounds, rewards = column(history, "epoch"), column(history, "reward")
    if not (np.isfinite(rounds) & np.isfinite(rewards)).all() or rewards[-1] <= rewards[0]:
        return ""
    there = int(np.argmax(rewards >= rewards[0] + 0.95 * (rewards[-1] - rewards[0])))
    return f" 95 % of the gain in reward were there after {count(int(rounds[there]), 'round')}."


def _taken(evidence: Json | None) -> str:
    training = mapping(evidence, "training")
    taken, reason = training.get("taken"), training.get("reason")
    if not taken:
        return "Which policy was taken was not recorded."
    which = {"generic": "The generic policy ships", "finetuned": "The fine-tuned policy ships"}
    early = training.get("stopped") or at(evidence, "training", "pretraining", "stopped")
    stopped = f" Training stopped early: {early}; the best weights until then count." if early else ""
    return f"{which.get(str(taken), str(taken))}: {reason}.{stopped}"
