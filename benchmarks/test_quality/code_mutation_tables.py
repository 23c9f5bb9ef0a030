"""Tables of the code's mutants (code_mutation.py)."""

from collections.abc import Mapping
from typing import Any

from benchmarks.harness.columns import columns_table, left, right

FOUND = {True: "yes", False: "no", None: "the code has changed"}


def sampled_table(results: Mapping[str, Any]) -> str:
    """Markdown: one row a subject."""
    return columns_table(
        results["rows"], left("subject", "subject"), right("possible", "possible", ","), right("tried", "tried"),
        right("found", "found"), right("survived", lambda row: row["tried"] - row["found"]), right("seed", "seed"),
        left("measured", "date", ".10"))


def planted_table(results: Mapping[str, Any]) -> str:
    """Markdown: one row a mutant that was planted by hand."""
    mutants = results["mutants"]
    text = columns_table(
        mutants, left("place", lambda entry: f"`{entry['file']}`:{entry['line']}"), left("what was wrong", "what"),
        left("found at first", lambda entry: FOUND[entry["found_at_first"]]),
        left("found", lambda entry: FOUND[entry["found"]]))
    at_first, now = (sum(entry[key] is True for entry in mutants) for key in ("found_at_first", "found"))
    return f"{text}\n\n{now} of {len(mutants)} found, {at_first} at first; {results['machine']['date'][:10]}."
