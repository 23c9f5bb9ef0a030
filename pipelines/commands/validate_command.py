"""`assay validate`: reads what `assay run` would read, says what it understood, and runs nothing."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from models.reporting.formatting import count, significant
from pipelines.commands.train_commands import (
    MappingOption,
    MethodOption,
    SeedOption,
    TaskOption,
    TelemetryOption,
    WorkloadOption,
)
from pipelines.console import (
    ConfigOption,
    JsonOption,
    configuration_from,
    folding_table,
    print_json,
    print_line,
    print_table,
    reported,
    working,
)

if TYPE_CHECKING:
    from feature_store.dropping import BadRowsFound
    from pipelines.validation import Understanding, WorkloadFound

SHOWN = 20  # workloads of which a table shows all; of more, those that do not fit come first
WORST = 3  # failures and bad rows of a workload that are shown


@reported
def validate(
    task: TaskOption = "performance", telemetry: TelemetryOption = None,
    mapping: MappingOption = None, workload: WorkloadOption = None, seed: SeedOption = 0, method: MethodOption = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Every failure and warning of every workload.")] = False,
    config: ConfigOption = None, json_output: JsonOption = False,
) -> None:
    """Check task, mapping, mlflow.yaml and data, and list the columns, units and workloads understood.

    Nothing is run or kept. The rules that the data are held to are those of a run's data gate. A Prometheus server is
    not asked.

    Exit code 0: every workload would be trained; 1: the data of one do not fit; 2: a file cannot be read.

    Example: assay validate --telemetry mine.parquet --mapping mapping.yaml
    """
    from pipelines.request import make_request
    from pipelines.validation import understand

    configuration = configuration_from(config)
    with working("reading task, mapping and telemetry", json_output):
        request = make_request(task, telemetry, mapping, workload or (), seed, "validate", method, config=config)
        gates = configuration.gates[request.task.name]
        found = understand(request)
    if json_output:
        print_json({**found.to_json(), "gates": [gate.name for gate in gates]})
    else:
        print_line(f"task {found.task}: kind {found.kind}, {count(len(found.workloads), 'workload')}, "
                   f"{count(len(gates), 'gate')}")
        _print(found, verbose)
    raise typer.Exit(int(not found.fits))


def _print(found: "Understanding", verbose: bool) -> None:
    print_table(_columns(found))
    print_line("")
    in_order = sorted(found.workloads, key=lambda one: one.fits)
    shown = found.workloads if verbose or len(in_order) <= SHOWN else tuple(in_order[:SHOWN])
    print_table(_workloads(shown))
    misfits = sum(not one.fits for one in in_order)
    if len(shown) < len(in_order):
        hidden = len(in_order) - len(shown)
        print_line(f"and {hidden:,} more workloads, {misfits:,} of all do not fit; --verbose shows all")
    for one in shown:
        _print_reasons(one, verbose)
    warnings = sum(len(one.warnings) for one in found.workloads)
    if warnings and not verbose:
        print_line(f"{count(warnings, 'warning')}, which would stop nothing; --verbose shows all")


def _columns(found: "Understanding") -> Table:
    table = folding_table("column", "unit", "role", "made of", "least", "median", "most")
    for column in table.columns[4:]:
        column.justify = "right"
    for one in found.columns:
        seen = ("" if value is None else significant(value) for value in (one.minimum, one.median, one.maximum))
        table.add_row(*map(Text, (one.name, one.unit, one.role, one.source, *seen)))
    return table


def _workloads(shown: Sequence["WorkloadFound"]) -> Table:
    table = folding_table("workload", "rows", "inputs", "missing", "target", "fits")
    table.columns[1].justify = "right"
    for one in shown:
        table.add_row(*map(Text, (one.name, "" if one.rows is None else f"{one.rows:,}",
                                  f"{len(one.inputs)} of {one.needed}", ", ".join(one.missing), one.target)),
                      Text("yes" if one.fits else "no", style="" if one.fits else "red"))
    return table


def _print_reasons(workload: "WorkloadFound", verbose: bool) -> None:
    shown = workload.failures if verbose else workload.failures[:WORST]
    for failure in shown:
        print_line(f"{workload.name}: {failure}")
    if len(shown) < len(workload.failures):
        print_line(f"{workload.name}: {len(workload.failures) - len(shown)} more; --verbose shows all")
    if workload.bad_rows is not None:
        _print_bad_rows(workload.name, workload.bad_rows, verbose)
    for warning in workload.warnings if verbose else workload.warnings[:1]:
        print_line(f"{workload.name}: warning: {warning}")


def _print_bad_rows(name: str, found: "BadRowsFound", verbose: bool) -> None:
    if found.sentence():
        print_line(f"{name}: {found.sentence()}")
    for bad in found.first if verbose else found.first[:WORST]:
        print_line(f"{name}:   {found.unit} {bad.row}, column {bad.column!r}: {bad.value} ({bad.rule})")
    if not verbose and len(found.first) > WORST:
        print_line(f"{name}:   and {found.count - WORST:,} more; --verbose shows the first {len(found.first)}")
