"""What training goes on from after a kill is of the very same work, and of nothing else."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from components import checkpoints as module
from components.checkpoints import checkpoints

Open = Callable[..., AbstractContextManager[Path]]


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    """`checkpoints` of one work, but for what is said."""
    @dataclass
    class Configuration:
        home: Path = tmp_path / "state"

    monkeypatch.setattr(module, "project_configuration", Configuration)
    monkeypatch.delenv("ASSAY_RESUME", raising=False)

    def again(data: str = "data", start: str | None = "start", log: str = "log", **changes: Any
              ) -> AbstractContextManager[Path]:
        (tmp_path / "source.json").write_text(data)
        (tmp_path / "shop").mkdir(exist_ok=True)
        (tmp_path / "shop" / "quality.json").write_text(json.dumps({"data_version": log}))
        pretrained = None
        if start is not None:
            pretrained = tmp_path / "pretrained.zip"
            pretrained.write_text(start)
        return checkpoints(**{"step": "finetune", "task_yaml": "name: t", "seed": 1, "code_version": "c1",
                              "features": tmp_path, "pretrained": pretrained, **changes})

    return again


def killed(work: AbstractContextManager[Path]) -> Path:
    """The folder of a work that did not end, with something in it."""
    folder = work.__enter__()
    (folder / "policy.npz").write_text("half")
    return folder


def test_the_same_work_finds_what_it_left(opened: Open) -> None:
    left = killed(opened())
    with opened() as folder:
        assert folder == left and (folder / "policy.npz").read_text() == "half"
    assert not left.exists(), "what ended well leaves nothing"


@pytest.mark.parametrize("change", [
    {"step": "pretrain"}, {"task_yaml": "name: u"}, {"seed": 2}, {"code_version": "c2"}, {"data": "other"},
    {"log": "other"}, {"start": "other"}, {"start": None}, {"seed": 11, "code_version": "1"},
    {"task_yaml": "name: t1", "seed": 0}], ids=str)
def test_another_work_finds_nothing_and_takes_nothing_away(opened: Open, change: dict[str, Any]) -> None:
    left = killed(opened())
    with opened(**change) as folder:
        assert folder != left and not list(folder.iterdir())
    assert (left / "policy.npz").read_text() == "half"


def test_parts_of_a_key_cannot_be_shifted_into_each_other(opened: Open) -> None:
    with opened(seed=1, code_version="23") as one, opened(seed=12, code_version="3") as other:
        assert one != other


def test_nothing_is_taken_where_it_is_not_asked_for(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    killed(opened())
    monkeypatch.setenv("ASSAY_RESUME", "0")
    with opened() as folder:
        assert not list(folder.iterdir())


def test_a_fresh_shard_leaves_what_another_one_is_writing(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_RESUME", "0")
    with opened(workloads=["a"]) as folder:
        (folder / "a" / "policy.npz").write_text("half")
        with opened(workloads=["b"]):
            assert (folder / "a" / "policy.npz").read_text() == "half"
        with opened(workloads=["a"]):
            assert not list((folder / "a").iterdir())


def test_a_shard_takes_away_its_own_workloads_alone(opened: Open) -> None:
    left = killed(opened())
    for name in ("nginx", "redis"):
        (left / name).mkdir()
    with opened(workloads=("nginx",)):
        pass
    assert sorted(path.name for path in left.iterdir()) == ["policy.npz", "redis"]


def test_a_shard_that_ends_leaves_the_folders_of_one_that_has_just_begun(opened: Open) -> None:
    first = opened(workloads=["a"])
    first.__enter__()
    with opened(workloads=["b"]) as folder:
        first.__exit__(None, None, None)
        assert (folder / "b").is_dir() and not (folder / "a").exists()
    assert not folder.exists()
