"""Limits of both versions as one text, and back."""

import math
from pathlib import Path

import pytest

from feature_store.control_group_limits import amount, from_files, quota, to_files, version_of


@pytest.mark.parametrize(("version", "limit", "text", "files"), [
    (1, "cpu", "50000 100000", {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "50000"}),
    (1, "cpu", "max 20000", {"cpu.cfs_period_us": "20000", "cpu.cfs_quota_us": "-1"}),
    (1, "memory", "4096", {"memory.limit_in_bytes": "4096"}),
    (1, "memory", "max", {"memory.limit_in_bytes": "-1"}),
    (2, "cpu", "max 100000", {"cpu.max": "max 100000"}),
    (2, "memory", "4096", {"memory.max": "4096"}),
    (2, "memory_high", "max", {"memory.high": "max"}),
])
def test_what_is_written_is_what_is_read(version: int, limit: str, text: str, files: dict[str, str]) -> None:
    assert to_files(version, limit, text) == files
    assert from_files(version, limit, {name: f"{written}\n" for name, written in files.items()}) == text


def test_the_kernels_largest_number_is_no_limit() -> None:
    assert from_files(1, "memory", {"memory.limit_in_bytes": "9223372036854771712\n"}) == "max"


def test_amounts() -> None:
    assert amount("25000 100000") == 0.25 and amount("4096") == 4096.0
    assert amount("max") == amount("max 100000") == math.inf
    assert quota(0.29) == "29000 100000", "29000 by rounding: 0.29 * 100000 is 28999.999..."


@pytest.mark.parametrize("text", ["", "x", "-5 100000", "5 x"])
def test_anything_else_is_no_limit(text: str) -> None:
    with pytest.raises(ValueError):
        from_files(2, "cpu", {"cpu.max": text})


def test_the_version_is_that_of_the_mounted_root(tmp_path: Path) -> None:
    assert version_of(tmp_path) == 1
    (tmp_path / "cgroup.controllers").write_text("")
    assert version_of(tmp_path) == 2
