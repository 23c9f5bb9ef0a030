"""`assay verify`: exit codes, output for people and machines, and every kind of bad file."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from pipelines.command_line import app
from pipelines.commands import verify_command
from tests.models.verification.onnx_files import dense_file, dense_model, replayed, spike_file, undecided_file

PROVED, REFUTED, BAD, OPEN = 0, 1, 2, 3


def reported(reason: str) -> pytest.MarkDecorator:
    """A bug that is known: the test fails when it is gone, so that the mark goes, too."""
    return pytest.mark.xfail(strict=True, reason=f"reported: {reason}")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """model.onnx: y = x0 + x1; with spec.yaml it is proved, with wrong.yaml refuted, with p.vnnlib proved."""
    monkeypatch.chdir(tmp_path)
    dense_file(tmp_path / "model.onnx", [[[1, 0], [0, 1]], [[1, 1]]], [[0, 0], [0]])
    box = "box: {x0: [0, 1], x1: [0, 1]}\n"
    (tmp_path / "spec.yaml").write_text(box + "properties: [monotone: {features: [x0, x1]}, range: {minimum: -1}]\n")
    (tmp_path / "wrong.yaml").write_text(box + "properties: [range: {maximum: 1.5}]\n")
    names = "".join(f"(declare-const {name} Real)\n" for name in ("X_0", "X_1", "Y_0"))
    walls = "".join(f"(assert (>= X_{i} 0))(assert (<= X_{i} 1))\n" for i in range(2))
    (tmp_path / "p.vnnlib").write_text(names + walls + "(assert (>= Y_0 2.1))\n")
    return tmp_path


def verify(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["verify", *arguments])


def test_proved_is_exit_code_0_and_says_what(folder) -> None:
    done = verify("model.onnx", "--specification", "spec.yaml")
    assert done.exit_code == PROVED, done.output
    text = " ".join(done.stdout.split())
    assert text.startswith("PROVED") and "2 of 2 parts proved" in text
    assert "y0 is increasing in x0, x1" in text and "real arithmetic" in text and "Not proved" not in text
    assert verify("model.onnx", "-s", "p.vnnlib").exit_code == PROVED


def test_refuted_is_exit_code_1_with_a_witness(folder) -> None:
    done = verify("model.onnx", "-s", "wrong.yaml", "--witness", "found.json")
    assert done.exit_code == REFUTED, done.output
    assert done.stdout.startswith("REFUTED") and "at x0 = " in done.stdout and "written to found.json" in done.stdout
    assert "Not proved:" in done.stdout
    ((x, y),) = replayed(folder / "model.onnx", json.loads((folder / "found.json").read_text()))
    assert ((x >= 0) & (x <= 1)).all() and y[0] > 1.5
    assert not list(folder.glob("*.partial"))


def test_without_an_answer_the_exit_code_is_3(folder) -> None:
    undecided_file(folder / "hard.onnx")
    walls = ", ".join(f"x{i}: [-1, 1]" for i in range(8))
    (folder / "hard.yaml").write_text(f"box: {{{walls}}}\nproperties:\n- range: {{maximum: 1.5}}\n")
    done = verify("hard.onnx", "-s", "hard.yaml", "--timeout", "0.3", "--witness", "none.json")
    assert done.exit_code == OPEN and done.stdout.startswith("TIMEOUT"), done.output
    assert "time budget" in done.stdout and "Not proved:" in done.stdout
    assert not (folder / "none.json").exists()
    (folder / "edge.yaml").write_text("box: {x0: [0, 1], x1: [0, 1]}\nproperties:\n"
                                      "- share: {of: {range: {maximum: 1}}, at_least: 0.5}\n")  # true of exactly half
    done = verify("model.onnx", "-s", "edge.yaml")
    assert done.exit_code == OPEN and done.stdout.startswith("UNKNOWN"), done.output


def test_with_json_the_document_is_all_there_is_on_stdout(folder) -> None:
    done = verify("model.onnx", "-s", "wrong.yaml", "--json")
    document = json.loads(done.stdout)
    assert done.exit_code == REFUTED and document["verdict"] == "REFUTED"
    assert {"verdict", "reason", "statement", "seconds", "boxes", "proved_share", "parts", "witness", "model_sha256",
            "specification_sha256"} == set(document)
    assert document["parts"][0]["name"] == "outputs" and document["parts"][0]["verdict"] == "REFUTED"
    replayed(folder / "model.onnx", document["witness"])
    done = verify("model.onnx", "-s", "spec.yaml", "--json")
    assert done.exit_code == PROVED and json.loads(done.stdout)["witness"] is None


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_points_are_where_the_search_begins(folder, suffix) -> None:
    spike_file(folder / "spike.onnx")
    (folder / "flat.yaml").write_text("box: {x0: [0, 1]}\nproperties:\n- range: {maximum: 0.5}\n")
    frame, path = pd.DataFrame({"load": [0.7, 0.25]}), folder / f"points{suffix}"
    frame.to_csv(path, index=False) if suffix == ".csv" else frame.to_parquet(path, index=False)
    done = verify("spike.onnx", "-s", "flat.yaml", "--points", path.name, "--json")
    document = json.loads(done.stdout)
    assert done.exit_code == REFUTED and document["boxes"] == 0
    assert document["witness"]["points"][0]["inputs"] == {"x0": 0.25}


def test_the_same_seed_gives_the_same_witness(folder) -> None:
    first, second, other = (json.loads(verify("model.onnx", "-s", "wrong.yaml", "--json", "--seed", seed).stdout)
                            for seed in ("1", "1", "2"))
    assert first["witness"] == second["witness"] != other["witness"]


BAD_INPUT = {
    "no-model": (("none.onnx", "-s", "spec.yaml"), "file must exist, got none.onnx"),
    "no-specification": (("model.onnx", "-s", "none.yaml"), "file must exist, got none.yaml"),
    "folder": ((".", "-s", "spec.yaml"), "file must exist, got ."),
    "model-is-text": (("spec.yaml", "-s", "spec.yaml"), "model must be a valid ONNX file"),
    "model-is-empty": (("empty", "-s", "spec.yaml"), "must"),
    "specification-is-binary": (("model.onnx", "-s", "model.onnx"), "specification must be"),
    "specification-is-empty": (("model.onnx", "-s", "empty"), "specification must be a mapping"),
    "specification-of-three": (("model.onnx", "-s", "three.yaml"), "2 inputs"),
    "vnnlib-of-another": (("model.onnx", "-s", "other.vnnlib"), "variable must be declared once and be an input"),
    "not-vnnlib": (("model.onnx", "-s", "not.vnnlib"), "not.vnnlib"),
    "not-gzip": (("model.onnx", "-s", "not.vnnlib.gz"), "VNN-LIB"),
    "timeout-0": (("model.onnx", "-s", "spec.yaml", "--timeout", "0"), "timeout must be positive"),
    "timeout-nan": (("model.onnx", "-s", "spec.yaml", "--timeout", "nan"), "timeout must be positive"),
    "points-of-three": (("model.onnx", "-s", "spec.yaml", "--points", "three.csv"), "points must have 2 columns"),
    "points-are-words": (("model.onnx", "-s", "spec.yaml", "--points", "words.csv"), "points must be a readable table"),
    "no-points": (("model.onnx", "-s", "spec.yaml", "--points", "none.csv"), "points must be a readable table"),
    "convolution": (("conv.onnx", "-s", "spec.yaml"), "operator must be one of")}


@pytest.fixture
def bad_files(folder: Path) -> None:
    (folder / "empty").write_bytes(b"")
    (folder / "three.yaml").write_text("features: [a, b, c]\nproperties:\n- range: {maximum: 1}\n")
    (folder / "three.csv").write_text("a,b,c\n1,2,3\n")
    (folder / "words.csv").write_text("a,b\nx,y\n")
    text = (folder / "p.vnnlib").read_text()
    (folder / "other.vnnlib").write_text(text.replace("X_1", "X_2"))
    (folder / "not.vnnlib").write_text("(assert")
    (folder / "not.vnnlib.gz").write_text(text)
    model = dense_model([[[1, 0], [0, 1]]], [[0, 0]])
    model.graph.node[0].op_type = "Conv"
    del model.graph.node[0].attribute[:]
    (folder / "conv.onnx").write_bytes(model.SerializeToString())


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_one_line_and_exit_code_2(bad_files, case) -> None:
    arguments, message = BAD_INPUT[case]
    done = verify(*arguments)
    assert done.exit_code == BAD, done.output
    assert done.stderr.startswith("error: ") and message in " ".join(done.stderr.split()), done.stderr
    document = json.loads(verify(*arguments, "--json").stdout)
    assert document["exit_code"] == BAD and message in document["error"]


def test_every_verdict_has_an_exit_code() -> None:
    assert verify_command.EXIT_CODES == {"PROVED": 0, "REFUTED": 1, "UNKNOWN": 3, "TIMEOUT": 3, "ERROR": 3}


def test_a_process_of_its_own_answers_with_the_exit_code(folder) -> None:
    command = [sys.executable, "-c", "from pipelines.command_line import main; main()", "verify", "model.onnx"]
    root = Path(verify_command.__file__).parents[2]
    done = subprocess.run([*command, "-s", "wrong.yaml"], cwd=folder, capture_output=True, text=True, timeout=120,
                          env={**os.environ, "PYTHONPATH": str(root)})
    assert done.returncode == REFUTED and done.stdout.startswith("REFUTED"), done.stderr
    assert done.stderr == ""


# --- known bugs: an exception ends the process with 1, which reads as REFUTED ------------------------------------


@reported("names are printed as rich markup: [/] raises MarkupError, [b] disappears")
@pytest.mark.parametrize("name", ["queue[b]", "share[/]"])
def test_names_with_brackets_are_printed_as_they_are(folder, name) -> None:
    (folder / "names.yaml").write_text(f"features: ['{name}', other]\nbox: {{'{name}': [0, 1], other: [0, 1]}}\n"
                                       "properties:\n- range: {maximum: 1.5}\n")
    done = verify("model.onnx", "-s", "names.yaml")
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert f"at {name} = " in done.stdout


@reported("the witness's file is tried only after the proof, and an OSError is not an InputError")
@pytest.mark.parametrize("path", ["nowhere/found.json", "."], ids=["no-folder", "a-folder"])
def test_a_witness_that_cannot_be_written_is_bad_usage(path) -> None:
    assert verify("model.onnx", "-s", "wrong.yaml", "--witness", path).exit_code == BAD


@reported("a file that onnx reads and onnxruntime does not is an exception of onnxruntime's")
@pytest.mark.parametrize(("opset", "ir"), [(28, 8), (17, 14)], ids=["opset", "ir"])
def test_a_file_too_new_for_onnxruntime_is_bad_input(folder, opset, ir) -> None:
    dense_file(folder / "new.onnx", [[[1, 0], [0, 1]], [[1, 1]]], [[0, 0], [0]], opset=opset, ir=ir)
    assert verify("new.onnx", "-s", "spec.yaml").exit_code == BAD
