"""Tables of the mutation benchmark (mutants.py)."""

from collections.abc import Mapping
from typing import Any

from benchmarks.harness.markdown import table

ATTACKERS = ("digests as they are", "digests computed anew")


def results_table(results: Mapping[str, Any]) -> str:
    """Markdown: one row a kind and attacker, and the sums."""
    columns = ("refused", "equivalent", "falsely_accepted")
    rows = [[row["attacker"], row["kind"], *(f"{row[column]:,}" for column in columns)] for row in results["rows"]]
    for attacker in ATTACKERS:
        of = [row for row in results["rows"] if row["attacker"] == attacker]
        rows.append([attacker, "all", *(f"{sum(row[column] for row in of):,}" for column in columns)])
    return table(["attacker", "changed", "refused", "equivalent", "falsely accepted"], rows, right=(2, 3, 4))


def mutants_table(results: Mapping[str, Any]) -> str:
    """The sums, and what they are of."""
    note = (f"{results['mutants']:,} mutants of a bundle with a {results['network']} network and {results['leaves']} "
            f"leaves, {results['seconds']:.0f} s, {results['machine']['date'][:10]}. Equivalent: accepted, and the "
            "claim is still true.")
    return f"{results_table(results)}\n\n{note}"
