"""`assay recommend` and `assay audit` as a user types them."""

import json
from pathlib import Path

import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner, Result

from pipelines.command_line import app
from tests.models.adaptation import simulation


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """runs.csv, with three runs of `w00` left, and mapping.yaml in the current folder."""
    frame = simulation.frame()
    own = frame.index[frame["app"] == "w00"]
    frame.drop(own[3:]).to_csv(tmp_path / "runs.csv", index=False)
    (tmp_path / "mapping.yaml").write_text(yaml.safe_dump({
        "workload": {"column": "app"},
        "configuration": {"nodes": {"column": "nodes", "unit": "count"},
                          "type": {"column": "type", "kind": "category"}},
        "target": {"name": "runtime_s", "column": "seconds", "unit": "s"}, "cost": {"column": "usd", "unit": "USD"}},
        sort_keys=False))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def recommend(*more: str) -> Result:
    return call("recommend", "runs.csv", "--mapping", "mapping.yaml", "--workload", "w00", *more)


@pytest.mark.usefixtures("files")
def test_a_recommendation_is_printed_with_its_interval_cost_and_what_to_measure_next() -> None:
    done = recommend()
    assert done.exit_code == 0
    assert "3 measured configurations, 11 other workloads, 10 configurations" in done.stdout
    assert "runtime_s, s" in done.stdout and "90% from" in done.stdout and "USD" in done.stdout
    assert done.stdout.count("->") == 1 and "measure next: nodes" in done.stdout and done.stdout.count("1x") == 3


@pytest.mark.usefixtures("files")
def test_a_deadline_that_none_meets_ends_with_code_1_and_says_so() -> None:
    done = recommend("--deadline", "0.001")
    assert done.exit_code == 1 and "none meets 0.001" in done.stdout and "late" in done.stdout


@pytest.mark.usefixtures("files")
def test_a_learner_can_be_asked_for_by_name() -> None:
    done = recommend("--learner", "support_mean", "--json")
    document = json.loads(done.stdout)
    assert document["learner"] == "support_mean" and document["reason"] == "support_mean: asked for by name."
    predicted = {option["predicted"] for option in document["options"]}
    assert len(predicted) == 1, "the mean of the support is the same for every configuration"


@pytest.mark.usefixtures("files")
def test_a_learner_that_nobody_knows_is_named_with_the_nearest() -> None:
    done = recommend("--learner", "flahs")
    assert done.exit_code == 2 and "got 'flahs'; did you mean 'flash'?" in " ".join(done.stderr.split())


@pytest.mark.usefixtures("files")
def test_json_holds_every_configuration_and_the_chosen_one() -> None:
    done = recommend("--json")
    document = json.loads(done.stdout)
    assert len(document["options"]) == 10 and document["chosen"] == document["options"][0]
    assert set(document["measure_next"]) == {"nodes", "type"} and document["runs"] == 3


@pytest.mark.usefixtures("files")
def test_the_chosen_configuration_is_printed_though_more_rows_come_before_it() -> None:
    done = recommend("--rows", "1", "--deadline", "60")
    assert done.exit_code == 0 and "->" in done.stdout


@pytest.mark.parametrize(("arguments", "message"), [
    (("recommend", "none.csv", "-m", "mapping.yaml", "--workload", "w00"), "measurements: expected one that exists"),
    (("recommend", "runs.csv", "-m", "none.yaml", "--workload", "w00"), "mapping file must be a readable file"),
    (("recommend", "runs.csv", "-m", "mapping.yaml", "--workload", "w99"), "must have a run"),
    (("recommend", "runs.csv", "-m", "mapping.yaml", "--workload", "w00", "--rows", "0"), "rows must be at least 1"),
    (("audit", "runs.csv", "-m", "mapping.yaml"), "--decreasing or --increasing"),
    (("audit", "runs.csv", "-m", "mapping.yaml", "--decreasing", "node"), "did you mean 'nodes'"),
    (("audit", "runs.csv", "-m", "mapping.yaml", "--decreasing", "type"), "must hold numbers"),
    (("audit", "runs.csv", "-m", "mapping.yaml", "--decreasing", "nodes", "--increasing", "nodes"), "got both"),
    (("audit", "runs.csv", "-m", "mapping.yaml", "--decreasing", "nodes", "--at-least", "2"), "at_least must be")])
