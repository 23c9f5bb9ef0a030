"""`assay verify`: exit codes, output for people and machines, and every kind of bad file."""

import contextlib
import gzip
import io
import json
import os
import pty
import re
import select
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from models.verification import decide as decide_module
from models.verification.search.branch_and_bound import Progress
from pipelines.command_line import app
from pipelines.commands import verify_command
from tests.models.verification.onnx_files import dense_file, dense_model, replayed, spike_file, undecided_file

PROVED, REFUTED, BAD, OPEN = 0, 1, 2, 3
ROOT = Path(__file__).parents[2]


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
    assert "Not proved:" in done.stdout and "It is proved" not in done.stdout + (folder / "found.json").read_text()
    ((x, y),) = replayed(folder / "model.onnx", json.loads((folder / "found.json").read_text()))
    assert ((x >= 0) & (x <= 1)).all() and y[0] > 1.5
    assert not list(folder.glob(".*"))


def test_the_page_s_example_is_proved_and_with_one_more_question_refuted(folder) -> None:
    bundle, page = ROOT / "data/demo/bundle", (ROOT / "docs/reference/assay-verify.md").read_text()
    assert verify(str(bundle / "model.onnx"), "-s", str(bundle / "specification.yaml")).exit_code == PROVED
    asked = re.search(r"echo '(.*)' >> spec\.yaml", page)
    assert asked is not None
    (folder / "spec.yaml").write_text((bundle / "specification.yaml").read_text() + asked[1] + "\n")
    done = verify(str(bundle / "model.onnx"), "-s", "spec.yaml")
    assert done.exit_code == REFUTED and "target_cpu_limit_cores" in done.stdout, done.output


def test_without_an_answer_the_exit_code_is_3(folder) -> None:
    undecided_file(folder / "hard.onnx")
    walls = ", ".join(f"x{i}: [-1, 1]" for i in range(8))
    (folder / "hard.yaml").write_text(f"box: {{{walls}}}\nproperties:\n- range: {{maximum: 1.5}}\n")
    done = verify("hard.onnx", "-s", "hard.yaml", "--timeout", "0.3", "--witness", "none.json")
    assert done.exit_code == OPEN and done.stdout.startswith("TIMEOUT"), done.output
    assert "time budget" in done.stdout and "Not proved:" in done.stdout
    assert not (folder / "none.json").exists()
    # true of exactly half
    (folder / "edge.yaml").write_text("box: {x0: [0, 1], x1: [0, 1]}\nproperties:\n"
                                      "- share: {of: {range: {maximum: 1}}, at_least: 0.5, confidence: 0.999999999}\n")
    done = verify("model.onnx", "-s", "edge.yaml")
    assert done.exit_code == OPEN and done.stdout.startswith("UNKNOWN"), done.output


def test_with_json_the_document_is_all_there_is_on_stdout(folder) -> None:
    done = verify("model.onnx", "-s", "wrong.yaml", "--json")
    document = json.loads(done.stdout)
    assert done.exit_code == REFUTED and document["verdict"] == "REFUTED"
    assert {"verdict", "reason", "statement", "seconds", "boxes", "proved_share", "parts", "witness", "model_sha256",
            "specification_sha256", "certificate", "execution"} == set(document)
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
    assert verify("model.onnx", "-s", "spec.yaml", "--seed", "-1").exit_code == BAD


