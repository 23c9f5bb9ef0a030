"""Tables and plot of `python -m benchmarks closed-loop-challenge`: rule and policy at equal violations."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.markdown import paragraph, table
from benchmarks.harness.svg import svg
from models.reporting.figures import BASELINE, INK, UNVERIFIED, VERIFIED, logarithmic
from systems.autoscaling.benchmarks.fronts import Front, saving
from systems.autoscaling.benchmarks.real_servers.settings import FIRST, STEP_S
from systems.autoscaling.benchmarks.real_servers.tables import NOT_MEASURED, of_kind
from systems.autoscaling.equations import LOST

SHARES = (0.01, 0.02, 0.04, 0.1)  # of violating intervals, at which costs are read; the last: where both have been
RESAMPLES = 10_000
BLOCK = 20  # intervals, five minutes: what is drawn together
_STYLES = {"rule": (UNVERIFIED, "-."), "policy": (VERIFIED, "-")}

Arm = Mapping[str, Any]


def arms_table(results: Mapping[str, Any]) -> str:
    """A row for each controller and setting, of all kinds of runs but the calibration."""
    rows = []
    for kind in ("compared", "static", "tuned"):
        found: dict[tuple[str, float], list[Arm]] = {}
        for entry in of_kind(results, kind):
            for arm in entry["arms"]:
                if not arm["arm"].startswith("candidate"):
                    found.setdefault((arm["arm"], arm["aim"]), []).append(arm)
        rows += [[kind, name + (f", aimed at {100 * aim:g} %" if aim else ""), *_cells(runs)]
                 for (name, aim), runs in sorted(found.items())]
    header = ["runs with", "controller", "runs", "intervals that violate, %", "requests in them, %", "failed, %",
              "asked for, cores", "used, cores", "instances", "gates"]
    return table(header, rows, range(2, 9))


def _cells(runs: Sequence[Arm]) -> list[str]:
    def spread(name: str, factor: float = 1.0) -> str:
        values = [factor * float(one[name]) for one in runs]
        return f"{np.mean(values):.3g} ({min(values):.3g} to {max(values):.3g})"

    gates = "" if runs[0]["arm"] != "policy" else "all hold" if all(one["promoted"] for one in runs) else "not all hold"
    return [str(len(runs)), spread("violating_share", 100), spread("violated_requests", 100),
            spread("failed_share", 100), spread("cores"), spread("used_cores"), spread("replicas_mean"), gates]


def fronts(results: Mapping[str, Any]) -> dict[str, Front]:
    """Arm -> its settings, each on the same blocks of the same loads; a load that one of them lacks is left out."""
    played: dict[str, dict[float, dict[int, Arm]]] = {}
    for entry in of_kind(results, "compared"):
        for arm in entry["arms"]:
            played.setdefault(arm["arm"], {}).setdefault(arm["aim"], {})[entry["load"]] = arm
    common = [set(runs) for aims in played.values() for runs in aims.values()]
    loads = sorted(set.intersection(*common)) if common else []
    found = {}
    for name, aims in played.items() if loads else ():
        figures = {figure: np.stack([np.concatenate([_blocks(aims[aim][load])[figure] for load in loads])
                                     for aim in sorted(aims)]) for figure in ("violated", "cost")}
        found[name] = Front(tuple(f"{100 * aim:g} %" for aim in sorted(aims)), figures)
    return found


def _blocks(arm: Arm) -> dict[str, NDArray[np.float64]]:
    """(blocks,) of violated and cost: share of violating intervals, mean cores."""
    p99, failed, quota, replicas = (np.array(arm[name][FIRST:], dtype=float)
                                    for name in ("p99_ms", "failed", "quota", "replicas"))
    violated = (p99 > arm["slo_ms"]) | (failed > LOST)
    whole = len(p99) // BLOCK * BLOCK
    return {"violated": violated[:whole].reshape(-1, BLOCK).mean(axis=1),
            "cost": (quota * replicas)[:whole].reshape(-1, BLOCK).mean(axis=1)}


def equal_violations_table(results: Mapping[str, Any]) -> str:
    """Cores that rule and policy ask for where both violate as much."""
    found = fronts(results)
    if set(found) != set(_STYLES):
        return NOT_MEASURED
    rows = []
    for share in SHARES:
        costs = [found[name].at(share) for name in ("rule", "policy")]
        saved = saving([found["policy"]], found["rule"], share)
        rows.append([f"{100 * share:g} %", *(_number(cost) for cost in costs), _percent(saved.mean),
                     f"{_percent(saved.low)} to {_percent(saved.high)}" if np.isfinite(saved.low) else "too few runs"])
    header = ["intervals that violate", "rule, cores", "policy, cores", "saved", "95 % interval"]
    return table(header, rows, range(1, len(header)))


def pairs_table(results: Mapping[str, Any]) -> str:
    """Rule and policy of one setting, under the same load at the same time: what the policy missed more, and saved."""
    pairs: dict[str, list[tuple[Arm, Arm]]] = {}
    for entry in of_kind(results, "compared"):
        rule, policy = sorted(entry["arms"], key=lambda arm: arm["arm"] != "rule")
        for name in (f"aimed at {100 * rule['aim']:g} %", "all"):
            pairs.setdefault(name, []).append((rule, policy))
    rows = []
    for name, runs in sorted(pairs.items(), key=lambda one: (one[0] == "all", one[0])):
        missed, cost = ([np.concatenate([_blocks(run[side])[figure] for run in runs]) for side in (0, 1)]
                        for figure in ("violated", "cost"))
        rows.append([name, str(len(runs)), *(f"{100 * one.mean():.3g} %" for one in missed),
                     _with_interval(lambda rule, policy: 100 * (policy.mean(-1) - rule.mean(-1)), missed, " points"),
                     _with_interval(lambda rule, policy: 100 * (1 - policy.mean(-1) / rule.mean(-1)), cost, " %")])
    return table(["setting of both", "runs", "rule missed", "policy missed", "more (95 % interval)",
                  "cores saved (95 % interval)"], rows, range(1, 6))


def _with_interval(statistic: Callable[..., NDArray[np.float64]], pair: Sequence[NDArray[np.float64]],
                   unit: str) -> str:
    """Of figures [blocks] of two arms, its value and a percentile bootstrap over blocks that both share."""
    rule, policy = pair
    drawn = np.random.default_rng(0).integers(0, len(rule), (RESAMPLES, len(rule)))
    low, high = np.percentile(statistic(rule[drawn], policy[drawn]), (2.5, 97.5))
    return f"{statistic(rule, policy):+.1f}{unit} ({low:+.1f} to {high:+.1f})"


def _number(value: float) -> str:
    return f"{value:.3f}" if np.isfinite(value) else "outside of its settings"


def _percent(value: float) -> str:
    return f"{100 * value:+.1f} %" if np.isfinite(value) else ""


def conditions_line(results: Mapping[str, Any]) -> str:
    """Objective, machine, date, how undisturbed."""
    entries, machine = results["entries"], results["machine"]
    arms = [arm for entry in entries for arm in entry["arms"]]
    objectives = sorted({arm["slo_ms"] for entry in entries if entry["kind"] != "calibration" for arm in entry["arms"]})
    busy, late = [one["load_average"] for one in entries], max(arm["lateness_ms"] for arm in arms)
    calibrated = sorted((arm["slo_ms"], arm["violating_share"]) for entry in of_kind(results, "calibration")
                        for arm in entry["arms"])
    tried = ", ".join(f"{objective:g} ms {100 * share:.3g} %" for objective, share in calibrated)
    return paragraph(
        f"Objective: {', '.join(f'{one:g} ms' for one in objectives) or 'not calibrated yet'}.",
        *([f"Of the intervals of a run the rule missed: {tried}."] if tried else []),
        f"Intervals of {STEP_S:g}",
        f"s, drawn in blocks of {BLOCK * STEP_S / 60:g} minutes. {machine['cpu_model']}, {machine['cores']} cores,",
        f"Linux {machine['kernel']}, {machine['date'][:10]}. Load average before a run {min(busy):.1f} to",
        f"{max(busy):.1f}; 99 % of the requests were sent at most {late:.2g} ms late.")


def draw(results: Mapping[str, Any], path: Path) -> None:
    """The first two runs, rule and policy side by side: load, p99, instances, cores that are asked for."""
    entries = of_kind(results, "compared")[:2]
    if not entries:
        return
    with svg(path, 9.8, 7.6) as figure:
        grid = figure.subplots(4, len(entries), sharex=True, squeeze=False)
        for column, entry in enumerate(entries):
            load, latency, instances, cores = grid[:, column]
            arms, slo_ms = entry["arms"], entry["arms"][0]["slo_ms"]
            minutes = (np.arange(len(arms[0]["rate"])) + 0.5) * STEP_S / 60.0
            load.set_title(f"run {entry['run'] + 1}")
            load.plot(minutes, arms[0]["rate"], color=INK, drawstyle="steps-mid")
            for arm in arms:
                colour, dash = _STYLES[arm["arm"]]
                asked = np.array(arm["quota"]) * np.array(arm["replicas"])
                for axes, values in ((latency, arm["p99_ms"]), (instances, arm["ready"]), (cores, asked)):
                    axes.plot(minutes, values, color=colour, linestyle=dash, label=arm["arm"])
            latency.axhline(slo_ms, color=INK, linewidth=0.8)
            latency.annotate("objective", (minutes[-1], slo_ms), xytext=(0, 3), textcoords="offset points", ha="right",
                             fontsize=8)
            seen = [value for arm in arms for value in arm["p99_ms"] if value is not None]
            logarithmic(latency, "y", min(seen), max(*seen, 1.2 * slo_ms))
            for axes, label in ((load, "requests a second"), (latency, "p99, ms"), (instances, "instances that serve"),
                                (cores, "asked for, cores")):
                axes.set_ylabel(label if column == 0 else "")
                axes.axvspan(0, FIRST * STEP_S / 60.0, color=BASELINE, alpha=0.12)
                if axes is not latency:
                    axes.set_ylim(bottom=0)
            cores.set_xlabel("minutes of load (shaded: not counted)")
            cores.legend(loc="upper right", fontsize=8)
