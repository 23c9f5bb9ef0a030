"""Tables of the pipeline benchmark: goals, stages, where the time goes, cost against the number of workloads."""

import statistics
from collections.abc import Mapping
from typing import Any

from benchmarks.harness.markdown import measured, number, paragraph, table, with_unit

Results = Mapping[str, Any]
SHARE_NAMES = {
    "work": "own work of the steps", "great_expectations": "validate (Great Expectations)",
    "mlflow": "gate and register (MLflow)", "starts_and_imports": "process starts and imports",
    "orchestration": "between the steps (kfp, command)"}
# In the order of the pipeline, not of the measuring.
ORDER = ("stages", "ingestion", "recorder", "serving", "rollback", "scale")


def goals_table(results: Results) -> str:
    """Every quantity that has a goal, whether it is met, and its peers of the same run."""
    rows = []
    for name in ORDER:
        entry = results["measurements"].get(name)
        if entry is None:
            continue
        if entry["status"] != "done":
            rows.append([name, f"failed: {entry['error']}", "", "no", ""])
            continue
        for key, quantity in entry["quantities"].items():
            if quantity["goal"]:
                goal = f"{quantity['goal']['comparison']} {_limit(quantity)}"
                rows.append([quantity["label"], measured(quantity), goal, "yes" if quantity["met"] else "**no**",
                             _peers(entry, key)])
    return _noted(table(["what", "median (spread)", "goal", "met", "beside it, in the same run"], rows), results)


def others_table(results: Results) -> str:
    """Every quantity without a goal that is no peer of one."""
    rows = [[quantity["label"], measured(quantity)] for name in ORDER
            for quantity in _done(results, name).get("quantities", {}).values()
            if not quantity["goal"] and not quantity["beside"]]
    return table(["what", "median (spread)"], rows)


def stages_table(results: Results) -> str:
    """Own seconds, start and peak memory of each stage."""
    entry = _done(results, "stages")
    if not entry:
        return _missing(results, "stages")
    rows = [[one["stage"], str(one["processes"]), with_unit(one["seconds"]["median"], "s"),
             with_unit(one["start_seconds"]["median"], "s"), with_unit(one["peak_gb"]["median"], "GB")]
            for one in entry["details"]["stages"]]
    runs = len(entry["quantities"]["run"]["values"])
    text = table(["stage", "processes", "own work", "process start and imports", "peak memory"], rows, (1, 2, 3, 4))
    return f"{text}\n\nMedians of {runs} runs; sums over the processes of a stage, memory of the largest one."


def shares_table(results: Results) -> str:
    """Where the wall time of a run goes."""
    entry = _done(results, "stages")
    if not entry:
        return _missing(results, "stages")
    seconds = entry["details"]["seconds_of_run"]
    totals = [sum(values) for values in zip(*seconds.values(), strict=True)]
    rows = []
    for kind, values in seconds.items():
        shares = sorted(value / total for value, total in zip(values, totals, strict=True))
        rows.append([SHARE_NAMES[kind], with_unit(statistics.median(values), "s"),
                     f"{with_unit(shares[0], 'share')} to {with_unit(shares[-1], 'share')}"])
    return table(["where the time goes", "median", "share of the run"], rows, (1, 2))


def scale_table(results: Results) -> str:
    """Seconds and memory for each number of workloads, with the fitted exponents."""
    entry = _done(results, "scale")
    if not entry:
        return _missing(results, "scale")
    details = entry["details"]
    numbers = details["workloads"]
    rows = [["**whole run**", *(with_unit(value, "s") for value in details["seconds"]),
             f"**{details['fit']['exponent']:.2f}**", ""],
            ["whole run, per workload", *(with_unit(value / n, "s") for value, n in
                                          zip(details["seconds"], numbers, strict=True)), "", ""]]
    rows += [[one["stage"], *(with_unit(value, "s") for value in one["seconds"]), f"{one['exponent']:.2f}",
              with_unit(one["peak_gb"][-1], "GB")] for one in details["stages"]]
    header = ["own work", *(f"{n} workloads" for n in numbers), "exponent", f"peak memory at {numbers[-1]}"]
    text = table(header, rows, range(1, len(header)))
    note = paragraph(
        f"{details['what'][0].upper()}{details['what'][1:]}.",
        f"The exponent is the slope of the logarithms (least squares); from {numbers[-2]} to {numbers[-1]} workloads",
        f"alone it is {details['exponent_of_last_two']:.2f}.")
    return f"{text}\n\n{note}"


def without_shards_line(results: Results) -> str:
    """What the same runs took before the fan-out took shards: a record, no command of this code measures it again."""
    details, machine = results["scale"]["details"], results["machine"]
    runs = ", ".join(f"{with_unit(seconds, 's')} with {number_}" for number_, seconds in
                     zip(details["workloads"], details["seconds"], strict=True))
    return paragraph(
        "With one process for each step and workload, as before there were shards, the same runs took", f"{runs}",
        f"workloads ({machine['cpu_model']}, {machine['cores']} cores, {machine['date'][:10]}: another processor, so",
        "that the ratio is rough).")


def machine_line(results: Results) -> str:
    """What it was measured on, in one sentence."""
    machine = results["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items()
                         if version != "not installed")
    return paragraph(
        f"{machine['cores']} cores ({machine['cpu_model']}), {machine['memory_gib']} GiB, {machine['system']}, Linux",
        f"{machine['kernel']}, Python {machine['python']}; {packages}. {machine['date'][:10]}.")


def _limit(quantity: Mapping[str, Any]) -> str:
    return with_unit(quantity["goal"]["limit"], quantity["unit"], exact=True)


def _peers(entry: Mapping[str, Any], key: str) -> str:
    peers = [f"{one['label']}: {measured(one)}" for one in entry["quantities"].values() if one["beside"] == key]
    if peers:
        peers += [f"{name}: not installed" for name in entry["details"].get("not_installed", [])]
    return "; ".join(peers)


def _noted(text: str, results: Results) -> str:
    """What a reader must know about how it was measured: trial sizes, a busy machine."""
    notes = []
    measurements = results["measurements"]
    trials = [name for name in ORDER if measurements.get(name, {}).get("quick")]
    if trials:
        notes.append(f"Trial sizes, numbers without meaning: {', '.join(trials)}.")
    changed = [name for name in ORDER if measurements.get(name, {}).get("code_changed_meanwhile")]
    if changed:
        notes.append(f"The code was changed while these ran: {', '.join(changed)}.")
    busy = {name: measurements[name]["load_average_before"] for name in ORDER
            if measurements.get(name, {}).get("load_average_before", 0) > results["machine"]["cores"]}
    if busy:
        notes.append("The machine was busy with other work when these began (load average): "
                     + ", ".join(f"{name} {number(value)}" for name, value in busy.items()) + ".")
    return "\n\n".join([text, *notes])


def _done(results: Results, name: str) -> dict[str, Any]:
    entry = results["measurements"].get(name, {})
    return dict(entry) if entry.get("status") == "done" else {}


def _missing(results: Results, name: str) -> str:
    entry = results["measurements"].get(name)
    return f"*{name}: {'failed: ' + entry['error'] if entry else 'not measured yet'}.*"
