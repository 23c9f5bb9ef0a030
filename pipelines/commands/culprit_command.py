"""`assay culprit`: who of many services is to blame, from traces of their requests."""

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from feature_store.errors import InputError
from feature_store.whole_files import require_writable, whole_file
from models.reporting.formatting import count
from pipelines.console import (
    ConfigOption,
    JsonOption,
    KeyOption,
    configuration_from,
    print_json,
    print_line,
    print_table,
    reported,
)

SUSPECTS = 3  # of a window that are shown
SHOWN = {"score": "score", "relative_importance": "importance", "congestion_intensity": "99 % / 50 %",
         "share_on_critical_path": "on path"}


@reported
def culprit(
    traces: Annotated[str, typer.Option(help="OTLP file (.json, .jsonl, or protobuf), a folder of them, spans.parquet, "
                                             "or an address that answers OTLP.")],
    window: Annotated[float, typer.Option(min=0.001, help="Seconds of a window.")] = 10.0,
    ordinary: Annotated[str | None, typer.Option(
        help="Traces of an ordinary time; default: the same ones, of which most must be ordinary.")] = None,
    model: Annotated[Path | None, typer.Option(help="Bundle of the task `culprit`; default: a simple score.")] = None,
    public_key: KeyOption = None,
    worst: Annotated[int, typer.Option(min=1, help="Windows to show, by the 99th percentile of latency.")] = 5,
    table: Annotated[Path | None, typer.Option(
        help="Write the features of all windows there (Parquet), as telemetry of the task `culprit`: labelled, where "
             "--traces is a recording.")] = None,
    config: ConfigOption = None, json_output: JsonOption = False,
) -> None:
    """Name the services that are to blame for the worst windows of time, from traces.

    Without a model by a simple score: how much slower one of its operations became, and how its calls changed. With a
    bundle, which is checked first, by what it says. Exit code 1: the bundle is refused.

    Example: assay culprit --traces traces.json --window 10
    """
    if table is not None:
        require_writable(table, "table", [Path(traces)])
    localizer = _localizer()
    found = localizer.read_suspects(traces, window, ordinary)
    if table is not None:
        _write(localizer, found, Path(traces), window, table)
    if model is None:
        scores = localizer.simple_scores(found.table)
    else:
        scores = _scores(localizer, found.table, model, public_key or configuration_from(config).public_key_path)
    ranks = localizer.ranked(found.table, scores)
    latest = ranks.drop_duplicates("window").nlargest(worst, "latency_ms")["window"]
    shown = [ranks[(ranks["window"] == number) & (ranks["rank"] <= SUSPECTS)] for number in latest]
    if json_output:
        print_json({"spans": found.spans, "requests": found.requests, "window_s": window,
                    "score": "simple" if model is None else str(model), "problems": dict(found.problems),
                    "moved_for_their_clock": found.moved,
                    "windows": [_document(rows, localizer.FEATURES) for rows in shown]})
        return
    _print(found, shown, window)


def _localizer() -> Any:
    """The one of the systems whose folder has it; no other folder names a system."""
    from models.control.contract.systems import modules_of

    for module in modules_of("traces.culprits").values():
        return import_module(module)
    raise InputError("systems must hold one that reads traces, got none (systems/*/traces)")


def _scores(localizer: Any, table: Any, model: Path, public_key: Path) -> Any:
    from serving.bundle import check_bundle
    from serving.session import Predictor

    return localizer.bundle_scores(table, Predictor(check_bundle(model, public_key)))


def _write(localizer: Any, found: Any, traces: Path, window: float, table: Path) -> None:
    recording = (traces if traces.is_dir() else traces.parent).absolute()
    if (recording / localizer.ANOMALIES).is_file():
        rows = localizer.labelled(found, recording, window)
    else:
        rows = localizer.telemetry(found.table, recording.name, window)
    try:
        with whole_file(table) as new:
            rows.to_parquet(new, index=False)
    except OSError as error:
        raise InputError(f"table must be writable, got {error}") from error


def _document(rows: Any, features: tuple[str, ...]) -> dict[str, Any]:
    first = rows.iloc[0]
    names = ["service", "rank", "score", *features]
    return {"start_s": float(first["start_s"]), "requests": int(first["requests"]),
            "p99_ms": float(first["latency_ms"]), "suspects": rows[names].to_dict("records")}


def _print(found: Any, shown: list[Any], window: float) -> None:
    from rich.table import Table

    print_line(f"{count(found.spans, 'span')} of {count(found.requests, 'request')}, windows of {window:g} s")
    for what, number in {**found.problems, "spans moved into their parents, for their clock": found.moved}.items():
        if number:
            print_line(f"  {number:,} {what}")
    lines = Table(box=None)
    for name in ("from", "requests", "p99", "suspect", *SHOWN.values()):
        lines.add_column(name, justify="left" if name == "suspect" else "right")
    for rows in shown:
        for place, (_, row) in enumerate(rows.iterrows()):
            begun = f"{row['start_s']:g} s", f"{row['requests']:,}", f"{row['latency_ms']:.3g} ms"
            lines.add_row(*("" if place else cell for cell in begun), row["service"], f"{row['score']:.2f}",
                          f"{row['relative_importance']:.2f}", f"{row['congestion_intensity']:.1f}",
                          f"{100 * row['share_on_critical_path']:.0f} %")
    print_table(lines)
