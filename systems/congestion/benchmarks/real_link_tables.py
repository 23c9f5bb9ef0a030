"""Tables and the picture of real packets over ten links (beside_kernel.py): docs/benchmarks/congestion.md.

A link's value is the mean of its runs; what stands in a table is the median of the links, and the least and the most.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.harness.markdown import median_and_range, paragraph, table
from benchmarks.harness.svg import svg
from models.reporting.figures import BASELINE, UNVERIFIED, VERIFIED

NAMES = {"cubic": "CUBIC, the kernel's", "bbr": "BBR, the kernel's", "policy": "policy, PROVED", "bbr rule": "rule BBR",
         "headroom rule": "rule headroom"}
POLICY = "policy"
WITHIN_US = 1000.0  # what the relay may be late
Entry = Mapping[str, Any]
Value = Callable[[Entry], float]


def controllers_table(results: Mapping[str, Any]) -> str:
    """One flow: a controller a row."""
    links = {one["name"]: one for one in results["links"]}
    values: tuple[Value, ...] = (lambda one: 100 * one["used"], lambda one: one["flows"][0]["wait_ms"]["p95"],
                                 lambda one: one["flows"][0]["wait_ms"]["p95"] / links[one["link"]]["rtt_ms"],
                                 lambda one: 100 * (one["flows"][0]["lost"] - links[one["link"]]["loss"]))
    rows = []
    for name in NAMES:
        if here := _arm(results, name):
            spread = median(max(runs) - min(runs) for runs in _runs(here, values[0]).values())
            shown = [_over_links(here, value, digits) for value, digits in zip(values, (1, 1, 2, 2), strict=True)]
            rows.append([NAMES[name], *shown, f"{spread:.1f}"])
    return table(["one flow", "of the link used, %", "95th percentile of queueing, ms", "the same, in round trips",
                  "lost beyond chance, %", "spread of use over runs, points"], rows, range(1, 6))


def fairness_table(results: Mapping[str, Any]) -> str:
    """Two flows of one kind: a controller a row."""
    rows = []
    for name in NAMES:
        if here := _arm(results, name, name):
            rows.append([NAMES[name], _over_links(here, jain, 3), _over_links(here, lambda one: 100 * one["used"], 1),
                         _over_links(here, _longest_wait, 1), _over_links(here, _most_lost, 2)])
    return table(["two flows of", "Jain's index", "of the link used by both, %", "95th percentile of queueing, ms",
                  "lost, %"], rows, range(1, 5))


def shares_table(results: Mapping[str, Any]) -> str:
    """The policy beside the kernel's: its share of what both get through."""
    rows = []
    for other in NAMES:
        if other != POLICY and (here := _arm(results, POLICY, other)):
            rows.append([NAMES[other], _over_links(here, lambda one: 100 * share(one), 1),
                         _over_links(here, lambda one: 100 * one["used"], 1), _over_links(here, _longest_wait, 1)])
    return table(["the policy beside", "its share of what both get, %", "of the link used by both, %",
                  "95th percentile of queueing, ms"], rows, range(1, 4))


def links_table(results: Mapping[str, Any]) -> str:
    """One flow: a link a row, use and queueing by controller."""
    names = [name for name in NAMES if _arm(results, name)]
    rows = []
    for link in results["links"]:
        cells = []
        for name in names:
            here = [one for one in _arm(results, name) if one["link"] == link["name"]]
            cells.append(f"{fmean(100 * one['used'] for one in here):.0f} %, "
                         f"{fmean(one['flows'][0]['wait_ms']['p95'] for one in here):.1f} ms" if here else "")
        if any(cells):
            rows.append([link["name"], f"{link['mbps']:g}", f"{link['rtt_ms']:g}",
                         f"{link['queue_packets']} ({link['queue']:g})", f"{100 * link['loss']:g}", *cells])
    return table(["link", "Mbit/s", "round trip, ms", "queue, packets (products)", "random loss, %",
                  *(NAMES[name] for name in names)], rows, range(1, 5 + len(names)))


