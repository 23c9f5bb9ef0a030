"""`assay verify --instances`: many questions in one process; none is lost for another's sake."""

import csv
import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from feature_store.errors import InputError
from models.verification import instances as instances_module
from models.verification.instances import Instance, read_instances
from models.verification.search.search_result import Progress
from pipelines.command_line import app
from pipelines.commands import verify_instances
from tests.models.verification.onnx_files import dense_file, replayed, undecided_file


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """y = x0 + x1 in a folder of its own beside good.yaml (proved) and bad.yaml (refuted); the CSV is elsewhere."""
    (tmp_path / "list" / "onnx").mkdir(parents=True)
    dense_file(tmp_path / "list" / "onnx" / "sum.onnx", [[[1, 0], [0, 1]], [[1, 1]]], [[0, 0], [0]])
    undecided_file(tmp_path / "list" / "hard.onnx")
    box = "box: {x0: [0, 1], x1: [0, 1]}\n"
    (tmp_path / "list" / "good.yaml").write_text(box + "properties: [range: {minimum: -1}]\n")
    (tmp_path / "list" / "bad.yaml").write_text(box + "properties: [range: {maximum: 1.5}]\n")
    walls = ", ".join(f"x{i}: [-1, 1]" for i in range(8))
    (tmp_path / "list" / "hard.yaml").write_text(f"box: {{{walls}}}\nproperties:\n- range: {{maximum: 1.5}}\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


GOOD, BAD, HARD = "onnx/sum.onnx,good.yaml,60", "./onnx/sum.onnx, bad.yaml", "hard.onnx,hard.yaml,0.3"


def verify(folder: Path, *lines: str, options: tuple[str, ...] = ()) -> Result:
    (folder / "list" / "i.csv").write_text("\n".join(lines) + "\n")
    return CliRunner().invoke(app, ["verify", "--instances", "list/i.csv", *options])


@pytest.mark.parametrize(("lines", "code"), [
    ((GOOD, GOOD), 0), ((GOOD, BAD), 1), ((BAD, HARD, "none.onnx,good.yaml"), 1), ((GOOD, HARD), 3),
    ((GOOD, "none.onnx,good.yaml,3"), 3)])
def test_the_exit_code_says_whether_all_are_proved(folder: Path, lines: tuple[str, ...], code: int) -> None:
    assert verify(folder, *lines).exit_code == code


def test_each_question_is_a_row_of_the_table_and_of_the_csv(folder: Path) -> None:
    done = verify(folder, GOOD, BAD, HARD, "onnx/none.onnx,good.yaml", options=("--csv", "out.csv", "--timeout", "7"))
    assert done.exit_code == 1, done.output
    lines = done.stdout.splitlines()
    assert [line.split()[:3] for line in lines[:5]] == [
        ["model", "property", "verdict"], ["sum.onnx", "good.yaml", "PROVED"], ["sum.onnx", "bad.yaml", "REFUTED"],
        ["hard.onnx", "hard.yaml", "TIMEOUT"], ["none.onnx", "good.yaml", "ERROR"]]
    assert lines[5].startswith("ERROR onnx/none.onnx, good.yaml: model must be") and "none.onnx" in lines[5]
    assert lines[6].startswith("1 ERROR, 1 PROVED, 1 REFUTED, 1 TIMEOUT of 4 in ")
    with (folder / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["result"] for row in rows] == ["unsat", "sat", "timeout", "error"]
    assert [row["model"] for row in rows] == ["onnx/sum.onnx", "./onnx/sum.onnx", "hard.onnx", "onnx/none.onnx"]
    assert [float(row["timeout"]) for row in rows] == [60, 7, 0.3, 7]
    assert all(float(row["seconds"]) < 5 for row in rows) and not list(folder.glob(".*"))


def test_json_is_one_document_with_witnesses_that_replay(folder: Path) -> None:
    done = verify(folder, GOOD, BAD, options=("--json",))
    document = json.loads(done.stdout)
    assert document["counts"] == {"PROVED": 1, "REFUTED": 1} and done.exit_code == 1
    proved, refuted = document["instances"]
    assert proved["witness"] is None and proved["result"] == "unsat"
    ((_, y),) = replayed(folder / "list" / "onnx" / "sum.onnx", refuted["witness"])
    assert y[0] > 1.5


def test_names_are_printed_without_escape_sequences(folder: Path) -> None:
    done = verify(folder, "a\x1b]0;b\x07.onnx,c\x1b[2J.yaml", options=("--csv", "d\x1b[3A.csv"))
    assert done.exit_code == 3 and "\x1b" not in done.stdout and "\x07" not in done.stdout
    row, error, _, written = done.stdout.splitlines()[1:]
    assert row.split()[:2] == [r"a\x1b]0;b\x07.onnx", r"c\x1b[2J.yaml"]
    assert error.startswith(r"ERROR a\x1b]0;b\x07.onnx, c\x1b[2J")
    assert written == r"written to d\x1b[3A.csv"


def test_the_bar_shows_names_without_escape_sequences() -> None:
    shown: list[str] = []

    class Bar:
        def update(self, line: object, description: str) -> None:
            shown.append(description)

    instance = Instance(Path("a\x1b[2J"), Path("b"), 1.0, ("a\x1b[2J", "b\x07"))
    watch = verify_instances._Bar(Bar(), 0).watch(instance)
    assert watch is not None
    watch("outputs", Progress(0.5, 1, 0.0, 0.1))
    assert shown == [r"a\x1b[2J b\x07", r"a\x1b[2J b\x07 50 %"]


def test_what_never_ends_is_an_error_of_its_own(folder: Path) -> None:
    os.mkfifo(folder / "list" / "pipe")
    lines = ("pipe,good.yaml", "onnx/sum.onnx,pipe", "/dev/zero,good.yaml", "onnx/sum.onnx,/dev/zero", GOOD)
    done = verify(folder, *lines, options=("--json",))
    found = json.loads(done.stdout)["instances"]
    assert [one["verdict"] for one in found] == ["ERROR"] * 4 + ["PROVED"] and done.exit_code == 3
    assert all("must be an existing file, got " in one["reason"] for one in found[:4])


def test_after_an_interrupt_the_rest_is_not_begun(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(instances_module, "decide", interrupted)
    done = verify(folder, GOOD, GOOD, options=("--json",))
    assert done.exit_code == 3
    assert [one["reason"] for one in json.loads(done.stdout)["instances"]] == ["interrupted", "not begun: interrupted"]


def test_an_error_of_the_program_is_one_questions_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = instances_module.decide

    def broken(model: Path, specification: Path, *arguments: object, **options: object) -> object:
        if specification.name == "bad.yaml":
            raise RuntimeError("broken")
        return whole(model, specification)

    monkeypatch.setattr(instances_module, "decide", broken)
    done = verify(folder, BAD, GOOD, options=("--json",))
    assert [one["verdict"] for one in json.loads(done.stdout)["instances"]] == ["ERROR", "PROVED"]
    assert done.exit_code == 3


def test_an_error_of_the_program_is_never_exit_code_1(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(verify_instances, "read_instances", broken)
    done = verify(folder, GOOD)
    assert done.exit_code == 3 and done.stdout == "ERROR  RuntimeError: broken\n" and "Traceback" in done.stderr
    assert json.loads(verify(folder, GOOD, options=("--json",)).stdout)["exit_code"] == 3


@pytest.mark.parametrize(("text", "message"), [
    ("a.onnx", r"instance must be model, property and, optionally, seconds, got 'a.onnx' \(.*i.csv, line 1\)"),
    ("a,b,3\na,b,3,4", r"instance must be model, property .*line 2\)"), ("a,,3", "instance must be model, property"),
    ("a,b,soon", r"seconds must be a positive number, got 'soon' \(.*i.csv, line 1\)"), ("a,b,-1", "positive number"),
    ("a,b,nan", "positive number"), ("a,b,1\n" + "a" * 131_073 + ",b", r"field larger than .*i.csv, line 2\)"),
    ('a,b,1\n"a,b\na,b', r"instances must be a readable CSV file, got unexpected end of data \(.*i.csv, line 3\)"),
    ("", r"instances must be at least one, got none \(.*i.csv\)")])
def test_a_line_that_is_no_question_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "i.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        read_instances(tmp_path / "i.csv", 1.0)


@pytest.mark.parametrize(("options", "message"), [
    (("list/onnx/sum.onnx",), "--instances must be given without MODEL"),
    (("-s", "list/good.yaml", "--witness", "w.json"), "without --specification, --witness"),
    (("--csv", "list/i.csv"), "CSV must not be a file that is read"),
    (("--csv", "list/onnx/sum.onnx"), "CSV must not be a file that is read"),
    (("--csv", "list/../list/good.yaml"), "CSV must not be a file that is read"),
    (("--csv", "no/such.csv"), "CSV must be writable"),
    (("--timeout", "0"), "timeout must be positive")])
def test_what_does_not_go_together_is_refused_before_any_work(
    folder: Path, options: tuple[str, ...], message: str,
) -> None:
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file() and file.name != "i.csv"}
    done = verify(folder, GOOD, options=options)
    assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file() and file.name != "i.csv"} == before
    assert done.exit_code == 2 and message in done.stderr and done.stderr.count("\n") == 1


def test_one_question_needs_model_and_specification(folder: Path) -> None:
    for arguments in ([], ["list/onnx/sum.onnx"], ["-s", "list/good.yaml"],
                      ["list/onnx/sum.onnx", "-s", "list/good.yaml", "--csv", "o.csv"]):
        done = CliRunner().invoke(app, ["verify", *arguments])
        assert done.exit_code == 2 and "either MODEL and --specification must be given, or --instances" in done.stderr
    done = CliRunner().invoke(app, ["verify", "--instances", "none.csv"])
    assert done.exit_code == 2 and "file must exist, got none.csv" in done.stderr
