"""Tables of `python -m benchmarks cpu-frequency-adaptation`; what its columns are, its docstring says.

Symbols: S seeds, A unseen services, J judgements.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.markdown import NOT_MEASURED, mean_and_spread, paragraph, table
from systems.cpu_frequency.processors import PROCESSORS

Numbers = NDArray[np.float64]
NEAR = 0.05  # of the reward, or of its gain, that may be missing where a service counts as adapted to
LEARNERS = {"q": "Q-learning", "generic": "policy through the simulator", "embedding": "the same with an embedding"}
BEGAN = {"from scratch": "from scratch", "service": "trained on one other service", "pool": "trained on the pool"}
_THESIS = {("q", "service"): "39", ("embedding", "pool"): "7.1"}


class Found:
    """The parts of one reward."""

    def __init__(self, results: Mapping[str, Any], reward: str) -> None:
        self.parts = {one["part"]: one for one in results["entries"] if one["reward"] == reward}
        self.processors = np.array(results["processors"])
        self.names: list[str] = results["names"]
        self.complete = set(self.parts) >= {"rules", *LEARNERS}
        if self.complete:
            self.own = np.array(self.parts["q"]["own"])
            self.random = np.array(self.parts["rules"]["random"])

    def everywhere(self, part: str, which: Callable[[str], bool]) -> Numbers:
        """(S, n, A) rewards of the members whose name is asked for."""
        names = self.names
        if part == "embedding":  # its members are the pools alone
            names = [name for name in names if name.startswith("pool")]
        rewards = np.array(self.parts[part]["everywhere"])[[which(name) for name in names]]
        return np.asarray(rewards.reshape(len(self.own), -1, rewards.shape[1]))

    def on_pool(self, part: str) -> tuple[Numbers, Numbers]:
        """(S, A) rewards of who saw all processors, and of who did not see the target's."""
        without = np.stack([self.everywhere(part, f"pool without {one.name}".__eq__)[:, 0] for one in PROCESSORS])
        places = np.arange(len(self.processors))
        return self.everywhere(part, "pool".__eq__)[:, 0], without[self.processors, :, places].T

    def on_service(self, part: str) -> tuple[Numbers, Numbers]:
        """(S, A) mean rewards of agents of one other service: on the target's processor, and on another one."""
        numbers = np.array([int(name.split()[1]) for name in self.names if name.startswith("service")])
        place = numbers.reshape(len(self.own), -1) % len(PROCESSORS)
        same = place[..., None] == self.processors
        rewards = self.everywhere(part, lambda name: name.startswith("service"))
        return tuple(np.where(which, rewards, 0.0).sum(axis=1) / which.sum(axis=1) for which in (same, ~same))

    def curves(self, part: str, began: str) -> tuple[Numbers, Numbers]:
        """(J,) episodes and (J, S, A) rewards."""
        found = self.parts[part]["curves"][began]
        return np.array(found["episodes"], dtype=float), np.array(found["rewards"])

    def lost(self, rewards: Numbers) -> Numbers:
        """(S,) %, of the reward of the Q agents that were trained there."""
        own = self.own.mean(axis=1)
        return 100.0 * (own - rewards.mean(axis=-1)) / np.abs(own)

    def missing(self, rewards: Numbers) -> Numbers:
        """(S,) %, of what these gain over random clocks."""
        gain = self.own.mean(axis=1) - self.random.mean()
        return 100.0 * (self.own.mean(axis=1) - rewards.mean(axis=-1)) / gain

    def best(self, part: str) -> Numbers:
        """(A,) the highest mean over seeds that a way of beginning of the same kind of learner ended at."""
        ends = [self.curves(one, began)[1][-1].mean(axis=0) for one in LEARNERS if (one == "q") == (part == "q")
                for began in self.parts[one]["curves"]]
        return np.max(ends, axis=0)


