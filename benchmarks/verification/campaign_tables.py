"""Tables of the verification campaign: goals, tools, every instance, growth, and the conditions of measurement."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.harness.markdown import number, paragraph, table, with_unit

Results = Mapping[str, Any]
Entry = Mapping[str, Any]
TOOL_NAMES = {"assay": "Assay", "assay_search": "Assay, search alone", "auto_lirpa": "auto_LiRPA",
              "alpha_beta_crown": "alpha-beta-CROWN", "marabou": "Marabou", "highs": "HiGHS", "scip": "SCIP"}
KINDS = ("plain", "counterexample", "certified", "certified_thin", "tangent", "tangent_middle", "tangent_thin")
OURS, SEARCH = "assay", "assay_search"
DECIDED = ("PROVED", "REFUTED")
# The bars.
LEAST_RATIO, LEAST_MULTIPLE, LARGEST_GB, PROOF_S = 50.0, 2.0, 4.0, 0.3
LARGE_PROOF = "3x512_F3_certified"


@dataclass(frozen=True)
class Instance:
    """One network's entries by tool."""

    name: str
    entries: Mapping[str, Entry]

    @property
    def best_peer(self) -> Entry | None:
        """The quickest peer that decided."""
        solved = [entry for tool, entry in self.entries.items()
                  if tool not in (OURS, SEARCH) and entry["verdict"] in DECIDED]
        return min(solved, key=lambda entry: float(entry["seconds"]), default=None)

    def ratio(self, limit_s: float) -> float | None:
        """The best peer's seconds by ours; where ours did not decide it took at least the limit. None: no peer did."""
        best, ours = self.best_peer, self.entries.get(OURS)
        if best is None or ours is None:
            return None
        return float(best["seconds"] / (ours["seconds"] if ours["verdict"] in DECIDED else limit_s))


def instances(results: Results) -> list[Instance]:
    """Entries of the same weights and question together, in the order of the campaign: small networks first.

    Where a tool's entry is of other weights than ours (or, without ours, than most), it is left out.
    """
    by_name: dict[str, list[Entry]] = {}
    for entry in results["entries"]:
        by_name.setdefault(entry["network"], []).append(entry)
    made = []
    for name, entries in by_name.items():
        digests = [entry["digest"] for entry in entries]
        ours = [entry["digest"] for entry in entries if entry["tool"] == OURS]
        digest = ours[0] if ours else max(digests, key=digests.count)
        made.append(Instance(name, {entry["tool"]: entry for entry in entries if entry["digest"] == digest}))
    return sorted(made, key=lambda instance: _order(next(iter(instance.entries.values()))))


def contradictions(entries: Sequence[Entry]) -> dict[str, dict[str, str]]:
    """Verdicts by tool of every question that one tool has proved and another refuted."""
    verdicts: dict[tuple[str, str], dict[str, str]] = {}
    for entry in entries:
        if entry["verdict"] in DECIDED:
            verdicts.setdefault((entry["network"], entry["digest"]), {})[entry["tool"]] = entry["verdict"]
    return {name: by_tool for (name, _), by_tool in verdicts.items() if len(set(by_tool.values())) > 1}


def goals_table(results: Results) -> str:
    """The issue's goals, computed."""
    solved, limit = instances(results), results["settings"]["limit_s"]
    rows = [_ratio_goal(solved, limit), _solved_goal(solved), _multiple_goal(solved), _proof_goal(solved),
            _memory_goal(solved)]
    wrong = contradictions(results["entries"])
    rows.append(["questions that one tool proves and another refutes", str(len(wrong)), "0", _met(not wrong)])
    text = table(["what", "measured", "goal", "met"], rows, (1,))
    for name, verdicts in wrong.items():
        text += f"\n\nContradiction, {_label(name)}: " + ", ".join(
            f"{TOOL_NAMES[tool]} {verdict}" for tool, verdict in verdicts.items()) + "."
    return text


def _ratio_goal(solved: Sequence[Instance], limit_s: float) -> list[str]:
    ratios = [ratio for ratio in (instance.ratio(limit_s) for instance in solved) if ratio is not None]
    what = f"the best peer's seconds by Assay's, median of {len(ratios)} instances that a peer solves"
    goal = f"at least {LEAST_RATIO:g}"
    if not ratios:
        return [what, "not measured", goal, _met(False)]
    median = statistics.median(ratios)
    return [what, f"{number(median)} ({number(min(ratios))} to {number(max(ratios))})", goal,
            _met(median >= LEAST_RATIO)]


def _solved_goal(solved: Sequence[Instance]) -> list[str]:
    by_peers = [instance for instance in solved if instance.best_peer is not None]
    missed = [instance for instance in by_peers if not _decided(instance, OURS)]
    names = f": {', '.join(_label(instance.name) for instance in missed)}" if missed else ""
    return ["instances that a peer solves and Assay does not", f"{len(missed)} of {len(by_peers)}{names}", "none",
            _met(bool(by_peers) and not missed)]


def _multiple_goal(solved: Sequence[Instance]) -> list[str]:
    peers = {tool: sum(_decided(instance, tool) for instance in solved) for tool in TOOL_NAMES
             if tool not in (OURS, SEARCH) and any(tool in instance.entries for instance in solved)}
    ours, goal = sum(_decided(instance, OURS) for instance in solved), f"at least {LEAST_MULTIPLE:g} times as many"
    if not peers:
        return ["instances solved by Assay and by the best peer", "not measured", goal, _met(False)]
    best = max(peers, key=lambda tool: peers[tool])
    return [f"instances solved by Assay and by the best peer ({TOOL_NAMES[best]})", f"{ours} and {peers[best]}", goal,
            _met(ours >= LEAST_MULTIPLE * peers[best] and ours > 0)]


