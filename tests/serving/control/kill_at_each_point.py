"""A program: a controller is killed by SIGKILL at one point of its steps after another; what does the next one find?

Points are the moments before each opening, renaming or removal of a file of the controller, of its actuator's state or
of the control group (the interpreter's audit hook tells them), before, in the middle of and after each write to the
log, before and after each sync, and before and after each part of a step. After each, the next controller takes two
steps and ends. It prints, as JSON, how many points there were and which places they are at, at how many of them limits
differed from what had been found when the controller died, and every point after which something was wrong.

    python -m tests.serving.control.kill_at_each_point FOLDER
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from feature_store.control_group_limits import amount
from models.control.training.trajectory_log import read_log
from serving.actuators.cgroup import Cgroup
from serving.control.loop import ControlLoop
from serving.control.parts import Parts
from tests.serving.actuators.control_group.groups import MIB, PARENT, Tree, plain_files
from tests.serving.control.world import STEP_S, Said, World, keep, loop_of, measured

STEPS = 3
FOUND = {"cpu": "50000 100000", "memory": str(90 * MIB)}
EVENTS = ("open", "os.rename", "os.remove")


def more(row: dict[str, float]) -> dict[str, float]:
    """Half as much CPU again, replicas as they are."""
    return {**keep(row), "target_cpu_limit_cores": row["cpu_limit_cores"] * 1.5, "target_memory_limit_mib": 100.0}


class Death:
    """Counts points, and is at the last one this process's end."""

    def __init__(self, point: int, folder: Path) -> None:
        self._left, self._folder, self._write = point, folder, os.write

    def __call__(self, place: str) -> None:
        self._left -= 1
        if self._left < 0:
            descriptor = os.open(self._folder / "place", os.O_WRONLY | os.O_CREAT)
            self._write(descriptor, place.encode())
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, place: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            self(place)
            found = call(*arguments)
            self(place)
            return found

        return counted

    def watch_files(self, watched: tuple[str, ...]) -> None:
        """Files, and all that is written to the log."""
        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            if event in EVENTS and any(str(path).startswith(watched) for path in arguments):
                self(event)

        def write(descriptor: int, data: bytes) -> int:
            if "/steps/" not in os.readlink(f"/proc/self/fd/{descriptor}"):
                return self._write(descriptor, data)  # a control group takes a limit whole or not at all
            self("write")
            if self._left == 0:
                self._write(descriptor, data[: len(data) // 2])
            self("half a write")
            written = self._write(descriptor, data)
            self("write")
            return written

        sys.addaudithook(hook)
        os.write, os.fsync = write, self.around("fsync", os.fsync)


def controller(world: World, tree: Tree, folder: Path, holder: str) -> ControlLoop:
    """On the group, in the same folders as the one before."""
    actuator = Cgroup("nginx", folder / "state", parent=PARENT, root=tree.root)
    loop = loop_of(world, folder / "controller", Said(more), holder=holder)
    parts = loop._parts
    loop._parts = Parts(parts.reader, parts.models, actuator, parts.shield, parts.fallback, parts.observer, parts.stops,
                        parts.holder)
    return loop


def live(world: World, tree: Tree, folder: Path, point: int) -> None:
    """A controller's life, up to its point."""
    dies, step = Death(point, folder), 0
    loop = controller(world, tree, folder, "killed")
    actuator, policy = loop._parts.actuator, loop._parts.models.current().predictor
    acts = actuator.apply

    def apply(targets: dict[str, float]) -> Any:
        with (folder / "acted").open("a") as journal:
            journal.write(f"{step}\n")
        return acts(targets)

    for part, name in ((world, "read"), (actuator, "present"), (actuator, "acquire"), (policy, "predict")):
        setattr(part, name, dies.around(name, getattr(part, name)))
    actuator.apply = dies.around("apply", apply)  # type: ignore[method-assign]
    dies.watch_files((str(folder / "controller"), str(folder / "state"), str(tree.root)))
    for step in range(STEPS):  # noqa: B007  the journal reads it
        world.now += STEP_S
        loop.step()
    loop.close(give_back=True)


def wrong_after(world: World, tree: Tree, folder: Path) -> list[str]:
    """What is not as stated once the next controller has taken over."""
    wrong, stood, loop = [], amount(tree.limits()["cpu"]), controller(world, tree, folder, "next")
    for number in range(2):
        world.now += STEP_S
        record = loop.step()
        if record.failure or record.actor != "policy" or record.done is None:
            wrong.append(f"step {number}: {record.actor}, {record.reason}, {record.failure}")
        if number == 0 and (cores := record.seen["cpu_limit_cores"]) != max(0.5, stood):
            wrong.append(f"not given back, or taken away: {cores} cores of {stood}")
    if said := loop.close(give_back=True):
        wrong.append(said)
    if tree.limits() != {**tree.limits(), **FOUND}:
        wrong.append(f"limits {tree.limits()}")
    logged = read_log(folder / "controller" / "steps")
    keys = [(one.episode, one.step) for one in logged.steps]
    first, last = [step for episode, step in keys if episode == keys[0][0]], keys[-2:]
    acted = [int(line) for line in (folder / "acted").read_text().split()] if (folder / "acted").exists() else []
    if keys != sorted(set(keys)) or [step for _, step in last] != [0, 1]:
        wrong.append(f"log {keys}")
    missing = acted and (keys[-1][0] == keys[0][0] or first[: len(acted)] != acted)
    if missing or acted != sorted(set(acted)):
        wrong.append(f"acted in {acted}, logged {keys}")
    return wrong


def main(folder: Path) -> dict[str, Any]:
    """See the module."""
    world, honest = measured(World()), World.read
    differed, wrong, places, point = 0, [], set(), 0
    while True:
        place = folder / str(point)
        place.mkdir()
        tree = plain_files(place / "groups", 2)
        tree.set(**FOUND)
        child = os.fork()
        if child == 0:
            live(world, tree, place, point)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        differed += tree.limits() != {**tree.limits(), **FOUND}
        if os.WIFEXITED(status):
            return {"points": point, "differed": differed, "wrong": wrong, "exit": os.WEXITSTATUS(status),
                    "places": sorted(places)}
        died = (place / "place").read_text()
        places.add(died)
        assert World.read is honest
        wrong += [[point, died, one] for one in wrong_after(world, tree, place)]
        point += 1


if __name__ == "__main__":
    arguments: Sequence[str] = sys.argv[1:]
    print(json.dumps(main(Path(arguments[0]))))
