"""Tables of `python -m benchmarks closed-loop`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.markdown import NOT_MEASURED, number, paragraph, table
from systems.autoscaling.benchmarks.real_servers.settings import FIRST, SLO_MS

Array = NDArray[np.float64]
Entry = Mapping[str, Any]
FIRST_MINUTES = 12  # intervals from nothing: three minutes


def of_kind(results: Mapping[str, Any], kind: str) -> list[Entry]:
    """Runs of a kind, in order."""
    return [one for one in results.get("entries", ()) if one["kind"] == kind]


def arms_of(entries: Sequence[Entry]) -> dict[str, dict[str, list[Mapping[str, Any]]]]:
    """Server -> arm -> its runs, in order."""
    found: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for entry in entries:
        for arm in entry["arms"]:
            found.setdefault(entry["server"], {}).setdefault(arm["arm"], []).append(arm)
    order = {"static": 0, "policy": 2}
    return {server: dict(sorted(arms.items(), key=lambda item: order.get(item[0], 1)))
            for server, arms in found.items()}


def compared_table(results: Mapping[str, Any]) -> str:
    """A row for each server and controller."""
    return _arms_table(of_kind(results, "compared"))


def suspect_table(results: Mapping[str, Any]) -> str:
    """The same of policies that should not act."""
    return _arms_table(of_kind(results, "suspect"))


def _arms_table(entries: Sequence[Entry]) -> str:
    rows = [[server, name, *_cells(runs)] for server, arms in arms_of(entries).items() for name, runs in arms.items()]
    header = ["server", "controller", "runs", "intervals that violate, %", "requests in them, %", "quota, cores",
              "used, cores", "reward a step", "shield changed, steps", "fallback acted, steps"]
    return table(header, rows, range(2, len(header)))


def _cells(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    def spread(name: str, factor: float = 1.0) -> str:
        values = [factor * float(one[name]) for one in runs]
        return f"{np.mean(values):.3g} ({min(values):.3g} to {max(values):.3g})"

    steps = [step for one in runs for step in one["steps"][FIRST - 1:]]
    alone = all(step["reason"] == "the rule acts alone" for step in steps)
    fallback = "-" if alone else f"{sum(step['actor'] == 'fallback' for step in steps)} of {len(steps)}"
    return [str(len(runs)), spread("violating_share", 100), spread("violated_requests", 100), spread("cores"),
            spread("used_cores"), spread("reward"), f"{sum(bool(step['shield']) for step in steps)} of {len(steps)}",
            fallback]


def shield_table(results: Mapping[str, Any]) -> str:
    """What the shield changed, by who had said it and which of its rules did."""
    rows = []
    for kind in ("compared", "suspect"):
        for server, arms in arms_of(of_kind(results, kind)).items():
            for name, runs in arms.items():
                changes = [change for one in runs for step in one["steps"][FIRST - 1:] for change in step["shield"]]
                for reason in sorted({change["reason"] for change in changes}):
                    cut = [change["wanted"] - change["allowed"] for change in changes if change["reason"] == reason]
                    rows.append([server, name, reason.replace("_", "-"), str(len(cut)),
                                 str(sum(one > 0 for one in cut)), str(sum(one < 0 for one in cut)),
                                 number(float(np.median(np.abs(cut))))])
    header = ["server", "controller", "rule of the shield", "changes", "less than wanted", "more than wanted",
              "median change, cores"]
    return table(header, rows, range(3, 7)) if rows else "*The shield changed nothing.*"


def forecast_table(results: Mapping[str, Any]) -> str:
    """How far the environment's forecast of each interval is off, and of the first minutes."""
    rows = []
    for server, arms in arms_of(of_kind(results, "compared")).items():
        for name, runs in arms.items():
            pairs = list(_pairs(runs))
            measured, told = (np.concatenate([one[at][FIRST:] for one in pairs]) for at in (0, 1))
            early, early_told = (np.concatenate([one[at][:FIRST_MINUTES] for one in pairs]) for at in (0, 1))
            rows.append([server, name, number(float(np.median(np.abs(np.log(told / measured))))),
                         number(float(np.median(np.log(told / measured)))), _share(measured), _share(told),
                         _share(early), _share(early_told)])
    header = ["server", "controller", "|ln(forecast / measured)| of p99, median", "ln(forecast / measured), median",
              "violating, %: measured", "forecast", "first three minutes, %: measured", "forecast "]
    return table(header, rows, range(2, len(header)))


def _pairs(runs: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Array, Array]]:
    for one in runs:
        yield np.array(one["p99_ms"]), np.array(one["forecast_p99_ms"])


def _share(p99_ms: Array) -> str:
    return f"{100 * float((p99_ms > SLO_MS).mean()):.3g}"


def paired_line(results: Mapping[str, Any]) -> str:
    """The policy against each rival, run by run."""
    texts = []
    for server, arms in arms_of(of_kind(results, "compared")).items():
        for name, runs in arms.items():
            if name == "policy":
                continue
            pairs = list(zip(arms["policy"], runs, strict=True))
            cores = [100 * (1 - own["cores"] / other["cores"]) for own, other in pairs]
            more = [100 * (own["violating_share"] - other["violating_share"]) for own, other in pairs]
            texts.append(f"{server}, against {name}: quota saved {np.mean(cores):+.1f} % "
                         f"({', '.join(f'{one:+.1f}' for one in cores)}), violating intervals "
                         f"{np.mean(more):+.1f} points ({', '.join(f'{one:+.1f}' for one in more)})")
    return "\n".join(f"- {text}" for text in texts) if texts else NOT_MEASURED


def conditions_line(results: Mapping[str, Any]) -> str:
    """Machine, date, how undisturbed."""
    machine, entries = results["machine"], results["entries"]
    late = max(arm["lateness_ms"] for one in entries for arm in one["arms"])
    busy = [one["load_average"] for one in entries]
    return paragraph(
        f"{machine['cpu_model']}, {machine['cores']} cores, Linux {machine['kernel']}, {machine['date'][:10]}. Other",
        f"work was on the machine: load average before a run {min(busy):.1f} to {max(busy):.1f}. The servers' control",
        "groups had 50 times its weight, the load generators real-time priority; they sent 99 % of the requests at",
        f"most {late:.2g} ms late.")
