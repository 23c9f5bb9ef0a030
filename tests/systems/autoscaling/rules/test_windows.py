"""Windows against lists that are searched through."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from systems.autoscaling.rules.windows import History, SlidingMaximum

notes = st.lists(st.tuples(st.floats(0.0, 40.0), st.one_of(st.floats(-5.0, 5.0), st.just(float("nan")))), min_size=1,
                 max_size=25)


@given(notes, st.lists(st.floats(0.0, 100.0), min_size=3, max_size=3))
def test_history_equals_a_search_through_all_notes(pauses, windows):
    windows = np.array(windows)
    history, time, kept = History(windows.max()), 0.0, []
    for pause, value in pauses:
        time += pause
        history.add(time, np.full(3, value))
        kept.append((time, value))
        young = [[v for when, v in kept if when > time - window and not np.isnan(v)] for window in windows]
        largest = np.broadcast_to(history.maximum(time, windows), (3,))
        smallest = np.broadcast_to(history.minimum(time, windows), (3,))
        up, down = (np.broadcast_to(total, (3,)) for total in history.sums(time, windows))
        for number, values in enumerate(young):
            assert largest[number] == max(values) if values else np.isnan(largest[number])
            assert smallest[number] == min(values) if values else np.isnan(smallest[number])
            assert np.isclose(up[number], sum(v for v in values if v > 0))
            assert np.isclose(down[number], -sum(v for v in values if v < 0))


@given(notes, st.floats(5.0, 400.0))
def test_sliding_maximum_forgets_at_most_a_piece_too_early(pauses, window):
    sliding, time, kept = SlidingMaximum(2), 0.0, []
    for pause, value in pauses:
        time += pause
        got = sliding.add(time, np.full(2, value), np.array([window, 1e6]))
        kept.append((time, value))
        values = [(when, v) for when, v in kept if not np.isnan(v)]
        surely = [v for when, v in values if when > time - window * (1 - 1 / SlidingMaximum.SLOTS) + 1e-6]
        perhaps = [v for when, v in values if when > time - window - 1e-6]
        if surely:
            assert max(surely) <= got[0] <= max(perhaps)
        if values:
            assert got[1] == max(v for _, v in values)