BAD_INPUT = {
    "no-model": (("none.onnx", "-s", "spec.yaml"), "file must exist, got none.onnx"),
    "no-specification": (("model.onnx", "-s", "none.yaml"), "file must exist, got none.yaml"),
    "folder": ((".", "-s", "spec.yaml"), "file must exist, got ."),
    "model-is-text": (("spec.yaml", "-s", "spec.yaml"), "model must be a valid ONNX file"),
    "model-is-empty": (("empty", "-s", "spec.yaml"), "must"),
    "specification-is-binary": (("model.onnx", "-s", "model.onnx"), "specification must be"),
    "specification-is-empty": (("model.onnx", "-s", "empty"), "specification: expected a mapping, got nothing"),
    "specification-of-three": (("model.onnx", "-s", "three.yaml"), "2 inputs"),
    "vnnlib-of-another": (("model.onnx", "-s", "other.vnnlib"), "variable must be declared once and be an input"),
    "not-vnnlib": (("model.onnx", "-s", "not.vnnlib"), "not.vnnlib"),
    "not-gzip": (("model.onnx", "-s", "not.vnnlib.gz"), "VNN-LIB"),
    "timeout-0": (("model.onnx", "-s", "spec.yaml", "--timeout", "0"), "timeout must be positive"),
    "timeout-nan": (("model.onnx", "-s", "spec.yaml", "--timeout", "nan"), "timeout must be positive"),
    "points-of-three": (("model.onnx", "-s", "spec.yaml", "--points", "three.csv"), "points must have 2 columns"),
    "points-are-words": (("model.onnx", "-s", "spec.yaml", "--points", "words.csv"), "points must be a readable table"),
    **{f"points-{name}": (("model.onnx", "-s", "spec.yaml", "--points", name), "points must be a readable table")
       for name in ("torn.csv.gz", "damaged.csv.gz", "damaged.csv.zip", "damaged.csv.xz", "damaged.csv.tar")},
    "no-points": (("model.onnx", "-s", "spec.yaml", "--points", "none.csv"), "points must be an existing file"),
    "endless-points": (("model.onnx", "-s", "spec.yaml", "--points", "/dev/zero"), "points must be an existing file"),
    "large-specification": (("model.onnx", "-s", "large"), "specification must have at most 100,000,000 bytes, got 1,"),
    "convolution": (("conv.onnx", "-s", "spec.yaml"), "operator must be one of"),
    "dangling-input": (("dangling.onnx", "-s", "spec.yaml"), "model must be a valid ONNX file, got ValidationError"),
    "key-twice": (("model.onnx", "-s", "twice.yaml"), "key must be given once, got 'box' twice (twice.yaml, line 2)"),
    "aliases": (("model.onnx", "-s", "bomb.yaml"), "specification must hold at most 1,000,000 values with its alias")}


@pytest.fixture
def bad_files(folder: Path) -> None:
    (folder / "empty").write_bytes(b"")
    with (folder / "large").open("wb") as file:
        file.truncate(10**9)
    (folder / "three.yaml").write_text("features: [a, b, c]\nproperties:\n- range: {maximum: 1}\n")
    (folder / "three.csv").write_text("a,b,c\n1,2,3\n")
    (folder / "words.csv").write_text("a,b\nx,y\n")
    whole = gzip.compress(b"a,b\n" + b"1,2\n" * 1000, mtime=0)
    (folder / "torn.csv.gz").write_bytes(whole[:40])
    (folder / "damaged.csv.gz").write_bytes(whole[:10] + b"\xff" * 40)
    for ending in ("zip", "xz", "tar"):
        (folder / f"damaged.csv.{ending}").write_bytes(b"\xff" * 40)
    text = (folder / "p.vnnlib").read_text()
    (folder / "other.vnnlib").write_text(text.replace("X_1", "X_2"))
    (folder / "not.vnnlib").write_text("(assert")
    (folder / "not.vnnlib.gz").write_text(text)
    model = dense_model([[[1, 0], [0, 1]]], [[0, 0]])
    model.graph.node[0].op_type = "Conv"
    del model.graph.node[0].attribute[:]
    (folder / "conv.onnx").write_bytes(model.SerializeToString())
    dangling = dense_model([[[1, 0], [0, 1]]], [[0, 0]])
    dangling.graph.node[0].input[0] = "nobody"
    (folder / "dangling.onnx").write_bytes(dangling.SerializeToString())
    (folder / "twice.yaml").write_text("box: {x0: [0, 1], x1: [0, 1]}\nbox: {x0: [0, 0.5], x1: [0, 1]}\n")
    bomb = ["box: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    bomb += [f"x{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 10)}]" for k in range(1, 10)]
    (folder / "bomb.yaml").write_text("\n".join(bomb))


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_one_line_and_exit_code_2(bad_files, case) -> None:
    arguments, message = BAD_INPUT[case]
    done = verify(*arguments)
    assert done.exit_code == BAD, done.output
    assert done.stderr.startswith("error: ") and message in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1 and done.stderr.endswith("\n"), "one line"
    document = json.loads(verify(*arguments, "--json").stdout)
    assert document["exit_code"] == BAD and message in document["error"]


def test_every_verdict_has_an_exit_code() -> None:
    assert verify_command.EXIT_CODES == {"PROVED": 0, "REFUTED": 1, "UNKNOWN": 3, "TIMEOUT": 3, "ERROR": 3}


