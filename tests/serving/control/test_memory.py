"""What a controller remembers, as a file that anybody may have written."""

import json
import math

import pytest

from feature_store.errors import InputError
from serving.control.memory import Memory, read_memory

PENDING = {"application": "nginx", "episode": 0, "step": 1, "actor": "policy", "observation": [1.0, math.nan],
           "targets": [2.0], "detail": {"interval_s": 15.0, "reason": "any"}}
GOOD = Memory({"rate": 1.0, "peak": math.nan}, {"target_replicas": 3.0}, 4, 5, {"replicas": 2.0}, (PENDING,))


def test_it_is_read_as_it_was_written(tmp_path):
    GOOD.write(tmp_path / "memory.json")
    read = read_memory(tmp_path / "memory.json")
    assert (read.episode, read.step, read.moved_away_s, read.deployed) == (4, 5, GOOD.moved_away_s, GOOD.deployed)
    assert read.pending == ({**PENDING, "observation": [1.0, None]},)


def test_the_form_before_this_one_is_read_too(tmp_path):
    """An upgrade must not keep a controller from starting."""
    path = tmp_path / "memory.json"
    GOOD.write(path)
    before = json.loads(path.read_bytes())
    before |= {"format": "assay-controller-memory/1", "lowered_s": before.pop("moved_away_s")}
    path.write_text(json.dumps(before))
    read = read_memory(path)
    assert (read.episode, read.step, read.moved_away_s, read.deployed) == (4, 5, GOOD.moved_away_s, GOOD.deployed)
    path.write_text(json.dumps({**before, "lowered_s": 5}))
    with pytest.raises(InputError, match="memory must be a file that a controller wrote"):
        read_memory(path)


@pytest.mark.parametrize("change", [
    {"episode": 10 ** 30}, {"step": -1}, {"step": True}, {"observer": {"rate": "x"}}, {"observer": []},
    {"moved_away_s": {"x": 10 ** 400}}, {"deployed": {"replicas": None}}, {"pending": {}}, {"pending": [5]},
    *({"pending": [{**PENDING, "observation": [1.0], **one}]} for one in (
        {"actor": "root"}, {"actor": []}, {"episode": "x"}, {"step": 1.5}, {"application": 5}, {"detail": 5},
        {"observation": ["a"]}, {"targets": 3}, {"detail": {"interval_s": "long"}}, {"more": 1})),
])
def test_nonsense_is_one_error_that_says_to_remove_it(tmp_path, change):
    path = tmp_path / "memory.json"
    GOOD.write(path)
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **change}))
    with pytest.raises(InputError, match=r"memory must be a file that a controller wrote.*; remove it to begin anew"):
        read_memory(path)


@pytest.mark.parametrize("content", [b"[" * 100_000, b"\xff\xfe", b"[]", b""])
def test_what_is_no_such_file_is_the_same_error(tmp_path, content):
    path = tmp_path / "memory.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match="remove it to begin anew"):
        read_memory(path)
