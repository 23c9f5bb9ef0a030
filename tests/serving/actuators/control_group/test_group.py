"""Which folders a control group may name, and what its files say when something is wrong."""

from pathlib import Path

import pytest

from feature_store.errors import InputError
from serving.actuators.actuator import ActuatorError
from serving.actuators.control_group.group import ControlGroup
from tests.serving.actuators.control_group.groups import PARENT, Tree, plain_files


@pytest.mark.parametrize("group", ["", "/", ".", "..", "../nginx", "nginx/..", "nginx/../../other", "/sys/nginx",
                                   "a//b", "a/", "nginx\n", "a\0b", ".hidden", "-", "a b", "$HOME", "~"])
def test_a_group_that_could_lead_elsewhere_is_refused(group: str, tmp_path: Path) -> None:
    for arguments in ((tmp_path, "assay", group), (tmp_path, group or "..", "nginx")):
        with pytest.raises(InputError, match="must be names of control groups"):
            ControlGroup(*arguments)


@pytest.mark.parametrize("group", ["nginx", "web/nginx", "system.slice/nginx.service", "user@1000.service/a-b:c",
                                   "dev-disk\\x2dsda.slice"])
def test_names_as_systemd_and_kubernetes_give_them_are_taken(group: str, tmp_path: Path) -> None:
    assert ControlGroup(tmp_path, "", group).name == f"/{group}"


def test_a_link_is_not_followed(tree: Tree) -> None:
    folder = tree.folders["cpu"]
    elsewhere = folder.with_name("elsewhere")
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    group = ControlGroup(tree.root, PARENT, "nginx")
    with pytest.raises(ActuatorError, match="must not be a symbolic link") as raised:
        group.read()
    assert raised.value.kind == "refused"
    folder.unlink()
    elsewhere.rename(folder)
    parent = folder.parent.with_name("linked")
    parent.symlink_to(folder.parent)
    with pytest.raises(ActuatorError, match="must not be a symbolic link"):
        ControlGroup(tree.root, "linked", "nginx").read()


def test_a_file_that_is_a_link_is_not_followed(tree: Tree, tmp_path: Path) -> None:
    file = tree.folders["memory"] / ("memory.max" if tree.version == 2 else "memory.limit_in_bytes")
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ActuatorError):
        ControlGroup(tree.root, PARENT, "nginx").write("memory", "1048576")
    assert (tmp_path / "elsewhere").read_text().strip() != "1048576"


def test_a_hierarchy_that_a_distribution_links_is_found(tmp_path: Path) -> None:
    tree = plain_files(tmp_path, 1)
    (tree.root / "cpu").rename(tree.root / "cpu,cpuacct")
    (tree.root / "cpu").symlink_to("cpu,cpuacct")
    assert ControlGroup(tree.root, PARENT, "nginx").read()["cpu"] == "max 100000"


def test_a_missing_controller_says_where_it_is_enabled(tree: Tree) -> None:
    (tree.folders["cpu"] / ("cpu.max" if tree.version == 2 else "cpu.cfs_quota_us")).unlink()
    group = ControlGroup(tree.root, PARENT, "nginx")
    for use in (group.read, lambda: group.write("cpu", "100 1000")):
        with pytest.raises(ActuatorError, match=r"enable its controller \(cgroup.subtree_control\)") as raised:
            use()
        assert raised.value.kind == "refused"
    assert not (tree.folders["cpu"] / "cpu.max").exists() and not (tree.folders["cpu"] / "cpu.cfs_quota_us").exists()


@pytest.mark.parametrize("text", ["", "many", "-5 100000", "1 2 3 x"])
def test_a_file_without_a_limit_is_refused(text: str, tree: Tree) -> None:
    file = "cpu.max" if tree.version == 2 else "cpu.cfs_period_us"
    (tree.folders["cpu"] / file).write_text(text)
    with pytest.raises(ActuatorError, match="hold no limit") as raised:
        ControlGroup(tree.root, PARENT, "nginx").read()
    assert raised.value.kind == "refused"


@pytest.mark.parametrize("root", ["/sys/fs/cgroup\0", "/sys/\0/cgroup", "/sys/fs/\ud800\0", "ring"])
def test_a_root_that_can_be_no_path_is_one_error(root: str, tmp_path: Path) -> None:
    (tmp_path / "ring" / "memory").parent.mkdir()
    (tmp_path / "ring" / "cpu").symlink_to("cpu")
    with pytest.raises(InputError, match="root must be the folder where control groups are mounted, got ") as raised:
        ControlGroup(tmp_path / root, "", "nginx")
    assert "\0" not in str(raised.value)
