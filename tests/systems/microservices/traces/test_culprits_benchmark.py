from argparse import Namespace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from feature_store.errors import InputError
from systems.microservices.benchmarks.culprits import (
    LEARNED,
    _digest,
    _incidents,
    _wanted,
    accuracy_table,
    kinds_table,
    measures,
)
from systems.microservices.benchmarks.culprits_data import of_recording, rows_of
from systems.microservices.benchmarks.culprits_peers import _service
from systems.microservices.traces.culprits import ANOMALIES
from tests.systems.microservices.traces.test_culprits import SLOW, TARGET, recording


def scored(*scores: tuple[float, float]) -> pd.DataFrame:
    """Incidents of the culprit and one other service, by their scores."""
    return pd.DataFrame([(number, "cpu", float(place == 0), score) for number, pair in enumerate(scores)
                         for place, score in enumerate(pair)], columns=["incident", "kind", TARGET, "score"])


def test_the_culprit_must_lead_alone() -> None:
    found = measures(scored((2.0, 1.0), (1.0, 1.0), (0.0, 3.0), (5.0, 0.0)))

    assert found["ac1"] == 0.5 and found["ac3"] == 1.0 and found["ac1_by_kind"] == {"cpu": 0.5}


def test_a_perfect_score_has_every_true_positive() -> None:
    found = measures(scored((2.0, 1.0), (3.0, 0.0)))

    assert found["roc_auc"] == 1.0 and found["true_positives"] == [1.0, 1.0]


def test_a_recordings_anomalies_are_incidents_with_ordinary_times_beside(tmp_path: Path) -> None:
    recording(tmp_path)
    anomalies = pd.read_parquet(tmp_path / ANOMALIES)
    anomalies.iloc[[0, -1]].to_parquet(tmp_path / ANOMALIES)  # so that ordinary seconds are left between
    pd.DataFrame([(second, service, 0.5) for second in range(8) for service in ("one", "two")],
                 columns=["time_s", "service", "cpu_cores"]).to_parquet(tmp_path / "metrics.parquet")

    incidents, left_out = of_recording(tmp_path)

    assert [one.culprit for one in incidents] == [SLOW[1], SLOW[7]] and left_out == 0
    assert [one.number for one in of_recording(tmp_path, 9)[0]] == [9, 10]
    assert "one_cpu_cores" in incidents[0].metrics
    rows = rows_of(incidents)
    assert measures(rows.assign(score=rows["worst_median"]))["ac1"] == 1.0
    for name in ("svm_all", "boosting_monotone"):
        assert np.isfinite(LEARNED[name][0](rows, rows, 0)[0]).all()


def test_only_what_there_are_several_of_is_held_out() -> None:
    rows = pd.DataFrame({"application": ["shop", "shop", "other"], "recording": ["here", "there", "here"],
                         "culprit": ["one", "two", "one"], "kind": "cpu"})

    wanted = {(application, held) for _, application, held, _ in _wanted(rows, 1)}

    assert wanted == {("shop", "nothing"), ("shop", "service"), ("shop", "recording"), ("shop", "application"),
                      ("other", "nothing"), ("other", "application")}


def test_recordings_of_one_name_are_refused(tmp_path: Path) -> None:
    for names in (("one/shop", "two/shop"), ("nezha",)):
        with pytest.raises(InputError, match="expected folders of different names"):
            _incidents(Namespace(nezha=None, recording=[tmp_path / name for name in names]))


def test_an_entry_is_of_the_rows_that_it_learned_from_too() -> None:
    rows = pd.DataFrame({"application": ["shop", "other"], "service": ["one", "two"]})
    fewer = rows.iloc[:1]

    assert _digest(rows, "shop", "kind") == _digest(fewer, "shop", "kind")
    assert _digest(rows, "shop", "application") != _digest(fewer, "shop", "application")


def test_a_name_of_a_peer_is_the_longest_service_that_fits() -> None:
    assert _service("cart_items_latency", ["cart", "cart_items", "other"]) == "cart_items"


def test_tables_say_what_was_measured() -> None:
    entry = {"application": "shop", "held_out": "service", "method": "network", "incidents": 7,
             "proved": 3, "proofs": 3, **measures(scored((2.0, 1.0), (3.0, 0.0)))}

    shown = accuracy_table({"entries": [entry | {"seed": seed} for seed in range(2)]})

    assert "100.0 ± 0.0" in shown and "Networks proved: 6 of 6" in shown and "shop 7" in shown
    assert "| shop | cpu |" in kinds_table({"entries": [entry]})