COMMAND = [sys.executable, "-c", "from pipelines.command_line import main; main()", "verify"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(verify_command.__file__).parents[2])}


def test_a_process_of_its_own_answers_with_the_exit_code(folder) -> None:
    done = subprocess.run([*COMMAND, "model.onnx", "-s", "wrong.yaml"], cwd=folder, capture_output=True, text=True,
                          timeout=120, env=ENVIRONMENT)
    assert done.returncode == REFUTED and done.stdout.startswith("REFUTED"), done.stderr
    assert done.stderr == ""


# --- how a counterexample is printed -----------------------------------------------------------------------------


def lines(done: Result) -> list[str]:
    return done.stdout.splitlines()


def numbers(witness: dict[str, Any]) -> list[list[str]]:
    """Of each point the values of the inputs, then of the outputs."""
    return [[repr(value) for side in ("inputs", "outputs") for value in point[side].values()]
            for point in witness["points"]]


def test_a_counterexample_is_a_table_with_units(folder) -> None:
    (folder / "units.yaml").write_text("features: [load, cores]\noutputs: [latency]\n"
                                       "units: {cores: vCPU, latency: ms}\nbox: {load: [0, 1], cores: [0, 1]}\n"
                                       "properties: [range: {maximum: 1.5}]\n")
    done = verify("model.onnx", "-s", "units.yaml", "--witness", "found.json")
    witness = json.loads((folder / "found.json").read_text())
    assert witness["units"] == {"cores": "vCPU", "latency": "ms"}
    (values,) = numbers(witness)
    width = max(map(len, values))
    assert lines(done)[2:5] == [f"  at load    = {values[0]}", f"     cores   = {values[1]:<{width}} vCPU",
                                f"  -> latency = {values[2]:<{width}} ms"]


def test_a_pair_is_printed_side_by_side_and_what_differs_is_marked(folder) -> None:
    (folder / "pair.yaml").write_text("box: {x0: [0, 1]}\ninputs: {x1: {values: [0.25, 1]}}\nunits: {y0: ms}\n"
                                      "properties:\n- monotone: {features: [x1], direction: decreasing}\n")
    done = verify("model.onnx", "-s", "pair.yaml", "--witness", "found.json")
    low, high = numbers(json.loads((folder / "found.json").read_text()))
    assert (low[1], high[1]) == ("0.25", "1.0") and low[0] == high[0]
    a, b = max(map(len, low)), max(map(len, high))
    assert lines(done)[1].startswith("  x1 from 0.25 to 1: REFUTED")
    assert lines(done)[2:6] == [f"          {'low':<{a}} high",
                                f"  at x0 = {low[0]:<{a}} {high[0]}",
                                f"     x1 = {low[1]:<{a}} {high[1]:<{b}}    differs",
                                f"  -> y0 = {low[2]:<{a}} {high[2]:<{b}} ms"]


@pytest.mark.parametrize("columns", [20, 60, 80, 300])
def test_numbers_stay_in_one_piece_on_any_terminal(folder, monkeypatch, columns) -> None:
    names = ["depth_of_the_queue_at_the_load_balancer", "cores"]
    (folder / "long.yaml").write_text(f"features: [{', '.join(names)}]\nbox: {{{names[0]}: [0, 1], cores: [0, 1]}}\n"
                                      "properties:\n- monotone: {features: [cores], direction: decreasing}\n")
    monkeypatch.setattr(verify_command, "out", Console(force_terminal=True, width=columns))
    done = verify("model.onnx", "-s", "long.yaml", "--witness", "found.json")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
    for point in numbers(json.loads((folder / "found.json").read_text())):
        assert all(f" {number}" in plain for number in point)
    assert (names[0] in plain.split("Not proved")[0]) == (columns == 300)
    table = plain.split("Not proved")[0].splitlines()[2:]
    assert "".join(line[5:].split(" ")[0] for line in table[1:-2]).startswith(names[0])  # folded, not cut
    assert max(map(len, table)) <= max(columns, 79)


def test_without_a_terminal_nothing_is_folded(folder, monkeypatch) -> None:
    name = "n" * 200
    (folder / "long.yaml").write_text(f"features: [{name}, b]\nbox: {{{name}: [0, 1], b: [0, 1]}}\n"
                                      "properties: [range: {maximum: 1.5}]\n")
    done = verify("model.onnx", "-s", "long.yaml")
    assert re.search(rf"^  at {name} = [0-9.e-]+$", done.stdout, re.MULTILINE)
    assert not any(line.endswith(" ") for line in lines(done))


