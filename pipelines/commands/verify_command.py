"""`assay verify`: decides a property of any ONNX network, without a registry, a pipeline or a configuration.

Python ends with code 1 on an exception, which here says REFUTED: whatever goes wrong must end with another code.
"""

import functools
import io
import json
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from feature_store.errors import AssayError, InputError
from feature_store.terminal import print_trace
from feature_store.whole_files import require_file, require_writable, write_whole
from pipelines.console import Function, JsonOption, PlainConsole, err, out, plain, reported

EXIT_CODES = {"PROVED": 0, "REFUTED": 1, "UNKNOWN": 3, "TIMEOUT": 3, "ERROR": 3}
COLOURS = {"PROVED": "bold green", "REFUTED": "bold red"}
MOST_POINTS = 1_000_000_000  # bytes
NARROWEST = 12  # characters of a folded name


def _no_verdict(command: Function) -> Function:
    """An error of the program itself is printed and ends it with the code of ERROR."""

    @functools.wraps(command)
    def wrapper(*args: Any, **options: Any) -> Any:
        try:
            return command(*args, **options)
        except (AssayError, typer.Exit):
            raise
        except Exception as error:
            print_trace()
            reason, code = f"{type(error).__name__}: {error}", EXIT_CODES["ERROR"]
            document = {"verdict": "ERROR", "error": reason, "exit_code": code}
            _say(_json(document) if options.get("json_output") else f"{plain(f'ERROR  {reason}')}\n")
            raise typer.Exit(code) from None

    return wrapper  # type: ignore[return-value]


@reported
@_no_verdict
def verify(
    model: Annotated[Path | None, typer.Argument(help="ONNX file of the network.")] = None,
    specification: Annotated[Path | None, typer.Option("--specification", "-s", help="SPEC.yaml, or a VNN-LIB property "
                                                       "(.vnnlib, .vnnlib.gz).")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds in all, reading included; with --instances, of each that "
                                           "gives none.")] = 120.0,
    points: Annotated[Path | None, typer.Option(help="CSV or Parquet of inputs, one column each: where the search for "
                                                "counterexamples starts.")] = None,
    witness: Annotated[Path | None, typer.Option(help="JSON file that a counterexample is written to, besides being "
                                                 "printed. Nothing is written where none is found.")] = None,
    certificate: Annotated[Path | None, typer.Option(
        help="File that a proof is written to, for `assay check`. Boxes then count as proved only if the independent "
             "checker proves them too, which takes longer; only chains of affine maps, ReLUs, tanhs and sigmoids have "
             "one.")] = None,
    instances: Annotated[Path | None, typer.Option(
        help="CSV with a question a line, as in VNN-COMP: model, property, seconds; paths are relative to it. Decides "
             "them all in one process, instead of MODEL and --specification.")] = None,
    csv_file: Annotated[Path | None, typer.Option("--csv", help="CSV that the verdicts of --instances are written to."
                                                  )] = None,
    memory: Annotated[int | None, typer.Option(
        help="MiB that it may take in all, code included; what needs more is UNKNOWN, or cannot be read. Default: what "
             "there is.", min=1)] = None,
    seed: Annotated[int, typer.Option(help="Of the search for counterexamples.", min=0)] = 0,
    json_output: JsonOption = False,
) -> None:
    """Prove or refute a property of an ONNX network for every input in a box.

    Exit code 0: PROVED; 1: REFUTED, with a counterexample that onnxruntime reproduces; 3: UNKNOWN or TIMEOUT;
    2: bad input. Ctrl-C ends the run with what is known so far. With --instances 0: all are PROVED; 1: one is
    REFUTED; 3: none is, and one is undecided or an error.

    Example: assay verify model.onnx --specification spec.yaml --timeout 60 --certificate proof.npz

    Example: assay verify --instances instances.csv --csv verdicts.csv
    """
    if instances is not None:
        _only_instances(instances, {"MODEL": model, "--specification": specification, "--points": points,
                                    "--witness": witness, "--certificate": certificate, "--memory": memory})
        from pipelines.commands.verify_instances import verify_instances

        raise typer.Exit(verify_instances(instances, timeout, seed, csv_file, json_output))
    if model is None or specification is None or csv_file is not None:
        raise InputError("either MODEL and --specification must be given, or --instances; --csv belongs to --instances")
    for path in (model, specification):
        if not path.is_file():
            raise InputError(f"file must exist, got {path}")
    read = [path for path in (model, specification, points) if path is not None]
    for name, written in (("witness", witness), ("certificate", certificate)):
        if written is not None:
            require_writable(written, name, read)
    inputs = None if points is None else _read_points(points)
    document = _decide(model, specification, timeout, memory, inputs, seed, json_output, certificate)
    code = EXIT_CODES[document["verdict"]]
    if not json_output:
        _say(_text(document))
    if witness is not None and document["witness"] is not None:
        try:
            write_whole(witness, _json(document["witness"]), "witness")
        except InputError as error:
            if not json_output:
                raise
            code = error.exit_code
            document |= {"error": str(error), "exit_code": code}  # still one document
        if not json_output:
            _say(f"{plain(f'  written to {witness}')}\n")
    if json_output:
        _say(_json(document))
    raise typer.Exit(code)


