"""One look at a champion that controls, by the log of its controller: reward, who acted, what was new to it.

    rewards of its episodes  -> the state machine of Algorithm 5.1 (models/control/training/lifecycle.py): a champion
                                serves until mean or deviation of recent episodes leave its profile
    steps of its version     -> shares: beyond what training saw, outside of the box, changed by the shield, not its own
    what it observed         -> live pairs of its specification
    what it observed and set -> drift from its first steps (monitored_steps.py)

A controller's log counts steps from 0 at each start; episodes of a profile are shorter. So each start is cut into
episodes of the evidence's length, numbered on from look to look; what a restart cuts short has no reward. Steps are
new by their place in the log, (episode, step), which goes on whatever parts of it are removed; where the log begins
anew before that place but later than all that was read, all of it is new.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from feature_store.errors import InputError
from models.control.training.lifecycle import Profile, Stage, State
from models.control.training.lifecycle_track import Track, follow, load, save
from models.control.training.trajectory_log import Header, Step, read_log
from models.monitoring.chances import WINDOWS, excess, level_of, share_at_least, windows
from models.monitoring.findings import OFTEN, Before, Finding, Looked
from models.monitoring.live_pairs import specification_finding
from models.reporting.formatting import count, percent, significant
from models.tasks.control.monitored_steps import LOOKS, drift_of_steps
from models.tasks.control.task import ControlTask
from models.tasks.monitored_kind import Watched

TRACKS = "lifecycle.json"
_SHARES = {  # what -> key of a step's detail, and the end of a sentence
    "unfamiliar": ("strange", "were beyond what training saw"), "outside": ("outside", "lay outside of the proved box"),
    "shield": ("changes", "were changed by the shield"), "fallback": ("", "were not the policy's own")}


@dataclass(frozen=True)
class Read:
    """What a log has of one version.

    Attributes:
        header: None: there is no log.
        steps: all of them, in order.
        new: those that were not counted before.
        earlier: measured rewards of the policy before, in order.
        notes: what was lost, or is strange.
    """

    header: Header | None = None
    steps: tuple[Step, ...] = ()
    new: tuple[Step, ...] = ()
    earlier: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()


def watch_log(task: ControlTask, workload: str, watched: Watched) -> Looked:
    """See `MonitoredKind.watch`."""
    read = _read(task, workload, watched)
    if read.header is None or len(read.new) < WINDOWS[0]:
        return Looked(len(read.new), False, notes=read.notes)
    reward, unknown, episode = _reward(workload, watched, read)
    has_truth = any(one.figures["rewards"] for one in reward)
    drift, unjudged, looks = drift_of_steps(watched, read.header, read.new, has_truth)
    last, latest = read.new[-1], max(*map(_at, read.new), watched.memory.get("latest", ""))
    return Looked(
        len(read.new), True, (_specification(watched, read.steps), *reward, *drift, *_shares(watched, read.steps)),
        _before(watched, read), (*read.notes, *unknown, *unjudged),
        {"counted": _place(last), "latest": latest, "episode": episode, LOOKS: looks})


def _read(task: ControlTask, workload: str, watched: Watched) -> Read:
    folder = watched.log / "steps"
    if not any(folder.glob("steps-*.jsonl")):
        return Read(notes=(f"there is no log of a controller ({folder})",))
    log = read_log(folder)
    if log.header.task != task.name:
        raise InputError(f"log must be of the task {task.name}, got one of {log.header.task} ({folder})")
    steps = tuple(step for step in log.steps if step.application == workload)
    counted, notes = watched.memory.get("counted"), []
    if log.lost:
        notes.append(f"{count(len(log.lost), 'record')} of the log cannot be read: left out")
    if counted and steps and _place(steps[0]) <= tuple(counted) and _at(steps[0]) > watched.memory["latest"]:
        counted = None
        notes.append("the log begins anew: it was removed since the last look")
    elif counted and (not steps or _place(steps[-1]) < tuple(counted)):
        notes.append(f"the log ends before what was read of it, episode {counted[0]}, step {counted[1]}: nothing of it "
                     "is counted again")
    own = watched.bundle.sha256[:12]

    def of(version: str) -> tuple[Step, ...]:
        return tuple(step for step in steps if ((step.detail or {}).get("version") or own) == version)

    earlier = () if watched.before is None else tuple(
        step.reward for step in of(watched.before.sha256[:12]) if step.actor == "policy" and step.mark == "measured")
    new = tuple(step for step in of(own) if not counted or _place(step) > tuple(counted))
    return Read(log.header, of(own), new, earlier, tuple(notes))


def _place(step: Step) -> tuple[int, int]:
    return step.episode, step.step


def _at(step: Step) -> str:
    """ISO 8601 in UTC, as a controller writes it."""
    return str((step.detail or {}).get("at", ""))


def _reward(workload: str, watched: Watched, read: Read) -> tuple[tuple[Finding, ...], tuple[str, ...], int]:
    """Algorithm 5.1 from SERVING on; what stands in its way; number of the last episode."""
    try:
        profile = profile_of(watched.bundle.evidence)
    except (KeyError, TypeError, ValueError, OverflowError):
        return (), ("reward was not looked at: the bundle has no profile; make it again",), -1
    past, new, tracks = watched.past / TRACKS, read.new, dict[str, Track]()
    notes: tuple[str, ...] = ()
    counted, number = watched.memory.get("counted"), watched.memory.get("episode", -1)
    try:
        tracks = load(past, profile) if watched.memory else {}
    except InputError as error:
        new, counted, number = read.steps, None, -1
        notes = (f"reward is read from the beginning of the log: {error}",)
    track = tracks.get(workload, Track(State(stage=Stage.SERVING)))
    group = (counted[0], counted[1] // profile.steps) if counted else None
    for step in new:
        if (now := (step.episode, step.step // profile.steps)) != group:
            group, number = now, number + 1
        track = follow(track, replace(step, episode=number, step=step.step % profile.steps), profile)
    save(watched.keep / TRACKS, profile, {**tracks, workload: track})
    state = track.state
    rewards = np.array(state.rewards) / profile.steps
    limits = (f"T_serving {significant(profile.t_serving / profile.steps)}, T_var "
              f"{significant(profile.t_var / profile.steps)}, a step")
    if len(rewards):
        said = (f"reward a step {significant(rewards.mean())}, standard deviation {significant(rewards.std())} over "
                f"the last {count(len(rewards), 'episode')} of {count(profile.steps, 'step')}; {limits}")
    else:
        said = f"no whole episode of {count(profile.steps, 'step')} with a reward yet; {limits}"
    gone = state.stage is not Stage.SERVING
    return (Finding("reward", gone, f"{'the policy no longer earns its stage SERVING: ' if gone else ''}{said}",
                    {"stage": str(state.stage), "rewards": rewards.tolist(), "missing": state.missing}),), notes, number


def profile_of(evidence: Mapping[str, Any]) -> Profile:
    """The profile that a bundle's evidence holds its policy to, of episodes instead of steps. Raises KeyError."""
    written, steps = evidence["lifecycle"]["profile"], int(evidence["steps"])
    return Profile(t_serving=written["t_serving"] * steps, t_var=written["t_var"] * steps,
                   largest_reward=written["largest_reward"] * steps, t_online=written["t_online"] * steps,
                   bootstrap=written["bootstrap"], episodes=written["episodes"], steps=steps)


