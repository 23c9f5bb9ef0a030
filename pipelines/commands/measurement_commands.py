"""`assay recommend` and `assay audit`: what a file of measurements says, without a registry or a pipeline."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from feature_store.errors import InputError
from models.reporting.formatting import significant
from pipelines.console import (
    JsonOption,
    folding_table,
    print_json,
    print_line,
    print_note,
    print_table,
    reported,
    working,
)

if TYPE_CHECKING:
    from feature_store.measurements import Measurements
    from models.adaptation.encoding import Table
    from models.adaptation.recommendation import Recommendation
    from models.audit.table_audit import TableAudit

FileArgument = Annotated[Path, typer.Argument(help="CSV or Parquet, one row a run.")]
MappingOption = Annotated[Path, typer.Option("--mapping", "-m", help="YAML that says which columns are the workload, "
                                             "the configuration, the target and its cost; see examples/sizing.")]
SHOWN = 10  # configurations
WORST = 3  # notes, and workloads that contradict, that are named without --verbose
VerboseOption = Annotated[bool, typer.Option("--verbose", help="Every note and every workload, not the worst three.")]


@reported
def recommend(
    measurements: FileArgument,
    mapping: MappingOption,
    workload: Annotated[str, typer.Option(help="Its own rows are the support, all others' the pool.")],
    deadline: Annotated[float | None, typer.Option(help="Largest target, in its unit; default: none.")] = None,
    coverage: Annotated[float, typer.Option(help="Of the intervals.")] = 0.9,
    risk: Annotated[bool, typer.Option("--risk", help="Judge by the prediction, not by its interval.")] = False,
    learner: Annotated[str | None, typer.Option(help="Its name, see docs/reference/measurements.md; networks take "
                                                "many minutes. Default: chosen on the pool.")] = None,
    rows: Annotated[int, typer.Option(help="Configurations to print.")] = SHOWN,
    verbose: VerboseOption = False, json_output: JsonOption = False,
) -> None:
    """The cheapest configuration of a workload that meets a deadline, from a few measured runs of it.

    Exit code 0: there is one; 1: none meets the deadline with the coverage asked for.

    Example: assay recommend runs.csv --mapping examples/sizing/scout.yaml --workload spark_lr_huge --deadline 600
    """
    from models.adaptation.recommendation import recommend as choose

    if rows < 1:
        raise InputError(f"rows must be at least 1, got {rows}")
    with working("predicting from the pool", json_output):
        file, table = _read(measurements, mapping)
        if workload in file.only_failed:
            raise InputError(f"workload must have a run that did not fail, got {workload!r}, all of whose runs failed")
        advice = choose(table, workload, deadline, coverage, risk, learner)
    if json_output:
        print_json({**_recommendation_json(advice), "notes": list(_notes(file))})
    else:
        _print_recommendation(advice, file, deadline, rows)
        _print_notes(_notes(file), verbose)
    raise typer.Exit(0 if advice.chosen is not None else 1)


@reported
def audit(
    measurements: FileArgument,
    mapping: MappingOption,
    decreasing: Annotated[list[str] | None, typer.Option(help="Configuration column with which the target must not "
                                                         "rise; may be repeated.")] = None,
    increasing: Annotated[list[str] | None, typer.Option(help="One with which it must not fall.")] = None,
    at_least: Annotated[float, typer.Option(help="Share of pairs that must obey.")] = 0.8,
    verbose: VerboseOption = False, json_output: JsonOption = False,
) -> None:
    """How often the data themselves obey a monotonicity, over pairs of runs that differ in that column alone.

    Exit code 0: no direction is contradicted; 1: the data contradict one.

    Example: assay audit runs.csv --mapping examples/sizing/scout.yaml --decreasing nodes --decreasing cores
    """
    from models.audit.specification_audit import AuditSettings
    from models.audit.table_audit import audit_table, products_of

    directions: dict[str, Any] = dict.fromkeys(decreasing or [], "decreasing")
    for name in increasing or []:
        if name in directions:
            raise InputError(f"column must be increasing or decreasing, got both ({name})")
        directions[name] = "increasing"
    if not directions:
        raise InputError("audit must have a column, got none; name one with --decreasing or --increasing")
    with working("comparing pairs of runs", json_output):
        file, table = _read(measurements, mapping)
        audits = audit_table(table, directions, products=products_of(file.mapping),
                            settings=AuditSettings(at_least=at_least))
    if json_output:
        print_json({name: one.to_json() for name, one in audits.items()})
    else:
        _print_audit(audits, directions, verbose)
        _print_notes(_notes(file), verbose)
    raise typer.Exit(int(any(one.overall.verdict == "contradicted" for one in audits.values())))


def _read(path: Path, mapping: Path) -> "tuple[Measurements, Table]":
    from feature_store.measurement_mapping import load_measurement_mapping
    from feature_store.measurements import load_measurements
    from models.adaptation.encoding import table_of

    file = load_measurements(path, load_measurement_mapping(mapping))
    return file, table_of(file)


def _notes(file: "Measurements") -> tuple[str, ...]:
    """What a reader should know of the file, the worst first."""
    left_out = [f"workload {name} is left out: all of its runs failed" for name in file.only_failed]
    return (*file.flags, *left_out)


def _print_notes(notes: tuple[str, ...], verbose: bool) -> None:
    """On standard error, after the answer: how many there are, and the first of them."""
    if not notes:
        return
    shown = notes if verbose else notes[:WORST]
    hidden = "; the worst, all with --verbose" if len(shown) < len(notes) else ""
    print_note(f"{len(notes):,} note{'s' * (len(notes) > 1)} on the data{hidden}:")
    for note in shown:
        print_note(f"note: {note}")


def _recommendation_json(advice: "Recommendation") -> dict[str, Any]:
    import json

    options = json.loads(advice.options.to_json(orient="records"))
    following = None if advice.measure_next is None else {
        name: value if isinstance(value, str) else float(value) for name, value in advice.measure_next.items()}
    return {"workload": advice.workload, "chosen": None if advice.chosen is None else options[advice.chosen],
            "measure_next": following, "runs": advice.runs, "pool_workloads": advice.pool_workloads,
            "coverage": advice.coverage, "learner": advice.learner, "reason": advice.reason, "options": options}


def _print_recommendation(advice: "Recommendation", file: "Measurements", deadline: float | None, rows: int) -> None:
    target, cost = file.mapping.target, file.mapping.cost
    unit, price = f", {target.unit}" if target.unit else "", f", {cost.unit}" if cost and cost.unit else ""
    names = [rule.name for rule in file.mapping.configuration]
    table = folding_table("", *names, f"{target.name}{unit}", f"{advice.coverage:.0%} from", "to",
                   f"cost of a run{price}", "runs")
    for column in table.columns[1 + len(names):]:
        column.justify = "right"
    table.columns[0].no_wrap = True
    late = advice.chosen is None  # then those that come nearest to the deadline say more than the cheapest
    order = advice.options["upper"].argsort() if late else range(len(advice.options))
    shown = [int(at) for at in order[:rows]]
    if advice.chosen is not None and advice.chosen not in shown:
        shown.append(advice.chosen)
    for at in shown:
        option = advice.options.iloc[at]
        mark = "->" if at == advice.chosen else "" if option["meets"] else "late"
        cells = (mark, *(_text(option[name]) for name in names), significant(option["predicted"]),
                 significant(option["lower"]), significant(option["upper"]), significant(option["cost"]),
                 f"{option['runs']:d}x" if option["runs"] else "")
        table.add_row(*map(Text, cells), style="bold" if at == advice.chosen else None)
    first = f"least upper end of {target.name}" if late else "cheapest"
    print_line(f"{advice.workload}: {advice.runs} measured configuration{'s' * (advice.runs != 1)}, "
               f"{advice.pool_workloads:,} other workloads, {len(advice.options):,} configurations, {first} first")
    print_table(table)
    print_line(f"learner: {advice.reason}")
    if advice.chosen is None:
        print_line(f"none meets {deadline:g} with an interval of {advice.coverage:.0%}; "
                   "--risk judges by the prediction alone")
    if advice.measure_next is not None:
        said = ", ".join(f"{name} {_text(value)}" for name, value in advice.measure_next.items())
        print_line(f"measure next: {said}")


def _print_audit(audits: "dict[str, TableAudit]", directions: dict[str, Any], verbose: bool) -> None:
    table = folding_table("column", "target must be", "pairs", "obey", "or within noise", "95 % interval", "verdict",
                   "workloads against")
    for column in (*table.columns[2:6], table.columns[7]):
        column.justify = "right"
    table.columns[6].no_wrap = True
    for name, one in audits.items():
        overall = one.overall
        held = overall.within_noise_interval
        shares = (f"{overall.obeys:.1%}", f"{overall.within_noise:.1%}", f"{held.lower:.1%} to {held.upper:.1%}")
        if not overall.pairs:
            shares = ("-", "-", "-")
        against = f"{len(one.exceptions):,} of {one.decided:,} with {overall.minimum_pairs} pairs"
        table.add_row(*map(Text, (name, directions[name], f"{overall.pairs:,}", *shares, overall.verdict, against)))
    print_table(table)
    for name, one in audits.items():
        _print_exceptions(name, one, verbose)
        for pair in one.overall.worst[:WORST]:
            print_line(f"{name}, a pair against it, in {pair.workload}: {pair.low_value:g} gives "
                       f"{significant(pair.low_target)}, {pair.high_value:g} gives {significant(pair.high_target)}")


def _print_exceptions(name: str, one: "TableAudit", verbose: bool) -> None:
    """Workloads that contradict, each on a line of its own, the smallest share of obeying pairs first."""
    if not one.exceptions:
        return
    shown = one.exceptions if verbose else one.exceptions[:WORST]
    for workload in shown:
        print_line(f"{name}: {workload} contradicts, {one.workloads[workload].obeys:.1%} of its pairs obey")
    if len(shown) < len(one.exceptions):
        print_line(f"{name}: {len(one.exceptions) - len(shown):,} more workloads contradict; --verbose names them")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else f"{float(value):g}"
