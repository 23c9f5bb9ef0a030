"""A recording that was made of a known application gives it back."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from feature_store.errors import InputError
from systems.microservices.fitting import Fitted, fitted

NAMES = ("front", "cart", "price", "mail", "stock")
WORK_S = {"front": 0.002, "cart": 0.004, "price": 0.001, "mail": 0.003, "stock": 0.002}
OWN_US = {name: int(1e6 * work) + 1000 for name, work in WORK_S.items()}  # each waits for a millisecond besides
SECONDS, RATE = 60, 10


class Traces:
    """buy: front calls cart, then price and stock at once, mail in the background; look: front calls cart."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int, str, str, int, int, bool]] = []

    def add(self, trace: int, parent: int, name: str, start: int, took: int, background: bool = False) -> int:
        span = sum(1 for row in self.rows[-8:] if row[0] == trace)
        operation = ("buy" if trace % 4 == 0 else "look") if name == "front" else "do"
        self.rows.append((trace, span, parent, name, operation, start, took, background))
        return span

    def request(self, trace: int, start: int, slow: int) -> None:
        own, cart = OWN_US, OWN_US["cart"] * slow
        both = max(own["price"], own["stock"])
        buys = trace % 4 == 0
        root = self.add(trace, -1, "front", start, own["front"] + cart + (both if buys else 0))
        first = self.add(trace, root, "front", start + 500, cart)  # the caller's own span of its call
        self.add(trace, first, "cart", start + 500, cart)
        if buys:
            for name in ("price", "stock"):
                self.add(trace, root, name, start + 600 + cart, own[name])
            self.add(trace, root, "mail", start + 700 + cart + both, own["mail"] + 50_000, background=True)


def write(folder: Path, anomalies: list[tuple[float, float]]) -> Path:
    traces = Traces()
    for number in range(SECONDS * RATE):
        second = number // RATE
        slow = 20 if any(begin <= second < end for begin, end in anomalies) else 1
        traces.request(number, number * 1_000_000 // RATE, slow)
    spans = pd.DataFrame(traces.rows, columns=["trace", "span", "parent", "service", "operation", "start_us",
                                               "duration_us", "background"]).assign(error=False)
    spans.to_parquet(folder / "spans.parquet")
    rows = [(second, name, WORK_S[name] * requests * (9.0 if any(a <= second < b for a, b in anomalies) else 1.0),
             requests) for second in range(SECONDS) for name in NAMES
            for requests in [RATE if name in ("front", "cart") else RATE // 4]]
    pd.DataFrame(rows, columns=["time_s", "service", "cpu_cores", "requests"]).to_parquet(folder / "metrics.parquet")
    pd.DataFrame({"start_s": [a for a, _ in anomalies], "end_s": [b for _, b in anomalies]}).to_parquet(
        folder / "anomalies.parquet")
    return folder


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    return fitted(write(tmp_path_factory.mktemp("recording"), [(20.0, 35.0)]))


def test_services_types_and_their_shares(found: Fitted) -> None:
    assert found.services == ("front", "cart", "mail", "price", "stock") and found.types == ("look", "buy")
    assert found.application.mix[0].tolist() == pytest.approx([0.75, 0.25])
    assert found.application.visits[0].tolist() == [[1, 1, 0, 0, 0], [1, 1, 1, 1, 1]]


def test_work_and_waits_are_of_the_quiet_seconds(found: Fitted) -> None:
    work = dict(zip(found.services, found.application.work_s[0].tolist(), strict=True))
    assert work == pytest.approx(WORK_S, rel=1e-3)
    waits = dict(zip(found.services, found.application.waits_s[0].tolist(), strict=True))
    assert {name: waits[name] for name in ("cart", "price", "stock")} == pytest.approx(
        {"cart": 1e-3, "price": 1e-3, "stock": 1e-3}, rel=0.01)


def test_work_varies_as_cores_used_do_beside_requests(tmp_path: Path) -> None:
    """Ten requests of the front a second, of a squared coefficient of variation of 2; all other work is equal."""
    metrics = pd.read_parquet(write(tmp_path, []) / "metrics.parquet")
    front = metrics["service"] == "front"
    metrics.loc[front, "cpu_cores"] = WORK_S["front"] * np.random.default_rng(0).gamma(0.5, 2.0, (SECONDS, RATE)).sum(1)
    metrics.to_parquet(tmp_path / "metrics.parquet")
    found = fitted(tmp_path)
    varies = dict(zip(found.services, found.application.service_cv2[0].tolist(), strict=True))
    assert varies.pop("front") == pytest.approx(2.0, rel=4 * np.sqrt(2 / SECONDS)), "four standard errors"
    assert list(varies.values()) == pytest.approx([0.1] * 4), "no less than that"


def test_what_runs_at_once_makes_a_path_each_and_the_background_none(found: Fitted) -> None:
    look, buy = ({tuple(row) for row in paths.tolist() if any(row)} for paths in found.application.paths[0])
    assert look == {(1, 1, 0, 0, 0)} and buy == {(1, 1, 0, 1, 0), (1, 1, 0, 0, 1)}
    assert bool(found.application.quiet_ms[0, 1] > found.application.quiet_ms[0, 0])


def test_a_recording_without_a_quiet_second_a_column_or_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="without an anomaly"):
        fitted(write(tmp_path, [(0.0, SECONDS)]))
    metrics = tmp_path / "metrics.parquet"
    pd.read_parquet(metrics).drop(columns="requests").to_parquet(metrics)
    with pytest.raises(InputError, match="requests missing"):
        fitted(tmp_path)
    metrics.unlink()
    with pytest.raises(InputError, match="must be Parquet"):
        fitted(tmp_path)
