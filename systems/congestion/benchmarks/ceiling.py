"""The most that any sender could earn on the held-out links of `congestion-rules`; what one earns that is told them.

    python -m benchmarks congestion-ceiling [--pcc-rl FOLDER]

Nobody gets more through than the bandwidth that others leave, waits less than the round trip without a queue, or loses
less than chance takes (`ceiling`). No real sender is told bandwidth and cross traffic as they are when an interval
begins; one that is sends the best of SHARES of what is free (`told`). --pcc-rl is a checkout of PCC-RL: without it, its
row is left out. A minute.
"""

import argparse
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.entries import Entries, made_by
from benchmarks.harness.machine import describe_machine, now_utc
from benchmarks.harness.markdown import paragraph, table
from benchmarks.harness.result_file import RESULTS, read_results
from feature_store.errors import InputError
from systems.congestion import equations as law
from systems.congestion.benchmarks import pcc_rl
from systems.congestion.benchmarks.against_rules import (
    CONNECTIONS,
    GOALS,
    HELD_OUT,
    PACKETS,
    RULES,
    SEED,
    STEPS,
    WARM_UP,
)
from systems.congestion.benchmarks.against_rules import OUTPUT as REWARDS
from systems.congestion.links import FAMILIES, Links
from systems.congestion.simulator import Congestion

OUTPUT = RESULTS / "congestion_ceiling.json"
FORMAT = "assay-congestion-ceiling/1"
PLACES = (*FAMILIES, PACKETS)
SHARES = (0.85, 0.9, 0.94, 0.97, 0.99, 1.0)  # of what is free


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--pcc-rl", type=Path, help="checkout of PCC-RL; without it, its row is left out")


def run(options: argparse.Namespace) -> None:
    """Measures what is not there yet."""
    torch.set_num_threads(1)
    code = code_digest("systems.congestion.benchmarks.ceiling", ("systems.congestion", "models.control"))
    entries = Entries(options.output, FORMAT, lambda one: PLACES.index(one["place"]), made_by(code))
    entries.content["machine"] = {**describe_machine(), "date": now_utc()}
    for number, place in enumerate(PLACES):
        if entries.has(number) or (place == PACKETS and options.pcc_rl is None):
            continue
        found = _of_packets(pcc_rl.load(options.pcc_rl)) if place == PACKETS else _of_family(place)
        entries.add({"place": place, "code": code, **found, **_earned(place)})
        print(f"{place}: at most {found['ceiling']:.3f}", flush=True)


def _of_family(family: str) -> dict[str, Any]:
    links = Congestion().draw("held_out", HELD_OUT, STEPS + 1, SEED, family)
    told = {share: told_sender(links, share) for share in SHARES}
    best = max(told, key=lambda share: told[share][0])
    return {"ceiling": max(ceiling for _, ceiling in told.values()), "told": told[best][0], "share": best}


def told_sender(links: Links, share: float) -> tuple[float, float]:
    """Mean reward an interval of a sender that is told the link, and the most that it could have been.

    Args:
        share: of what others leave of the bandwidth, which it sends.
    """
    system, earned, most = Congestion(), [], []
    low = system.controls[0].low
    with torch.no_grad():
        state = system.reset(links)
        for step in range(STEPS):
            place = ((state.time_s / links.grid_s).long() % len(links.bandwidth_pps))[None]
            cross = links.cross_pps.gather(0, place)[0]
            free = (links.bandwidth_pps.gather(0, place)[0] - cross).clamp(min=low)
            state, outcome = system.step(state, (share * free / (1 - links.loss))[:, None])
            if step >= WARM_UP:
                earned.append(outcome.reward)
                # reward and cost are what the whole bandwidth of the interval is worth
                most.append(outcome.reward + outcome.cost - _lost(cross, links.base_s, links.loss))
    return float(torch.stack(earned).mean()), float(torch.stack(most).mean())


def _of_packets(module: Any) -> dict[str, Any]:
    """Of the connections of `pcc_rl.rewards`: 64 links, each alone."""
    random.seed(SEED)
    links = [pcc_rl.Connection(module).network.links[0] for _ in range(CONNECTIONS)]
    return {"ceiling": float(np.mean([law.THROUGHPUT * one.bw - _lost(0.0, 2 * one.dl, one.lr) for one in links]))}


def _lost(cross_pps: Any, base_s: Any, loss: Any) -> Any:
    """What nobody can earn of a link: what others send of it, the round trip without a queue, what chance loses."""
    return law.THROUGHPUT * cross_pps + law.LATENCY * base_s + law.LOSS * loss


def _earned(place: str) -> dict[str, Any]:
    """Mean rewards there of the best rule that was tuned to these links, and of the policies. Raises InputError."""
    here = [one for one in (read_results(REWARDS) or {"entries": []})["entries"] if one["place"] == place]
    rules = {one["controller"]: one["rewards"]["own"]["mean"] for one in here if one["controller"] in RULES}
    policies = [one["rewards"]["all"]["mean"] for one in here if one["controller"].startswith("policy")]
    if not rules or not policies:
        raise InputError(f"{REWARDS.name} must have rules and policies on the links {place}, got none; run `python -m "
                         "benchmarks congestion-rules` first")
    best = max(rules, key=lambda name: rules[name])
    return {"rule": best, "of_rule": rules[best], "of_policies": float(np.mean(policies))}


def ceiling_table(results: Mapping[str, Any]) -> str:
    """A kind of links a row."""
    def over(value: float | None, rule: float) -> str:
        return "not tried" if value is None else f"{value:.2f} ({100 * (value / rule - 1):+.1f} %)"

    rows = [[one["place"], f"{one['of_rule']:.2f} ({one['rule']})", over(one["of_policies"], one["of_rule"]),
             over(one.get("told"), one["of_rule"]), over(one["ceiling"], one["of_rule"]),
             f"+{100 * GOALS[one['place']]:.0f} %"] for one in results["entries"]]
    header = ["links", "best rule, tuned to these", "policy", "sender that is told the link", "nobody can earn more",
              "goal"]
    return table(header, rows, range(2, 6))


def conditions_line(results: Mapping[str, Any]) -> str:
    """How it was measured."""
    return paragraph("The links and intervals of the table above; in brackets: over the best rule. A sender that is "
                     f"told the link sends the best of {len(SHARES)} shares of what is free, one for all of a kind. "
                     f"{results['machine']['date'][:10]}.")