@pytest.mark.parametrize("name", ["queue[b]", "share[/]", ":car:", "[red]", "a\\[b]"])
def test_names_with_brackets_are_printed_as_they_are(folder, name) -> None:
    (folder / "names.yaml").write_text(f"features: ['{name}', other]\nbox: {{'{name}': [0, 1], other: [0, 1]}}\n"
                                       f"units: {{'{name}': '[x]'}}\nproperties:\n- range: {{maximum: 1.5}}\n")
    done = verify("model.onnx", "-s", "names.yaml")
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert re.search(f"at {re.escape(name)} += [0-9.e-]+ +\\[x\\]", done.stdout)
    if len(name) > 5:
        assert f"at {name} = " in done.stdout
    (folder / "pairs.yaml").write_text(f"features: ['{name}', other]\nbox: {{other: [0, 1]}}\n"
                                       f"inputs: {{'{name}': {{values: [0, 1]}}}}\noutputs: ['y{name}']\n"
                                       f"properties:\n- monotone: {{features: ['{name}']}}\n")
    done = verify("model.onnx", "-s", "pairs.yaml")
    assert done.exit_code == PROVED and f"  {name} from 0 to 1: PROVED" in done.stdout
    assert f"y{name} is increasing in {name}" in done.stdout


def test_the_progress_bar_prints_names_as_they_are(monkeypatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(verify_command, "err", Console(file=shown, force_terminal=True, width=200))
    with verify_command._progress(False) as advance:
        advance("share[/] from 1 to 2", Progress(0.5, 3, -1.0, 0.1))
    assert "share[/] from 1 to 2" in shown.getvalue() and "50.0 % proved" in shown.getvalue()


# --- what cannot be written --------------------------------------------------------------------------------------


def not_begun(*arguments: Any) -> Any:
    raise AssertionError("the proof has begun")


UNWRITABLE = {"no-folder": "nowhere/found.json", "folder": ".", "empty": "", "pipe": "pipe", "model": "model.onnx",
              "specification": "wrong.yaml", "link-to-model": "link", "points": "points.csv",
              "file-as-folder": "model.onnx/found.json", "long": 300 * "n"}


@pytest.mark.parametrize("path", UNWRITABLE.values(), ids=UNWRITABLE)
def test_a_witness_that_cannot_be_written_is_bad_usage(folder, monkeypatch, path) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to("model.onnx")
    (folder / "points.csv").write_text("x0,x1\n0,0\n")
    before = {file: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    monkeypatch.setattr(decide_module, "decide", not_begun)
    done = verify("model.onnx", "-s", "wrong.yaml", "--points", "points.csv", "--witness", path)
    assert done.exit_code == BAD, done.output
    said = "error: witness must " if path else "error: --witness must have a value"
    assert done.stderr.startswith(said) and done.stderr.count("\n") == 1
    assert {file: file.read_bytes() for file in folder.iterdir() if file.is_file()} == before
    assert stat.S_ISFIFO((folder / "pipe").stat().st_mode)


def test_files_of_similar_names_are_left_alone(folder) -> None:
    for name in ("w.json.partial", "p.npz.partial"):
        (folder / name).write_text("mine")
    assert verify("model.onnx", "-s", "wrong.yaml", "--witness", "w.json").exit_code == REFUTED
    assert verify("model.onnx", "-s", "spec.yaml", "--certificate", "p.npz").exit_code == PROVED
    assert {(folder / name).read_text() for name in ("w.json.partial", "p.npz.partial")} == {"mine"}
    assert not list(folder.glob(".*")) and (folder / "w.json").stat().st_mode == (folder / "spec.yaml").stat().st_mode


def test_a_witness_that_can_no_longer_be_written_comes_after_the_verdict(folder, monkeypatch) -> None:
    decide = verify_command._decide

    def removed(*arguments: Any) -> Any:
        document = decide(*arguments)
        shutil.rmtree(folder / "evidence")
        return document

    monkeypatch.setattr(verify_command, "_decide", removed)
    command = ("model.onnx", "-s", "wrong.yaml", "--witness", "evidence/found.json")
    (folder / "evidence").mkdir()
    done = verify(*command)
    assert done.exit_code == BAD and done.stdout.startswith("REFUTED") and "at x0 = " in done.stdout
    assert done.stderr.startswith("error: witness must be writable, got") and "written to" not in done.stdout
    (folder / "evidence").mkdir()
    done = verify(*command, "--json")
    document = json.loads(done.stdout)
    assert done.exit_code == document["exit_code"] == BAD and document["error"].startswith("witness must be writable")
    assert document["verdict"] == "REFUTED" and document["witness"]["points"]


def test_a_witness_takes_the_place_of_an_older_one(folder) -> None:
    (folder / "found.json").write_text("old")
    assert verify("model.onnx", "-s", "spec.yaml", "--witness", "found.json").exit_code == PROVED
    assert (folder / "found.json").read_text() == "old"
    assert verify("model.onnx", "-s", "wrong.yaml", "--witness", "found.json").exit_code == REFUTED
    replayed(folder / "model.onnx", json.loads((folder / "found.json").read_text()))


@pytest.mark.parametrize(("specification", "options"), [
    pytest.param("spec.yaml", (), id="text"),
    pytest.param("wrong.yaml", ("--json",), id="json")])
def test_standard_output_that_cannot_be_written_is_not_a_verdict(folder, specification, options) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*COMMAND, "model.onnx", "-s", specification, *options], cwd=folder, stdout=full,
                              stderr=subprocess.PIPE, text=True, timeout=120, env=ENVIRONMENT)
    assert done.returncode == BAD and "Traceback" not in done.stderr
    assert options or done.stderr.startswith("error: standard output must be writable, got")


