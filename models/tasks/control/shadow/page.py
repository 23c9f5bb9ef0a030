"""The page of a shadow: one verdict, what to do next, and what both rest on."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from models.control.contract.systems import environment_of
from models.reporting.control_plots import Panel, time_series
from models.reporting.document import (
    Badge,
    Cell,
    Document,
    Facts,
    Note,
    Part,
    Plot,
    Section,
    Table,
    figures,
    render,
    text,
)
from models.reporting.formatting import count, duration, number, percent, titled
from models.reporting.plots import FULL_WIDTH
from models.tasks.control.roles import roles
from models.tasks.control.shadow.intervals import ALIKE
from models.tasks.control.shadow.replay import AS_SET, FALLBACK, POLICY, Replayed
from models.tasks.control.shadow.shadow_log import MOST, FloatArray, ShadowLog
from models.tasks.control.shadow.verdict import doubts, has_ends, named, next_steps, span, verdict
from models.tasks.control.task import ControlTask

Found = Mapping[str, Any]
POINTS = 1500  # of a plotted series
REASONS = 12  # rows of a table


def page(found: Found, task: ControlTask, log: ShadowLog, replayed: Replayed | str, task_path: str) -> str:
    """The whole page as HTML. found: see findings.py."""
    steps, decided = next_steps(found, task_path), found["decided"]
    missed = found["measured"]["violated"][0]
    acts = len(steps) == 1 and steps[0].startswith("Let it act")
    facts = Facts((("Watched", number(found["hours"], "h"), f"from {found['started']}"),
                   ("Steps", number(found["steps"]), f"{number(found['missing_steps'])} are missing"),
                   ("The policy decided", percent(1.0 - decided["not_by_policy"]), "of the steps"),
                   ("Violating steps", percent(missed) if math.isfinite(missed) else "not known",
                    "measured, of what was set")))
    badges = (Badge(f"bundle {found['policy']}"),
              Badge("ready to act", "good") if acts else Badge("not ready to act", "open"))
    sections = (("next", "What to do next", tuple(Note(one, "good" if acts else "") for one in steps)),
                ("replay", "The same load under the policy", _replay(found)),
                ("believe", "Whether the replay can be believed", _told(found)),
                ("course", "What was set, and what would have been", _course(task, log, replayed)),
                ("decided", "Who decided, and why not the policy", _decided(found)),
                ("measured", "What was measured of what was set", _measured(found)))
    return render(Document(f"{found['task']} / {found['workload']}", "A controller in shadow: it sets nothing", badges,
                           (Note(verdict(found), "statement"), facts), tuple(Section(*one) for one in sections)))


def _said(interval: Sequence[float], unit: str) -> tuple[Cell, ...]:
    return figures([percent(max(value, 0.0)) if unit == "share" else number(value) for value in interval])


def _replay(found: Found) -> tuple[Part, ...]:
    replay, units = found["replay"], found["units"]
    if isinstance(replay, str):
        return (Note(f"Nothing was replayed: {replay}.", "missing"),)
    rows = [(Cell(f"{who} ({found['fallback']})" if who == FALLBACK else who, strong=who == POLICY),
             *figures([span(replay["saved"][who]) if who in replay["saved"] else "-", span(one["violated"], 0.0),
                       *(number(one[name][0]) for name in ("cost", "reward"))]))
            for who, one in replay["played"].items()]
    held = (f" The shadow never wanted to change {', '.join(replay['held'])}: there what was set is set again."
            if replay["held"] else "")
    return (Table(("Who sets it", "Cost saved against what was set", "Violating steps", "Cost", "Reward"), tuple(rows),
                  f"{number(replay['hours'], 'h')} of load in {count(replay['variations'], 'variation')} of the twin",
                  f"Cost: {units['cost']}. In brackets: 95 % intervals, over blocks of {duration(replay['block_s'])} "
                  "and the variations."),
            Note("Replayed is the longest stretch without a gap, less its first steps: "
                 f"{replay['left_out_steps']:,} of {found['steps']:,} steps are left out. The shield, and checks that "
                 f"hand over to the fallback, are not replayed.{held}"))


def _told(found: Found) -> tuple[Part, ...]:
    replay, units = found["replay"], found["units"]
    if isinstance(replay, str):
        return (Note(f"There is no replay: {replay}.", "missing"),)
    rows = tuple((Cell(named(name, units)), *_said(ours, units.get(name, "")), *_said(twins, units.get(name, "")),
                  Cell("apart" if name in replay["apart"] else "alike", tone="bad" if name in replay["apart"] else ""))
                 for name, (ours, twins) in replay["told"].items())
    sentences = doubts(found) or ["Under what was set twin and service are alike: nothing differs by more than its "
                                  f"intervals and {100 * ALIKE:g} %."]
    notes = tuple(Note(one) for one in sentences)
    if not rows:
        return notes
    return (*notes, Table(
        ("", "Measured", "from", "to", "Twin", "from", "to", ""), rows, "The same load under what was set",
        f"Violating steps: the mean. All else: medians of blocks of {duration(replay['block_s'])}, and their mean. "
        "With 95 % intervals."))


def _decided(found: Found) -> tuple[Part, ...]:
    decided, steps = found["decided"], found["steps"]

    def table(header: str, rows: Sequence[tuple[str, int]], caption: str, note: str = "") -> Part:
        return Table((header, "Steps", "Share"), tuple((text(what), *figures([number(times), percent(times / steps)]))
                                                       for what, times in rows[:REASONS]), caption, note)

    refused = decided["reasons"]
    others = sum(times for _, times in refused[REASONS:])
    parts = [table("Who", list(decided["actors"].items()), "Who would have acted")]
    if refused:
        more = f" And {count(others, 'step')} for other reasons." if others else ""
        parts.append(table("Why", refused, "Why it was not the policy", f"Numbers in reasons are left out.{more}"))
    parts.append(table("Control, and rule of the shield", [(f"{titled(control.removeprefix('target_'))}: {why}", times)
                                                           for control, why, times in decided["shield"]],
                       "What the shield changed") if decided["shield"] else Note("The shield changed nothing."))
    parts.append(table("Range", decided["beyond"], "Beyond what training saw, in "
                       f"{percent(decided['beyond_share'])} of the steps") if decided["beyond"] else
                 Note("No step was beyond what training saw."))
    if found["versions"] != [found["policy"]]:
        parts.append(Note(f"In the log decided: bundle {', '.join(found['versions'])}; replayed is {found['policy']}."))
    return tuple(parts)


def _measured(found: Found) -> tuple[Part, ...]:
    rows = tuple((Cell(named(name, found["units"])), *_said(interval, found["units"].get(name, "")))
                 for name, interval in found["measured"].items())
    notes = [f" {count(found['lost_records'], 'record')} of the log cannot be read."] if found["lost_records"] else []
    if found["impossible_values"]:
        notes.append(f" {count(found['impossible_values'], 'value')} that no service has (beyond {MOST:g}, or a share "
                     "beyond 0 to 1) count as not known.")
    if not all(has_ends(interval) for interval in found["measured"].values()):
        notes.append(" Where ends are missing, too few steps are known for an interval.")
    return (Table(("", "Mean", "from", "to"), rows, f"{count(found['steps'], 'step')} of {found['step_s']:.3g} s",
                  f"With 95 % intervals over blocks of {duration(found['block_s'])}: an hour, or a tenth of the run "
                  f"where that is shorter. Cost: {found['units']['cost']}, by the load up to each step; a replay knows "
                  f"all of it, so that its costs are other ones.{''.join(notes)}"),)


def _course(task: ControlTask, log: ShadowLog, replayed: Replayed | str) -> tuple[Part, ...]:
    """What is set, control by control; then the load, and what is bounded beside its objective."""
    system = environment_of(task.environment)
    role = roles(task, system, tuple(system.columns))
    grid = np.unique(np.linspace(0, log.place[-1], min(int(log.place[-1]) + 1, POINTS)).astype(int))
    hours = grid * log.step_s / 3600.0

    def on_grid(values: FloatArray, rows: Any = slice(None)) -> FloatArray:
        places = log.place[rows]
        nearest = np.minimum(np.searchsorted(places, grid), len(places) - 1)
        return np.where(places[nearest] == grid, values[nearest], np.nan)

    def twins(who: str, what: str, column: int) -> dict[str, FloatArray]:
        if isinstance(replayed, str):
            return {}
        values = getattr(replayed.played[who], what)[:, :, column]
        return {f"{'the policy in' if who == POLICY else 'as set, in'} the twin": on_grid(
            np.median(values, axis=1), replayed.rows)}

    if len(hours) < 2:
        return (Note("There are too few steps for a plot.", "missing"),)
    controls = [control.name for control in system.controls]
    set_panels = []
    for column, (name, unit) in enumerate(log.controls.items()):
        shadow = {"the shadow, from what was set": on_grid(log.would[:, column])}
        policy = (twins(POLICY, "targets", controls.index(name)) if name in controls else {}) or shadow
        set_panels.append(Panel(titled(name.removeprefix("target_"), unit), {
            **policy, "what was set": on_grid(log.targets[:, column]), **shadow}))
    seen = [Panel(titled(name, log.signals[name]), {name: on_grid(log.signal(name))}) for name in role["load"]]
    if (metric := role["metric"]) in log.signals:
        bound, column = log.last(role["objective"]), list(log.signals).index(metric)
        seen.append(Panel(titled(metric, log.signals[metric]), {
            **twins(POLICY, "observations", column), "measured": on_grid(log.signal(metric)),
            **twins(AS_SET, "observations", column)}, {f"objective, {number(bound, log.signals[metric])}": bound}))
    plots: list[Part] = [Plot(time_series(hours, set_panels, "shadow-set"), FULL_WIDTH, "In each step the shadow "
                              "decided from what others had set, so it is at most one step away from that. In the "
                              "twin the policy goes on from its own decisions; the median of the variations.")]
    if seen:
        plots.append(Plot(time_series(hours, seen, "shadow-seen"), FULL_WIDTH, "What came, and what came of it."))
    return tuple(plots)
