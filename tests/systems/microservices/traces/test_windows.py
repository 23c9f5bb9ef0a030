import numpy as np
import pandas as pd

from systems.microservices.traces.critical_paths import critical_paths
from systems.microservices.traces.spans import link
from systems.microservices.traces.windows import FEATURES, MOST, NOTHING, by_time, ordinary_times, quiet, suspects
from tests.systems.microservices.traces.made_traces import chain, random_traces


def found_of(frame: pd.DataFrame, ordinary: pd.DataFrame, window_us: int = 10**12) -> pd.DataFrame:
    usual = link(ordinary)
    spans = link(frame)
    ordinary_ones = ordinary_times(usual, critical_paths(usual))
    return suspects(spans, critical_paths(spans), ordinary_ones, by_time(spans, window_us))


def test_the_papers_features_are_numpys_on_the_dense_matrix() -> None:
    """Algorithm 3.2: correlation of T_i with T_CP, and the 99th percentile of T_i over its median."""
    frame = random_traces(3, 200)
    spans = link(frame)
    paths = critical_paths(spans)
    times = np.zeros((200, len(spans.services)))
    np.add.at(times, (spans.trace, spans.service), paths.own_us)
    on = np.zeros(times.shape, bool)
    on[spans.trace[paths.on_path], spans.service[paths.on_path]] = True

    found = found_of(frame, frame).set_index("service")

    for number, service in enumerate(spans.services):
        visited = times[on[:, number], number]
        expected = max(np.corrcoef(times[:, number], times.sum(1))[0, 1], 0)
        assert np.isclose(found.loc[service, "relative_importance"], expected, atol=1e-9)
        congestion = np.clip(np.quantile(visited, 0.99) / max(np.quantile(visited, 0.5), 1), 1, 100)
        assert np.isclose(found.loc[service, "congestion_intensity"], congestion)
        assert np.isclose(found.loc[service, "share_on_critical_path"], on[:, number].mean())


def test_what_became_slower_stands_out_against_ordinary_times() -> None:
    found = found_of(chain(2, 100, slow="three", factor=5), chain(1, 300)).set_index("service")

    assert found["worst_median"].idxmax() == found["slowdown"].idxmax() == found["excess_share"].idxmax() == "three"
    assert np.isclose(found.loc["three", "slowdown"], np.log(5), atol=0.1)
    assert found.loc["three", "lead"] == 1 and found.loc["one", "worst_median"] < 0.1


def test_calls_that_are_made_no_more_are_seen() -> None:
    frame = chain(2, 100)
    without = frame[frame["service"] != "three"]

    found = found_of(without, chain(1, 300)).set_index("service")

    assert found["changed_calls"].idxmax() == "two" and found.loc["two", "changed_calls"] > 2


def test_a_service_off_every_critical_path_has_the_least_of_every_feature() -> None:
    frame = chain(2, 50, slow="one", factor=9)
    frame.loc[frame["service"] == "one", "background"] = True

    found = found_of(frame, chain(1, 300)).set_index("service")

    assert found.loc["one", list(FEATURES)].to_dict() == NOTHING
    limits = found[list(FEATURES)]
    assert (limits.min() >= pd.Series(NOTHING)).all() and (limits.max() <= pd.Series(MOST)[list(FEATURES)]).all()


def test_a_spell_is_quiet_where_no_part_of_it_is_in_an_anomaly() -> None:
    anomalies = pd.DataFrame({"start_s": [2.5], "end_s": [4.5]})
    seconds = np.arange(7.0)

    assert seconds[quiet(seconds, anomalies)].tolist() == [0, 1, 2, 5, 6]
    assert seconds[quiet(seconds, anomalies, length_s=1.0)].tolist() == [0, 1, 5, 6]
    assert seconds[quiet(seconds, anomalies, 1.0, 1.5)].tolist() == [0, 1, 6]
    assert not quiet(np.array([2.5]), anomalies).any() and quiet(np.array([1.5, 4.5]), anomalies, length_s=1.0).all()


def test_windows_are_told_apart_by_the_starts_of_their_requests() -> None:
    frame = pd.concat([chain(1, 100), chain(2, 100, slow="two", factor=8, first_us=5_000_000).assign(
        trace=lambda rows: rows["trace"] + 100)], ignore_index=True)

    found = found_of(frame, chain(1, 300), window_us=5_000_000)

    assert found.groupby("window")["requests"].first().tolist() == [100, 100]
    worst = found.sort_values("worst_median").groupby("window").last()
    assert worst.loc[1, "service"] == "two" and worst.loc[0, "worst_median"] < 0.2
    assert worst.loc[1, "latency_ms"] > 9
