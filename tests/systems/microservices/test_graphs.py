"""Paths and visits of graphs, against every request played out by hand."""

import numpy as np
import pytest

from systems.microservices.graphs import Calls, Graph, drawn_graph, part_of, paths_of, visits_of


def latency(graph: Graph, node: int, own: np.ndarray) -> float:
    """Of one request: stages follow each other, calls of a stage run at once, nobody waits for the background."""
    calls, whole = graph.get(node, Calls()), float(own[node])
    for stage in calls.stages:
        below = [(times if len(stage) == 1 else min(times, 1.0)) * latency(graph, callee, own)
                 for callee, times in stage.items()]
        whole += max(below)
    return whole


@pytest.mark.parametrize("seed", range(12))
def test_the_longest_path_is_what_a_request_takes(seed: int) -> None:
    random = np.random.default_rng(seed)
    graph = drawn_graph(random, 10)
    paths = paths_of(graph, 10, np.ones(10), 512)
    for _ in range(20):
        own = random.exponential(1.0, 10)
        assert (paths @ own).max() == pytest.approx(latency(graph, 0, own))


def test_of_too_many_paths_the_longest_are_kept() -> None:
    wide: Graph = {0: Calls(({1: 1.0, 2: 1.0, 3: 1.0}, {4: 1.0, 5: 1.0}))}
    seconds = np.array([1.0, 5.0, 3.0, 1.0, 2.0, 4.0])
    assert len(np.unique(paths_of(wide, 6, seconds, 16), axis=0)) == 7, "six paths, and rows of zeros"
    best = paths_of(wide, 6, seconds, 1)
    assert best.tolist() == [[1.0, 1.0, 0.0, 0.0, 0.0, 1.0]]


def test_visits_count_the_background_and_paths_do_not() -> None:
    graph: Graph = {0: Calls(({1: 2.0},), ({2: 1.0},)), 1: Calls(({3: 3.0},)), 2: Calls(({3: 1.0},))}
    assert visits_of(graph, 4).tolist() == [1.0, 2.0, 1.0, 7.0]
    assert paths_of(graph, 4, np.ones(4), 2).tolist() == [[1.0, 2.0, 0.0, 6.0], [0.0] * 4]


def test_a_loop_ends() -> None:
    assert np.isfinite(paths_of({0: Calls(({1: 0.5},)), 1: Calls(({0: 0.5},))}, 2, np.ones(2), 1)).all()


def test_a_part_of_a_graph_has_a_part_of_its_calls() -> None:
    graph = drawn_graph(np.random.default_rng(3), 40)
    part = part_of(graph, np.random.default_rng(4), 0.5)
    counts = [sum(len(stage) for calls in one.values() for stage in calls.all) for one in (graph, part)]
    assert counts[0] == 39 and 10 < counts[1] < 30
    assert visits_of(graph, 40).min() >= 1.0, "every service is called"
