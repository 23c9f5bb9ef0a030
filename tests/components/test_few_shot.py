"""A task that is learned from few runs, through all steps: measurements in, a signed bundle with its encoder out."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from feature_store.errors import InputError, RefusedError
from feature_store.measurement_mapping import parse_measurement_mapping
from feature_store.measurements import measurements_of
from feature_store.trained_rows import TrainedRows
from models.tasks.few_shot.measurements_task import expand
from serving.bundle import check_bundle
from serving.encoder import RunEncoder
from serving.session import Predictor
from tests.components.steps import IGNORED_WARNING, Steps, project
from tests.models.adaptation.simulation import frame

pytestmark = pytest.mark.filterwarnings(IGNORED_WARNING)

MAPPING = {"workload": {"column": "app"},
           "configuration": {"nodes": {"column": "nodes", "unit": "count"},
                             "type": {"column": "type", "kind": "category"}},
           "target": {"name": "runtime_s", "column": "seconds", "unit": "s"}, "cost": {"column": "usd", "unit": "USD"}}
TEMPLATE = {"demand": {"nodes": "decreasing"}, "hidden": [32, 32],
            "few_shot": {"embedding": 3, "runs": 2, "deadline": 500.0, "trials": 2},
            "training": {"trunk_width": 32, "epochs": 60, "pretrain_epochs": 10}}
ADAPTED = ["w00", "w01", "rising", "two"]
ENCODED = {"nodes": 8.0, "type=a": 1.0, "type=b": 0.0, "type=c": 0.0}


def _measurements() -> pd.DataFrame:
    """Twelve lawful workloads, one that takes longer the more nodes it has, and one with too few runs."""
    made = frame(12)
    rising = made[made["app"] == "w02"].assign(app="rising", seconds=lambda rows: 10.0 * rows["nodes"])
    rising = pd.concat([rising, rising.assign(type="c")])  # 30 pairs: enough for a verdict
    return pd.concat([made, rising, made[made["app"] == "w03"].head(2).assign(app="two")], ignore_index=True)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("few-shot")
    path = folder / "runs.csv"
    made = _measurements()
    pd.concat([made, made[made["app"] == "w00"].head(1).assign(seconds=-1.0)]).to_csv(path, index=False)
    task = expand(TEMPLATE, measurements_of(_measurements(), parse_measurement_mapping(MAPPING, "m"), "m"), ADAPTED, 0,
                  "task")
    with project(folder) as configuration:
        steps = Steps(folder / "run", task, str(path), tuple(ADAPTED))
        steps.ingest(yaml.safe_dump({**MAPPING, "bad_rows": {"at_most": "20 %"}}))
        steps.validate()
        steps.featurize()
        steps.audit()
        steps.pretrain()
        steps.fan_out()
        steps.gate()
        entries = steps.register()
        steps.report()
        yield steps, entries, configuration


def test_a_bundle_says_which_configurations_it_was_given(trained: Any) -> None:
    """By their inputs alone: their run times, and the embedding in the test rows, are others in every run."""
    steps, _, _ = trained
    evidence = json.loads((steps.folder / "bundle" / "w00" / "evidence.json").read_text())
    options = pd.read_parquet(steps.folder / "features" / "w00" / "options.parquet")
    rows = options.rename(columns={"nodes": "as measured", "input:nodes": "nodes", "input:type=a": "type=a",
                                   "input:type=b": "type=b", "input:type=c": "type=c"})
    seen = TrainedRows.from_json(evidence["seen"]).among(rows)
    given = [one["index"] for one in evidence["few_shot"]["support"]]
    assert sorted(given) == [int(place) for place in seen.nonzero()[0]] and len(given) == 2
    test = pd.read_parquet(steps.folder / "features" / "w00" / "test.parquet")
    assert not TrainedRows.from_json(evidence["seen"]).among(test).any()


def test_a_bad_run_that_was_dropped_stands_in_the_evidence_with_its_row(trained: Any) -> None:
    steps, _, _ = trained
    found = json.loads((steps.folder / "bundle" / "w00" / "evidence.json").read_text())["data"]["bad_rows"]
    assert (found["dropped"], found["by_rule"]) == (1, {"range": 1})
    assert found["first"] == [{"row": len(_measurements()) + 2, "rule": "range", "column": "seconds", "value": "-1.0"}]


def test_every_workload_is_registered_or_says_why_not(trained: Any) -> None:
    _, entries, _ = trained
    assert entries["w00"]["status"] == entries["w01"]["status"] == "registered"
    assert "no direction is left to demand: nodes decreasing" in entries["rising"]["message"]
    assert "more than 2 measured configurations" in entries["two"]["message"]


def test_the_proof_holds_over_the_hull_of_the_pool_and_the_box_around_the_own_embedding(trained: Any) -> None:
    steps, _, _ = trained
    contract = json.loads((steps.folder / "gated" / "w00" / "contract.json").read_text())
    facts = json.loads((steps.folder / "features" / "w00" / "few_shot.json").read_text())
    boxes = {entry["name"]: (entry["minimum"], entry["maximum"]) for entry in contract["inputs"]}
    assert list(boxes) == ["nodes", "type=a", "type=b", "type=c", "embedding_1", "embedding_2", "embedding_3"]
    for (name, (low, high)), own in zip(facts["hull"].items(), facts["embedding"], strict=True):
        assert boxes[name][0] <= min(low, own - 1) and boxes[name][1] >= max(high, own + 1)
    evidence = json.loads((steps.folder / "gated" / "w00" / "evidence.json").read_text())
    assert evidence["verdict"]["status"] == evidence["few_shot"]["crossing"]["status"] == "PROVED"


def test_the_target_is_scaled_by_what_is_trained_on_alone(trained: Any) -> None:
    """Neither a measured target of a test row nor one of a support: the pool's rows and the adapted ones'."""
    steps, _, _ = trained
    features = steps.folder / "features"
    target = pd.concat([pd.read_parquet(features / "w00" / "train.parquet")["log_runtime_s"],
                        pd.read_parquet(features / "w01" / "train.parquet")["log_runtime_s"],
                        pd.read_parquet(features / "rising" / "train.parquet")["log_runtime_s"],
                        pd.read_parquet(features / "_pool" / "rows.parquet")["log_runtime_s"]])
    for workload in ("w00", "w01"):
        scaling = json.loads((features / workload / "scaling.json").read_text())
        assert scaling["target"] == {"log_runtime_s": [target.min(), target.max()]}


def test_it_is_judged_by_the_measured_configurations_that_it_was_not_given(trained: Any) -> None:
    steps, _, _ = trained
    evidence = json.loads((steps.folder / "gated" / "w00" / "evidence.json").read_text())
    assert evidence["metrics"]["test_rows"] == len(evidence["cases"]["values"]) == 10 - 2
    assert evidence["case_counts"]["test_mape"] == 10 - 2
    assert evidence["metrics"]["mean_mse"] == evidence["metrics"]["baseline_mse"]


def test_it_predicts_better_than_the_mean_of_its_runs_and_nearly_as_the_closed_form(trained: Any) -> None:
    steps, _, _ = trained
    for workload in ("w00", "w01"):
        metrics = json.loads((steps.folder / "gated" / workload / "evidence.json").read_text())["metrics"]
        assert metrics["test_mape"] < 0.7 * metrics["baseline_mape"]
        assert metrics["test_mape"] < metrics["closed_form_mape"] + 0.1


def test_the_recommendation_is_the_cheapest_that_meets_the_deadline(trained: Any) -> None:
    steps, _, _ = trained
    found = json.loads((steps.folder / "gated" / "w00" / "evidence.json").read_text())["few_shot"]
    assert all(option["lower"] <= option["predicted"] <= option["upper"] for option in found["options"])
    assert found["interval_coverage"] > 0.6
    meets = [option for option in found["options"] if option["upper"] <= 500.0]
    assert found["recommendation"] == min(meets, key=lambda option: option["cost"])
    assert "Recommended" in (steps.folder / "page" / "index.html").read_text()


def test_the_search_of_settings_is_kept_and_logged(trained: Any) -> None:
    import mlflow

    _, entries, configuration = trained
    (journal,) = (configuration.home / "optuna").glob("*.log")
    assert journal.read_text().count('"values"') >= 2
    run = mlflow.MlflowClient(tracking_uri=configuration.tracking_uri).get_run(entries["w00"]["run_id"])
    assert run.data.params["few_shot.trials"] == "2" and float(run.data.params["few_shot.lengthscale"]) > 0


def test_a_controller_encodes_new_runs_and_predicts(trained: Any) -> None:
    steps, entries, configuration = trained
    bundle = check_bundle(Path(entries["w00"]["bundle"]), configuration.public_key_path, deep=True)
    encoder, predictor = RunEncoder(bundle), Predictor(bundle)
    facts = json.loads((steps.folder / "features" / "w00" / "few_shot.json").read_text())
    configurations = pd.read_parquet(steps.folder / "features" / "_pool" / "configurations.parquet")
    runs = []
    for run in facts["support"]:
        chosen = configurations.iloc[run["index"]]
        row = {"nodes": float(chosen["nodes"]), **{f"type={kind}": float(chosen["type"] == kind) for kind in "abc"}}
        runs.append((row, run["target"]))
    found = encoder.encode(runs)
    np.testing.assert_allclose(list(found.inputs.values()), facts["embedding"], atol=1e-3)
    assert found.similarity == pytest.approx(facts["similarity"], abs=1e-3) and not found.out_of_distribution
    slow, fast = (predictor.predict({**ENCODED, "nodes": nodes, **found.inputs}) for nodes in (1.0, 16.0))
    assert slow.value > fast.value and not slow.outside_box and not slow.out_of_distribution
    far = encoder.encode([(runs[0][0], runs[0][1] * 1e6)])
    assert far.out_of_distribution


@pytest.mark.parametrize(("runs", "message"), [
    ([], "1 to 2 runs, got 0"),
    ([(ENCODED, 10.0)] * 3, "1 to 2 runs, got 3"),
    ([(ENCODED, 0.0)], "runtime_s must be a number above 0 that float32 holds, got 0.0"),
    ([(ENCODED, 1e39)], "float32 holds, got 1e"),
    ([(ENCODED, 1e-50)], "float32 holds, got 1e-50"),
    ([(ENCODED, float("nan"))], "runtime_s must be a number above 0"),
    ([({**ENCODED, "nodes": 1000.0}, 10.0)], "one of the pool's, got nodes outside"),
    ([({**ENCODED, "nodes": 7.0}, 10.0)], "steps of its columns away"),
    ([({"nodes": 8.0}, 10.0)], "columns must include type=a"),
])
def test_runs_that_cannot_be_encoded(trained: Any, runs: list[Any], message: str) -> None:
    _, entries, configuration = trained
    encoder = RunEncoder(check_bundle(Path(entries["w00"]["bundle"]), configuration.public_key_path))
    with pytest.raises(InputError, match=message):
        encoder.encode(runs)


def test_a_bundle_whose_encoder_was_changed_is_refused(trained: Any, tmp_path: Path) -> None:
    import shutil

    _, entries, configuration = trained
    folder = tmp_path / "bundle"
    shutil.copytree(entries["w00"]["bundle"], folder)
    (folder / "encoder.onnx").write_bytes((folder / "encoder.onnx").read_bytes() + b"\0")
    with pytest.raises(RefusedError):
        check_bundle(folder, configuration.public_key_path)
    (folder / "encoder.onnx").unlink()
    with pytest.raises(RefusedError):
        check_bundle(folder, configuration.public_key_path)


@pytest.mark.parametrize(("change", "message"), [
    ({"demand": {}}, "demand: expected a mapping that is not empty, got {}"),
    ({"demand": {"nodes": "down"}}, "demand.nodes: expected increasing or decreasing, got 'down'"),
    ({"demand": {"type": "decreasing"}}, "demand.type: expected a number of the configuration that is no product"),
    ({"few_shot": {"bases": "best"}}, "few_shot.bases: expected sequential, planned, chosen or random, got 'best'"),
    ({"few_shot": {"runs": 0}}, "few_shot.runs: expected a whole number above 0, got 0"),
    ({"few_shot": {"embedding": "8"}}, "few_shot.embedding: .* got '8'; write it without quotes"),
    ({"few_shot": 3}, "few_shot: expected a mapping, got 3"),
    ({"few_shot": {"pool": ["w01"]}}, r"few_shot.pool: expected no pool .*, got 1 workloads"),
    ({"few_shot": {"runs": 99}}, r"few_shot.runs: expected fewer runs than .* got 99 \(task\)"),
    ({"training": "fast"}, "training: expected a mapping, got 'fast'"),
    ({"demand": {1: "decreasing"}}, "expected a text as a name, got 1; write it in quotes"),
    ({"workloads": [f"w{number:02d}" for number in range(12)]}, "at least 3 workloads, got 2"),
    ({"workloads": ["w99"]}, "workload must be in the table, got 'w99'"),
    ({"demands": {}}, "demands: unknown field; did you mean 'demand'"),
])
def test_a_template_that_is_wrong(change: dict[str, Any], message: str) -> None:
    from models.tasks.task import parse_task

    made = measurements_of(_measurements(), parse_measurement_mapping(MAPPING, "m"), "m")
    with pytest.raises(InputError, match=message):
        parse_task(expand({**TEMPLATE, **change}, made, [], 0, "task"), "task")


@pytest.mark.parametrize("name", ["../up", "a/b", "_pool", "spark: k means"])
def test_a_name_that_no_folder_or_model_can_have_is_not_adapted_and_may_be_in_the_pool(name: str) -> None:
    runs = _measurements().replace({"app": {"w05": name}})
    made = measurements_of(runs, parse_measurement_mapping(MAPPING, "m"), "m")
    with pytest.raises(InputError, match="workload must hold only"):
        expand(TEMPLATE, made, [name], 0, "task")
    assert name in expand(TEMPLATE, made, ["w00"], 0, "task")["few_shot"]["pool"]
    for seed in range(5):
        assert name not in expand(TEMPLATE, made, [], seed, "task")["workloads"]


@pytest.mark.parametrize("name", ["environment", "configuration", "embedding_1", "log_runtime_s"])
def test_a_column_that_the_pipeline_uses_itself_is_turned_down(name: str) -> None:
    mapping = {**MAPPING, "configuration": {**MAPPING["configuration"], name: {"column": "more"}}}
    made = measurements_of(_measurements().assign(more=1.0), parse_measurement_mapping(mapping, "m"), "m")
    with pytest.raises(InputError, match=f"another name, got '{name}'"):
        expand(TEMPLATE, made, ["w00"], 0, "task")


def test_a_workload_with_no_direction_left_is_refused_with_the_reason_though_its_own_runs_are_few() -> None:
    made = frame(12)
    made["seconds"] = made["seconds"] * made["nodes"] ** 2.0
    task = expand(TEMPLATE, measurements_of(made, parse_measurement_mapping(MAPPING, "m"), "m"), ["w00"], 0, "task")
    assert "all workloads contradict it" in task["workloads"]["w00"]["refused"]
    kept = expand({**TEMPLATE, "by_policy": True}, measurements_of(made, parse_measurement_mapping(MAPPING, "m"), "m"),
                  ["w00"], 0, "task")
    assert kept["workloads"]["w00"]["refused"] == ""


def test_what_the_pool_contradicts_is_not_demanded_of_a_workload_that_obeys_another() -> None:
    made = _measurements()
    made["tax"] = made.groupby(["app", "nodes", "type"]).cumcount() + 1
    other = made.assign(tax=2, seconds=made["seconds"] * 3)
    mapping = {**MAPPING, "configuration": {**MAPPING["configuration"], "tax": {"column": "tax"}}}
    both = measurements_of(pd.concat([made, other]), parse_measurement_mapping(mapping, "m"), "m")
    task = expand({**TEMPLATE, "demand": {"nodes": "decreasing", "tax": "decreasing"}}, both, ["w00"], 0, "task")
    (rule,) = task["workloads"]["w00"]["specification"]["properties"]
    assert rule["monotone"]["features"] == ["nodes"]
    assert "tax decreasing is not demanded: all workloads contradict it" in task["workloads"]["w00"]["note"]
