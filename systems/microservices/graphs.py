"""Graphs of services: who calls whom, how often a request comes by, and the paths that may be its critical one.

The three patterns of section 3.2.2 of the thesis: a caller waits for one stage of calls after the other (sequential),
in each of them for the slowest (parallel), and for others not at all (background). An end-to-end latency is then the
largest sum along a path, T_CP = sum of T_i over i in CP (section 3.2.3); each choice among parallel calls is a path:

    latency = max over k of sum_i paths[k, i] latency_i

Symbols: S services (or operations of services), the first of them the entry; K paths.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Stage = Mapping[int, float]  # callee -> times that it is called for a request of the caller, on average
DEEPEST = 16  # calls in each other; what is deeper is a loop


@dataclass(frozen=True)
class Calls:
    """Of one caller."""

    stages: tuple[Stage, ...] = ()
    background: tuple[Stage, ...] = ()

    @property
    def all(self) -> tuple[Stage, ...]:
        """Whether it waits for them or not."""
        return self.stages + self.background


Graph = Mapping[int, Calls]
_NONE = Calls()


def visits_of(graph: Graph, services: int) -> Numbers:
    """(S,) how often a request comes by each service."""
    found, now = np.zeros(services), {0: 1.0}
    for _ in range(DEEPEST):
        coming: dict[int, float] = {}
        for caller, times in now.items():
            found[caller] += times
            for stage in graph.get(caller, _NONE).all:
                for callee, calls in stage.items():
                    coming[callee] = coming.get(callee, 0.0) + times * calls
        now = coming
    return found


def paths_of(graph: Graph, services: int, seconds: Numbers, most: int) -> Numbers:
    """(most, S) times that each path comes by each service; rows of zeros where there are fewer paths.

    Args:
        seconds: (S,) what a service takes where it is quiet; of too many paths the longest are kept by it.
    """
    found = _paths(graph, 0, services, seconds, most, 0)
    return np.concatenate([found, np.zeros((most - len(found), services))])


def _paths(graph: Graph, node: int, services: int, seconds: Numbers, most: int, depth: int) -> Any:
    found = np.zeros((1, services))
    found[0, node] = 1.0
    for stage in graph.get(node, _NONE).stages if depth < DEEPEST else ():
        # several calls of one callee at the same time take as long as one; alone in its stage they follow each other
        branches = [(times if len(stage) == 1 else min(times, 1.0)) *
                    _paths(graph, callee, services, seconds, most, depth + 1) for callee, times in stage.items()]
        both = np.unique((found[:, None] + np.concatenate(branches)[None]).reshape(-1, services), axis=0)
        found = both[np.argsort(-(both @ seconds), kind="stable")[:most]]
    return found


def drawn_graph(random: np.random.Generator, services: int) -> Graph:
    """A tree whose callers are near their callees in number: production graphs are nearly trees (Luo et al., SoCC
    2021). The shares of the three patterns and of repeated calls are assumed."""
    callees: dict[int, list[int]] = {}
    for callee in range(1, services):
        callees.setdefault(int(random.integers(max(0, callee - 5), callee)), []).append(callee)
    found = {}
    for caller, all_of in callees.items():
        stages: list[dict[int, float]] = []
        background: list[Stage] = []
        for callee in all_of:
            pattern, times = random.random(), float(random.choice([1, 2, 3], p=[0.85, 0.1, 0.05]))
            if pattern < 0.15:
                background.append({callee: times})
            elif pattern < 0.5 and stages:
                stages[-1][callee] = times
            else:
                stages.append({callee: times})
        found[caller] = Calls(tuple(stages), tuple(background))
    return found


def part_of(graph: Graph, random: np.random.Generator, share: float) -> Graph:
    """With such a share of its calls; what nobody calls any more drops out by that."""
    def kept(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        left = ({callee: times for callee, times in stage.items() if random.random() < share} for stage in stages)
        return tuple(stage for stage in left if stage)

    return {caller: Calls(kept(calls.stages), kept(calls.background)) for caller, calls in graph.items()}
