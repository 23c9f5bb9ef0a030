"""A program: a controller acts on a group and is killed by SIGKILL at one point after another; what is found then?

Points are the moments before each opening, renaming or removal of a file of the group or of the state folder, which the
interpreter's audit hook tells. After each, the next start takes the lease, and gives back what it finds. It prints, as
JSON, how many points there were, at how many of them the limits differed from what had been found when the controller
died, and every point at which the lease's taking took something away, or after which they were not given back exactly.

    python -m tests.serving.actuators.control_group.kill_at_each_point ROOT PARENT STATE LIMITS
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from serving.actuators.cgroup import Cgroup
from serving.actuators.control_group.group import ControlGroup, lowers

CPU, MEMORY = "target_cpu_limit_cores", "target_memory_limit_mib"


def act(root: Path, parent: str, state: Path) -> None:
    """A controller's life."""
    actuator = Cgroup("nginx", state, parent=parent, root=root)
    assert actuator.acquire("killed") == ""
    for cores, mib in ((0.5, 200.0), (1.5, 100.0), (1.0, 300.0)):
        actuator.present()
        actuator.apply({CPU: cores, MEMORY: mib})
    actuator.restore()
    actuator.release("killed")


def kill_at(point: int, watched: tuple[str, ...]) -> None:
    """From now on, the watched event number `point` (from 0) is this process's last moment."""
    left = point

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event in ("open", "os.rename", "os.remove") and any(str(path).startswith(watched) for path in arguments):
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def main(root: Path, parent: str, state: Path, limits: dict[str, str]) -> dict[str, Any]:
    """See the module."""
    group = ControlGroup(root, parent, "nginx")
    for limit, text in limits.items():
        group.write(limit, text)
    differed, wrong, point = 0, [], 0
    while True:
        child = os.fork()
        if child == 0:
            kill_at(point, (str(state), *(f"{folder}/" for folder in group.key.split())))
            act(root, parent, state)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        differed += (stood := group.read()) != limits
        successor = Cgroup("nginx", state, parent=parent, root=root)
        taken = successor.acquire("successor") or [
            limit for limit, text in group.read().items() if lowers(stood[limit], text) or lowers(limits[limit], text)]
        successor.restore()
        if taken or group.read() != limits or list(state.glob("[!.]*.json")):
            wrong.append([point, taken, group.read()])
        successor.release("successor")
        if os.WIFEXITED(status):
            return {"points": point, "differed": differed, "wrong": wrong, "exit": os.WEXITSTATUS(status),
                    "limits": sorted(limits)}
        point += 1


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), json.loads(sys.argv[4]))))
