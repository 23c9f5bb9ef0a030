"""What kube-scheduler's extender is asked, and what it answers."""

import json
import re
from pathlib import Path

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from feature_store.errors import InputError
from feature_store.written.model import parse_written
from models.tasks.task import load_task
from serving.bundle import check_bundle
from serving.predictions.champions import Served
from serving.predictions.extender import MOST_SCORE, filtered, prioritized, rank, require_known, score
from serving.predictions.extender_file import ExtenderFile
from serving.session import Predictor
from tests.serving.predictions.running import running, signed_bundle

FEATURES = {"psi_cpu_some": {"node_annotation": "assay.dev/psi-cpu"}, "psi_io_full": {"node_label": "psi-io"},
            "connections": {"pod_annotation": "connections"}}
WORKLOAD = {"model": "performance.redis", "best": 2.0, "worst": 12.0, "features": FEATURES}


def written(**changed):
    return {"pod_label": "app", "workloads": {"redis": {**WORKLOAD, **changed}}}


def extender(**changed):
    return parse_written(ExtenderFile, json.dumps(written(**changed)), "extender file", "extender.yaml")


def node(name, cpu="0.3", io="0.2", **metadata):
    """As kube-scheduler sends one, shortened."""
    return {"metadata": {"name": name, "uid": "0", "annotations": {"assay.dev/psi-cpu": cpu} if cpu else {},
                         "labels": {"psi-io": io, "kubernetes.io/hostname": name}, **metadata},
            "spec": {"podCIDR": "10.0.0.0/24"}, "status": {"capacity": {"cpu": "8"}}}


def arguments(*nodes, app="redis", connections="8"):
    """ExtenderArgs as Go writes them: a field that is nil is null."""
    return {"Pod": {"metadata": {"name": "a-pod", "namespace": "default", "labels": {"app": app},
                                 "annotations": {"connections": connections}}, "spec": {}, "status": {}},
            "Nodes": {"metadata": {}, "items": list(nodes)}, "NodeNames": None}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory, keys):
    return signed_bundle(tmp_path_factory.mktemp("extender") / "bundle", keys[0])


@pytest.fixture(scope="module")
def models(bundle, keys):
    return {"performance.redis": Served(Predictor(check_bundle(bundle, keys[1])), "1")}


def predicted(models, cpu, io=0.2, connections=8.0):
    row = {"psi_cpu_some": cpu, "psi_io_full": io, "connections": connections}
    return models["performance.redis"].predictor.predict(row).value


def test_a_node_with_less_predicted_latency_never_has_the_lower_score(models):
    loads = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    found = prioritized(rank(extender(), arguments(*(node(f"n{load}", str(load)) for load in loads)), models))
    assert [one["Host"] for one in found] == [f"n{load}" for load in loads]
    scores = [one["Score"] for one in found]
    assert scores == sorted(scores, reverse=True) and len(set(scores)) > 2
    assert scores == [score(predicted(models, load), 2.0, 12.0) for load in loads]
    assert all(set(one) == {"Host", "Score"} and type(one["Score"]) is int for one in found)


def test_a_score_is_the_node_s_own_whatever_stands_beside_it(models):
    alone = prioritized(rank(extender(), arguments(node("a")), models))
    beside = prioritized(rank(extender(), arguments(node("b", "0.0"), node("a"), node("c", "oops")), models))
    assert alone[0] == beside[1]


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.floats(-1e3, 1e3), st.floats(1e-3, 1e3))
def test_scores_fall_with_the_prediction_between_their_ends(one, other, best, width):
    low, high = sorted((one, other))
    assert MOST_SCORE >= score(low, best, best + width) >= score(high, best, best + width) >= 0
    assert (score(best, best, best + width), score(best + width, best, best + width)) == (MOST_SCORE, 0)


@pytest.mark.parametrize(("wrong", "reason"), [
    (node("x", cpu=""), "psi_cpu_some must be a number in node_annotation assay.dev/psi-cpu, got none"),
    (node("x", cpu="high"), "got 'high'"), (node("x", cpu="nan"), "got 'nan'"), (node("x", cpu="inf"), "got 'inf'"),
    (node("x", cpu="0_3"), "got '0_3'"), (node("x", cpu="300m"), "got '300m'"), (node("x", cpu=" 0.3"), "got ' 0.3'"),
    (node("x", cpu="٣"), "got '٣'"), (node("x", cpu="1e999"), "must be a finite number"),
    (node("x", cpu="0.9"), "psi_cpu_some must be inside of the proved box"),
    (node("x", cpu="37"), "must lie in its physical range"), (node("x", annotations=None), "got none"),
    (node("x", annotations={"assay.dev/psi-cpu": 0.3}), "got none"), (node("x", labels=[]), "psi_io_full must be")])
def test_a_node_that_nothing_can_be_said_of_gets_0_and_a_reason(models, wrong, reason):
    good, bad = prioritized(rank(extender(), arguments(node("good"), wrong), models))
    assert good["Score"] > 0 and (bad["Host"], bad["Score"]) == ("x", 0) and reason in bad["Reason"]
    kept = filtered(rank(extender(), arguments(node("good"), wrong), models))
    assert len(kept["Nodes"]["items"]) == 2 and kept["FailedNodes"] == {}
    refused = filtered(rank(extender(unknown="refuse"), arguments(node("good"), wrong), models))
    assert [one["metadata"]["name"] for one in refused["Nodes"]["items"]] == ["good"]
    assert reason in refused["FailedNodes"]["x"]


