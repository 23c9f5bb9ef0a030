"""A seed that is there for the same code is kept, any other one is made again."""

import argparse
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.control import generic_policies

HELD_OUT = {"best_rule": "least", "metrics": {"cost_saved": 0.1}, "episodes": 4,
            "controllers": {"policy": {"figures": {"cost": [1.0, 0.0]}}}}


def test_a_seed_is_kept_as_long_as_the_code_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    code = "one"
    monkeypatch.setattr(generic_policies, "code_digest", lambda *_: code)
    monkeypatch.setattr(generic_policies, "pretrain", lambda task, seed, *_: made.append(seed))
    monkeypatch.setattr(generic_policies, "load_pretrained", lambda _: SimpleNamespace(
        training={"held_out": HELD_OUT, "method": "through_environment"}))

    def measured(seeds: int) -> list[dict[str, Any]]:
        options = argparse.Namespace(output=tmp_path / "results.json", seeds=seeds)
        generic_policies.measure("autoscaling", options)
        entries: list[dict[str, Any]] = json.loads(options.output.read_text())["entries"]
        return entries

    assert [entry["seed"] for entry in measured(2)] == [0, 1]
    measured(3)
    assert made == [0, 1, 2]
    code = "another"
    measured(1)
    assert made == [0, 1, 2, 0]
    without = json.loads((tmp_path / "results.json").read_text())
    for entry in without["entries"]:
        del entry["code"]
    (tmp_path / "results.json").write_text(json.dumps(without))
    measured(1)
    assert made == [0, 1, 2, 0, 0], "an entry that does not say by what it was made"
