"""The table of `python -m benchmarks verification-forests`."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from benchmarks.harness.columns import columns_table, left, right
from benchmarks.harness.markdown import median_and_range, paragraph


def forests_table(results: Mapping[str, Any]) -> str:
    """A row for each kind of forest and question."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for entry in results["entries"]:
        groups.setdefault((entry["model"], entry["question"]), []).append(entry)

    def values(key: str) -> Callable[[Any], list[Any]]:
        return lambda group: [entry[key] for entry in group[1]]

    def of_peer(key: str) -> Callable[[Any], list[Any]]:
        return lambda group: [entry["peer"][key] for entry in group[1] if entry["peer"]]

    seconds = partial(median_and_range, how="{:.3g}".format)
    return columns_table(
        groups.items(), left("forest", lambda group: group[0][0]),
        right("leaves", values("leaves"), lambda leaves: f"{min(leaves):,} to {max(leaves):,}"),
        left("question", lambda group: group[0][1]), left("verdicts", values("verdict"), _counts),
        right("seconds", values("seconds"), seconds), right("of the search", values("search_seconds"), seconds),
        right("most boxes", values("boxes"), lambda boxes: f"{max(boxes):,}"),
        left("Veritas", of_peer("verdict"), _counts), right("its seconds", of_peer("seconds"), seconds))


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


def _counts(verdicts: Sequence[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in Counter(verdicts).items())
