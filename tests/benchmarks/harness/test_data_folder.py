"""Benchmarks on public data sets say what they need, and look nowhere that was not named."""

import argparse
from pathlib import Path

import pytest

from benchmarks.__main__ import main as run_benchmark
from benchmarks.harness.data_folder import VARIABLE, add_data_folder, required
from feature_store.errors import InputError


def parsed(*arguments: str) -> Path | None:
    parser = argparse.ArgumentParser()
    add_data_folder(parser)
    found: Path | None = parser.parse_args(arguments).data_folder
    return found


def test_the_folder_is_the_option_or_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "/data")
    assert parsed() == Path("/data") and parsed("--data-folder", "here") == Path("here")
    monkeypatch.delenv(VARIABLE)
    assert parsed() is None
    with pytest.raises(InputError, match=r"must be given, got none; set \$ASSAY_DATA or name it with --data-folder"):
        required(parsed())


@pytest.mark.parametrize("name", ["adaptation-accuracy", "adaptation-search", "sizing", "verification"])
def test_without_it_a_benchmark_ends_with_one_line(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                                   capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert run_benchmark([name, "--output", str(tmp_path / "out.json")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: folder of public data sets must be given, got none; set $ASSAY_DATA")
