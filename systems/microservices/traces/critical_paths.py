"""Critical paths of many traces at once (section 3.2.2, algorithm 3.1), and how long each span is on its trace's.

A path is followed backwards from the response: the child of the root that returned last, before it the last of those
that had returned when that one began (sequential), and so on; within each of them the same. What runs beside it
(parallel) is off the path, and so is what the parent does not wait for (background). What a span spends on the path
itself is its duration without that of its children on the path, so that the times on a path add up to the latency of
the request: T_CP = sum of T_i. (As it is printed, the algorithm also takes children that ran beside each other before
the last one began, and their times would count twice.)

Background is what the trace says to be so, and a call (from an operation to an operation) that mostly ends after its
caller although no clock is at fault. Clocks of two machines differ: a child that reaches out of its parent is moved
into it, into its middle, as Jaeger does, or cut to it where it is longer. An only child that is no longer than its
parent is such a case: a call whose answer is waited for covers it, whatever the clocks say.

Flow: spans.py -> here -> windows.py. Symbols: n spans, m traces.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from systems.microservices.traces.spans import BoolArray, IntArray, Spans

FloatArray = NDArray[np.float64]
# A call is in the background where more of its spans than this end after their parents; where more spans of its two
# services than the second share begin before their parents, the clocks are at fault.
MOSTLY, CLOCKS_DIFFER = 0.5, 0.01
# Starts and durations are cut to whole microseconds: neighbours may overlap by so much.
ROUNDING_US = 2


@dataclass(frozen=True)
class CriticalPaths:
    """Of n spans.

    Attributes:
        on_path: (n,) whether it is on its trace's critical path.
        own_us: (n,) what it spends there itself, us; 0 off the path.
        self_us: (n,) what it spends itself, on the path or not: without what its children cover, us.
        background: (n,) whether its parent does not wait for it, said or found out.
        moved: spans that were moved or cut, for their clock.
    """

    on_path: BoolArray
    own_us: FloatArray
    self_us: FloatArray
    background: BoolArray
    moved: int


def critical_paths(spans: Spans) -> CriticalPaths:
    """Of all traces; spans that hang below no root are on none."""
    child = np.flatnonzero(spans.depth > 0)
    background = spans.background.copy()
    background[child] |= _never_waited_for(spans, child)
    start, end, moved = _within_parents(spans, background)
    order, rank, heads = _from_the_last(spans, child[~background[child]], end)
    chosen = _chosen(spans.parent[order], rank, start[order], end[order], end)
    on_path = spans.depth == 0
    selected = order[chosen]
    for level in range(1, int(spans.depth.max(initial=0)) + 1):
        rows = selected[spans.depth[selected] == level]
        on_path[rows] = on_path[spans.parent[rows]]
    length = (end - start).astype(np.float64)
    own = length - np.bincount(spans.parent[selected], length[selected], minlength=len(spans))
    return CriticalPaths(on_path, np.where(on_path, np.maximum(own, 0.0), 0.0),
                         _uncovered(spans, order, heads, start, end, length), background, moved)


def _never_waited_for(spans: Spans, child: IntArray) -> BoolArray:
    """Whether each child is a call of a kind that mostly ends after its caller, between clocks that agree."""
    above = spans.parent[child]
    starts, parents = spans.start_us[child], spans.start_us[above]
    longer = spans.duration_us[child] > spans.duration_us[above]
    late = starts + spans.duration_us[child] > parents + spans.duration_us[above] + ROUNDING_US
    late &= longer | (np.bincount(above, minlength=len(spans))[above] > 1)
    pair = spans.service[above] * len(spans.services) + spans.service[child]
    call = pair * len(spans.operations) ** 2 + spans.operation[above] * len(spans.operations) + spans.operation[child]
    return (_share_of_group(late, call) > MOSTLY) & (_share_of_group(starts + ROUNDING_US < parents, pair)
                                                     <= CLOCKS_DIFFER)


def _share_of_group(flag: BoolArray, group: IntArray) -> FloatArray:
    """For each member the share of its group that has the flag."""
    _, member = np.unique(group, return_inverse=True)
    return (np.bincount(member, flag) / np.maximum(np.bincount(member), 1))[member] if len(flag) else np.zeros(0)


def _within_parents(spans: Spans, background: BoolArray) -> tuple[IntArray, IntArray, int]:
    """Starts and ends, us, with every child that is waited for inside of its parent; how many had to be moved."""
    start, end = spans.start_us.copy(), spans.start_us + spans.duration_us
    shift, moved = np.zeros(len(spans), np.int64), 0
    for level in range(1, int(spans.depth.max(initial=0)) + 1):
        rows = np.flatnonzero(spans.depth == level)
        above = spans.parent[rows]
        begin, finish = start[rows] + shift[above], end[rows] + shift[above]
        out = ~background[rows] & ((begin < start[above]) | (finish > end[above]))
        centred = start[above] + np.maximum(end[above] - start[above] - (finish - begin), 0) // 2
        small = (begin >= start[above] - ROUNDING_US) & (finish <= end[above] + ROUNDING_US)
        by = np.where(out & ~small, centred - begin, 0)
        shift[rows] = shift[above] + by
        start[rows], end[rows] = begin + by, finish + by
        start[rows] = np.where(out, np.maximum(start[rows], start[above]), start[rows])
        end[rows] = np.where(out, np.minimum(end[rows], end[above]), end[rows])
        moved += int((out & ~small).sum())
    return start, end, moved


def _from_the_last(spans: Spans, child: IntArray, end: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Children by parent, the last to return first; each one's number among them; where a parent's begin."""
    order = child[np.lexsort((spans.depth[child], -end[child], spans.parent[child]))]
    heads = np.flatnonzero(np.r_[True, np.diff(spans.parent[order]) > 0]) if len(order) else np.zeros(0, np.int64)
    counts = np.diff(np.r_[heads, len(order)])
    return order, np.arange(len(order)) - np.repeat(heads, counts), heads


def _chosen(parent: IntArray, rank: IntArray, start: IntArray, end: IntArray, ends: IntArray) -> BoolArray:
    """Which children the path goes through: all first ones in one step, then all second ones, and so on.

    Args:
        parent, rank, start, end: of the children, in the order of `_from_the_last`.
        ends: (n,) of all spans.
    """
    begun = ends.copy()  # of the last one chosen below each parent; before that, the parent's own end
    chosen = np.zeros(len(parent), bool)
    by_rank = np.argsort(rank, kind="stable")
    for rows in np.split(by_rank, np.cumsum(np.bincount(rank))[:-1]) if len(rank) else ():
        takes = rows[end[rows] <= begun[parent[rows]] + ROUNDING_US]
        chosen[takes] = True
        begun[parent[takes]] = start[takes]
    return chosen


def _uncovered(spans: Spans, order: IntArray, heads: IntArray, start: IntArray, end: IntArray,
               length: FloatArray) -> FloatArray:
    """(n,) us of each span in which none of its children that it waits for runs."""
    if not len(order):
        return length
    # a child adds what lies before everything that its later siblings cover; by ranks, for times could be too large
    starts, rank = np.unique(start[order], return_inverse=True)
    above = np.repeat(np.arange(len(heads)), np.diff(np.r_[heads, len(order)])) * len(starts)
    earliest = starts[np.minimum.accumulate(rank - above) + above]
    before = np.r_[end[order[0]], earliest[:-1]]
    before[heads] = end[order[heads]]
    covered = np.maximum(np.minimum(before, end[order]) - start[order], 0)
    return np.maximum(length - np.bincount(spans.parent[order], covered, minlength=len(spans)), 0.0)
