"""Tables of docs/benchmarks/autoscaling-rules.md: the worst that an unproved policy does, and how often."""

from collections.abc import Mapping
from typing import Any

from benchmarks.harness.markdown import mean_and_spread, number, paragraph, table
from systems.autoscaling.benchmarks.adversarial.demands import DEMANDS
from systems.autoscaling.benchmarks.adversarial.plot import worst_row

_TARGETS = {"target_cpu_limit_cores": "cores", "target_memory_limit_mib": "MiB", "target_replicas": "replicas"}
_HEADER = ["demand", "of", "unproved policy, near a state that occurred", "proved policy there",
           "unproved policy, anywhere", "steps that it is about, %", "broken by the unproved policy, % of these",
           "by the proved one"]


def states_table(results: Mapping[str, Any]) -> str:
    """A row a demand and target; `a -> b` is what is there and what is set, or what is set before and after."""
    entries, rows = results["entries"], []
    for row in entries[0]["rows"]:
        demand, control = row["demand"], row["control"]
        same = [own for entry in entries for own in entry["rows"]
                if (own["demand"], own["control"]) == (demand, control)]
        near, anywhere = (worst_row(results, demand, control, where) for where in ("near", "anywhere"))
        proved = [own["plain"] == "PROVED" for own in same]
        nothing = "none: proved of it, too" if all(proved) else "none was found"
        rows.append([
            DEMANDS[demand], _TARGETS[control], _change(near, "near", "plain", nothing),
            _change(near, "near", "proved", ""), _change(anywhere, "anywhere", "plain", nothing),
            _shares(same, "plain", "applies"), _shares(same, "plain", "broken"), _shares(same, "proved", "broken")])
    return table(_HEADER, rows, range(2, len(_HEADER)))


def _change(row: Mapping[str, Any] | None, where: str, form: str, nothing: str) -> str:
    if row is None:
        return nothing
    found = row[where]
    targets = found["targets"][form]
    before, after = targets if len(targets) > 1 else (found["present"], targets[0])
    return " → ".join(f"{round(value)}" if row["whole"] else number(value) for value in (before, after))


def _shares(rows: list[Mapping[str, Any]], form: str, what: str) -> str:
    values = [row["shares"][form][what] for row in rows]
    return f"{100 * values[0]:.0f}" if len(set(values)) == 1 else mean_and_spread(values, 1, 100)


def conditions_line(results: Mapping[str, Any]) -> str:
    """Policies, episodes, how well they do."""
    entries = results["entries"]
    proved = sum(entry["proved"] == "PROVED" for entry in entries)
    figures = {form: {name: mean_and_spread([entry["held_out"][form][name] for entry in entries], digits, scale)
                      for name, digits, scale in (("violating_share", 1, 100), ("cost", 2, 1))}
               for form in ("plain", "proved")}
    said = [f"{figures[form]['violating_share']} % of the steps at a cost of {figures[form]['cost']} "
            f"({'un' * (form == 'plain')}proved)" for form in ("plain", "proved")]
    return paragraph(
        f"{len(entries)} policies of each form on the same seeds and episodes, {entries[0]['rounds']} rounds; the",
        f"whole specification is PROVED of {proved} of {len(entries)} proved policies and refuted of all others.",
        f"{entries[0]['held_out']['plain']['steps']:,} steps of held-out episodes a policy, in which they miss the",
        f"objective in {' and '.join(said)}.")
