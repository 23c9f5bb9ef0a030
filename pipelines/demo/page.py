"""The page that the demo leaves: what the services and the controller did, and the price of doing nothing."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from models.reporting.document import Cell, Document, Facts, Note, Plot, Section, Table, figures, render, text
from models.reporting.figures import BASELINE, INK, SOFT, UNVERIFIED, VERIFIED, embed, logarithmic
from models.reporting.formatting import number
from pipelines.demo.history import History
from pipelines.demo.screen import line
from pipelines.demo.stage import ACTED, CONSTANT, LEFT

_WIDTH = 9.0
NAMES = {ACTED: "with assay control", LEFT: "left alone", CONSTANT: "constant, at about the same cost"}
_STYLES = {ACTED: (VERIFIED, "-"), LEFT: (BASELINE, "--"), CONSTANT: (UNVERIFIED, "-.")}


def page(history: History, records: Sequence[dict[str, Any]], context: dict[str, str]) -> str:
    """The whole page as HTML. context: label -> text of what ran."""
    above = {ACTED: "of the time", LEFT: "the price of doing nothing", CONSTANT: "the same cost, spread evenly"}
    facts = Facts(tuple(
        (f"p99 over {history.slo_ms:g} ms, {NAMES[service]}", f"{100 * history.violating(service):.0f} %",
         f"{said}; {number(history.mean_quota(service))} cores on average") for service, said in above.items()))
    plots = (_plot(history, "rate_rps", "requests a second", 0.0), _plot(history, "p99_ms", "p99, ms", history.slo_ms),
             _plot(history, "quota", "quota, cores", 0.0))
    shielded = [record for record in records if record["changes"]]
    rows = tuple((text(record["at"][11:19]), text(record["actor"]),
                  *figures([number(record["seen"].get("p99_ms") or float("nan")),
                            number((record["done"] or {}).get("target_cpu_limit_cores") or float("nan"))]),
                  text("; ".join(_why(record)))) for record in records)
    steps = Table(("Time (UTC)", "Who decided", "p99 seen, ms", "Quota set, cores", "Why, and what the shield changed"),
                  rows, f"{len(records)} steps, {len(shielded)} changed by the shield")
    what = Table(("", ""), tuple((text(label), Cell(value)) for label, value in context.items()))
    return render(Document(
        "A controller that acts", "three equal nginx servers under the same load on this machine", (), (facts, Note(
            "The controller's policy is proved: while the objective is missed it takes nothing away, more load or "
            "latency never means less, and at most a quarter goes in one step.")),
        (Section("course", "What happened", plots), Section("steps", "What the controller did", (steps,)),
         Section("what", "What ran", (what,)))))


def _why(record: dict[str, Any]) -> list[str]:
    return [part for part in (record["reason"], line({**record, "at": " " * 19, "actor": "", "reason": "", "done": {},
                                                      "targets": {}}).strip()) if part]


def _plot(history: History, name: str, label: str, limit: float) -> Plot:
    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        for service, (colour, dash) in _STYLES.items():
            values = [np.nan if value is None else value for value in history.series[service][name]]
            axes.plot(history.seconds, values, color=colour, ls=dash, label=NAMES[service])
        if limit:
            axes.axhline(limit, color=INK, lw=0.8)
            seen = [limit, *(value for service in NAMES for value in history.known(service, name))]
            logarithmic(axes, "y", min(seen), 1.2 * max(seen))
            axes.annotate("objective", (1, limit), xycoords=("axes fraction", "data"), xytext=(-4, 3),
                          textcoords="offset points", ha="right", fontsize=8)
        else:
            axes.set_ylim(bottom=0)
        if name == "quota":
            used = [np.nan if value is None else value for value in history.series[ACTED]["used"]]
            axes.plot(history.seconds, used, color=SOFT, lw=0.9, ls=":", label="used, with assay control")
        axes.set(xlabel="seconds of load", ylabel=label)
        axes.set_xlim(left=0)
        axes.legend(loc="upper left")

    return Plot(embed(draw, _WIDTH, 2.4, f"demo-{name}", f"{label}, of the services over the demo"), _WIDTH)
