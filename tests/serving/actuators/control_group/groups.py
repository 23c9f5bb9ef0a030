"""Control groups to test with: trees of plain files of both versions, and real ones on a host that lets us."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from feature_store.control_group_limits import FILES, from_files, to_files, version_of
from recording.control_groups import find_hierarchy
from recording.reaper import remove_group

MIB = 2**20
HOST = Path("/sys/fs/cgroup")
PARENT = f"assay-test-{os.getpid()}"


@dataclass(frozen=True)
class Tree:
    """The group `PARENT`/nginx below `root`: its limits as text, and what its processes use.

    Attributes:
        root: where the groups lie.
        folders: limit -> folder with its files.
    """

    root: Path
    folders: dict[str, Path]

    @property
    def version(self) -> int:
        return version_of(self.root)

    def limits(self) -> dict[str, str]:
        return {limit: self.limit(limit) for limit in self.folders}

    def limit(self, limit: str) -> str:
        texts = {file: (self.folders[limit] / file).read_text() for file in FILES[self.version][limit]}
        return from_files(self.version, limit, texts)

    def set(self, **limits: str) -> None:
        """As somebody else does."""
        for limit, text in limits.items():
            for file, written in to_files(self.version, limit, text).items():
                (self.folders[limit] / file).write_text(written)

    def use(self, mib: int, inactive_file_mib: int = 0) -> None:
        """In a tree of plain files: what is in use."""
        current, inactive = {1: ("memory.usage_in_bytes", "total_inactive_file"),
                             2: ("memory.current", "inactive_file")}[self.version]
        (self.folders["memory"] / current).write_text(f"{mib * MIB}\n")
        (self.folders["memory"] / "memory.stat").write_text(f"anon 5\n{inactive} {inactive_file_mib * MIB}\n")

    def remove(self) -> None:
        """Removes the group and its parent; its processes must have ended."""
        for folder in dict.fromkeys(self.folders.values()):
            if str(self.root).startswith(str(HOST)):
                remove_group(folder)
                remove_group(folder.parent)
            else:
                shutil.rmtree(folder.parent, ignore_errors=True)


def _folders(root: Path, version: int) -> dict[str, Path]:
    def folder(limit: str) -> Path:
        base = root if version == 2 else root / ("memory" if limit.startswith("memory") else "cpu")
        return base / PARENT / "nginx"

    return {limit: folder(limit) for limit in FILES[version]}


def plain_files(root: Path, version: int) -> Tree:
    """A group of plain files, unlimited, with one process that uses 50 MiB."""
    root.mkdir(parents=True, exist_ok=True)
    if version == 2:
        (root / "cgroup.controllers").write_text("cpu memory\n")
    tree = Tree(root, _folders(root, version))
    for folder in tree.folders.values():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.procs").write_text("17\n")
    tree.set(**{limit: "max 100000" if limit == "cpu" else "max" for limit in tree.folders})
    tree.use(50)
    return tree


def real_group() -> Tree | str:
    """A group of this host, without processes and limits; or why there can be none."""
    hierarchy = find_hierarchy(HOST)
    if hierarchy.cpu is None or hierarchy.memory is None:
        return "control groups with CPU and memory are not writable here"
    tree = Tree(HOST, _folders(HOST, hierarchy.version))
    for folder in dict.fromkeys(tree.folders.values()):
        folder.parent.mkdir(exist_ok=True)
        if hierarchy.version == 2:
            (folder.parent / "cgroup.subtree_control").write_text("+cpu +memory")
        folder.mkdir(exist_ok=True)
    return tree
