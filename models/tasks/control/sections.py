"""Sections about a policy: its place among the rules, a day under it, what it does, its lifecycle.

Flow: pages.py hands over the evidence (evidence.py) as it was read from JSON; each function returns the parts of one
section, in words where something is not there.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from models.metrics import finite_number
from models.reporting import control_plots
from models.reporting.control_plots import FloatArray, Panel, Point
from models.reporting.document import Cell, Fold, Grid, Note, Part, Plot, Table, figures, text
from models.reporting.formatting import count, number, percent, titled
from models.reporting.plots import FULL_WIDTH
from models.reporting.reading import at, floats, items, mapping, mappings
from models.tasks.control.evidence_reading import cost_unit, interval, name_at, percent_signed
from models.tasks.pages import Claim
from models.verification.language.amounts import amount

Json = Mapping[str, Any]
OWN = ", own"
SPANS = (("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))  # units of an episode's time, in s
MOST_WORST = 3  # episodes on the first screen
MOST_MEASURES = 6  # in the table of controllers, the environment's first ones
_LEAST_POINTS = 2  # of a series


def front(evidence: Json | None, page: str) -> tuple[Part, ...]:
    """The plot, and a table of every controller."""
    names = list(mapping(evidence, "controllers"))
    if not names:
        return (Note("No controller was run in held-out episodes.", "missing"),)
    best = {name_at(evidence, "best_rule"), name_at(evidence, "best_own_rule"), "policy"}
    points = [Point(name if name in best else "", _group(name), interval(evidence, name, "violating_share"),
                    interval(evidence, name, "cost")) for name in names]
    points = [point for point in points if np.isfinite([point.share[0], point.cost[0]]).all()]
    parts: list[Part] = [Note(_saved(evidence))]
    if points:
        allowed = finite_number(at(evidence, "objective", "violating_share"))
        markup = control_plots.front(points, allowed, cost_unit(evidence), f"{page}-front")
        parts.append(Plot(markup, FULL_WIDTH, "Means over held-out episodes; bars: intervals, each end at 99 %. Rules "
                          "were tuned on the training environments, as the policy was, or to this workload."))
    parts.append(Fold(f"Every controller: {len(names)}", (_controllers(evidence, names),)))
    return tuple(parts)


def _saved(evidence: Json | None) -> str:
    metrics = mapping(evidence, "metrics")
    sentences = []
    for prefix, what in (("", "the best rule tuned on the training environments"),
                         ("own_", "the best rule tuned to this workload")):
        rule = name_at(evidence, f"best_{prefix}rule")
        saved = metrics.get(f"{prefix}cost_saved")
        if finite_number(saved) is not None:
            ends = [percent_signed(metrics.get(f"{prefix}cost_saved_{end}")) for end in ("lower", "upper")]
            sentences.append(f"Cost saved against {what} ({rule}): {percent_signed(saved)}, between {ends[0]} and "
                             f"{ends[1]}.")
    violating = f"The policy violates in {percent(metrics.get('violating_share'))} of the steps."
    return " ".join([violating, *sentences])


def _controllers(evidence: Json | None, names: Sequence[str]) -> Table:
    keys = ["cost", "violating_share", "reward"]
    measures = [name for name in mapping(evidence, "measures") if np.isfinite(interval(evidence, names[0], name)[0])]
    keys += measures[:MOST_MEASURES]
    ordered = sorted(names, key=lambda name: (name != "policy", interval(evidence, name, "cost")[0]))
    rows = tuple((Cell(name, strong=name == "policy"), *figures([_shown(evidence, name, key) for key in keys]))
                 for name in ordered)
    header = ("Controller", *(_heading(key, str(at(evidence, "measures", key) or "")) for key in keys))
    return Table(header, rows, "Every controller in the held-out episodes of this workload",
                 f"Cost: {cost_unit(evidence)}.", sortable=True)


def _heading(key: str, unit: str) -> str:
    name = {"violating_share": "violating steps"}.get(key) or titled(key, unit)
    return name[0].upper() + name[1:]


def _shown(evidence: Json | None, name: str, key: str) -> str:
    value = interval(evidence, name, key)[0]
    is_share = key == "violating_share" or at(evidence, "measures", key) == "share"
    return percent(value) if is_share and value <= 1 else number(float(f"{value:.4g}") if np.isfinite(value) else None)


def day(evidence: Json | None, page: str) -> tuple[Part, ...]:
    """Load, what is set and what came of it, under the policy and under the fallback (and the champion)."""
    found = _day(evidence)
    seconds = floats(items(found, "seconds"))
    controllers = list(mapping(found, "series"))
    usable = len(seconds) >= _LEAST_POINTS and bool(np.isfinite(seconds).all())
    panels = _day_panels(evidence, found, controllers, len(seconds)) if usable else []
    if not panels:
        return (Note("No day was recorded.", "missing"),)
    unit, one = next((unit, one) for unit, one in SPANS if seconds[-1] >= 2 * one or one == 1.0)
    markup = control_plots.time_series(seconds / one, panels, f"{page}-day", unit)
    return (Plot(markup, FULL_WIDTH, "One held-out episode: the same load and surroundings under each controller. "
                 "Shaded: the policy misses the objective."),)


def _day(evidence: Json | None) -> Json:
    """Under the champion too, where it went through the same load."""
    found, champion = mapping(evidence, "day"), mapping(evidence, "champion", "day")
    if items(champion, "seconds") != items(found, "seconds"):
        return found
    return {**found, "series": {**mapping(found, "series"), **mapping(champion, "series")}}


def _day_panels(evidence: Json | None, found: Json, controllers: Sequence[str], points: int) -> list[Panel]:
    roles, units = mapping(evidence, "roles"), mapping(found, "units")
    violated = _series(found, controllers[0], "violated") if controllers else np.empty(0)
    shade = violated > 0 if len(violated) == points else None

    def panel(key: str, levels: Mapping[str, float] | None = None, everyone: bool = True) -> Panel | None:
        shown = controllers if everyone else controllers[:1]
        lines = {name: _series(found, name, key) for name in shown}
        if not lines or not all(len(values) == points and np.isfinite(values).any() for values in lines.values()):
            return None
        return Panel(titled(key, str(units.get(key, ""))), lines, levels or {}, shade=shade)

    metric, objective = str(roles.get("metric", "")), str(roles.get("objective", ""))
    bound = _series(found, controllers[0], objective) if controllers else np.empty(0)
    middle = float(np.nanmedian(bound)) if np.isfinite(bound).any() else np.nan
    levels = {f"objective, {number(middle, str(units.get(objective, '')))}": middle} if np.isfinite(middle) else {}
    wanted = [*(panel(str(name), everyone=False) for name in items(roles, "load")),
              *(panel(str(name)) for name in mapping(roles, "present").values()), panel(metric, levels)]
    return [one for one in wanted if one is not None]


def episodes(evidence: Json | None, page: str) -> tuple[Part, ...]:
    """Differences episode by episode."""
    policy, rule = (floats(items(evidence, "episodes", f"{who}_cost")) for who in ("policy", "rule"))
    if len(policy) < _LEAST_POINTS or len(policy) != len(rule) or not (np.isfinite(policy) & (rule > 0)).all():
        return (Note("The cost of each episode was not recorded.", "missing"),)
    against = name_at(evidence, "best_rule") or "the best rule"
    markup = control_plots.differences(policy, rule, against, f"{page}-episodes")
    shares = [floats(items(evidence, "episodes", f"{who}_violating_share")) for who in ("policy", "rule")]
    worse = "" if len(shares[0]) != len(shares[1]) or not len(shares[0]) else (
        f" The policy violates more often than {against} in {percent(float((shares[0] > shares[1]).mean()))} of the "
        "episodes.")
    return (Plot(markup, FULL_WIDTH, f"{count(len(policy), 'held-out episode')}, each a variation of the workload."
                 + worse),)


def worst(evidence: Json | None) -> tuple[Part, ...]:
    """The episodes that miss the objective most, beside the best rule."""
    shares = [floats(items(evidence, "episodes", f"{who}_violating_share")) for who in ("policy", "rule")]
    if not len(shares[0]) or len(shares[0]) != len(shares[1]):
        return ()
    missed = np.nan_to_num(shares[0])
    places = [place for place in np.argsort(-missed, kind="stable")[:MOST_WORST] if missed[place] > 0]
    if not places:
        return (Note(f"None of {count(len(missed), 'held-out episode')} misses the objective."),)
    rows = tuple(figures([f"{place + 1:,}", *(percent(float(values[place])) for values in shares)])
                 for place in places)
    return (Table(("Episode", "Policy", name_at(evidence, "best_rule") or "best rule"), rows,
                  "Worst episodes: steps that miss the objective",
                  f"Of {count(len(shares[0]), 'held-out episode')}."),)


def loop_claims(evidence: Json | None) -> tuple[Claim, ...]:
    """What was proved of the closed loop under each change that was tried, or why nothing was."""
    found, words = mappings(evidence, "closed_loop", "found"), mapping(evidence, "closed_loop", "words")
    if not found:
        return (Claim("anything about the closed loop", "not tried", _untried(evidence)),)
    change, bound = (str(words.get(key, key)) for key in ("change", "bound"))
    claims = []
    for one in found:
        status, limit = str(one.get("status") or "no verdict"), finite_number(one.get("bound"))
        held = (str(one.get("reason") or one.get("statement") or "No reason was given") if limit is None else
                f"{bound.lower()} {amount(limit, _unit(one))}, for ever")
        name = f"closed loop, {change.lower()} {number(one.get('change'))} {one.get('change_unit', '')}".strip()
        claims.append(Claim(name, status, held.removesuffix("."), str(one.get("statement") or "")))
    return tuple(claims)


def _untried(evidence: Json | None) -> str:
    """Why nothing was tried of the closed loop."""
    reason = str(at(evidence, "closed_loop", "reason") or "").removesuffix(".")
    return reason or "The system has no law for it, or the limits or the specification leave no room"


def actions(evidence: Json | None, page: str) -> tuple[Part, ...]:
    """A heat map a control."""
    found = mapping(evidence, "action_map")
    x, y = (floats(items(found, side, "values")) for side in ("x", "y"))
    ratios = mapping(found, "target_over_present")
    known = all(len(side) >= _LEAST_POINTS and np.isfinite(side).all() for side in (x, y))
    if not known or not ratios:
        return (Note("No map of actions was recorded.", "missing"),)
    labels, limit, across = _map_axes(evidence, found, x)
    plots = []
    for place, (control, rows) in enumerate(ratios.items()):
        columns = [floats(items(row)) for row in items(rows)]
        ratio = np.array(columns) if len({len(one) for one in columns}) == 1 else np.empty(0)
        if ratio.shape == (len(x), len(y)) and np.isfinite(ratio).all():
            title = titled(str(control).removeprefix("target_"))
            markup = control_plots.action_map(across, y, ratio, labels, limit, title, f"{page}-map-{place}")
            plots.append(Plot(markup, control_plots.MAP_WIDTH))
    held = ", ".join(f"{name} {number(value)}" for name, value in mapping(found, "held_at").items())
    return (Grid(tuple(plots), "What the policy sets, over what is set at present; orange: less, purple: more."),
            Fold("What the other signals are held at", (Note(f"Their medians in the held-out episodes: {held}."),)))


def _map_axes(evidence: Json | None, found: Json, x: FloatArray
              ) -> tuple[tuple[str, str], tuple[str, float] | None, FloatArray]:
    """Labels, the line of the objective, and x: over the objective, where x is what the objective bounds."""
    x_label, y_label = (titled(str(at(found, side, "name")), str(at(found, side, "unit") or "")) for side in ("x", "y"))
    roles = mapping(evidence, "roles")
    objective = finite_number(at(found, "held_at", str(roles.get("objective"))))
    if objective and at(found, "x", "name") == roles.get("metric"):
        over = f"{titled(str(roles['metric']))} over {titled(str(roles['objective']))}"
        return (over, y_label), ("objective", 1.0), x / objective
    return (x_label, y_label), None, x


def closed_loop(evidence: Json | None, page: str) -> tuple[Part, ...]:
    """What is guaranteed for ever in the loop with a law, for several changes a step."""
    found = mappings(mapping(evidence, "closed_loop"), "found")
    if not found:
        return (Note(f"Nothing is guaranteed of the closed loop. {_untried(evidence)}.", "missing"),)
    rows = []
    for one in found:
        proved = finite_number(one.get("bound")) is not None
        said = [number(one.get(key)) if proved else "-" for key in ("steps", "leaves")]
        bound = amount(one["bound"], _unit(one)) if proved else "-"
        change, seconds = f"{number(one.get('change'))} {one.get('change_unit', '')}", number(one.get("seconds"), "s")
        rows.append((*figures([change]), text(str(one.get("status", "missing"))), *figures([bound, *said, seconds])))
    proved_last = [one for one in found if finite_number(one.get("bound")) is not None][-1:]
    statement = str((proved_last or found[-1:])[0].get("statement", ""))
    reasons = [str(one["reason"]) for one in found if one.get("reason")]
    words = mapping(evidence, "closed_loop", "words")
    change, bound, caption = (str(words.get(key, key.capitalize())) for key in ("change", "bound", "caption"))
    return (Note(statement, "statement"),
            Table((change, "Verdict", bound, "After steps", "Proved boxes", "Proved in"), tuple(rows), caption,
                  str(at(evidence, "closed_loop", "assumed") or "")),
            *(Note(reason) for reason in reasons))


def _unit(found: Json) -> str:
    return str(found.get("bound_unit") or "")


def lifecycle(evidence: Json | None, page: str) -> tuple[Part, ...]:
    """The stages on training episodes, and the transitions."""
    found = mapping(evidence, "lifecycle")
    stages, rewards = [str(one) for one in items(found, "stages")], floats(items(found, "rewards"))
    if len(stages) < _LEAST_POINTS or len(stages) != len(rewards):
        return (Note("No lifecycle was recorded.", "missing"),)
    profile = mapping(found, "profile")
    levels = {label: value for label, key in (("serves from", "t_serving"), ("online from", "t_online"))
              if (value := finite_number(profile.get(key))) is not None}
    markup = control_plots.lifecycle(stages, rewards, levels, f"{page}-lifecycle")
    rows = tuple((*figures([number(one.get("episode"))]),
                  *(text(str(one.get(key, "missing")).upper()) for key in ("before", "after")), text(one.get("reason")))
                 for one in mappings(found, "transitions"))
    parts: list[Part] = [Plot(markup, FULL_WIDTH, "Algorithm 5.1 on training episodes: the fallback acts until the "
                              "offline stage ends, then the policy; it serves once the mean of its recent rewards and "
                              "their deviation allow it.")]
    parts.append(Table(("Episode", "From", "To", "Why"), rows, "Transitions",
                       "Rewards of these reasons are sums over an episode.") if rows else
                 Note("It never left its first stage.", "missing"))
    return tuple(parts)


def _series(found: Json, controller: str, key: str) -> FloatArray:
    return floats(items(found, "series", controller, key))


def _group(name: str) -> str:
    return "policy" if name == "policy" else "rule, tuned to the workload" if name.endswith(OWN) else "rule"