# --- what an exception's exit code, 1, must not be taken for -----------------------------------------------------


@pytest.mark.parametrize(("opset", "ir"), [(28, 8), (17, 14)], ids=["opset", "ir"])
def test_a_file_too_new_for_onnxruntime_is_bad_input(folder, opset, ir) -> None:
    dense_file(folder / "new.onnx", [[[1, 0], [0, 1]], [[1, 1]]], [[0, 0], [0]], opset=opset, ir=ir)
    assert verify("new.onnx", "-s", "spec.yaml").exit_code == BAD


def test_an_error_of_the_program_is_no_verdict(monkeypatch) -> None:
    def broken(*arguments: Any) -> Any:
        raise RuntimeError("[/] out of memory")

    monkeypatch.setattr(decide_module, "decide", broken)
    done = verify("model.onnx", "-s", "spec.yaml")
    assert done.exit_code == OPEN and done.stdout == "ERROR  RuntimeError: [/] out of memory\n"
    assert "Traceback" in done.stderr
    done = verify("model.onnx", "-s", "spec.yaml", "--json")
    document = json.loads(done.stdout)
    assert document == {"verdict": "ERROR", "error": "RuntimeError: [/] out of memory", "exit_code": OPEN}


def test_what_nobody_foresaw_before_the_search_is_no_verdict_either(folder, monkeypatch) -> None:
    monkeypatch.setattr(verify_command, "_read_points", lambda path: {}[path])
    assert verify("model.onnx", "-s", "spec.yaml", "--points", "points.csv").exit_code == OPEN
    for arguments in (("model.onnx", "-s", "x" * 300), ("--instances", "x" * 300)):  # no name of a file
        assert verify(*arguments).exit_code == OPEN


def test_an_infinite_output_is_strict_json(folder) -> None:
    dense_file(folder / "huge.onnx", [[[1.0]], [[1e30]], [[1e38]]], [[0.0]] * 3)
    (folder / "huge.yaml").write_text("box: {x0: [1, 2]}\nproperties: [range: {maximum: 5}]\n")
    done = verify("huge.onnx", "-s", "huge.yaml", "--json", "--witness", "found.json")
    assert done.exit_code == REFUTED
    for text in (done.stdout, (folder / "found.json").read_text()):
        document = json.loads(text, parse_constant=pytest.fail)
        assert document.get("witness", document)["points"][0]["outputs"] == {"y0": "Infinity"}
    assert "-> y0 = Infinity" in verify("huge.onnx", "-s", "huge.yaml").stdout


@pytest.fixture
def open_files(folder: Path) -> None:
    """hard.onnx with hard.yaml: the first part is not decided soon, the second one is a share."""
    undecided_file(folder / "hard.onnx")
    walls = ", ".join(f"x{i}: [-1, 1]" for i in range(8))
    (folder / "hard.yaml").write_text(f"box: {{{walls}}}\nproperties:\n- range: {{maximum: 1.5}}\n"
                                      "- share: {of: {range: {maximum: 1.5}}, at_least: 0.5}\n")