def _only_instances(instances: Path, others: dict[str, Any]) -> None:
    """Refuses what belongs to a single question."""
    if given := [name for name, value in others.items() if value is not None]:
        raise InputError(f"--instances must be given without {', '.join(given)}: each line has its own")
    if not instances.is_file():
        raise InputError(f"file must exist, got {instances}")


def _decide(model: Path, specification: Path, timeout: float, memory: int | None, inputs: Any, seed: int, quiet: bool,
            certificate: Path | None) -> dict[str, Any]:
    """The verdict's document."""
    question = (model, specification, timeout, inputs, seed, certificate)
    with _progress(quiet) as advance:
        if memory is None:
            return _decided(advance, *question)
        from models.verification.memory import within_memory

        document: dict[str, Any] = within_memory(memory, _decided, advance, *question)
        return document


def _decided(advance: Any, model: Path, specification: Path, timeout: float, inputs: Any, seed: int,
             certificate: Path | None) -> dict[str, Any]:
    from models.verification.decide import decide

    return decide(model, specification, timeout, inputs, seed, advance, certificate).to_json()


def _read_points(path: Path) -> Any:
    import numpy as np
    import pandas as pd

    from feature_store.origin import UNREADABLE

    require_file(path, "points", MOST_POINTS)
    try:
        frame = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
        return frame.to_numpy(dtype=np.float64, copy=True)  # torch warns of arrays that it cannot write to
    except (*UNREADABLE, TypeError) as error:
        raise InputError(f"points must be a readable table of numbers, got {error} ({path})") from error


def _json(document: Any) -> str:
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _say(text: str) -> None:
    """Writes to standard output, at once. Raises InputError where that cannot be written."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except (OSError, UnicodeEncodeError) as error:
        if isinstance(error, OSError):  # what is buffered would fail again when Python ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise InputError(f"standard output must be writable, got {error}") from error


@contextmanager
def _progress(quiet: bool) -> Any:
    """A progress bar on a terminal: share of the box proved, open boxes, worst bound."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    if quiet or not err.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(),
               TextColumn("{task.percentage:5.1f} % proved"),
               TextColumn("{task.fields[boxes]} boxes open, worst bound {task.fields[worst]:.3g}"),
               TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True) as bar:
        line = bar.add_task("verify", total=1.0, boxes=1, worst=float("nan"))

        def advance(part: str, state: Any) -> None:
            bar.update(line, description=str(plain(part)), completed=state.proved_share, boxes=state.open_boxes,
                       worst=state.worst_bound)

        yield advance


def _text(document: dict[str, Any]) -> str:
    """The document for people."""
    verdict, found, page = document["verdict"], document["witness"], io.StringIO()
    console = PlainConsole(file=page, force_terminal=out.is_terminal, width=out.width)
    told = f"  {document['reason']}  ({document['seconds']:.2f} s, {document['boxes']} boxes)"
    console.print(plain(verdict, COLOURS.get(verdict, "bold yellow")) + plain(told), soft_wrap=True)
    for part in document["parts"]:
        console.print(plain(f"  {part['name']}: {part['verdict']}, {part['reason']}, {part['seconds']:.2f} s"),
                      soft_wrap=True)
    if found is not None:
        console.print(_fitted(_table(found), console), crop=False)
    claim, proof = document["statement"], document["certificate"]
    if proof is not None:
        leaves = f"{proof['leaves']} leaf {'box' if proof['leaves'] == 1 else 'boxes'}"
        console.print(plain(f"  certificate of {leaves} written to {proof['file']}"), soft_wrap=True)
    console.print(plain(f"{claim} {document['execution']}" if verdict == "PROVED" else f"Not proved: {claim}"),
                  soft_wrap=True)
    return "\n".join(line.rstrip() for line in page.getvalue().split("\n"))  # tables are padded


def _table(found: dict[str, Any]) -> Table:
    """A counterexample, one input or output a line: the value at each of its points, and the unit."""
    points, units = found["points"], found["units"]
    pair = len(points) > 1
    table = Table(box=None, show_header=pair, header_style="", padding=(0, 1, 0, 0), pad_edge=False)
    headers = ["", "", "", *(("low", "high") if pair else ("",)), *[""] * (bool(units) + pair)]
    for header in headers:
        table.add_column(header, overflow="fold")
    for side, mark in (("inputs", "at"), ("outputs", "->")):
        for number, name in enumerate(points[0][side]):
            values = [point[side][name] for point in points]
            row = ["" if number else f"  {mark}", name, "=", *map(str, values)]
            row += [units.get(name, "")] if units else []
            row += ["differs" if side == "inputs" and values[0] != values[1] else ""] if pair else []
            table.add_row(*map(plain, row))
    return table


def _fitted(table: Table, console: Console) -> Table:
    """The table with every number in one piece: on a narrow terminal names are folded. A file has room for all."""
    def width() -> int:
        return Measurement.get(console, console.options.update(max_width=sys.maxsize), table).maximum

    too_wide, names = width() - console.width, table.columns[1]
    if console.is_terminal and too_wide > 0:
        names.max_width = max(NARROWEST, max(cell_len(str(name)) for name in names.cells) - too_wide)
    table.width = width()
    return table
