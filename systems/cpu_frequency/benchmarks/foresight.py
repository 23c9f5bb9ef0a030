"""What a clock could save that knew the coming seconds, on the held-out services of `cpu-frequency-policies`.

    python -m benchmarks cpu-frequency-foresight

In each second every level is tried in the simulator, held for SECONDS, and the one is set that comes out best: by its
cost and a price of each second that violates, and of how far (else a queue stays that takes longer to clear than is
known). With no price that is the clock that costs least, whatever the latency.
No governor knows the load that comes, or the service's law; what this one saves is more than any of them can. Four
minutes of a core.
"""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.entries import Entries, made_by
from benchmarks.harness.machine import describe_machine, now_utc
from benchmarks.harness.markdown import paragraph, table
from benchmarks.harness.result_file import RESULTS, read_results
from benchmarks.harness.task_digest import with_task
from feature_store.errors import InputError
from models.control.contract.environment import Outcome
from models.tasks.control.comparing import JudgedEpisodes
from models.tasks.task import load_task
from systems.cpu_frequency.benchmarks.policies import OUTPUT as POLICIES
from systems.cpu_frequency.processors import PROCESSORS
from systems.cpu_frequency.programs import Programs
from systems.cpu_frequency.simulator import FUTURE, CpuFrequency, State

OUTPUT = RESULTS / "cpu_frequency_foresight.json"
FORMAT = "assay-cpu-frequency-foresight/1"
TASK = "cpu_frequency"
PRICES = (0.0, 0.05, 0.2, 0.5, 1.0)  # of a second that violates, in the unit of cost
HOW_FAR = 0.2  # times the price: of latency at e times its objective
SECONDS = FUTURE  # that are known
LEVELS = tuple(sorted({level for one in PROCESSORS for level in one.levels}))


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py: none of its own."""


def run(options: argparse.Namespace) -> None:
    """Measures what is not there yet."""
    torch.set_num_threads(1)
    task, system = load_task(TASK), CpuFrequency()
    code = with_task(task, code_digest("systems.cpu_frequency.benchmarks.foresight",
                                       ("systems.cpu_frequency", "models.control")))
    entries = Entries(options.output, FORMAT, lambda one: one["price"], made_by(code))
    entries.content |= {"machine": {**describe_machine(), "date": now_utc()}, "rule": _best_rule()}
    judged = JudgedEpisodes(task, system)
    episodes = system.draw("held_out", judged.count, judged.steps, judged.seed)
    for price in PRICES:
        if not entries.has(price):
            cost, violated = foreseen(system, episodes, judged.steps, price, judged.warm_up)
            entries.add({"price": price, "code": code, "cost": cost, "violating_share": violated})
            print(f"price {price:g}: cost {cost:.4f}, {violated:.2%} violating", flush=True)


def foreseen(system: CpuFrequency, episodes: Programs, steps: int, price: float, warm_up: int) -> tuple[float, float]:
    """Mean cost and violating share of a clock that knows the coming seconds.

    Args:
        price: of a second that violates.
        warm_up: first steps, which do not count.
    """
    costs, violated = [], []
    with torch.inference_mode():
        state = system.reset(episodes)
        for step in range(steps):
            tried = [_held(system, state, level, price) for level in LEVELS]
            best = torch.stack([worth for *_, worth in tried]).argmin(0)
            if step >= warm_up:
                costs.append(_of(best, [cost for _, cost, _, _ in tried]))
                violated.append(_of(best, [one for _, _, one, _ in tried]))
            state = _chosen(best, [after for after, *_ in tried])
    return float(torch.stack(costs).mean()), float(torch.stack(violated).mean())


def _held(system: CpuFrequency, state: State, level: float, price: float) -> tuple[State, Tensor, Tensor, Tensor]:
    """A level held for SECONDS: the state after the first, its cost and violation, and what all of them come to."""
    targets = torch.full((len(state.backlog), 1), level)
    first, outcome = system.step(state, targets)
    after, worth = first, _worth(outcome, price)
    for _ in range(SECONDS - 1):
        after, later = system.step(after, targets)
        worth = worth + _worth(later, price)
    return first, outcome.cost, outcome.violated, worth


def _worth(outcome: Outcome, price: float) -> Tensor:
    return outcome.cost + price * (outcome.violated + HOW_FAR * outcome.violation)


def _of(best: Tensor, values: Sequence[Tensor]) -> Tensor:
    """(N,) of each service the value of its best level."""
    return torch.stack(list(values)).gather(0, best[None])[0]


def _chosen(best: Tensor, states: Sequence[State]) -> State:
    """Each service as it is after its best level."""
    return states[0]._replace(
        temperature_c=_of(best, [one.temperature_c for one in states]),
        backlog=_of(best, [one.backlog for one in states]),
        seen={name: _of(best, [one.seen[name] for one in states]) for name in states[0].seen})


def _best_rule() -> dict[str, Any]:
    """Name, cost and violating share of the rule that costs least on these services. Raises InputError."""
    found = (read_results(POLICIES) or {"entries": []})["entries"]
    if not found:
        raise InputError(f"{POLICIES.name} must have rules, got none; run `python -m benchmarks "
                         "cpu-frequency-policies` first")
    rules = {name: [sum(one["controllers"][name][figure][0] for one in found) / len(found)
                    for figure in ("cost", "violating_share")] for name in found[0]["controllers"] if name != "policy"}
    best = min(rules, key=lambda name: rules[name][0])
    return {"name": best, "cost": rules[best][0], "violating_share": rules[best][1]}


def foresight_table(results: Mapping[str, Any]) -> str:
    """A price of a violating second a row, and the best rule."""
    rule = results["rule"]
    rows = [["none: the clock that costs least" if one["price"] == 0 else f"{one['price']:g}", f"{one['cost']:.3f}",
             f"{100 * one['violating_share']:.1f} %", f"{100 * (1 - one['cost'] / rule['cost']):.1f} %"]
            for one in sorted(results["entries"], key=lambda one: float(one["price"]))]
    rows.append([f"`{rule['name']}`, which knows nothing of it", f"{rule['cost']:.3f}",
                 f"{100 * rule['violating_share']:.1f} %", ""])
    header = ["price of a violating second", "cost", "violating steps", "below the best rule's cost"]
    return table(header, rows, (1, 2, 3))


def conditions_line(results: Mapping[str, Any]) -> str:
    """How it was measured."""
    return paragraph(f"The episodes of the table above. {len(LEVELS)} levels tried in each second, {SECONDS} seconds "
                     f"ahead. {results['machine']['date'][:10]}.")
