"""The simulator's fluid beside PCC-RL's packets: interval by interval on the same links at the same rates, and steps a
second of both.

    python -m benchmarks congestion-packets --pcc-rl FOLDER

Links and first rates are drawn as PCC-RL draws them; then the rates wander at random, as far as a step lets them,
around what each link carries. Both begin with a queue of their own, so the first intervals do not count. --pcc-rl is a
checkout of PCC-RL. Half a minute.
"""

import argparse
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.harness.machine import describe_machine, now_utc
from benchmarks.harness.markdown import paragraph, table
from benchmarks.harness.result_file import RESULTS, write_results
from systems.congestion.benchmarks import pcc_rl
from systems.congestion.links import Links
from systems.congestion.simulator import Congestion

OUTPUT = RESULTS / "congestion_packets.json"
FORMAT = "assay-congestion-packets/1"
LINKS, STEPS, WARM_UP, SEED = 64, 100, 10, 5
TIMED_LINKS, TIMED_STEPS, TIMED_RUNS = 8192, 20, 5
FIGURES = ("acknowledged, packets a second", "round trip, s", "share lost", "reward")


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--pcc-rl", type=Path, required=True, help="checkout of PCC-RL")


def run(options: argparse.Namespace) -> None:
    """Measures all of it anew."""
    torch.set_num_threads(1)
    module = pcc_rl.load(options.pcc_rl)
    began = time.perf_counter()
    packets, fluid = side_by_side(module)
    write_results(options.output, {
        "format": FORMAT, "machine": {**describe_machine(), "date": now_utc()},
        "entries": [compared(name, packets[number], fluid[number]) for number, name in enumerate(FIGURES)],
        "steps_a_second": {"with gradients": _speed(True), "without": _speed(False), "packets": _speed_of(module)},
        "seconds": time.perf_counter() - began})


def side_by_side(module: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(4, T, N) of packets and of the fluid: FIGURES of each interval that counts, of each link."""
    random.seed(SEED)
    connections = [pcc_rl.Connection(module) for _ in range(LINKS)]
    bandwidth = np.array([one.network.links[0].bw for one in connections])
    rates, draws = np.array([one.sender.rate for one in connections]), np.random.default_rng(SEED)
    system, links = Congestion(), as_links(connections)
    (control,), state = system.controls, system.reset(links)
    found: tuple[list[Any], list[Any]] = [], []
    with torch.no_grad():
        for _ in range(STEPS):
            wished = (rates * np.exp(draws.normal(0.0, 0.12, LINKS))).clip(0.3 * bandwidth, 1.6 * bandwidth)
            rates = wished.clip((1 - control.most_down) * rates, (1 + control.most_up) * rates)
            state, outcome = system.step(state, torch.tensor(rates, dtype=torch.float32)[:, None])
            past, rows = state.past, []
            for one, rate, seconds in zip(connections, rates, past.interval_s.tolist(), strict=True):
                one.sender.set_rate(float(rate))
                reward = float(one.network.run_for_dur(seconds))
                told = one.sender.get_run_data()
                rows.append((one.sender.acked / seconds, told.get("avg latency"), told.get("loss ratio"), reward))
            found[0].append(np.array(rows, dtype=float).T)
            found[1].append(torch.stack([past.acked_pps, past.rtt_s, past.loss_share, outcome.reward]).double().numpy())
    packets, fluid = (np.stack(rows[WARM_UP:], axis=1) for rows in found)
    return packets, fluid


def as_links(connections: list[pcc_rl.Connection]) -> Links:
    """The same links for the fluid, without noise."""
    links = [one.network.links[0] for one in connections]

    def of(value: Callable[[Any], float]) -> torch.Tensor:
        return torch.tensor([value(one) for one in links], dtype=torch.float32)

    drawn, zero = Congestion().draw("train", LINKS, STEPS + 3, 0, "aurora"), torch.zeros(LINKS)
    return replace(
        drawn, bandwidth_pps=of(lambda one: one.bw).expand_as(drawn.bandwidth_pps).contiguous(),
        cross_pps=torch.zeros_like(drawn.cross_pps), base_s=of(lambda one: 2 * one.dl),
        queue_packets=of(lambda one: one.max_queue_delay * one.bw), loss=of(lambda one: one.lr), rival=zero,
        first_pps=torch.tensor([one.sender.starting_rate for one in connections], dtype=torch.float32), jitter_s=zero,
        noise=torch.zeros_like(drawn.noise))


def compared(name: str, packets: NDArray[np.float64], fluid: NDArray[np.float64]) -> dict[str, Any]:
    """Means, and correlations over all intervals and within each link; (T, N) each."""
    own = [float(np.corrcoef(a, b)[0, 1]) for a, b in zip(packets.T, fluid.T, strict=True) if a.std() and b.std()]
    return {"figure": name, "packets": float(packets.mean()), "fluid": float(fluid.mean()),
            "correlation": float(np.corrcoef(packets.ravel(), fluid.ravel())[0, 1]),
            "within_links": float(np.median(own))}


def _speed(gradients: bool) -> float:
    """Steps of a link a second, the median of some runs."""
    system, taken = Congestion(), []
    links, share = system.draw("train", TIMED_LINKS, TIMED_STEPS + 3, 0), torch.tensor(1.0, requires_grad=True)
    for _ in range(TIMED_RUNS + 1):  # the first warms up
        began = time.perf_counter()
        with torch.set_grad_enabled(gradients):
            state, earned = system.reset(links), torch.tensor(0.0)
            for _ in range(TIMED_STEPS):
                state, outcome = system.step(state, (share * state.past.acked_pps.detach())[:, None])
                earned = earned + outcome.reward.mean()
        if gradients:
            earned.backward()  # type: ignore[no-untyped-call]
        taken.append(time.perf_counter() - began)
    return TIMED_LINKS * TIMED_STEPS / float(np.median(taken[1:]))


def _speed_of(module: Any) -> float:
    """The same of PCC-RL's simulator, which plays one link at a time."""
    random.seed(SEED)
    connections, taken = [pcc_rl.Connection(module) for _ in range(LINKS)], []
    for _ in range(TIMED_RUNS):
        began = time.perf_counter()
        for one in connections:
            for _ in range(TIMED_STEPS):
                one.network.run_for_dur(one.seconds)
        taken.append(time.perf_counter() - began)
    return LINKS * TIMED_STEPS / float(np.median(taken))


def packets_table(results: Mapping[str, Any]) -> str:
    """A figure of an interval a row."""
    rows = [[one["figure"], f"{one['packets']:.3g}", f"{one['fluid']:.3g}", f"{one['correlation']:.3f}",
             f"{one['within_links']:.3f}"] for one in results["entries"]]
    header = ["of an interval", "packets, mean", "fluid, mean", "correlation", "within a link, median"]
    return table(header, rows, range(1, 5))


def conditions_line(results: Mapping[str, Any]) -> str:
    """How it was measured, and how fast both are."""
    speed = results["steps_a_second"]
    times = [f"{speed[how] / speed['packets']:.0f}" for how in ("with gradients", "without")]
    return paragraph(
        f"{LINKS} links, {STEPS - WARM_UP} intervals each. On one core the fluid takes {speed['with gradients']:,.0f} "
        f"steps of a link a second with gradients, {speed['without']:,.0f} without ({TIMED_LINKS:,} links at once), "
        f"PCC-RL's simulator {speed['packets']:,.0f}: {' and '.join(times)} times as many; medians of {TIMED_RUNS} "
        f"runs. {results['machine']['date'][:10]}.")