def test_the_filter_takes_out_what_is_predicted_above_most(models):
    most = predicted(models, 0.3)
    ranking = rank(extender(most=most), arguments(node("a"), node("b", "0.5"), node("c", "0.1")), models)
    found = filtered(ranking)
    assert set(found) == {"Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"}
    assert found["Nodes"]["items"] == [node("a"), node("c", "0.1")]
    assert set(found["FailedNodes"]) == {"b"} and f"is above {most:g}" in found["FailedNodes"]["b"]
    assert (found["NodeNames"], found["FailedAndUnresolvableNodes"], found["Error"]) == (None, {}, "")


@pytest.mark.parametrize("unknown", ["keep", "refuse"])
def test_other_pods_are_left_alone(models, unknown):
    for other in (arguments(node("a"), app="web"), {**arguments(node("a")), "Pod": {"metadata": {"labels": None}}}):
        ranking = rank(extender(unknown=unknown, most=0.0), other, models)
        assert [(one["Host"], one["Score"]) for one in prioritized(ranking)] == [("a", 0)]
        assert filtered(ranking)["Nodes"]["items"] == [node("a")]


def test_a_model_that_is_not_served_ranks_nothing(models):
    for known in ({"performance.redis": Served(None, reason="workload must have a champion")}, {}):
        (one,) = prioritized(rank(extender(), arguments(node("a")), known))
        assert one["Score"] == 0 and "performance.redis is not served" in one["Reason"]


@pytest.mark.parametrize(("wrong", "message"), [
    ({}, "Pod must be an object"), ({"Pod": {}, "Nodes": None, "NodeNames": ["a"]}, "nodeCacheCapable must be false"),
    ({"Pod": {}, "Nodes": {"items": None}}, "nodeCacheCapable"), ({"Pod": {}, "Nodes": {"items": [3]}}, "have a name"),
    ({"Pod": {}, "Nodes": {"items": [{"metadata": {"name": 3}}]}}, "have a name")])
def test_what_kube_scheduler_does_not_send_is_refused(models, wrong, message):
    with pytest.raises(InputError, match=message):
        rank(extender(), wrong, models)


@pytest.mark.parametrize(("changed", "message"), [
    ({"best": 12.0}, "expected best below worst, got 12 and 12"), ({"worst": float("nan")}, "worst"),
    ({"features": {}}, "features"), ({"features": {"a": {}}}, "expected exactly one of node_annotation"),
    ({"features": {"a": {"constant": 1, "node_label": "x"}}}, "got node_label and constant"),
    ({"features": {"a": {"node_anotation": "x"}}}, "node_annotation"), ({"unknown": "drop"}, "unknown")])
def test_an_unusable_file_is_refused(changed, message):
    with pytest.raises(InputError, match=message):
        extender(**changed)


@pytest.mark.parametrize(("changed", "message"), [
    ({"model": "performance.radis"}, "did you mean 'performance.redis'"),
    ({"output": "p99"}, "must be one of latency_ms"),
    ({"features": {**FEATURES, "conections": {"constant": 1}}}, "did you mean 'connections'"),
    ({"features": {"connections": {"constant": 1}}}, "must include psi_cpu_some, psi_io_full")])
def test_a_file_that_does_not_fit_what_is_served_is_refused(models, changed, message):
    with pytest.raises(InputError, match=message):
        require_known(extender(**changed), models, "extender.yaml")


def test_it_is_asked_as_kube_scheduler_asks(bundle, keys, tmp_path):
    (tmp_path / "extender.yaml").write_text(json.dumps(written(most=100.0)))
    with running("--bundle", bundle, "--public-key", keys[1], "--extender", tmp_path / "extender.yaml") as service:
        body = json.dumps(arguments(node("a"), node("b", "0.5"), node("c", "?")))
        scores = requests.post(f"{service.url}/scheduler/prioritize", body, timeout=20).json()
        assert [one["Host"] for one in scores] == ["a", "b", "c"] and scores[0]["Score"] > scores[1]["Score"]
        kept = requests.post(f"{service.url}/scheduler/filter", body, timeout=20).json()
        assert len(kept["Nodes"]["items"]) == 3
        wrong = requests.post(f"{service.url}/scheduler/filter", "{}", timeout=20)
        assert wrong.status_code == 400 and "Pod must be an object" in wrong.json()["error"]
        samples = requests.get(f"{service.url}/metrics", timeout=20).text
        for outcome, count in (("predicted", 4), ("no_prediction", 2)):
            line = f'assay_serve_nodes_total{{model="performance.redis",outcome="{outcome}"}} {count}.0'
            assert re.search(re.escape(line), samples)


def test_the_example_of_the_page_gives_the_shipped_task_all_its_inputs():
    page = (Path(__file__).parents[3] / "docs" / "reference" / "serve.md").read_text()
    text = re.search(r"```yaml\n(.*?)```", page, re.DOTALL)[1]
    shown = parse_written(ExtenderFile, text, "extender file", "serve.md").workloads["redis"]
    assert shown.model == "performance.redis"
    assert set(shown.features) == {one.name for one in load_task("performance").features("redis")}
