"""A workload that fails travels on as a folder that says so, and takes nobody of its shard with it."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from components.workload_status import FAILED, each, fail, failure, together
from feature_store.errors import InputError


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """The folder of an earlier step: `a` and `b` went well, `lost` did not."""
    for name in ("a", "b"):
        (tmp_path / "before" / name).mkdir(parents=True)
    fail(tmp_path / "before" / "lost", "finetune", "no rows")
    return tmp_path / "before"


def content(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_each_workload_gets_a_folder_and_is_told_when_it_is_done(tmp_path: Path, before: Path) -> None:
    done: list[str] = []
    each("verify", ["a", "b"], before, tmp_path / "out", lambda name, folder: (folder / name).touch(), done.append)
    assert done == ["a", "b"] and content(tmp_path / "out" / "a") == ["a"] and content(tmp_path / "out" / "b") == ["b"]
    assert failure(tmp_path / "out" / "a") is None


def test_an_error_of_ours_is_kept_as_its_message_and_takes_nobody_along(
    tmp_path: Path, before: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(name: str, folder: Path) -> None:
        (folder / "half").write_text("written")
        if name == "a":
            raise InputError("column must be there")

    each("verify", ["a", "b"], before, tmp_path / "out", work, lambda name: None)
    assert content(tmp_path / "out" / "a") == [FAILED] and content(tmp_path / "out" / "b") == ["half"]
    assert failure(tmp_path / "out" / "a") == {"step": "verify", "message": "column must be there"}
    assert capsys.readouterr().err == ""


def test_a_defect_is_named_by_its_type_and_its_traceback_goes_to_the_log(
    tmp_path: Path, before: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    each("export", ["a"], before, tmp_path / "out", lambda name, folder: {}["nothing"], lambda name: None)
    assert failure(tmp_path / "out" / "a") == {"step": "export", "message": "KeyError: 'nothing'"}
    assert "test_workload_status.py" in capsys.readouterr().err


def test_an_earlier_failure_is_passed_on_and_no_work_is_done(tmp_path: Path, before: Path) -> None:
    worked: list[str] = []
    each("verify", ["lost", "a"], before, tmp_path / "out", lambda name, folder: worked.append(name), lambda name: None)
    assert worked == ["a"] and failure(tmp_path / "out" / "lost") == {"step": "finetune", "message": "no rows"}


def test_what_an_attempt_before_has_left_is_gone(tmp_path: Path, before: Path) -> None:
    """A killed step's folder is taken up again by the next run."""
    for half in ("a", ".unfinished/a", ".unfinished/b"):
        (tmp_path / "out" / half).mkdir(parents=True)
        (tmp_path / "out" / half / FAILED).write_text("{")
    each("verify", ["a"], before, tmp_path / "out", lambda name, folder: (folder / "new").touch(), lambda name: None)
    assert content(tmp_path / "out") == ["a"] and content(tmp_path / "out" / "a") == ["new"]


def test_ctrl_c_is_not_a_failed_workload(tmp_path: Path, before: Path) -> None:
    def work(name: str, folder: Path) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        each("verify", ["a"], before, tmp_path / "out", work, lambda name: None)


def test_a_shard_that_is_trained_together_loses_only_those_that_failed(tmp_path: Path) -> None:
    def work(folders: Mapping[str, Path], finished: Callable[[str, str], None]) -> None:
        assert list(folders) == ["a", "b"]
        for name in ("b", "a"):
            (folders[name] / "network").touch()
            finished(name, {"a": "", "b": "loss is NaN"}[name])
            assert (tmp_path / "out" / name).is_dir()

    done: list[str] = []
    together("finetune", {"a": "", "lost": "no rows", "b": ""}, tmp_path / "out", work, done.append)
    assert content(tmp_path / "out") == ["a", "b", "lost"]
    assert done == ["lost", "b", "a"] and content(tmp_path / "out" / "a") == ["network"]
    assert failure(tmp_path / "out" / "b") == {"step": "finetune", "message": "loss is NaN"}
    assert failure(tmp_path / "out" / "lost") == {"step": "finetune", "message": "no rows"}


def test_where_training_together_raises_those_that_are_left_are_lost_and_say_why(tmp_path: Path) -> None:
    def work(folders: Mapping[str, Path], finished: Callable[[str, str], None]) -> None:
        finished("a", "")
        raise InputError("memory must be left")

    together("finetune", {"a": "", "b": "", "c": ""}, tmp_path / "out", work, lambda name: None)
    assert failure(tmp_path / "out" / "a") is None
    for name in ("b", "c"):
        said = json.loads((tmp_path / "out" / name / FAILED).read_text())
        assert said == {"step": "finetune", "message": "memory must be left"}


def test_a_workload_that_training_forgot_has_failed(tmp_path: Path) -> None:
    together("finetune", {"a": ""}, tmp_path / "out", lambda folders, finished: None, lambda name: None)
    assert failure(tmp_path / "out" / "a") == {
        "step": "finetune", "message": "finetune ended without a result for this workload"}


@pytest.mark.parametrize(("named", "said"), [("a", "'a', a second time"), ("x", "'x', which is not in it")])
def test_a_kind_that_finishes_a_workload_twice_or_another_one_is_told(tmp_path: Path, named: str, said: str) -> None:
    def work(folders: Mapping[str, Path], finished: Callable[[str, str], None]) -> None:
        finished("a", "")
        finished(named, "")

    together("finetune", {"a": "", "b": ""}, tmp_path / "out", work, lambda name: None)
    assert failure(tmp_path / "out" / "a") is None
    assert failure(tmp_path / "out" / "b") == {
        "step": "finetune", "message": "ValueError: finetune: expected finished() once for each workload of the shard, "
                                       f"got it for {said}"}


def test_a_kind_that_removes_the_folder_of_a_workload_has_not_finished_it(tmp_path: Path) -> None:
    def work(folders: Mapping[str, Path], finished: Callable[[str, str], None]) -> None:
        folders["a"].rmdir()
        finished("a", "")

    together("finetune", {"a": ""}, tmp_path / "out", work, lambda name: None)
    assert (failure(tmp_path / "out" / "a") or {})["message"].startswith("FileNotFoundError")


def test_a_library_that_ends_python_loses_its_own_workload_alone(tmp_path: Path, before: Path) -> None:
    def work(name: str, folder: Path) -> None:
        if name == "a":
            raise SystemExit(0)

    each("verify", ["a", "b"], before, tmp_path / "out", work, lambda name: None)
    assert failure(tmp_path / "out" / "a") == {"step": "verify", "message": "SystemExit: 0"}
    assert failure(tmp_path / "out" / "b") is None and (tmp_path / "out" / "b").is_dir()
