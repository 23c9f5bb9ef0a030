"""Open boxes: none lost, none twice, the worst first until there are too many."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.verification.search import open_boxes
from models.verification.search.open_boxes import Boxes, OpenBoxes, joined


def boxes_of(nodes: list[int], margins: list[float]) -> Boxes:
    count = len(nodes)
    node = torch.tensor(nodes, dtype=torch.int64)
    return Boxes(torch.zeros(count, 2).double(), torch.ones(count, 2).double(), torch.zeros_like(node), node,
                 torch.full((count,), 0.5), torch.tensor(margins, dtype=torch.float64))


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_every_box_that_is_put_is_taken_once(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 40))
    waiting = OpenBoxes(boxes_of(list(range(count)), rng.normal(size=count).tolist()), int(rng.integers(1, 9)))
    given, taken = count, []
    for _ in range(200):
        assert len(waiting) == given - len(taken)
        if not len(waiting):
            break
        most = int(rng.integers(1, 9))
        now = waiting.take(most)
        assert len(now) == min(most, given - len(taken))
        taken += now.node.tolist()
        if given < 200 and rng.random() < 0.5:
            more = int(rng.integers(0, 12))
            waiting.put(boxes_of(list(range(given, given + more)), rng.normal(size=more).tolist()))
            given += more
    assert sorted(taken) == list(range(given))


def test_the_worst_boxes_come_first() -> None:
    waiting = OpenBoxes(boxes_of([0, 1, 2, 3], [0.5, -1.0, 0.25, -2.0]), 2)
    assert sorted(waiting.take(2).node.tolist()) == [1, 3]
    waiting.put(boxes_of([4], [-3.0]))
    assert waiting.take(1).node.tolist() == [4]
    assert waiting.take(1).node.tolist() == [2]


def test_beyond_the_limit_the_best_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_boxes, "MOST_OPEN", 4)
    waiting = OpenBoxes(boxes_of([0, 1, 2], [-1.0, -2.0, -3.0]), 8)
    waiting.put(boxes_of([3, 4], [-0.5, -0.25]))
    assert waiting.take(1).node.tolist() == [4]  # five are open
    assert waiting.take(1).node.tolist() == [2]  # four are


def test_joined_boxes_keep_their_order_and_walls() -> None:
    first, second = boxes_of([1], [0.0]), boxes_of([2, 3], [1.0, 2.0])
    both = joined([first, second])
    assert both.node.tolist() == [1, 2, 3] and both.lower.shape == (3, 2)
    assert joined([second]) is second