def _proof_goal(solved: Sequence[Instance]) -> list[str]:
    entry = next((one.entries.get(OURS) for one in solved if one.name == LARGE_PROOF), None)
    measured = "not measured" if entry is None else f"{entry['verdict']}, {with_unit(entry['seconds'], 's')}"
    return [f"proof of {_label(LARGE_PROOF)}", measured, f"< {PROOF_S:g} s",
            _met(entry is not None and entry["verdict"] == "PROVED" and entry["seconds"] < PROOF_S)]


def _memory_goal(solved: Sequence[Instance]) -> list[str]:
    peaks = [_gigabytes(one.entries[OURS]) for one in solved if OURS in one.entries]
    measured = with_unit(max(peaks), "GB") if peaks else "not measured"
    return ["Assay's largest memory", measured, f"< {LARGEST_GB:g} GB", _met(bool(peaks) and max(peaks) < LARGEST_GB)]


def tools_table(results: Results) -> str:
    """What each tool decided, how quickly, with how much memory."""
    measured, rows = instances(results), []
    for tool, name in TOOL_NAMES.items():
        entries = [instance.entries[tool] for instance in measured if tool in instance.entries]
        if not entries:
            continue
        verdicts = [entry["verdict"] for entry in entries]
        solved = [entry["seconds"] for entry in entries if entry["verdict"] in DECIDED]
        counts = [verdicts.count(kind) for kind in ("PROVED", "REFUTED", "TIMEOUT", "UNKNOWN", "ERROR")]
        rows.append([name, str(len(entries)), f"**{len(solved)}**", *map(str, counts),
                     with_unit(statistics.median(solved), "s") if solved else "",
                     with_unit(max(_gigabytes(entry) for entry in entries), "GB")])
    return table(["tool", "instances", "solved", "proved", "refuted", "time", "unknown", "error",
                  "median of the solved", "largest memory"], rows, range(1, 10))


def instances_table(results: Results) -> str:
    """Verdict and seconds of each tool on every network."""
    measured, limit = instances(results), results["settings"]["limit_s"]
    tools = [tool for tool in TOOL_NAMES if any(tool in instance.entries for instance in measured)]
    rows = []
    for instance in measured:
        ratio = instance.ratio(limit)
        rows.append([_label(instance.name), *(_cell(instance.entries.get(tool)) for tool in tools),
                     "" if ratio is None else number(ratio)])
    return table(["network", *(TOOL_NAMES[tool] for tool in tools), "best peer by Assay"], rows,
                 (len(tools) + 1,))


def conditions_line(results: Results) -> str:
    """Machine, limits, peers and how busy the machine was."""
    settings, machine, entries = results["settings"], results["machine"], results["entries"]
    dates = sorted({entry["date"][:10] for entry in entries})
    loads = [entry["load_average_before"] for entry in entries] or [0.0]
    peers = results.get("peers", {})
    versions = ", ".join(f"{TOOL_NAMES[tool]} {peers[tool]}" for tool in TOOL_NAMES if tool in peers)
    one = settings["threads"] == 1
    return paragraph(
        f"{machine['cpu_model']}, {'one thread' if one else str(settings['threads']) + ' threads'} a tool,",
        f"{settings['limit_s']:g} s of solve time and {settings['memory_gib']:g} GiB of memory a network,",
        f"{' to '.join(dates[:1] + dates[1:][-1:]) or 'not measured'}. Seconds are",
        "processor seconds: the machine's other work counts as far as it takes caches and memory from a tool" if one
        else "wall seconds",
        f"(load average before a measurement: {min(loads):g} to {max(loads):g}, median {statistics.median(loads):g}).",
        f"{'Peers: ' + versions + '.' if versions else ''}")


def growth_table(results: Results) -> str:
    """Seconds and exponent of every series of verification/growth.py."""
    rows = []
    for one in (results.get("growth") or {}).get("series", []):
        if one["sizes"]:
            values = ", ".join(f"{size}: {with_unit(value, 's')}"
                               for size, value in zip(one["sizes"], one["seconds"], strict=True))
            exponent = "" if one["exponent"] is None else f"{one['exponent']:.2f}"
            rows.append([one["label"], one["axis"], f"a {one['cost']}", values, exponent])
    return table(["networks", "against", "cost of", "measured", "exponent"], rows, (4,)) if rows else ""


def _order(entry: Entry) -> tuple[int, int, int, int, str]:
    depth, width = map(int, entry["size"].split("x"))
    return depth * width, depth, entry["features"], KINDS.index(entry["kind"]), entry["network"]


def _label(name: str) -> str:
    size, features, kind = name.split("_", 2)
    count = int(features[1:])
    kind = kind.replace("_seed", "_seed ").replace("_", ", ")
    return f"{size}, {count} feature{'s' if count > 1 else ''}, {kind}"


def _cell(entry: Entry | None) -> str:
    if entry is None:
        return ""
    if entry["verdict"] in DECIDED:
        return f"{entry['verdict'].lower()} {with_unit(entry['seconds'], 's')}"
    if entry["verdict"] == "ERROR":
        return "memory" if "memory limit" in entry["reason"] else "error"
    return {"TIMEOUT": "time", "UNKNOWN": "unknown"}[entry["verdict"]]


def _decided(instance: Instance, tool: str) -> bool:
    return tool in instance.entries and instance.entries[tool]["verdict"] in DECIDED


def _gigabytes(entry: Entry) -> float:
    return float(entry["peak_rss_mib"]) * 2**20 / 1e9


def _met(holds: bool) -> str:
    return "yes" if holds else "**no**"