def test_one_interrupt_ends_the_run_with_what_is_known(folder, open_files) -> None:
    terminal, side = pty.openpty()  # the progress bar on it says when the search is under way
    program = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {COMMAND[2]}"
    started = subprocess.Popen([*COMMAND[:2], program, "verify", "hard.onnx", "-s", "hard.yaml"], cwd=folder, text=True,
                               stdout=subprocess.PIPE, stderr=side, env={**ENVIRONMENT, "TERM": "xterm"})
    shown, sent = b"", False
    while started.poll() is None:
        if select.select([terminal], [], [], 0.05)[0]:
            shown += os.read(terminal, 65536)
        if not sent and b"outputs" in shown:
            started.send_signal(signal.SIGINT)
            sent = True
    os.close(side)
    os.close(terminal)
    text, _ = started.communicate()
    assert started.returncode == OPEN and text.startswith("UNKNOWN  0 of 2 parts proved"), shown
    assert "  outputs: UNKNOWN, interrupted, " in text and "  share: UNKNOWN, not begun: interrupted, " in text
    assert "Not proved: " in text


def test_an_interrupted_run_is_one_json_document(open_files, monkeypatch) -> None:
    def interrupt(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(verify_command, "_progress", lambda quiet: contextlib.nullcontext(interrupt))
    done = verify("hard.onnx", "-s", "hard.yaml", "--json")
    document = json.loads(done.stdout)
    assert done.exit_code == OPEN and document["verdict"] == "UNKNOWN" and document["witness"] is None
    assert [part["reason"] for part in document["parts"][1:]] == ["not begun: interrupted"]


# --- certificates ------------------------------------------------------------------------------------------


def check(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["check", *arguments])


def test_a_certificate_is_written_and_checked_by_a_command_of_its_own(folder) -> None:
    done = verify("model.onnx", "-s", "spec.yaml", "--certificate", "proof.npz")
    assert done.exit_code == PROVED and "certificate of 2 leaf boxes written to proof.npz" in done.stdout, done.output
    assert not list(folder.glob(".*"))
    checked = check("proof.npz", "--model", "model.onnx", "-s", "spec.yaml")
    assert checked.exit_code == PROVED and "2 leaf boxes in 2 parts proved again" in checked.stdout
    assert "y0 is increasing in x0, x1" in " ".join(checked.stdout.split())
    document = json.loads(check("proof.npz", "--model", "model.onnx", "-s", "spec.yaml", "--json").stdout)
    assert document["accepted"] and document["leaves"] == 2 and document["reason"] == ""


def test_a_certificate_of_something_else_is_refused_with_exit_code_1(folder) -> None:
    verify("model.onnx", "-s", "spec.yaml", "--certificate", "proof.npz")
    (folder / "spec.yaml").write_text((folder / "spec.yaml").read_text().replace("minimum: -1", "minimum: 0.5"))
    done = check("proof.npz", "--model", "model.onnx", "-s", "spec.yaml")
    assert done.exit_code == REFUTED and "specification must be the file that the proof is about" in done.output
    done = check("proof.npz", "--model", "model.onnx", "-s", "spec.yaml", "--json")
    assert done.exit_code == REFUTED and not json.loads(done.stdout)["accepted"] and "It is proved" not in done.stdout


def test_without_a_proof_there_is_no_certificate(folder) -> None:
    done = verify("model.onnx", "-s", "wrong.yaml", "--certificate", "proof.npz", "--json")
    assert done.exit_code == REFUTED and json.loads(done.stdout)["certificate"] is None
    assert not (folder / "proof.npz").exists()


@pytest.mark.parametrize("arguments", [
    ("verify", "model.onnx", "-s", "spec.yaml", "--certificate", "gone/proof.npz"),
    ("verify", "model.onnx", "-s", "spec.yaml", "--certificate", "model.onnx"),
    ("check", "proof.npz"), ("check", "proof.npz", "--model", "model.onnx"),
    ("check", "proof.npz", "--model", "model.onnx", "-s", "spec.yaml"),
])
def test_certificates_that_cannot_be_written_or_read_are_bad_usage(folder, arguments) -> None:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == BAD and len(done.output.strip().splitlines()) == 1, done.output
