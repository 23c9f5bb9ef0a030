"""PCC-RL's packet simulator (github.com/PCCproject/PCC-RL, a checkout of it), stepped by our controllers.

Its network, links, reward and random draws are its own; only its gym environment, which knows one learner's features,
is left out: each interval is run as it runs them, half the least round trip long (half a mean one there).
"""

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor

from feature_store.errors import InputError
from models.control.contract.derived_signals import NUMBERS
from systems.congestion import equations as law
from systems.congestion.interface import SIGNALS
from systems.congestion.observer import CongestionObserver

NAMES = tuple(signal.name for signal in SIGNALS)
_LOW, _HIGH = (np.array([getattr(signal, side) for signal in SIGNALS]) for side in ("low", "high"))
FEATURES = ["sent latency inflation", "latency ratio", "send ratio"]  # of its own learner
MOST_QUEUEING_S = 0.1  # told to those that ask


def load(folder: Path) -> Any:
    """Its module network_sim. Raises InputError: it is not there."""
    source = folder / "src" / "gym" / "network_sim.py"
    if not source.is_file():
        raise InputError(f"--pcc-rl: expected a checkout of PCC-RL, got no src/gym/network_sim.py in {folder}")
    # gymnasium is what gym became; arguments on the command line are ours
    sys.modules.update({"gym": gymnasium, "gym.utils": gymnasium.utils, "gym.envs": gymnasium.envs,
                        "gym.envs.registration": gymnasium.envs.registration})
    sys.path.insert(0, str(source.parent))
    arguments, sys.argv = sys.argv, sys.argv[:1]
    try:
        import network_sim  # type: ignore[import-not-found]
    finally:
        sys.argv = arguments
        sys.path.pop(0)
    return network_sim


class Connection:
    """One sender on one link, drawn as `create_new_links_and_senders` draws them. seconds: of the next interval."""

    def __init__(self, module: Any) -> None:
        bandwidth, latency = random.uniform(100, 500), random.uniform(0.05, 0.5)
        queue, loss = 1 + int(np.exp(random.uniform(0, 8))), random.uniform(0.0, 0.05)
        links = [module.Link(bandwidth, latency, queue, loss) for _ in range(2)]
        self.sender = module.Sender(random.uniform(0.3, 1.5) * bandwidth, [links[0], links[1]], 0, FEATURES, 10)
        self.network = module.Network([self.sender], links)
        self._observer, self._least, self.seconds = CongestionObserver(), law.LeastRoundTrip(), 3 * latency
        for _ in range(2):
            self.row, _ = self.interval()

    def interval(self) -> tuple[dict[str, float], float]:
        """Runs one: what is observed after it, and its reward."""
        reward = float(self.network.run_for_dur(self.seconds))
        seen = self.sender.get_run_data()
        trip = float(seen.get("avg latency"))
        least_s = self._least.heard(trip, self.sender.rate, self.seconds) if trip > 0 else 0.0
        known = {"acked_pps": self.sender.acked / self.seconds, "rtt_s": trip, "min_rtt_s": least_s,
                 "interval_s": self.seconds,
                 "rtt_slope": float(np.clip(seen.get("sent latency inflation"), -1, 1)),
                 "loss_share": float(seen.get("loss ratio"))}
        row = self._observer.observe(known if trip > 0 else {}, {"rate_pps": self.sender.rate}, self.seconds)
        if trip > 0:
            self.seconds = law.interval(least_s, self.sender.rate, NUMBERS)
            self.row = row | {"most_queueing_s": MOST_QUEUEING_S}
        else:
            self.row = {**self.row, "rate_pps": self.sender.rate}
        return self.row, reward


def rewards(module: Any, act: Callable[[Tensor, float], Tensor], count: int, steps: int, warm_up: int,
            seed: int) -> np.ndarray:
    """(N,) mean reward of each connection, after the first steps; equal seeds are equal links.

    Args:
        act: (N, n) observations and seconds -> (N, 1) targets; `acting_of` makes it of a controller.
    """
    random.seed(seed)
    connections = [Connection(module) for _ in range(count)]
    random.seed(seed + 1)
    total = np.zeros(count)
    for step in range(steps):
        rows = np.array([[one.row[name] for name in NAMES] for one in connections]).clip(_LOW, _HIGH)
        before = np.array([one.sender.rate for one in connections])
        targets = act(torch.tensor(rows, dtype=torch.float32), 0.1 * step)[:, 0].double().numpy()
        for place, (one, target) in enumerate(zip(connections, targets, strict=True)):
            one.sender.set_rate(float(np.clip(target, 0.5 * before[place], 1.5 * before[place])))
            _, reward = one.interval()
            total[place] += reward * (step >= warm_up)
    return total / (steps - warm_up)
