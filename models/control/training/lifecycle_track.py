"""Follows policies through their lifecycle from the trajectory log: live, and again from the log, with the same code.

    log record -> EpisodeEnded, Started, Withdrawn -> lifecycle.advance -> state, transitions

A controller appends a record to the log first, then gives it to `Tracks.record`, then calls `save`: whatever is killed
in between, replaying the log gives the state. No torch: serving/ runs it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from feature_store.errors import InputError
from feature_store.whole_files import write_file
from models.control.training.lifecycle import (
    EpisodeEnded,
    Happening,
    Profile,
    Stage,
    Started,
    State,
    Transition,
    Withdrawn,
    advance,
)
from models.control.training.trajectory_log import Actor, Event, Record, Step


@dataclass(frozen=True)
class OpenEpisode:
    """What is known of an episode that runs.

    Attributes:
        episode: its number.
        actor: who acts; the fallback where both did, for then the policy did not earn the reward alone.
        steps: one more than the latest that came; an earlier one that comes after it is late and changes nothing.
        reward: their sum; NaN for ever once one is missing.
    """

    episode: int
    actor: Actor
    steps: int = 0
    reward: float = 0.0


@dataclass(frozen=True)
class Track:
    """One application's lifecycle, and its episode that runs."""

    state: State = field(default_factory=State)
    running: OpenEpisode | None = None


def follow(track: Track, record: Record, profile: Profile) -> tuple[Track, tuple[Transition, ...]]:
    """The track after a record of the log, and the transitions that it brought."""
    happenings: list[Happening] = []
    running = track.running
    match record:
        case Event(what="start"):
            happenings.append(Started())
        case Event(reason=reason):
            happenings.append(Withdrawn(reason))
            running = None if running is None else replace(running, reward=math.nan)  # of the policy that is gone
        case Step():
            if running is not None and record.episode > running.episode:
                happenings.append(EpisodeEnded(running.episode, None, running.actor))  # it was cut short
                running = None
            if running is None and record.episode > track.state.last_episode:
                running = OpenEpisode(record.episode, record.actor)
            if running is not None and record.episode == running.episode and record.step >= running.steps:
                running = _with_step(running, record)
                if running.steps >= profile.steps:
                    happenings.append(EpisodeEnded(running.episode, running.reward, running.actor))
                    running = None
    state, transitions = track.state, []
    for happening in happenings:
        state, transition = advance(state, happening, profile)
        if transition is not None:
            transitions.append(transition)
    return Track(state, running), tuple(transitions)


def _with_step(running: OpenEpisode, step: Step) -> OpenEpisode:
    in_order = step.step == running.steps
    reward = running.reward + (step.reward if in_order and step.mark == "measured" else math.nan)
    actor: Actor = running.actor if step.actor == running.actor else "fallback"
    return replace(running, actor=actor, steps=step.step + 1, reward=reward)


class Tracks:
    """The lifecycles of all applications of a log."""

    def __init__(self, profile: Profile, tracks: Mapping[str, Track] | None = None) -> None:
        self.profile = profile
        self._tracks = dict(tracks or {})

    def state(self, application: str) -> State:
        """Where an application's policy stands."""
        return self._tracks.get(application, Track()).state

    def record(self, record: Record) -> tuple[Transition, ...]:
        """Takes in a record that is in the log; returns the transitions that it brought."""
        track, transitions = follow(self._tracks.get(record.application, Track()), record, self.profile)
        self._tracks[record.application] = track
        return transitions

    @classmethod
    def replay(cls, profile: Profile, records: Iterable[Record]) -> tuple[Tracks, tuple[tuple[str, Transition], ...]]:
        """From the beginning of a log: the same states as live, and every transition with its application."""
        tracks, transitions = cls(profile), []
        for record in records:
            transitions += [(record.application, transition) for transition in tracks.record(record)]
        return tracks, tuple(transitions)

    def save(self, path: Path) -> None:
        """Writes the states whole. Raises OSError where the disk does not take them."""
        tracks = {name: {"state": asdict(track.state), "running": track.running and asdict(track.running)}
                  for name, track in self._tracks.items()}
        write_file(path, orjson.dumps({"profile": asdict(self.profile), "tracks": tracks}))

    @classmethod
    def load(cls, path: Path, profile: Profile) -> Tracks:
        """Reads what `save` wrote.

        Raises:
            InputError: it is no such file, or was written under another profile: replay the log then.
        """
        try:
            data = orjson.loads(path.read_bytes())
            tracks = {name: _track(track) for name, track in data["tracks"].items()}
            known = data["profile"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"lifecycle states must be readable, got {error} ({path}); replay the trajectory log"
                             ) from error
        if known != asdict(profile):
            raise InputError(f"lifecycle states must be of the present profile {asdict(profile)}, got {known} ({path});"
                             " replay the trajectory log")
        return cls(profile, tracks)


def _track(data: dict[str, Any]) -> Track:
    state, running = data["state"], data["running"]
    rewards = tuple(float(reward) for reward in state["rewards"])
    if not all(math.isfinite(reward) for reward in rewards):
        raise ValueError("a reward that is no number")
    if running is not None:
        running = OpenEpisode(**{**running, "reward": math.nan if running["reward"] is None else running["reward"]})
    return Track(State(**{**state, "stage": Stage(state["stage"]), "rewards": rewards}), running)
