"""Shows a local run while it goes: one bar for the stages, and one for each step that is at work."""

from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from components.progress import shard_label
from pipelines.console import shortened

STAGES = ("ingest", "validate", "featurize", "audit", "pretrain", "finetune", "verify", "export", "gate", "register",
          "pages", "report")
LOOPS = (("finetune", "verify", "export"), ("pages",))
FAN_OUT = tuple(stage for loop in LOOPS for stage in loop)
LABEL_WIDTH, NOTE_WIDTH = 24, 30  # with spinner, bar and time: 80 columns
# Of more steps than this, a log gets a line for each twentieth that is done.
MOST_LINES = 60


class RunDisplay:
    """Turns events of the steps into progress bars; on a dumb terminal, into one line a finished step."""

    def __init__(self, console: Console, workloads: tuple[str, ...], quiet: bool = False) -> None:
        self._console, self._quiet = console, quiet
        self._live = console.is_terminal and not quiet
        self._progress = Progress(
            SpinnerColumn(), TextColumn(f"{{task.description:<{LABEL_WIDTH}}}", markup=False), BarColumn(bar_width=12),
            TextColumn(f"{{task.fields[note]:<{NOTE_WIDTH}}}", markup=False), TimeElapsedColumn(), console=console,
            disable=not self._live)
        self._steps = len(STAGES) - len(FAN_OUT) + len(FAN_OUT) * len(workloads)
        self._total = self._progress.add_task("pipeline", total=self._steps, note="")
        self._twentieths = 0
        self._workloads, self._all = workloads, shard_label(workloads)
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
        shard = event.get("shard", "")
        label = name if shard == self._all else f"{name} {shard}".strip()
        if kind == "start":
            self._bars[label] = self._progress.add_task(shortened(label, LABEL_WIDTH), total=1.0, note="")
        elif kind == "progress" and label in self._bars:
            done, note = _share(event)
            self._progress.update(self._bars[label], completed=done, note=note)
        elif kind == "workload":
            self._count(name, event["workload"])
            self._update(f"{name} {event['workload']}", "done")
            if self._steps > MOST_LINES:
                self._print_share(f"{name} {event['workload']}")
        elif kind == "note":
            self._print(f"{name}: {event['message']}")
        elif kind in ("end", "failed") and label in self._bars:
            self._progress.remove_task(self._bars.pop(label))
            if name not in FAN_OUT:
                self._count(name, "")
            self._update(label, "done" if kind == "end" else "FAILED")
            self._print(f"{label}: FAILED" if kind == "failed" else f"{label}: {event['seconds']:.1f} s")

    def _update(self, label: str, ended: str) -> None:
        self._progress.update(self._total, completed=len(self._done),
                              note=f"{shortened(label, NOTE_WIDTH - 1 - len(ended))} {ended}")

    def _print(self, line: str) -> None:
        """A line where nothing can be drawn over."""
        if not self._live and not self._quiet:
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _print_share(self, last: str) -> None:
        """A line for each twentieth of the steps."""
        twentieths = 20 * len(self._done) // self._steps
        if twentieths > self._twentieths:
            self._twentieths = twentieths
            self._print(f"{len(self._done):,} of {self._steps:,} steps done, the last: {last}")

    def _count(self, stage: str, workload: str) -> None:
        """A step that ended is done, with all before it: those that the cache answered say nothing."""
        for earlier in STAGES[: STAGES.index(stage) + 1]:
            same_loop = any(earlier in loop and stage in loop for loop in LOOPS)
            names = (workload,) if same_loop else self._workloads if earlier in FAN_OUT else ("",)
            self._done |= {(earlier, name) for name in names}


def _share(event: dict[str, Any]) -> tuple[float, str]:
    """Share done (0..1) and a note of a progress event."""
    if "proved_share" in event:
        return event["proved_share"], f"{event['open_boxes']} boxes open, bound {event['worst_bound']:.2e}"
    if "said" in event:
        return event["done"], event["said"]
    if "status" in event:
        return 1.0, f"{event['status']}, {event['counterexamples']} counterexamples"
    return min(1.0, event["epoch"] / event["epochs"]), f"epoch {event['epoch']}, loss {event['loss']:.5f}"
