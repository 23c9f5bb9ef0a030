"""A run that was killed in the middle of a shard goes on with the workloads that were not finished."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from components.finished_learners import RESUME_VARIABLE, FinishedLearners
from models.tasks.supervised import finetuning
from tests.components.steps import IGNORED_WARNING, Steps, prepare, project
from tests.e2e import tiny

pytestmark = pytest.mark.filterwarnings(IGNORED_WARNING)


class KilledError(BaseException):
    """As a kill: nothing catches it."""


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Steps]:
    folder = tmp_path_factory.mktemp("resume")
    with project(folder):
        steps = prepare(folder, tiny.telemetry(), tiny.task())
        steps.ingest()
        steps.validate()
        steps.featurize()
        steps.audit()
        steps.pretrain()
        yield steps


def trained(monkeypatch: pytest.MonkeyPatch, deadly: str = "") -> list[str]:
    """Names of the workloads that are saved from here on; saving the deadly one kills the process."""
    names: list[str] = []
    save = finetuning._save

    def spy(result: Any, inputs: int, folder: Path) -> None:
        if folder.name == deadly:
            raise KilledError
        names.append(folder.name)
        save(result, inputs, folder)

    monkeypatch.setattr(finetuning, "_save", spy)
    return names


def test_finished_learners_are_taken_and_the_others_trained(
    pretrained: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        first = trained(patch, deadly="redis")
        with pytest.raises(KilledError):
            pretrained.fan_out()
    assert first == ["nginx"]
    killed = (pretrained.folder / "learner" / "nginx" / "network.npz").read_bytes()
    shutil.rmtree(pretrained.folder / "learner")  # the next run has a folder of its own
    second = trained(monkeypatch)
    pretrained.fan_out()
    assert second == ["redis"]
    assert (pretrained.folder / "learner" / "nginx" / "network.npz").read_bytes() == killed
    again = trained(monkeypatch)
    pretrained.fan_out()  # the step was done: its output is kfp's cache's matter
    assert sorted(set(again)) == ["nginx", "redis"]


def test_nothing_is_taken_of_other_code_data_or_seed_nor_by_a_fresh_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "features" / "shop").mkdir(parents=True)
    (tmp_path / "features" / "source.json").write_text("{}")
    quality = tmp_path / "features" / "shop" / "quality.json"
    quality.write_text('{"data_version": "with the log of Monday"}')
    (tmp_path / "learner").mkdir()
    (tmp_path / "pretrained").write_bytes(b"x")
    with project(tmp_path / "project"):
        def kept(task: str = "t", seed: int = 0, code: str = "c") -> FinishedLearners:
            return FinishedLearners.of(task, seed, code, tmp_path / "features", tmp_path / "pretrained")

        kept().keep(tmp_path / "learner")
        assert kept().restore(["learner"], tmp_path / "a") == ["learner"]
        for other in (kept(task="u"), kept(seed=1), kept(code="d")):
            assert other.restore(["learner"], tmp_path / "b") == []
        (tmp_path / "pretrained").write_bytes(b"y")
        assert kept().restore(["learner"], tmp_path / "b") == []
        (tmp_path / "pretrained").write_bytes(b"x")
        quality.write_text('{"data_version": "with the log of Tuesday"}')
        assert kept().restore(["learner"], tmp_path / "b") == []
        quality.write_text('{"data_version": "with the log of Monday"}')
        monkeypatch.setenv(RESUME_VARIABLE, "0")
        assert kept().restore(["learner"], tmp_path / "b") == []
        kept().forget(["learner"])
        monkeypatch.delenv(RESUME_VARIABLE)
        assert kept().restore(["learner"], tmp_path / "b") == []


def test_two_shards_that_end_at_once_are_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both find the common folder empty; one takes it away before the other does."""
    learners, removed = FinishedLearners(tmp_path / "learners", True), Path.rmdir
    (tmp_path / "learners").mkdir()

    def too_late(path: Path) -> None:
        removed(path)
        removed(path)

    monkeypatch.setattr(Path, "rmdir", too_late)
    learners.forget(["redis"])
    assert not (tmp_path / "learners").exists()


def test_what_another_shard_still_needs_stays(tmp_path: Path) -> None:
    (tmp_path / "learners" / "nginx").mkdir(parents=True)
    FinishedLearners(tmp_path / "learners", True).forget(["redis"])
    assert (tmp_path / "learners" / "nginx").is_dir()
