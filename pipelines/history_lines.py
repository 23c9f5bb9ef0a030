"""The moves of the ledger as lines: one a move, and below those of one decision, once, its reason and who made it."""

import textwrap
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from pipelines.console import shortened

Row = dict[str, Any]  # an entry of the ledger, as `Entry.to_json` gives it
GAP = "  "
LEAST_NAME = 16
REPLACES = ("champion", "approve", "rollback")  # other moves name the champion that stands, and leave it


def history_lines(rows: Sequence[Row], width: int | None) -> list[str]:
    """Columns with a header, the reasons indented below.

    Args:
        rows: at least one, in order.
        width: signs in a line, to which names are cut and reasons are wrapped; None: as long as they are.
    """
    several = len({row["task"] for row in rows if row["task"]}) > 1
    cells = [_cells(row, several) for row in rows]
    header = ["#", "when, UTC", "action", "task / workload" if several else "workload", "version"]
    widths = [max(len(line[at]) for line in (header, *cells)) for at in range(len(header))]
    if width is not None:
        others = sum(widths) - widths[3] + len(GAP) * (len(widths) - 1)
        widths[3] = max(LEAST_NAME, min(widths[3], width - others))
    indent = " " * (widths[0] + len(GAP))
    lines = [_line(header, widths)]
    together = zip(rows, cells, strict=True)
    for _, decision in groupby(together, key=lambda pair: [pair[0][key] for key in ("workload", "reason", "actor")]):
        moves = list(decision)
        lines += [_line(line, widths) for _, line in moves]
        said = " ".join(f"{moves[0][0]['reason'] or 'no reason given'} ({moves[0][0]['actor']})".split())
        lines += [indent + said] if width is None else textwrap.wrap(
            said, max(width, 40), initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
    return lines


def _cells(row: Row, several: bool) -> list[str]:
    before = row["previous_version"]
    replaced = row["action"] in REPLACES and before not in (None, row["version"])
    version = str(row["version"]) + (f", was {before}" if replaced else "")
    name = f"{row['task']} / {row['workload']}" if several else row["workload"]
    if not row["workload"]:  # of an entry about a key
        name, version = f"key {row['bundle_sha256'][:12]}", ""
    return [str(row["sequence"]), row["at"][:16].replace("T", " "), row["action"], name, version]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return GAP.join(f"{shortened(cell, width):<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()
