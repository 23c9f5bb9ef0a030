"""The demo in a terminal while it goes: load, latency against the objective, quota, and what the controller does."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from pipelines.demo.history import History
from pipelines.demo.stage import ACTED, CONSTANT, LEFT

_BLOCKS = " ▁▂▃▄▅▆▇█"
_WIDTH, _EVENTS = 60, 6
_CPU = "target_cpu_limit_cores"


class Screen:
    """Draws on a terminal; elsewhere it prints a line every few seconds."""

    def __init__(self, console: Console, seconds: float) -> None:
        self._console, self._seconds = console, seconds
        self._live = Live(console=console, refresh_per_second=2, transient=True) if console.is_terminal else None
        self._told = 0

    def __enter__(self) -> "Screen":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def show(self, history: History, records: Sequence[dict[str, Any]]) -> None:
        """The present state."""
        if self._live:
            self._live.update(drawn(history, records, self._seconds))
            return
        for record in records[self._told:]:
            self._console.print(line(record), highlight=False, markup=False, soft_wrap=True)
        self._told = len(records)


def drawn(history: History, records: Sequence[dict[str, Any]], seconds: float) -> RenderableType:
    """One picture."""
    table = Table.grid(padding=(0, 1))
    table.add_row("requests a second", *_row(history, LEFT, "rate_rps", 0.0))
    table.add_row("", "", "")
    for service, label in ((ACTED, "with assay control"), (LEFT, "left alone"), (CONSTANT, "constant, same cost")):
        table.add_row(Text(label, style="bold"), "", "")
        table.add_row("  p99, ms", *_row(history, service, "p99_ms", history.slo_ms))
        table.add_row("  quota, cores", *_row(history, service, "quota", 0.0, most=0.8))
        table.add_row("  used, cores", *_row(history, service, "used", 0.0, most=0.8))
    passed = history.seconds[-1] if history.seconds else 0.0
    latest = [Text(line(record)) for record in records[-_EVENTS:]] or [Text("the controller is starting")]
    title = (f"assay demo: {max(passed, 0):.0f} of {seconds:.0f} s; red: p99 above the objective of "
             f"{history.slo_ms:g} ms")
    return Panel(Group(table, Text(""), *latest), title=title, title_align="left")


def line(record: dict[str, Any]) -> str:
    """What the controller did in a step."""
    done = (record.get("done") or record.get("targets") or {}).get(_CPU)
    set_to = "" if done is None else f"quota {done:.3f} cores"
    shield = ", ".join(f"shield: {one['reason'].replace('_', '-')} {one['wanted']:.3g} -> {one['allowed']:.3g}"
                       for one in record.get("changes", ()))
    parts = (record["at"][11:19], record["actor"].ljust(8), set_to, record["reason"], shield, record["failure"])
    return "  ".join(part for part in parts if part)


def _row(history: History, service: str, name: str, limit: float, most: float = 0.0) -> tuple[Text, str]:
    """A sparkline of the last samples, red above the limit, and the last value."""
    values = history.series[service][name][-_WIDTH:]
    top = 2 * limit if limit else max([value for value in values if value is not None] + [most, 1e-9])
    text = Text()
    for value in values:
        block = " " if value is None or value != value else _BLOCKS[min(8, 1 + int(8 * min(value, top) / top * 0.999))]
        text.append(block, style="red" if limit and value is not None and value > limit else "green")
    last = next((value for value in reversed(values) if value is not None), None)
    return text, "" if last is None else f"{last:.3g}"
