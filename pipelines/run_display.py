"""Shows a local run while it goes: one bar for the stages, one a workload, and the table at the end."""

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

STAGES = ("ingest", "validate", "featurize", "audit", "pretrain", "finetune", "verify", "export", "gate", "register",
          "report")
FAN_OUT = ("finetune", "verify", "export")


class RunDisplay:
    """Turns events of the steps into progress bars; on a dumb terminal, into one line a finished step."""

    def __init__(self, console: Console, workloads: tuple[str, ...], quiet: bool = False) -> None:
        self._console, self._quiet = console, quiet
        self._live = console.is_terminal and not quiet
        self._progress = Progress(
            # 80 columns in all
            SpinnerColumn(), TextColumn("{task.description:<18}", markup=False), BarColumn(bar_width=14),
            TextColumn("{task.fields[note]:<36}", markup=False), TimeElapsedColumn(), console=console,
            disable=not self._live)
        steps = len(STAGES) - len(FAN_OUT) + len(FAN_OUT) * len(workloads)
        self._total = self._progress.add_task("pipeline", total=steps, note="")
        self._workloads = workloads
        self._done: set[tuple[str, str]] = set()
        self._bars: dict[str, TaskID] = {}

    def __enter__(self) -> "RunDisplay":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, event: dict[str, Any]) -> None:
        """Called with every event of the run."""
        kind, name = event["event"], event.get("step", "")
        label = f"{name} {event.get('workload', '')}".strip()
        if kind == "start":
            self._bars[label] = self._progress.add_task(label, total=1.0, note="")
        elif kind == "progress" and label in self._bars:
            done, note = _share(event)
            self._progress.update(self._bars[label], completed=done, note=note)
        elif kind in ("end", "failed") and label in self._bars:
            self._progress.remove_task(self._bars.pop(label))
            self._count(name, event.get("workload", ""))
            self._progress.update(self._total, completed=len(self._done),
                                  note=f"{label} {'done' if kind == 'end' else 'FAILED'}")
            if not self._live and not self._quiet:
                seconds = f"{event['seconds']:.1f} s" if kind == "end" else "FAILED"
                self._console.print(f"{label}: {seconds}", highlight=False)

    def _count(self, stage: str, workload: str) -> None:
        """A step that ended is done, with all before it: those that the cache answered say nothing."""
        for earlier in STAGES[: STAGES.index(stage) + 1]:
            both_fan_out = earlier in FAN_OUT and stage in FAN_OUT
            names = (workload,) if both_fan_out else self._workloads if earlier in FAN_OUT else ("",)
            self._done |= {(earlier, name) for name in names}


def _share(event: dict[str, Any]) -> tuple[float, str]:
    """Share done (0..1) and a note of a progress event."""
    if "proved_share" in event:
        return event["proved_share"], f"{event['open_boxes']} boxes open, bound {event['worst_bound']:.2e}"
    if "status" in event:
        return 1.0, f"{event['status']}, {event['counterexamples']} counterexamples"
    return min(1.0, event["epoch"] / event["epochs"]), f"epoch {event['epoch']}, loss {event['loss']:.5f}"


def summary_table(summary: dict[str, Any]) -> Table:
    """The table a run ends with: whole numbers on 80 columns, which is what a log or a pipe gets."""
    table = Table(title="Workloads", title_justify="left", header_style="bold", pad_edge=False, box=SIMPLE_HEAD,
                  padding=0)
    for name, justify in (("workload", "left"), ("test\nMSE", "right"), ("acc.\n@0.05", "right"), ("twin", "right"),
                          ("verdict", "left"), ("iter.", "right"), ("verify\ns", "right"), ("gates", "left"),
                          ("version", "right"), ("alias", "left")):
        table.add_column(name, justify=justify, no_wrap=name != "gates", overflow="fold")  # type: ignore[arg-type]
    for entry in summary["entries"]:
        metrics, gates = entry["metrics"] or {}, entry["gates"]
        if gates is None:
            table.add_row(entry["workload"], *[""] * 3, Text(entry["status"], "red"), *[""] * 5)
            continue
        failed = [gate["name"] for gate in gates["gates"] if not gate["passed"]]
        counts = f"{len(gates['gates']) - len(failed)} of {len(gates['gates'])}"
        table.add_row(
            entry["workload"], f"{metrics['test_mse']:.5f}", f"{metrics['test_accuracy']:.3f}",
            f"{metrics['twin_test_accuracy']:.3f}", entry["verdict"], f"{metrics['verification_iterations']:.0f}",
            f"{metrics['verification_seconds']:.1f}",
            Text(f"{counts}: {', '.join(failed)}", "red") if failed else counts,
            str(entry["version"] or ""), entry["alias"] or "")
    return table


def summary_notes(summary: dict[str, Any]) -> list[str]:
    """Lines below the table: what went wrong, where the bundles and the report are."""
    lines = [f"{entry['workload']}: {entry['message']}" for entry in summary["entries"]
             if entry["status"] not in ("registered",)]
    bundles = [entry["bundle"] for entry in summary["entries"] if entry.get("bundle")]
    lines += [f"bundle: {bundle}" for bundle in bundles]
    return [*lines, f"report: {summary['report']}"]


def run_exit_code(summary: dict[str, Any]) -> int:
    """0 if every workload was registered with all gates (or had no new data), else 1."""
    return int(any(entry["status"] not in ("registered", "no new data") for entry in summary["entries"]))
