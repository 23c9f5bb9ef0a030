"""`assay recommend` and `assay audit`: what a file of measurements says, without a registry or a pipeline."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table as TextTable

from feature_store.errors import InputError
from pipelines.console import JsonOption, err, out, print_json, print_table, reported

if TYPE_CHECKING:
    from feature_store.measurements import Measurements
    from models.adaptation.encoding import Table
    from models.adaptation.recommendation import Recommendation
    from models.training.table_audit import TableAudit

FileArgument = Annotated[Path, typer.Argument(help="CSV or Parquet, one row a run.")]
MappingOption = Annotated[Path, typer.Option("--mapping", "-m", help="YAML that says which columns are the workload, "
                                             "the configuration, the target and its cost; see examples/sizing.")]
SHOWN = 10


@reported
def recommend(
    measurements: FileArgument,
    mapping: MappingOption,
    workload: Annotated[str, typer.Option(help="Its own rows are the support, all others' the pool.")],
    deadline: Annotated[float | None, typer.Option(help="Largest target, in its unit; default: none.")] = None,
    coverage: Annotated[float, typer.Option(help="Of the intervals.")] = 0.9,
    risk: Annotated[bool, typer.Option("--risk", help="Judge by the prediction, not by its interval.")] = False,
    rows: Annotated[int, typer.Option(help="Configurations to print.")] = SHOWN,
    json_output: JsonOption = False,
) -> None:
    """The cheapest configuration of a workload that meets a deadline, from a few measured runs of it.

    Exit code 0: there is one; 1: none meets the deadline with the coverage asked for.

    Example: assay recommend runs.csv --mapping examples/sizing/scout.yaml --workload spark_lr_huge --deadline 600
    """
    from models.adaptation.recommendation import recommend as choose

    file, table = _read(measurements, mapping)
    if rows < 1:
        raise InputError(f"rows must be at least 1, got {rows}")
    found = choose(table, workload, deadline, coverage, risk)
    if json_output:
        print_json(_recommendation_json(found))
    else:
        _print_recommendation(found, file, deadline, rows)
    raise typer.Exit(0 if found.chosen is not None else 1)


@reported
def audit(
    measurements: FileArgument,
    mapping: MappingOption,
    decreasing: Annotated[list[str] | None, typer.Option(help="Configuration column with which the target must not "
                                                         "rise; may be repeated.")] = None,
    increasing: Annotated[list[str] | None, typer.Option(help="One with which it must not fall.")] = None,
    at_least: Annotated[float, typer.Option(help="Share of pairs that must obey.")] = 0.8,
    json_output: JsonOption = False,
) -> None:
    """How often the data themselves obey a monotonicity, over pairs of runs that differ in that column alone.

    Exit code 0: no direction is contradicted; 1: the data contradict one.

    Example: assay audit runs.csv --mapping examples/sizing/scout.yaml --decreasing nodes --decreasing cores
    """
    from models.training.specification_audit import AuditSettings
    from models.training.table_audit import audit_table, products_of

    directions: dict[str, Any] = dict.fromkeys(decreasing or [], "decreasing")
    for name in increasing or []:
        if name in directions:
            raise InputError(f"column must be increasing or decreasing, got both ({name})")
        directions[name] = "increasing"
    if not directions:
        raise InputError("audit must have a column, got none; name one with --decreasing or --increasing")
    file, table = _read(measurements, mapping)
    found = audit_table(table, directions, products=products_of(file.mapping),
                        settings=AuditSettings(at_least=at_least))
    if json_output:
        print_json({name: one.to_json() for name, one in found.items()})
    else:
        _print_audit(found, directions)
    raise typer.Exit(int(any(one.overall.verdict == "contradicted" for one in found.values())))


def _read(path: Path, mapping: Path) -> "tuple[Measurements, Table]":
    from feature_store.measurement_mapping import load_measurement_mapping
    from feature_store.measurements import load_measurements
    from models.adaptation.encoding import table_of

    file = load_measurements(path, load_measurement_mapping(mapping))
    for flag in file.flags:
        err.print(f"note: {flag}", highlight=False, soft_wrap=True)
    if file.only_failed:
        err.print(f"note: left out, all runs failed: {', '.join(file.only_failed)}", highlight=False, soft_wrap=True)
    return file, table_of(file)


def _recommendation_json(found: "Recommendation") -> dict[str, Any]:
    import json

    options = json.loads(found.options.to_json(orient="records"))
    following = None if found.measure_next is None else {
        name: value if isinstance(value, str) else float(value) for name, value in found.measure_next.items()}
    return {"workload": found.workload, "chosen": None if found.chosen is None else options[found.chosen],
            "measure_next": following, "runs": found.runs, "pool_workloads": found.pool_workloads,
            "coverage": found.coverage, "learner": found.learner, "reason": found.reason, "options": options}


def _print_recommendation(found: "Recommendation", file: "Measurements", deadline: float | None, rows: int) -> None:
    target, cost = file.mapping.target, file.mapping.cost
    unit, price = f", {target.unit}" if target.unit else "", f", {cost.unit}" if cost and cost.unit else ""
    names = [rule.name for rule in file.mapping.configuration]
    table = TextTable("", *names, f"{target.name}{unit}", f"{found.coverage:.0%} interval", f"cost of a run{price}",
                      "measured", box=None, header_style="bold")
    for column in table.columns[1 + len(names):]:
        column.justify = "right"
    shown = list(range(min(rows, len(found.options))))
    if found.chosen is not None and found.chosen not in shown:
        shown.append(found.chosen)
    for at in shown:
        option = found.options.iloc[at]
        mark = "->" if at == found.chosen else "" if option["meets"] else "late"
        table.add_row(mark, *(_text(option[name]) for name in names), f"{option['predicted']:.4g}",
                      f"{option['lower']:.4g} to {option['upper']:.4g}", f"{option['cost']:.4g}",
                      f"{option['runs']:d}x" if option["runs"] else "", style="bold" if at == found.chosen else None)
    out.print(f"{found.workload}: {found.runs} measured configuration(s), {found.pool_workloads} other workloads, "
              f"{len(found.options)} configurations, cheapest first", highlight=False, soft_wrap=True)
    print_table(table)
    out.print(f"learner: {found.reason}", highlight=False, soft_wrap=True)
    if found.chosen is None:
        out.print(f"none meets {deadline:g} with an interval of {found.coverage:.0%}; "
                  "--risk judges by the prediction alone", highlight=False, soft_wrap=True)
    if found.measure_next is not None:
        said = ", ".join(f"{name} {_text(value)}" for name, value in found.measure_next.items())
        out.print(f"measure next: {said}", highlight=False, soft_wrap=True)


def _print_audit(found: "dict[str, TableAudit]", directions: dict[str, Any]) -> None:
    table = TextTable("column", "target must be", "pairs", "obey", "or within noise", "95 % interval", "verdict",
                      "workloads that contradict", box=None, header_style="bold")
    for name, one in found.items():
        own = one.overall
        held = own.within_noise_interval
        shares = ((f"{own.obeys:.1%}", f"{own.within_noise:.1%}", f"{held.lower:.1%} to {held.upper:.1%}") if own.pairs
                  else ("-", "-", "-"))
        table.add_row(name, directions[name], f"{own.pairs:,}", *shares, own.verdict,
                      ", ".join(one.exceptions) or "none")
    print_table(table)
    for name, one in found.items():
        for pair in one.overall.worst[:3]:
            out.print(f"{name}: {pair.workload}: {pair.low_value:g} gives {pair.low_target:.4g}, {pair.high_value:g} "
                      f"gives {pair.high_target:.4g}", highlight=False, soft_wrap=True)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else f"{float(value):g}"