def lost_table(reward: str) -> Callable[[Mapping[str, Any]], str]:
    """What is lost before any adaptation."""
    def render(results: Mapping[str, Any]) -> str:
        found = Found(results, reward)
        if not found.complete:
            return NOT_MEASURED
        rows = [["Q-learning, trained on the unseen service itself", mean_and_spread(found.own.mean(axis=1), 4), "0",
                 "", "0", "", ""]]
        for part, learner in LEARNERS.items():
            ways = {"pool": found.on_pool(part)}
            if part != "embedding":
                ways = {"service": found.on_service(part)} | ways
            for began, (seen, unseen) in ways.items():
                rows.append([f"{learner}, {BEGAN[began]}", mean_and_spread(seen.mean(axis=1), 4),
                             *(mean_and_spread(how(rewards), 1) for how in (found.lost, found.missing)
                               for rewards in (seen, unseen)), _THESIS.get((part, began), "")])
        for name, one in found.parts["rules"]["rules"].items():
            rows.append(_rule_row(found, f"rule: {name}, tuned on the pool", np.array(one["rewards"])))
        rows.append(_rule_row(found, "clocks at random", found.random))
        return table(["governor", "reward", "lost on unseen services, %", "and an unseen processor, %",
                      "of the gain lost on unseen services, %", "and an unseen processor, %", "thesis: lost, %"],
                     rows, range(1, 7))
    return render


def _rule_row(found: Found, name: str, rewards: Numbers) -> list[str]:
    return [name, f"{rewards.mean():.4f}", f"{found.lost(rewards).mean():.1f}", "",
            f"{found.missing(rewards).mean():.1f}", "", ""]


def adapted_table(reward: str) -> Callable[[Mapping[str, Any]], str]:
    """Episodes of an unseen service until a governor has adapted to it."""
    def render(results: Mapping[str, Any]) -> str:
        found = Found(results, reward)
        if not found.complete:
            return NOT_MEASURED
        near = found.own - NEAR * np.abs(found.own)
        rows = []
        for part, learner in LEARNERS.items():
            gained = found.best(part) - NEAR * (found.best(part) - found.random)
            transfer, _ = episodes_needed(*found.curves("q" if part == "q" else "generic", "service"), gained)
            for began in found.parts[part]["curves"]:
                judged_at, curves = found.curves(part, began)
                cells = []
                for goal in (near, gained):
                    needed, reached = episodes_needed(judged_at, curves, goal)
                    cells += [mean_and_spread(needed.mean(axis=1), 1), f"{100 * reached:.0f}"]
                first, last = (mean_and_spread(curves[at].mean(axis=1), 4) for at in (0, -1))
                rows.append([f"{learner}, {BEGAN[began]}", *cells, f"{transfer.mean() / needed.mean():.1f}",
                             first, f"{last} ({judged_at[-1]:.0f})"])
        return table(["governor", "episodes to 95 % of the reward of Q-learning there", "of services, %",
                      "episodes to 95 % of the learner's best gain", "of services, %",
                      "times fewer than from one other service", "reward before", "after so many episodes"],
                     rows, range(1, 8))
    return render


def episodes_needed(judged_at: Sequence[float] | Numbers, curves: Numbers, goal: Numbers) -> tuple[Numbers, float]:
    """(S, A) episodes until the goal (S, A) or (A,), the last where it is never reached; and the share that reach it.

    Args:
        judged_at: (J,) episodes; curves: (J, S, A) rewards.
    """
    reached = curves >= goal
    first = np.where(reached.any(axis=0), reached.argmax(axis=0), len(judged_at) - 1)
    return np.asarray(judged_at, dtype=float)[first], float(reached.any(axis=0).mean())


def conditions_line(results: Mapping[str, Any]) -> str:
    """How it was measured."""
    spent = sum(one["cpu_s"] for one in results["entries"])
    return paragraph(
        f"{len(results['targets'])} unseen services, as many on each processor; {results['entries'][0]['seeds']} seeds "
        f"± their standard deviation; a pool is {results['pool']} training services, or those of them that are not on "
        "the unseen processor. The same episodes for all. "
        f"{spent / 60:.0f} minutes of a core for both rewards. {results['machine']['date'][:10]}.")


