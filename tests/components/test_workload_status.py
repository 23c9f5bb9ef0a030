"""A workload that fails travels on as a folder that says so, and takes nobody with it."""

import json
from pathlib import Path

import pytest

from components.workload_status import FAILED, failure, guarded
from feature_store.errors import InputError


def never(folder: Path) -> None:
    raise AssertionError(f"must not be called ({folder})")


def test_work_that_succeeds_is_left_alone(tmp_path: Path) -> None:
    guarded("verify", None, tmp_path / "out", lambda folder: (folder / "a").write_text("b") and None)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a"]
    assert failure(tmp_path / "out") is None


def test_an_error_of_ours_is_kept_as_its_message_and_nothing_else_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(folder: Path) -> None:
        (folder / "half").write_text("written")
        raise InputError("column must be there")

    guarded("verify", None, tmp_path / "out", work)
    assert [path.name for path in (tmp_path / "out").iterdir()] == [FAILED]
    assert failure(tmp_path / "out") == {"step": "verify", "message": "column must be there"}
    assert capsys.readouterr().err == ""


def test_a_defect_is_named_by_its_type_and_its_traceback_goes_to_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    guarded("export", None, tmp_path / "out", lambda folder: {}["nothing"])
    assert failure(tmp_path / "out") == {"step": "export", "message": "KeyError: 'nothing'"}
    assert "test_workload_status.py" in capsys.readouterr().err


def test_an_earlier_failure_is_passed_on_and_no_work_is_done(tmp_path: Path) -> None:
    before = tmp_path / "before"
    before.mkdir()
    (before / FAILED).write_text(json.dumps({"step": "finetune", "message": "no rows"}))
    guarded("verify", before, tmp_path / "out", never)
    assert failure(tmp_path / "out") == {"step": "finetune", "message": "no rows"}


def test_what_an_attempt_before_has_left_is_gone(tmp_path: Path) -> None:
    """A killed step's folder is taken up again by the next run."""
    out = tmp_path / "out"
    out.mkdir()
    (out / FAILED).write_text("{")
    guarded("verify", None, out, lambda folder: (folder / "new").write_text("x") and None)
    assert [path.name for path in out.iterdir()] == ["new"]


def test_ctrl_c_is_not_a_failed_workload(tmp_path: Path) -> None:
    def work(folder: Path) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        guarded("verify", None, tmp_path / "out", work)
