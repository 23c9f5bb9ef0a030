"""Every step of the pipeline on two tiny workloads, in the order of the pipeline: what each leaves behind."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest

from feature_store.errors import RefusedError
from models.configuration import Configuration
from models.export.onnx_model import build_onnx
from models.tasks.task import parse_task
from models.training.pretraining import load_pretrained
from models.training.workload import load_network, load_workload
from models.verification.proof_file import check_proof
from pipelines.run_summary import run_exit_code, summary_notes
from serving.bundle import check_bundle
from serving.ledger import Ledger
from serving.registry import Registry
from tests.components.steps import CODE_VERSION, COMMAND, IGNORED_WARNING, Steps, prepare, project
from tests.e2e import tiny

pytestmark = pytest.mark.filterwarnings(IGNORED_WARNING)

# The exported graph computes in float32 what the network computes in float64; scaled target units.
PARITY = 1e-4
STEPS = ("ingest", "validate", "featurize", "audit", "pretrain", "finetune", "verify", "export", "gate", "register",
         "report")


@dataclass(frozen=True)
class Finished:
    """A run through all steps, and what the last three returned."""

    steps: Steps
    configuration: Configuration
    all_passed: bool
    entries: dict[str, dict[str, Any]]
    summary: dict[str, Any]

    def at(self, *parts: str) -> Path:
        return self.steps.folder.joinpath(*parts)

    def json(self, *parts: str) -> Any:
        return json.loads(self.at(*parts).read_text())


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    folder = tmp_path_factory.mktemp("steps")
    with project(folder) as configuration:
        steps = prepare(folder, tiny.telemetry(), tiny.task())
        steps.train()
        yield Finished(steps, configuration, steps.gate(), steps.register(), steps.report())


def test_ingest_writes_the_table_as_it_was_and_says_what_it_is(finished: Finished) -> None:
    frame = tiny.telemetry()
    written = pd.read_parquet(finished.at("samples", "rows")).sort_index()
    pd.testing.assert_frame_equal(written.reset_index(drop=True), frame, check_dtype=False)
    assert written.index.tolist() == list(range(1, 601)), "the numbers of the records in the file"
    assert finished.json("samples", "source.json") == {
        "telemetry": "samples.parquet", "data_version": finished.json("validated", "source.json")["data_version"],
        "rows": 600, "workloads": {"nginx": 300, "redis": 300}, "others": [],
        "digests": finished.json("validated", "source.json")["digests"]}


def test_validate_passes_both_and_keeps_the_data_docs(finished: Finished) -> None:
    verdicts = finished.json("validated", "validation.json")
    assert {name: verdict["passed"] for name, verdict in verdicts.items()} == {"nginx": True, "redis": True}
    assert all(check["passed"] or not check["fatal"] for verdict in verdicts.values() for check in verdict["checks"])
    assert "nginx" in finished.at("docs", "index.html").read_text()


def test_featurize_scales_by_the_training_side_alone(finished: Finished) -> None:
    folder = finished.at("features", "redis")
    train, test = (pd.read_parquet(folder / f"{side}.parquet") for side in ("train", "test"))
    assert list(train) == ["psi_cpu_some", "psi_io_some", "connections", "latency_ms", "environment", "window_start"]
    assert len(train) + len(test) == 300 and not set(train["window_start"]) & set(test["window_start"])
    ranges = json.loads((folder / "scaling.json").read_text())["target"]["latency_ms"]
    assert ranges == [train["latency_ms"].min(), train["latency_ms"].max()]
    assert finished.json("features", "status.json") == {"nginx": "", "redis": ""}


def test_one_window_is_on_one_side_for_all_workloads(finished: Finished) -> None:
    sides = {name: set(pd.read_parquet(finished.at("features", name, "test.parquet"))["window_start"])
             for name in tiny.WORKLOADS}
    assert sides["nginx"] == sides["redis"]


def test_pretrain_makes_one_start_for_every_workload(finished: Finished) -> None:
    pool = load_pretrained(finished.at("pretrained"))
    names = ("psi_cpu_some", "psi_io_some", "connections")
    queries = ((0, 1), (1, 1))
    for workload in tiny.WORKLOADS:
        network = pool.start(workload, names, (16, 16), queries, "plain", 0)
        shapes = [tuple(value.shape) for value in network.parameters()]
        assert shapes == [(16, 3), (16,), (16, 16), (16,), (1, 16), (1,)]


def test_finetune_records_how_the_loop_went(finished: Finished) -> None:
    loop = finished.json("learner", "redis", "loop.json")
    assert [epoch["epoch"] for epoch in loop["epochs"]] == list(range(1, len(loop["epochs"]) + 1))
    assert loop["epochs"][-1]["loss"] < loop["epochs"][0]["loss"]
    assert loop["verdict"]["status"] == loop["rounds"][-1]["status"] == "PROVED"
    with np.load(finished.at("learner", "redis", "counterexamples.npz"), allow_pickle=False) as pairs:
        assert len(pairs["low"]) == len(pairs["high"]) == len(pairs["sign"])


def test_finetune_gives_the_same_weights_again(finished: Finished, tmp_path: Path) -> None:
    from components.finetune import run_finetune

    again = tmp_path / "learner"
    run_finetune(finished.steps.task_yaml, ["redis"], 0, CODE_VERSION, finished.at("features"),
                 finished.at("pretrained"), again)
    for name in ("network.npz", "twin.npz"):
        first, second = load_network(finished.at("learner", "redis", name)), load_network(again / "redis" / name)
        for a, b in zip(first.weights + first.biases, second.weights + second.biases, strict=True):
            np.testing.assert_array_equal(a, b)


def test_verify_proves_the_file_that_ships_and_keeps_the_proof(finished: Finished) -> None:
    assert finished.json("verified", "redis", "verdict.json")["status"] == "PROVED"
    for name in ("model.onnx", "specification.yaml", "proof.npz", "contract.json"):
        made = finished.at("verified", "redis", "product", name).read_bytes()
        assert made == finished.at("bundle", "redis", name).read_bytes()
    proof, model, specification = (finished.at("bundle", "redis", name)
                                   for name in ("proof.npz", "model.onnx", "specification.yaml"))
    assert check_proof(proof, model, specification).accepted  # as a stranger does, who has these three files alone


def test_the_file_that_ships_is_the_trained_network_behind_its_scaling_byte_for_byte(finished: Finished) -> None:
    task = parse_task(finished.steps.task, "task")
    data = load_workload(finished.at("features", "redis"), task, "redis")
    quality = finished.json("features", "redis", "quality.json")
    metadata = {"task": "tiny", "workload": "redis", "code_version": CODE_VERSION,
                "data_version": quality["data_version"], "units": "inputs and output are in raw units"}
    network = load_network(finished.at("verified", "redis", "network.npz"))
    assert build_onnx(network, data.scaling, "latency_ms", metadata, ends=task.physical_range("redis")) == finished.at(
        "bundle", "redis", "model.onnx").read_bytes()


def test_the_network_is_monotone_at_points(finished: Finished) -> None:
    network = load_network(finished.at("verified", "redis", "network.npz"))
    box = np.linspace(0.0, 1.0, 21)
    rows = np.array([[cpu, 0.3, 0.5] for cpu in box])
    assert (np.diff(network.value(rows)) >= -1e-4).all()


def test_export_is_the_verified_network_in_raw_units(finished: Finished) -> None:
    task = parse_task(finished.steps.task, "task")
    data = load_workload(finished.at("features", "redis"), task, "redis")
    session = onnxruntime.InferenceSession(finished.at("bundle", "redis", "model.onnx").read_bytes(),
                                           providers=["CPUExecutionProvider"])
    raw = data.scaling.features.unscale(data.x_test).astype(np.float32)
    (answer,) = session.run(None, {"telemetry": raw})
    network = load_network(finished.at("verified", "redis", "network.npz"))
    predicted = data.scaling.target.scale(answer.astype(np.float64))[:, 0]
    np.testing.assert_allclose(predicted, network.value(data.x_test), atol=PARITY)
    contract = finished.json("bundle", "redis", "contract.json")
    assert [item["name"] for item in contract["inputs"]] == ["psi_cpu_some", "psi_io_some", "connections"]
    assert (contract["code_version"], contract["seed"]) == (CODE_VERSION, 0)


def test_evidence_tells_the_verified_network_from_its_twin(finished: Finished) -> None:
    metrics = finished.json("bundle", "redis", "evidence.json")["metrics"]
    assert all(np.isfinite(value) for value in metrics.values())
    assert metrics["counterexamples"] > 0
    assert metrics["counterexample_accuracy"] == 1.0 > metrics["twin_counterexample_accuracy"]
    assert metrics["test_accuracy"] > 0.5 and metrics["parity_points"] >= 10_000


def test_evidence_has_the_exported_files_error_in_every_test_row_in_order_of_time(finished: Finished) -> None:
    evidence = finished.json("bundle", "redis", "evidence.json")
    test = pd.read_parquet(finished.at("features", "redis", "test.parquet")).sort_values("window_start")
    session = onnxruntime.InferenceSession(finished.at("bundle", "redis", "model.onnx").read_bytes(),
                                           providers=["CPUExecutionProvider"])
    rows = test[["psi_cpu_some", "psi_io_some", "connections"]].to_numpy(dtype=np.float32)
    found = session.run(None, {"telemetry": rows})[0][:, 0].astype(np.float64) - test["latency_ms"].to_numpy()
    np.testing.assert_array_equal(evidence["cases"]["values"], found**2)
    assert (evidence["cases"]["unit"], evidence["cases"]["better"]) == ("ms²", "smaller")
    span = evidence["target"]["maximum"] - evidence["target"]["minimum"]
    metrics = evidence["metrics"]
    assert metrics["test_rows"] == len(test)
    assert metrics["test_mse"] == pytest.approx(np.mean((found / span) ** 2))
    assert metrics["test_accuracy"] == np.mean(np.abs(found / span) < 0.1)
    train = pd.read_parquet(finished.at("features", "redis", "train.parquet"))
    of_the_mean = np.mean(((train["latency_ms"].mean() - test["latency_ms"]) / span) ** 2)
    assert metrics["mean_mse"] == pytest.approx(of_the_mean)


def test_gate_passes_and_finds_no_champion_yet(finished: Finished) -> None:
    assert finished.all_passed is True
    assert finished.json("gated", "champions.json") == {"nginx": None, "redis": None}
    gates = finished.json("gated", "redis", "gates.json")
    assert gates["passed"] and {gate["name"] for gate in gates["gates"]} == set(tiny.configuration()["gates"]["tiny"])


def test_register_signs_and_gives_aliases(finished: Finished) -> None:
    for workload, entry in finished.entries.items():
        assert (entry["status"], entry["version"], entry["alias"]) == ("registered", 1, "champion")
        assert entry["role"] == "champion"
        kept = Path(entry["bundle"])
        assert kept == finished.configuration.home / "bundles" / "tiny" / workload / "1"
        checked = check_bundle(kept, finished.configuration.public_key_path, deep=True, library=True)
        assert checked.contract.workload == workload


def test_report_keeps_a_page_a_version_and_one_for_the_run(finished: Finished) -> None:
    kept = finished.configuration.home / "reports" / "here"
    assert {path.name for path in kept.iterdir()} == {"index.html", "nginx.html", "redis.html"}
    assert finished.summary["report"] == str(kept / "index.html")
    assert run_exit_code(finished.summary) == 0
    for entry in finished.summary["entries"]:
        assert entry["verdict"] == "PROVED" and entry["metrics"]["test_mse"] < 0.05


def test_the_report_hangs_on_the_version_in_mlflow(finished: Finished) -> None:
    import mlflow

    client = mlflow.MlflowClient(finished.configuration.tracking_uri)
    run_id = finished.entries["redis"]["run_id"]
    assert "redis.html" in {item.path for item in client.list_artifacts(run_id)}
    epochs = finished.json("learner", "redis", "loop.json")["epochs"]
    assert len(client.get_metric_history(run_id, "loss")) == len(epochs)
    assert client.get_run(run_id).data.params["command"] == COMMAND


def test_every_step_says_when_it_began_and_what_it_cost(finished: Finished) -> None:
    events = finished.steps.events()
    for name in STEPS:
        started = [event for event in events if event.get("step") == name and event["event"] == "start"]
        ended = [event for event in events if event.get("step") == name and event["event"] == "end"]
        assert len(started) == len(ended) >= 1, name
        for event in ended:
            assert event["seconds"] >= 0 and event["startup_s"] >= 0 and event["peak_mb"] > 10


class TestNextRun:
    """What comes after, in order: each test leaves one more version or none."""

    def test_a_scheduled_run_on_the_same_data_registers_nothing(self, finished: Finished) -> None:
        before = Ledger(finished.configuration.ledger_path, finished.configuration.public_key_path).verify()
        finished.steps.gate()
        entries = finished.steps.register(scheduled=True)
        assert {entry["status"] for entry in entries.values()} == {"no new data"}
        assert "registered already" in entries["redis"]["message"]
        assert Ledger(finished.configuration.ledger_path, finished.configuration.public_key_path).verify() == before

    def test_the_champion_is_measured_on_the_new_test_set(self, finished: Finished) -> None:
        assert finished.steps.gate() is True
        champion = finished.json("gated", "champions.json")["redis"]
        evidence = finished.json("bundle", "redis", "evidence.json")
        own = {name: evidence["metrics"][name] for name in ("test_mse", "test_mae", "test_accuracy")}
        assert champion["version"] == 1
        assert champion["metrics"] == own, "the same model, measured in the same way"
        assert champion["cases"] == evidence["cases"]
        assert champion["cases"]["sha256"] == evidence["data"]["files"]["test.parquet"]

    def test_a_run_with_the_same_data_and_seed_registers_nothing_and_says_so(self, finished: Finished) -> None:
        before = Ledger(finished.configuration.ledger_path, finished.configuration.public_key_path).verify()
        entries = finished.steps.register()
        assert {entry["status"] for entry in entries.values()} == {"unchanged"}
        assert (entries["redis"]["version"], entries["redis"]["alias"]) == (1, "champion")
        assert Path(entries["redis"]["bundle"]).name == "1"
        assert Ledger(finished.configuration.ledger_path, finished.configuration.public_key_path).verify() == before
        summary = finished.steps.report("again")
        assert run_exit_code(summary) == 0
        said = "byte for byte; nothing is registered"
        assert [line for line in summary_notes(summary) if line.startswith("redis: unchanged") and line.endswith(said)]
        assert said in Path(summary["report"]).read_text()

    def test_a_copy_that_a_killed_run_did_not_make_is_made_by_the_next(self, finished: Finished) -> None:
        kept = finished.configuration.home / "bundles" / "tiny" / "redis" / "1"
        for scheduled in (False, True):
            shutil.rmtree(kept)
            assert finished.steps.register(scheduled=scheduled)["redis"]["bundle"] == str(kept)
            check_bundle(kept, finished.configuration.public_key_path, deep=True)

    def test_a_champion_that_cannot_be_compared_is_not_replaced_unseen(self, finished: Finished) -> None:
        """Somebody changes the champion's file in the artifact store: the new version is registered, as rejected."""
        stored = finished.configuration.home / "artifacts"
        (model,) = (path for path in stored.rglob("bundle/model.onnx")
                    if json.loads(path.with_name("contract.json").read_text())["workload"] == "redis")
        original = model.read_bytes()
        model.write_bytes(original[:-1] + bytes([original[-1] ^ 1]))
        try:
            assert finished.steps.gate() is False
            gates = {gate["name"]: gate for gate in finished.json("gated", "redis", "gates.json")["gates"]}
            assert [name for name, gate in gates.items() if not gate["passed"]] == ["champion_mse"]
            entries = finished.steps.register()
        finally:
            model.write_bytes(original)
        assert (entries["redis"]["status"], entries["redis"]["alias"]) == ("rejected", None)
        assert entries["nginx"]["status"] == "unchanged"
        assert Registry(finished.configuration).champion("tiny", "redis") == 1
        assert run_exit_code(finished.steps.report("tampered")) == 1

    def test_a_scheduled_run_on_other_data_registers(self, finished: Finished) -> None:
        other = replace(finished.steps, folder=finished.steps.folder.with_name("other"), seed=3, workloads=("redis",))
        other.train()
        assert other.gate() is True
        entry = other.register(scheduled=True)["redis"]
        assert (entry["status"], entry["version"]) == ("registered", 3)
        assert entry["alias"] in ("champion", "challenger")
        rows = len(json.loads((other.folder / "gated" / "redis" / "evidence.json").read_text())["cases"]["values"])
        assert "attempt 2: " in entry["reason"] and "left out" not in entry["reason"]
        assert f"over {rows} cases (each end at 99.83333 %)" in entry["reason"], "all test rows: the champion saw none"

    def test_another_seed_has_the_same_test_rows(self, finished: Finished) -> None:
        first, other = (json.loads((folder / "redis" / "evidence.json").read_text()) for folder in (
            finished.steps.folder / "bundle", finished.steps.folder.with_name("other") / "bundle"))
        assert first["seed"] != other["seed"] and first["data"]["files"] == other["data"]["files"]
        assert first["seen"] == other["seen"] and first["seen"]["columns"][-1] == "latency_ms"

    def test_a_champion_from_before_bundles_said_what_it_was_trained_on_rejects_nobody(
            self, finished: Finished, monkeypatch: pytest.MonkeyPatch) -> None:
        opened = Registry.open_champion

        def without_record(self: Registry, task: str, workload: str) -> Any:
            bundle = opened(self, task, workload)
            return replace(bundle, evidence={key: bundle.evidence[key] for key in bundle.evidence if key != "seen"})

        monkeypatch.setattr(Registry, "open_champion", without_record)
        other = replace(finished.steps, folder=finished.steps.folder.with_name("other"), seed=3, workloads=("redis",))
        assert other.gate() is True
        (gate,) = (gate for gate in json.loads((other.folder / "gated" / "redis" / "gates.json").read_text())["gates"]
                   if gate["name"] == "champion_mse")
        assert gate["passed"] and "which rows it was trained on is not known" in gate["reason"]

    def test_a_tampered_ledger_stops_the_run_at_the_gate_and_at_registration(self, finished: Finished) -> None:
        """Somebody gives an old version a better story: the step fails with exit code 1, and nothing is registered."""
        path, steps = finished.configuration.ledger_path, finished.steps
        original, artifacts = path.read_bytes(), files_in(finished.configuration.home / "artifacts")
        tampered = original.replace(b'"gates_passed":true', b'"gates_passed":"yes"', 1)
        assert tampered != original
        path.write_bytes(tampered)
        try:
            for name, run in (("gate", steps.gate), ("register", steps.register)):
                with pytest.raises(RefusedError, match=r"ledger|entry"):
                    run()
                last = steps.events()[-1]
                assert (last["step"], last["event"], last["exit_code"]) == (name, "failed", 1)
            assert path.read_bytes() == tampered
        finally:
            path.write_bytes(original)
        assert files_in(finished.configuration.home / "artifacts") == artifacts


def files_in(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}
