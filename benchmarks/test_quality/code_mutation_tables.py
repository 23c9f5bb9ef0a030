"""Tables of the code's mutants (code_mutation.py)."""

from collections.abc import Mapping
from typing import Any

from benchmarks.harness.markdown import table

FOUND = {True: "yes", False: "no", None: "the code has changed"}


def sampled_table(results: Mapping[str, Any]) -> str:
    """Markdown: one row a subject."""
    if not results.get("rows"):
        return "*Not measured yet.*"
    rows = [[row["subject"], f"{row['possible']:,}", f"{row['tried']}", f"{row['found']}",
             f"{row['tried'] - row['found']}", f"{row['seed']}", row["date"][:10]] for row in results["rows"]]
    return table(["subject", "possible", "tried", "found", "survived", "seed", "measured"], rows, right=(1, 2, 3, 4, 5))


def planted_table(results: Mapping[str, Any]) -> str:
    """Markdown: one row a mutant that was planted by hand."""
    if not results.get("mutants"):
        return "*Not measured yet.*"
    mutants = results["mutants"]
    rows = [[f"`{entry['file']}`:{entry['line']}", entry["what"], FOUND[entry["found_at_first"]], FOUND[entry["found"]]]
            for entry in mutants]
    at_first, now = (sum(entry[key] is True for entry in mutants) for key in ("found_at_first", "found"))
    return (f"{table(['place', 'what was wrong', 'found at first', 'found'], rows)}\n\n"
            f"{now} of {len(rows)} found, {at_first} at first; {results['machine']['date'][:10]}.")