def conditions_line(results: Mapping[str, Any]) -> str:
    """How it was measured, and how good the relay was."""
    entries = results["entries"]
    late = [one["late_us"] for one in entries]
    good = [one for one in results["relay"]["probes"] if one["late_us"]["p99"] < WITHIN_US]
    most = f"{max(one['packets_s'] for one in good):,.0f}" if good else "no"
    steps = [flow["steps"] for one in entries for flow in one["flows"] if "steps" in flow]
    acted = (f"A step of `assay control` took {median_and_range([one['took_ms']['p50'] for one in steps])} ms, "
             f"the policy acted in {median_and_range([100 * one['by_policy'] for one in steps])} % of them, and the "
             f"shield changed {median_and_range([100 * one['shielded'] for one in steps])} %." if steps else "")
    typical, tail, most_late = (median(one["p50"] for one in late), median(one["p99"] for one in late),
                                max(one["most"] for one in late))
    return paragraph(
        f"{len({one['link'] for one in entries})} links, {len({one['run'] for one in entries})} runs of each, "
        f"controllers in turn; {median(one['seconds'] for one in entries):g} s a run, of which the first quarter is "
        f"left out; objective of queueing {median(one['objective_ms'] for one in entries):g} ms. Median, least and "
        f"most of the links. The relay handed packets over later than due by {typical:.0f} us in the median, "
        f"{tail:.0f} us in the 99th percentile and {1e-3 * most_late:.0f} ms at the very most; probed alone, up to "
        f"{most} packets of 1,500 bytes a second with less than 1 ms in the 99th percentile.", acted,
        f"{results['machine']['cores']} cores for all, {results['machine']['date'][:10]}.")


def draw(results: Mapping[str, Any], path: Path) -> None:
    """Use over the 95th percentile of queueing: a panel a controller, a letter a link, the others' in grey."""
    names = [name for name in NAMES if _arm(results, name)]
    points = {name: [(link, fmean(_runs(here, _wait)[link]), fmean(_runs(here, _used)[link]))
                     for link in _runs(here, _used)] for name in names if (here := _arm(results, name))}
    with svg(path, 2.3 * len(names), 2.9) as figure:
        panels = figure.subplots(1, len(names), sharex=True, sharey=True, squeeze=False)[0]
        for axes, name in zip(panels, names, strict=True):
            for other in names:
                if other != name:
                    axes.plot([max(x, 0.1) for _, x, _ in points[other]], [y for _, _, y in points[other]], ".",
                              color="0.85", ms=4)
            colour = VERIFIED if name == POLICY else UNVERIFIED if "rule" not in name else BASELINE
            for link, x, y in points[name]:
                axes.plot(max(x, 0.1), y, ".", color=colour, ms=4)
                axes.annotate(link, (max(x, 0.1), y), xytext=(2, 2), textcoords="offset points", fontsize=7,
                              color=colour)
            axes.set_title(NAMES[name], fontsize=8)
            axes.set(xscale="log", ylim=(0, 105))
        panels[0].set_ylabel("of the link used, %")
        figure.supxlabel("95th percentile of queueing, ms", fontsize=8)


def jain(entry: Entry) -> float:
    """Jain's index of what the flows get: 1 where all get the same, 1/n where one gets all."""
    rates = [flow["mbps"] for flow in entry["flows"]]
    squares = sum(rate ** 2 for rate in rates)
    return sum(rates) ** 2 / (len(rates) * squares) if squares else 1.0


def share(entry: Entry) -> float:
    """Of the first flow, in what all get."""
    rates = [flow["mbps"] for flow in entry["flows"]]
    return float(rates[0] / sum(rates)) if sum(rates) else 0.0


def _used(entry: Entry) -> float:
    return float(100 * entry["used"])


def _wait(entry: Entry) -> float:
    return float(entry["flows"][0]["wait_ms"]["p95"])


def _longest_wait(entry: Entry) -> float:
    return max(float(flow["wait_ms"]["p95"]) for flow in entry["flows"])


def _most_lost(entry: Entry) -> float:
    return max(float(100 * flow["lost"]) for flow in entry["flows"])


def _arm(results: Mapping[str, Any], *names: str) -> list[Entry]:
    return [one for one in results["entries"] if tuple(one["controllers"]) == names]


def _runs(entries: Sequence[Entry], value: Value) -> dict[str, list[float]]:
    """By link."""
    found: dict[str, list[float]] = {}
    for one in entries:
        found.setdefault(one["link"], []).append(value(one))
    return found


def _over_links(entries: Sequence[Entry], value: Value, digits: int) -> str:
    return median_and_range([fmean(runs) for runs in _runs(entries, value).values()], lambda one: f"{one:.{digits}f}")
