"""`assay verify --instances`: many questions in one process, as a table, as CSV and as JSON."""

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.table import Table

from feature_store.errors import InputError
from feature_store.whole_files import require_writable, write_whole
from models.verification.decide import OnPart
from models.verification.instances import Instance, Outcome, decide_instances, read_instances
from pipelines.console import err, out, plain, print_table

COLUMNS = ("model", "property", "verdict", "result", "seconds", "timeout", "boxes", "reason")
COLOURS = {"PROVED": "bold green", "REFUTED": "bold red"}


def verify_instances(path: Path, seconds: float, seed: int, csv_file: Path | None, as_json: bool) -> int:
    """Decides all instances, prints and writes what was found, and returns the exit code.

    0: all are PROVED; 1: one is REFUTED; 3: none is, and one is undecided or an error.
    """
    if not seconds > 0:
        raise InputError(f"timeout must be positive, got {seconds}")
    instances = read_instances(path, seconds)
    if csv_file is not None:
        require_writable(csv_file, "CSV", {path, *(file for each in instances for file in each.files)})
    with _progress(len(instances), as_json) as advance:
        outcomes = []
        for outcome in decide_instances(instances, seed, advance.watch):
            outcomes.append(outcome)
            advance.step(outcome)
            if csv_file is not None:
                _write(csv_file, outcomes)  # whole after each, so that what was decided is never lost
    counts = Counter(outcome.verdict for outcome in outcomes)
    total = sum(outcome.seconds for outcome in outcomes)
    if as_json:
        out.file.write(json.dumps({"instances": [outcome.to_json() for outcome in outcomes], "counts": dict(counts),
                                   "seconds": total}, indent=1, allow_nan=False) + "\n")
    else:
        print_table(_table(outcomes))
        for outcome in outcomes:
            if outcome.verdict == "ERROR":
                out.print(plain(f"ERROR {', '.join(outcome.instance.label)}: {outcome.reason}"), soft_wrap=True)
        out.print(plain(", ".join(f"{number} {verdict}" for verdict, number in sorted(counts.items()))
                        + f" of {len(outcomes)} in {total:.1f} s"), soft_wrap=True)
        if csv_file is not None:
            out.print(plain(f"written to {csv_file}"), soft_wrap=True)
    return 1 if counts["REFUTED"] else 0 if counts["PROVED"] == len(outcomes) else 3


def _table(outcomes: Sequence[Outcome]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in (("model", "left"), ("property", "left"), ("verdict", "left"), ("seconds", "right")):
        table.add_column(name, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for outcome in outcomes:
        model, specification = (Path(name).name for name in outcome.instance.label)
        table.add_row(plain(model), plain(specification),
                      plain(outcome.verdict, COLOURS.get(outcome.verdict, "bold yellow")), f"{outcome.seconds:.2f}")
    return table


def _write(path: Path, outcomes: Sequence[Outcome]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([outcome.to_json()[column] for column in COLUMNS] for outcome in outcomes)
    write_whole(path, text.getvalue(), "CSV")


class _Silent:
    """Nobody watches."""

    def watch(self, instance: Instance) -> OnPart:
        """What is called after a round of the instance."""
        return None

    def step(self, outcome: Outcome) -> None:
        """After an instance."""


class _Bar(_Silent):
    """A bar over the instances, with the present one and the share of its box that is proved."""

    def __init__(self, bar: Any, line: Any) -> None:
        self.bar, self.line = bar, line

    def watch(self, instance: Instance) -> OnPart:
        name = str(plain(" ".join(Path(label).name for label in instance.label)))
        self.bar.update(self.line, description=name)
        return lambda part, state: self.bar.update(self.line, description=f"{name} {100 * state.proved_share:.0f} %")

    def step(self, outcome: Outcome) -> None:
        self.bar.advance(self.line)


@contextmanager
def _progress(count: int, quiet: bool) -> Iterator[_Silent]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    if quiet or not err.is_terminal:
        yield _Silent()
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=err, transient=True) as bar:
        yield _Bar(bar, bar.add_task("verify", total=count))
