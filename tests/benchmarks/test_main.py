"""`python -m benchmarks`: every name starts, the list names all, a mistyped name is told the nearest."""

import json
import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks.__main__ import BENCHMARKS, ROOT, main
from benchmarks.harness.entries import Entries, made_by
from benchmarks.harness.runner import run_benchmark
from feature_store.errors import InputError


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_says_what_it_takes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([name, "--help"])
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    assert f"python -m benchmarks {name}" in text
    assert ("--output" in text) == (import_module(BENCHMARKS[name]).OUTPUT is not None)


def test_every_module_that_can_be_run_is_in_the_table() -> None:
    runnable = {".".join(path.relative_to(ROOT).with_suffix("").parts)
                for folder in (ROOT / "benchmarks", *(ROOT / "systems").glob("*/benchmarks"))
                for path in folder.rglob("*.py")
                if re.search(r"^(def add_options\(|.*\badd_options\b.* = )", path.read_text(encoding="utf-8"), re.M)}
    assert runnable == set(BENCHMARKS.values())


def test_the_list_has_one_line_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(BENCHMARKS)
    assert all(len(line.split()) > 3 for line in lines)


@pytest.mark.parametrize(("arguments", "message"), [(["tabels"], "did you mean 'tables'"), ([], "got no name")])
def test_a_name_that_is_none_is_bad_usage(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2 and message in capsys.readouterr().err


def module(run: Any, output: Path) -> ModuleType:
    made = ModuleType("made", "What it measures.")
    made.__dict__.update(OUTPUT=output, run=run, add_options=lambda parser: parser.add_argument("--size", type=int))
    return made


def raised(error: BaseException) -> Any:
    def run(_: object) -> None:
        raise error

    return run


@pytest.mark.parametrize(("run", "code", "message"), [
    (lambda options: options.size, 3, "wrote out.json"),
    (lambda _: None, 0, "wrote out.json"),
    (raised(InputError("data: expected a folder, got none")), 2, "error: data: expected a folder, got none"),
    (raised(KeyboardInterrupt()), 130, "stopped; the result file holds what was finished"),
])
def test_how_a_benchmark_ends(
    run: Any, code: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_benchmark("made", module(run, tmp_path / "out.json"), ["--size", "3"]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(message)


def key(entry: Mapping[str, Any]) -> int:
    return int(entry["seed"])


def test_entries_of_the_same_code_stand_and_all_are_in_order(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    first = Entries(path, "f/1", key, made_by("a"))
    first.content |= {"machine": "m"}
    first.add({"seed": 2, "code": "a"})
    first.add({"seed": 1, "code": "a"}, {"seed": 0, "code": "b"})
    assert json.loads(path.read_text()) == {"format": "f/1", "machine": "m", "entries": [
        {"seed": 0, "code": "b"}, {"seed": 1, "code": "a"}, {"seed": 2, "code": "a"}]}
    again = Entries(path, "f/1", key, made_by("a"))
    assert len(again) == 2 and again.has(1) and not again.has(0)
    assert len(json.loads(path.read_text())["entries"]) == 3, "what is out of date stays until something is added"


@pytest.mark.parametrize(("text", "message"), [
    ('{"format": "f/2"}', "expected a file of format f/1, got f/2"), ("[]", "got list"), ("{", "expected JSON")])
def test_another_file_is_not_overwritten(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "out.json"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        Entries(path, "f/1", key, made_by("a"))
    assert path.read_text() == text
