"""What a method that learns from others learns from: the log of a controller, or else the fallback in the environment.

So a loop is closed: a controller acts and writes its log (docs/reference/control.md), the next run learns from it.
"""

from pathlib import Path

from feature_store.errors import InputError
from models.control.contract.acting import load_acting
from models.control.contract.environment import Environment
from models.control.contract.systems import environment_of
from models.control.simulation.rollout import acting_of
from models.control.training.trajectories import Transitions, collect, transitions, transitions_of_log
from models.control.training.trajectory_log import Header, ReadLog, read_log
from models.tasks.control.task import ControlTask
from models.tasks.control.tuned_rule import TunedRule

MOST_EPISODES = 1024
PARTS = "steps-*.jsonl"
_SEED = 900_000  # added to the run's: no episode of training or judging


def of_fallback(task: ControlTask, environment: Environment, rule: TunedRule, rounds: int, seed: int) -> Transitions:
    """What a rule did in training episodes of the environment.

    Args:
        rounds: episodes of each of the task's applications, as far as `MOST_EPISODES` in all.
    """
    count = min(rounds * task.training.applications, MOST_EPISODES)
    controller = load_acting(environment_of(task.environment).acting).rules[rule.name].make(rule.settings)
    return transitions(collect(environment, acting_of(environment, controller), "train", count,
                               environment.steps, seed + _SEED))


def parts_of_log(task: ControlTask, workload: str) -> dict[str, str]:
    """The parts of the log by name, which `featurize` keeps in features/<workload>: a controller goes on writing, and
    all later steps, those of a run that was killed among them, learn from the same. {} where the task names none.

    Raises:
        InputError: a part cannot be read.
    """
    source = log_folder(task, workload)
    try:
        return {} if source is None else {part.name: part.read_text(encoding="utf-8", errors="replace")
                                          for part in sorted(source.glob(PARTS))}
    except OSError as error:
        raise InputError(f"experience must be a log whose parts can be read, got {error.strerror} ({error.filename})"
                         ) from error


def of_log(task: ControlTask, workload: str, environment: Environment, features: Path) -> Transitions | None:
    """What a controller did to the workload, by the log that `featurize` kept; None where the task names none.

    Raises:
        InputError: the log is of another task or other signals, or has no two steps in a row of the workload.
    """
    if log_folder(task, workload) is None:
        return None
    folder = features / workload
    read = read_log(folder)
    expected = Header(task.name, tuple((one.name, one.unit) for one in environment.signals),
                      tuple((one.name, one.unit) for one in environment.controls))
    if read.header != expected:
        raise InputError(f"experience must be the log of a controller of this task and its signals, got one of task "
                         f"{read.header.task} with {len(read.header.signals)} signals and {len(read.header.controls)} "
                         f"controls ({folder}); {_difference(read.header, expected)}")
    own = tuple(step for step in read.steps if step.application == workload)
    if not own:
        raise InputError(f"experience must hold steps of workload {workload}, got "
                         f"{', '.join(sorted({step.application for step in read.steps})) or 'no step'} ({folder})")
    try:
        return transitions_of_log(ReadLog(read.header, own, read.lost))
    except InputError as error:
        raise InputError(f"experience: {error} ({folder})") from error


def log_folder(task: ControlTask, workload: str) -> Path | None:
    """Where the parts of the log are: the folder that the task names, or `steps/` in it, as a controller keeps it."""
    written = task.workload(workload).experience
    if written is None:
        return None
    folder = Path(written).expanduser()
    return folder / "steps" if (folder / "steps").is_dir() else folder


def _difference(found: Header, expected: Header) -> str:
    for what in ("task", "signals", "controls"):
        one, other = getattr(found, what), getattr(expected, what)
        if one != other:
            return f"{what}: expected {other}, got {one}" if what == "task" else \
                f"{what} differ in {', '.join(sorted({name for name, _ in {*one} ^ {*other}})) or 'their order'}"
    return ""
