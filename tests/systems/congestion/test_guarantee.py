"""A bounded queue and a used link, for ever: by the law in small steps against the worst, and by its check."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from systems.congestion.environment import SETTINGS
from systems.congestion.guarantee import Found, Rules, check, found, guarantees, rules_of
from tests.systems.congestion.adversary import Seen, driven

PROPERTIES = yaml.safe_load((Path(__file__).parents[3] / "systems/congestion/congestion.yaml").read_text())[
    "specification"]["properties"]


def found_of(properties: Any = PROPERTIES, **changed: Any) -> dict[str, Any]:
    return dict(guarantees(properties, {one.name: one.default for one in SETTINGS} | changed))


def of(base_rtt_ms: float, most_queueing_s: float) -> tuple[Rules, dict[str, Any], Found]:
    shipped = found_of(base_rtt_ms=base_rtt_ms, most_queueing_s=most_queueing_s)["shipped"]
    document = {name: value for name, value in json.loads(shipped.content).items() if name != "format"}
    rules = rules_of(PROPERTIES, most_queueing_s)
    assert rules is not None and (bound := found(rules, **document)) is not None
    return rules, document, bound


@dataclass
class Greedy:
    """As fast as it may until its queue is as long as it likes, then as slow as it may until there is none."""

    floods: bool = False

    def __call__(self, now: float, low: float, high: float, waiting: float, seen: Seen) -> float:
        if waiting == 0.0:
            self.floods = True
        elif high < low * 1.2 or seen.queueing_s > 0.06:
            self.floods = False
        return high if self.floods else low


def waves(of: float, share: float) -> Any:
    return lambda now, low, high, waiting, seen: high if now % of < share * of else low


def at_random(seed: int) -> Any:
    random, kept = np.random.default_rng(seed), {"goes": 1.0}

    def choose(now: float, low: float, high: float, waiting: float, seen: Seen) -> float:
        if random.random() < 0.1:
            kept["goes"] = random.choice([0.0, 0.0, 1.0, 1.0, random.random()])
        return low + kept["goes"] * (high - low)
    return choose


@pytest.mark.parametrize(("name", "choose"), [
    ("fast", lambda now, low, high, waiting, seen: high), ("slow", lambda now, low, high, waiting, seen: low),
    ("greedy", Greedy()), *((f"waves {of}", waves(of, share)) for of, share in ((0.6, 0.5), (1.5, 0.4), (4.0, 0.3))),
    *((f"random {seed}", at_random(seed)) for seed in range(3))], ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.parametrize("place", ["slowest_pps", "fastest_pps"])
def test_nobody_who_keeps_to_the_rules_breaks_it(name: str, choose: Any, place: str) -> None:
    rules, document, bound = of(50.0, 0.1)
    jitter_s, random = document["jitter_s"], np.random.default_rng(1)
    late = {"slow": lambda now: 0.0, "fast": lambda now: jitter_s}.get(name, lambda now: jitter_s * random.random())
    bandwidth = document[place]
    rows = driven(rules, bandwidth, 0.05, jitter_s, 0.1, 40.0, choose, (0.9 * bandwidth, 0.0, 0.0), late)
    assert rows[:, 0].max() <= bound.queueing_s
    assert rows[:, 1].min() >= bound.used
    if name in ("fast", "greedy"):
        assert rows[:, 0].max() > 0.4 * bound.queueing_s, "it is tried"
