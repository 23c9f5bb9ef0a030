"""`assay verify`: decides a property of any ONNX network, without a registry, a pipeline or a configuration."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from feature_store.errors import InputError
from pipelines.console import JsonOption, err, out, print_json, reported

EXIT_CODES = {"PROVED": 0, "REFUTED": 1, "UNKNOWN": 3, "TIMEOUT": 3, "ERROR": 3}


@reported
def verify(
    model: Annotated[Path, typer.Argument(help="ONNX file of the network.")],
    specification: Annotated[Path, typer.Option("--specification", "-s", help="SPEC.yaml, or a VNN-LIB property "
                                                "(.vnnlib, .vnnlib.gz).")],
    timeout: Annotated[float, typer.Option(help="Seconds in all.")] = 120.0,
    points: Annotated[Path | None, typer.Option(help="CSV or Parquet of inputs, one column each: where the search for "
                                                "counterexamples starts.")] = None,
    witness: Annotated[Path | None, typer.Option(help="File for the counterexample, JSON; default: MODEL's folder is "
                                                 "left alone, it is printed.")] = None,
    seed: Annotated[int, typer.Option(help="Of the search for counterexamples.")] = 0,
    json_output: JsonOption = False,
) -> None:
    """Prove or refute a property of an ONNX network for every input in a box.

    Exit code 0: PROVED; 1: REFUTED, with a counterexample that onnxruntime reproduces; 3: UNKNOWN or TIMEOUT;
    2: bad input.

    Example: assay verify model.onnx --specification spec.yaml --timeout 60
    """
    from models.verification.onnx_verification import verify_onnx

    for path in (model, specification):
        if not path.is_file():
            raise InputError(f"file must exist, got {path}")
    inputs = None if points is None else _read_points(points)
    with _progress(quiet=json_output) as advance:
        found = verify_onnx(model, specification, timeout, inputs, seed, advance)
    document = found.to_json()
    if witness is not None and found.witness is not None:
        _write(witness, document["witness"])
    if json_output:
        print_json(document)
    else:
        _print(found.verdict, document, witness)
    raise typer.Exit(EXIT_CODES[found.verdict])


def _read_points(path: Path) -> Any:
    import numpy as np
    import pandas as pd

    try:
        frame = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
        return frame.to_numpy(dtype=np.float64, copy=True)  # torch warns of arrays that it cannot write to
    except (OSError, ValueError) as error:
        raise InputError(f"points must be a readable table of numbers, got {error} ({path})") from error


def _write(path: Path, document: Any) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(document, indent=1))
    partial.replace(path)


def _progress(quiet: bool) -> Any:
    """A progress bar on a terminal: share of the box proved, open boxes, worst bound."""
    import contextlib

    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    @contextlib.contextmanager
    def shown() -> Any:
        if quiet or not err.is_terminal:
            yield None
            return
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:5.1f} % proved"),
                   TextColumn("{task.fields[boxes]} boxes open, worst bound {task.fields[worst]:.3g}"),
                   TimeElapsedColumn())
        with Progress(*columns, console=err, transient=True) as bar:
            line = bar.add_task("verify", total=1.0, boxes=1, worst=float("nan"))

            def advance(part: str, state: Any) -> None:
                bar.update(line, description=part, completed=state.proved_share, boxes=state.open_boxes,
                           worst=state.worst_bound)

            yield advance

    return shown()


def _print(verdict: str, document: dict[str, Any], path: Path | None) -> None:
    colour = {"PROVED": "green", "REFUTED": "red"}.get(verdict, "yellow")
    out.print(f"[bold {colour}]{verdict}[/]  {document['reason']}  ({document['seconds']:.2f} s, "
              f"{document['boxes']} boxes)", highlight=False)
    for part in document["parts"]:
        out.print(f"  {part['name']}: {part['verdict']}, {part['reason']}, {part['seconds']:.2f} s", highlight=False)
    found = document["witness"]
    if found is not None:
        for point in found["points"]:
            out.print("  at " + ", ".join(f"{name} = {value!r}" for name, value in point["inputs"].items()),
                      highlight=False, soft_wrap=True)
            out.print("     " + ", ".join(f"{name} = {value!r}" for name, value in point["outputs"].items()),
                      highlight=False, soft_wrap=True)
        if path is not None:
            out.print(f"  written to {path}", highlight=False)
    claim = document["statement"]
    out.print(claim if verdict == "PROVED" else f"Not proved: {claim}", highlight=False, soft_wrap=True)
