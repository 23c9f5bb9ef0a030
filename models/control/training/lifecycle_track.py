"""Follows a policy through its lifecycle by the steps of the trajectory log.

    step of the log -> EpisodeEnded -> lifecycle.advance -> state

The states that `save` writes go on where they ended. No torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from feature_store.errors import InputError
from feature_store.whole_files import write_file
from models.control.training.lifecycle import EpisodeEnded, Profile, Stage, State, advance
from models.control.training.trajectory_log import Actor, Step


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


def follow(track: Track, step: Step, profile: Profile) -> Track:
    """The track after a step of the log."""
    state, running = track.state, track.running
    if running is not None and step.episode > running.episode:
        state, _ = advance(state, EpisodeEnded(running.episode, None, running.actor), profile)  # it was cut short
        running = None
    if running is None and step.episode > state.last_episode:
        running = OpenEpisode(step.episode, step.actor)
    if running is not None and step.episode == running.episode and step.step >= running.steps:
        running = _with_step(running, step)
        if running.steps >= profile.steps:
            state, _ = advance(state, EpisodeEnded(running.episode, running.reward, running.actor), profile)
            running = None
    return Track(state, running)


def _with_step(running: OpenEpisode, step: Step) -> OpenEpisode:
    in_order = step.step == running.steps
    reward = running.reward + (step.reward if in_order and step.mark == "measured" else math.nan)
    actor: Actor = running.actor if step.actor == running.actor else "fallback"
    return replace(running, actor=actor, steps=step.step + 1, reward=reward)


def save(path: Path, profile: Profile, tracks: Mapping[str, Track]) -> None:
    """Writes the tracks of applications whole. Raises OSError where the disk does not take them."""
    written = {name: {"state": asdict(track.state), "running": track.running and asdict(track.running)}
               for name, track in tracks.items()}
    write_file(path, orjson.dumps({"profile": asdict(profile), "tracks": written}))


def load(path: Path, profile: Profile) -> dict[str, Track]:
    """Reads what `save` wrote.

    Raises:
        InputError: it is no such file, or was written under another profile.
    """
    try:
        data = orjson.loads(path.read_bytes())
        tracks = {name: _track(track) for name, track in data["tracks"].items()}
        known = data["profile"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"lifecycle states must be readable, got {error} ({path})") from error
    if known != asdict(profile):
        raise InputError(f"lifecycle states must be of the present profile {asdict(profile)}, got {known} ({path})")
    return tracks


def _track(data: dict[str, Any]) -> Track:
    state, running = data["state"], data["running"]
    rewards = tuple(float(reward) for reward in state["rewards"])
    if not all(math.isfinite(reward) for reward in rewards):
        raise ValueError("a reward that is no number")
    if running is not None:
        running = OpenEpisode(**{**running, "reward": math.nan if running["reward"] is None else running["reward"]})
    return Track(State(**{**state, "stage": Stage(state["stage"]), "rewards": rewards}), running)