def _shares(watched: Watched, steps: Sequence[Step]) -> tuple[Finding, ...]:
    sizes = windows(len(steps))
    level = level_of(watched.look, watched.champions, 2 * len(_SHARES) * len(sizes))  # drift has a half of it
    details = [step.detail or {} for step in steps[-sizes[-1]:]]
    found = []
    for what, (key, said) in _SHARES.items():
        flags = np.array([bool(one.get(key)) if key else one.get("actor", "policy") != "policy" for one in details])
        lower, size = max((share_at_least(flags[-size:], level), size) for size in sizes)
        share = float(flags[-size:].mean())
        found.append(Finding(what, lower > OFTEN, f"{percent(share)} of the newest {count(size, 'step')} {said}",
                             {"steps": size, "share": share}, suspect=lower <= OFTEN < share))
    return tuple(found)


def _before(watched: Watched, read: Read) -> Before | None:
    """Of as many steps of either policy: the load was another one, which nobody can pair."""
    now = np.array([step.reward for step in read.new if step.actor == "policy" and step.mark == "measured"])
    earlier = np.array(read.earlier)[-len(now):] if len(now) else np.array([])
    if len(earlier) < WINDOWS[0]:
        return None
    better = excess(earlier, now, 1.0, level_of(watched.look, watched.champions)) > 0
    return Before(better, f"the champion before earned {significant(earlier.mean())} a step in its last "
                  f"{count(len(earlier), 'step')}, this one {significant(now.mean())}: "
                  f"{'more' if better else 'not more'} than luck explains")


def _specification(watched: Watched, steps: Sequence[Step]) -> Finding:
    bundle = watched.bundle
    return specification_finding(bundle.model, bundle.promise.specification,
                                 np.array([step.observation for step in steps], dtype=np.float64), "policy")
