import json
from pathlib import Path

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from typer.testing import CliRunner

from feature_store.errors import InputError
from models.export.bundle import write_bundle
from models.export.product import Versions
from models.tasks.prediction.kind import KIND
from models.tasks.task import load_task
from pipelines.command_line import app
from systems.microservices.traces.culprits import (
    ANOMALIES,
    FIRST_WINDOW,
    TARGET,
    TASK,
    UNFAMILIAR,
    labelled,
    ranked,
    read_suspects,
    simple_scores,
    telemetry,
)
from systems.microservices.traces.windows import FEATURES, MOST, NOTHING
from tests.systems.microservices.traces.made_traces import chain, table

SLOW = {1: "one", 3: "three", 5: "two", 7: "three"}  # windows of a second in which a service is slow


def recording(folder: Path) -> Path:
    """Eight seconds of twenty requests each; some services are slow for a second."""
    parts = [chain(second, 20, slow=SLOW.get(second, ""), factor=6, first_us=1_000_000 * second).assign(
        trace=lambda rows, second=second: rows["trace"] + 100 * second) for second in range(8)]
    pd.concat(parts, ignore_index=True).to_parquet(folder / "spans.parquet")
    pd.DataFrame([(second, second + 1.0, service, "cpu", 1.0, True) for second, service in SLOW.items()],
                 columns=["start_s", "end_s", "service", "kind", "intensity", "alone"]).to_parquet(folder / ANOMALIES)
    return folder


def rows() -> pd.DataFrame:
    """Made rows of the task: who is much slower than the others is to blame, mostly."""
    random = np.random.default_rng(0)
    found = pd.DataFrame({name: NOTHING[name] + (MOST[name] - NOTHING[name]) * random.beta(0.5, 3, 400)
                          for name in FEATURES})
    blame = found["worst_median"] + random.normal(0, 0.3, 400) > 2.5
    return found.assign(window=np.repeat(np.arange(80), 5), service=np.tile(list("abcde"), 80),
                        **{TARGET: blame.astype(float)})


def test_the_simple_score_names_the_service_that_was_slow(tmp_path: Path) -> None:
    found = read_suspects(str(recording(tmp_path)), 1.0)

    ranks = ranked(found.table, simple_scores(found.table))

    first = ranks[ranks["rank"] == 1].set_index("window")["service"]
    assert {window: first[window] for window in SLOW} == SLOW
    assert found.requests == 160 and found.spans == 640


def test_who_is_off_every_critical_path_is_never_first_whatever_it_scores() -> None:
    two = pd.DataFrame([NOTHING | {"window": 0, "service": "off"},
                        NOTHING | {"window": 0, "service": "on", "share_on_critical_path": 0.01}])

    assert ranked(two, np.array([9.0, 0.0]))["service"].tolist() == ["on", "off"]


def test_anomalies_label_the_windows_that_they_fill(tmp_path: Path) -> None:
    found = read_suspects(str(recording(tmp_path)), 1.0)

    made = labelled(found, tmp_path, 1.0)

    blamed = made[made[TARGET] == 1]
    seconds = (blamed["window_start"] - FIRST_WINDOW).dt.total_seconds()
    assert dict(zip(seconds.astype(int), blamed["environment"].str.split("/").str[1], strict=True)) == SLOW
    moved = pd.read_parquet(tmp_path / ANOMALIES).assign(start_s=lambda one: one["start_s"] + 0.7)
    moved.to_parquet(tmp_path / ANOMALIES)
    assert not labelled(found, tmp_path, 1.0)[TARGET].any()


def test_the_command_says_the_same_as_a_document(tmp_path: Path) -> None:
    arguments = ["culprit", "--traces", str(recording(tmp_path)), "--window", "1", "--worst", "4"]

    shown = CliRunner().invoke(app, arguments)
    document = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)

    assert shown.exit_code == 0 and "640 spans of 160 requests" in shown.stdout
    suspects = {round(one["start_s"]): one["suspects"][0]["service"] for one in document["windows"]}
    assert suspects == SLOW and document["problems"] == {}


