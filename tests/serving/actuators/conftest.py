"""A group for every test: of plain files, in both versions."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.actuators.cgroup import Cgroup
from tests.serving.actuators.control_group.groups import PARENT, Tree, plain_files, real_group


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Tree:
    return plain_files(tmp_path / "groups", request.param)


@pytest.fixture
def real() -> Iterator[Tree]:
    """Of this host, where it lets us."""
    group = real_group()
    if isinstance(group, str):
        pytest.skip(group)
    yield group
    group.remove()


@pytest.fixture
def acting(tree: Tree, tmp_path: Path) -> Cgroup:
    """A controller's actuator that has the lease."""
    actuator = Cgroup("nginx", tmp_path / "state", parent=PARENT, root=tree.root)
    assert actuator.acquire("controller") == ""
    return actuator
