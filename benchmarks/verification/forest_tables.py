"""The table of `python -m benchmarks verification-forests`."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.harness.markdown import paragraph, table


def forests_table(results: Mapping[str, Any]) -> str:
    """A row for each kind of forest and question."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for entry in results["entries"]:
        groups.setdefault((entry["model"], entry["question"]), []).append(entry)
    rows = []
    for (model, question), entries in groups.items():
        leaves = [entry["leaves"] for entry in entries]
        peers = [entry["peer"] for entry in entries if entry["peer"]]
        rows.append([model, f"{min(leaves):,} to {max(leaves):,}", question, _verdicts(entries),
                     _seconds(entries), _seconds(entries, "search_seconds"),
                     f"{max(entry['boxes'] for entry in entries):,}", _verdicts(peers), _seconds(peers)])
    header = ["forest", "leaves", "question", "verdicts", "seconds", "of the search", "most boxes", "Veritas",
              "its seconds"]
    return table(header, rows, (1, 4, 5, 6, 8))


def forests_conditions_line(results: Mapping[str, Any]) -> str:
    """Machine, limit, date, how undisturbed."""
    entries, machine = results["entries"], results["machine"]
    wrong = sum(entry["peer"] is not None and {entry["verdict"], entry["peer"]["verdict"]} == {"PROVED", "REFUTED"}
                for entry in entries)
    return paragraph(
        f"{machine['cpu_model']}, one thread, {entries[0]['at'][:10]}; load average before a question at most",
        f"{max(entry['load_average'] for entry in entries):.1f}. Limit: {results['timeout_s']:g} s. Seconds: median of",
        f"{len({entry['seed'] for entry in entries})} seeds (least to largest). Questions that one tool proves and the",
        f"other refutes: {wrong}.")


def _verdicts(found: Sequence[Mapping[str, Any]]) -> str:
    names = [one["verdict"] for one in found]
    return ", ".join(f"{names.count(name)} {name}" for name in dict.fromkeys(names))


def _seconds(found: Sequence[Mapping[str, Any]], name: str = "seconds") -> str:
    seconds = [one[name] for one in found]
    return f"{statistics.median(seconds):.3g} ({min(seconds):.3g} to {max(seconds):.3g})" if seconds else ""
