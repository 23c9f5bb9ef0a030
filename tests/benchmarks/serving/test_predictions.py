"""The benchmark of `assay serve`: a short one from end to end, and its table."""

import argparse
import json

import pytest

from benchmarks.harness.result_file import read_results
from benchmarks.serving import predictions
from feature_store.errors import InputError
from tests.e2e.tiny import ROOT

DEMO = ROOT / "data" / "demo"


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("serve")
    options = argparse.Namespace(output=folder / "out.json", bundle=DEMO / "bundle", public_key=DEMO / "assay.pub",
                                 rates=[50, 20], seconds=0.5, repeats=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(predictions, "real_time_prefix", lambda: ())
        patch.setattr(predictions, "_WARM_S", 0.5)
        predictions.run(options)
        first = options.output.read_bytes()
        predictions.run(options)  # nothing is measured twice
    assert [one["loads"] for one in json.loads(first)["entries"]] == [
        one["loads"] for one in read_results(options.output)["entries"]]
    return read_results(options.output)


def test_every_request_is_answered_and_its_latency_is_measured(results):
    assert [entry["rate"] for entry in results["entries"]] == [20, 50]
    for entry in results["entries"]:
        (load,) = entry["loads"]
        assert load["requests"] > 2 and load["failed"] == 0
        assert 0 < load["p50_ms"] <= load["p99_ms"] <= load["p99.9_ms"] < 1e3 * predictions.TIMEOUT_S
        assert 0 < load["cores"] < 2


def test_the_table_has_a_row_a_rate_and_says_whether_the_goal_is_met(results):
    entry = results["entries"][0]
    for limit, said in ((1e6, "below 1e+06 ms: met"), (1e-6, "below 1e-06 ms: not met")):
        goal = predictions.below(limit)
        p99 = predictions.quantity("", "ms", entry["p99"]["values"], goal)
        text = predictions.predictions_table({**results, "entries": [{**entry, "p99": p99}]})
        assert said in text.splitlines()[2] and "0 of " in text
    assert len(predictions.predictions_table(results).splitlines()) == 4
    assert "autoscaling, 19 inputs, 3 outputs" in predictions.conditions_line(results).replace("\n", " ")


def test_a_service_that_does_not_start_is_said(tmp_path):
    key = DEMO / "assay.pub"
    with pytest.raises(InputError, match="service must start"), predictions.service(tmp_path / "none", key, 0):
        pass