def test_the_command_writes_telemetry_of_the_task(tmp_path: Path) -> None:
    arguments = ["culprit", "--traces", str(recording(tmp_path)), "--window", "1"]

    assert CliRunner().invoke(app, [*arguments, "--table", str(tmp_path / "t.parquet")]).exit_code == 0
    assert KIND.ingest(load_task(TASK), str(tmp_path / "t.parquet"), "", tmp_path)[TARGET].sum() == len(SLOW)


def test_the_folder_one_is_in_has_its_own_name_in_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the environments of two recordings, each in its folder, would be one."""
    folder = recording(tmp_path)
    (folder / ANOMALIES).unlink(missing_ok=True)
    monkeypatch.chdir(folder)
    assert CliRunner().invoke(app, ["culprit", "--traces", ".", "--window", "1", "--table", "t.parquet"]).exit_code == 0
    assert set(pd.read_parquet("t.parquet")["environment"].str.split("/").str[0]) == {folder.name}


def test_a_bundle_that_is_none_is_refused(tmp_path: Path) -> None:
    arguments = ["culprit", "--traces", str(recording(tmp_path)), "--model", str(tmp_path / "none")]

    done = CliRunner().invoke(app, arguments)

    assert done.exit_code in (1, 2) and "error:" in done.output and "Traceback" not in done.output


def test_operations_that_ordinary_traces_do_not_have_are_said(tmp_path: Path) -> None:
    traces, usual = recording(tmp_path), tmp_path / "usual"
    usual.mkdir()
    frame = pd.read_parquet(traces / "spans.parquet")
    frame[frame["service"] != "three"].to_parquet(usual / "spans.parquet")

    assert read_suspects(str(traces), 1.0, str(usual)).problems == {UNFAMILIAR: 160}
    assert read_suspects(str(traces), 1.0, str(traces)).problems == {}
    frame.assign(service=frame["service"] + "-v2").to_parquet(usual / "spans.parquet")
    with pytest.raises(InputError, match="ordinary traces must have operations"):
        read_suspects(str(traces), 1.0, str(usual))


@pytest.mark.parametrize("window", ["inf", "1e300"])
def test_a_window_without_an_end_is_refused(tmp_path: Path, window: str) -> None:
    done = CliRunner().invoke(app, ["culprit", "--traces", str(recording(tmp_path)), "--window", window])

    assert done.exit_code == 2 and "window must be" in done.output


def test_anomalies_without_a_column_are_refused(tmp_path: Path) -> None:
    found = read_suspects(str(recording(tmp_path)), 1.0)
    pd.DataFrame({"start_s": [1.0], "service": ["one"]}).to_parquet(tmp_path / ANOMALIES)

    with pytest.raises(InputError, match="end_s missing"):
        labelled(found, tmp_path, 1.0)


def test_traces_without_any_root_are_refused(tmp_path: Path) -> None:
    table((1, 2, "a", 0, 10), (2, 1, "b", 0, 10)).to_parquet(tmp_path / "spans.parquet")

    with pytest.raises(InputError, match="without any root"):
        read_suspects(str(tmp_path), 1.0)


def test_the_task_is_proved_and_the_corner_of_those_off_every_path_scores_least(tmp_path: Path) -> None:
    task, made = load_task(TASK), tmp_path / "made"
    samples = {TASK: telemetry(rows(), "made", 10.0)}
    status = KIND.featurize(task, samples, {TASK: []}, 0, tmp_path, made / "features", tmp_path)
    assert status == {TASK: ""}
    KIND.pretrain(task, [TASK], 0, made / "features", made / "pretrained", tmp_path, lambda *_: None)
    (made / "learner").mkdir()
    KIND.finetune(task, [TASK], 0, made / "features", made / "pretrained", {TASK: made / "learner"}, tmp_path,
                  lambda *_: None, lambda *_: None)
    product = KIND.product(task, TASK, Versions("", "", 0), made / "features", made / "learner")

    assert write_bundle(tmp_path / "bundle", product).status == "PROVED"
    session = onnxruntime.InferenceSession(product.model)
    lower, upper = (product.specification.lower, product.specification.upper)
    points = np.random.default_rng(1).uniform(lower, upper, (5000, len(FEATURES)))
    points[0] = list(NOTHING.values())
    scores = session.run(None, {session.get_inputs()[0].name: points.astype(np.float32)})[0][:, 0]
    assert scores[0] <= scores.min() + 1e-4 and scores.max() > scores[0] + 0.5