@pytest.mark.usefixtures("files")
def test_bad_input_ends_with_code_2_and_one_line(arguments: tuple[str, ...], message: str) -> None:
    done = call(*arguments)
    assert done.exit_code == 2 and message in " ".join(done.output.split())


@pytest.mark.usefixtures("files")
def test_an_audit_tells_what_the_data_obey_and_what_they_contradict() -> None:
    obeyed = call("audit", "runs.csv", "-m", "mapping.yaml", "--decreasing", "nodes")
    assert obeyed.exit_code == 0 and "obeyed" in obeyed.stdout
    contradicted = call("audit", "runs.csv", "-m", "mapping.yaml", "--increasing", "nodes")
    assert contradicted.exit_code == 1 and "contradicted" in contradicted.stdout and " gives " in contradicted.stdout
    document = json.loads(call("audit", "runs.csv", "-m", "mapping.yaml", "--decreasing", "nodes", "--json").stdout)
    assert document["nodes"]["overall"]["verdict"] == "obeyed" and len(document["nodes"]["workloads"]) == 12


LONG = "a-workload-whose-name-has-" + "-".join(["many"] * 8) + "-words"


def many(files: Path, workloads: int) -> None:
    """`workloads` workloads with long names, of which the last sixth are in other units and contradict nodes."""
    frame = simulation.frame(workloads)
    frame = pd.concat([frame, frame.assign(type=frame["type"] * 2)])  # 40 pairs each: enough for a verdict
    frame["app"] = frame["app"].map(lambda name: f"{LONG}-{int(name[1:]):04d}")
    odd = frame["app"] > f"{LONG}-{workloads * 5 // 6:04d}"
    frame.loc[odd, "seconds"] *= 1000.0 * frame.loc[odd, "nodes"] ** 1.5
    frame.to_csv(files / "runs.csv", index=False)


def test_many_notes_are_counted_and_come_after_the_answer(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    many(files, 60)
    arguments = ("recommend", "runs.csv", "--mapping", "mapping.yaml", "--workload", f"{LONG}-0003")
    done, verbose = call(*arguments), call(*arguments, "--verbose")
    assert done.exit_code == 0
    notes = [line for line in done.stderr.splitlines() if line.startswith("note: ")]
    every = [line for line in verbose.stderr.splitlines() if line.startswith("note: ")]
    assert len(notes) == 3 and len(every) >= 9 and every[:3] == notes
    assert f"{len(every)} notes on the data; the worst, all with --verbose:" in done.stderr
    table = [line for line in done.stdout.splitlines() if LONG not in line and not line.startswith("learner")]
    assert max(map(len, table)) <= 80 and "…" not in done.stdout


def test_an_audit_counts_workloads_that_contradict_and_names_the_worst(
        files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    many(files, 400)
    done = call("audit", "runs.csv", "--mapping", "mapping.yaml", "--decreasing", "nodes")
    lines = done.stdout.splitlines()
    assert lines[2].endswith(" 66 of 400")
    named = [line for line in lines if "contradicts," in line]
    (more,) = [line for line in lines if "more workloads contradict; --verbose names them" in line]
    assert len(named) == 3 and int(more.split()[1]) == 63 and max(map(len, lines[:4])) <= 80
    verbose = call("audit", "runs.csv", "--mapping", "mapping.yaml", "--decreasing", "nodes", "--verbose")
    every = [line for line in verbose.stdout.splitlines() if "contradicts," in line]
    assert len(every) == 3 + int(more.split()[1].replace(",", "")) and every[:3] == named
