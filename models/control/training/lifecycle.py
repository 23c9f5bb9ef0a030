"""The stages of a learned policy, as a pure state machine (thesis, Algorithm 5.1).

    INITIALIZED -> OFFLINE (with bootstrapping) -> ONLINE -> SERVING -> ONLINE ...

`advance` takes a state and what happened, and returns the next state and, where the stage changed, the transition.
`EDGES` has the edges back to INITIALIZED too, for a policy that is withdrawn: the ledger takes them (serving/moves.py).
While the stage is not SERVING the fallback acts (section 5.3.3); a policy's rewards then come from its training
episodes: on the twin, or in production where an operator lets it act for an episode.

Where Algorithm 5.1 leaves a choice, the safe one is taken:

- "recent rewards" are the last `episodes` of the present stage: a reward of the fallback, earned while OFFLINE, says
  nothing about the policy. From ONLINE on only episodes in which the policy acted count. OFFLINE counts the fallback's
  too, for that is what section 5.5.4 compares with T_online ("the measured reward is always lower").
- On the way up, each of those rewards has to be there: an episode without one (missing, NaN, late, more than is
  possible) starts the count again. On the way down, rewards that are there count, and `most_missing` episodes without
  one in a row end SERVING, for nobody knows any more what the policy does.
- Episodes come in order. A number that was passed over is an episode without a reward; what comes for it later is late.

No torch, no clock, no file: serving/ runs it. Rewards are sums over an episode ("around 130", section 5.5.4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import fmean, pstdev

from feature_store.errors import InputError
from models.control.training.trajectory_log import Actor

_ROUNDING = 1e-6  # of a sum of rewards in float32, as a share
_ABSURD = 1e100  # the sum of such numbers overflows; no reward is that low


class Stage(StrEnum):
    """As Algorithm 5.1 names them."""

    INITIALIZED = "initialized"
    OFFLINE = "offline"
    ONLINE = "online"
    SERVING = "serving"


EDGES = frozenset({
    (Stage.INITIALIZED, Stage.OFFLINE), (Stage.INITIALIZED, Stage.ONLINE), (Stage.OFFLINE, Stage.ONLINE),
    (Stage.ONLINE, Stage.SERVING), (Stage.SERVING, Stage.ONLINE), (Stage.OFFLINE, Stage.INITIALIZED),
    (Stage.ONLINE, Stage.INITIALIZED), (Stage.SERVING, Stage.INITIALIZED),
})  # fmt: skip


@dataclass(frozen=True)
class Profile:
    """What a user asks of a policy before it may act (section 5.4.3).

    Attributes:
        t_serving: mean reward of recent episodes that lets a policy serve, and below which it no longer does.
        t_var: standard deviation of their rewards that it may have, > 0.
        t_online: mean reward that ends offline training.
        bootstrap: whether there is offline training at all.
        episodes: how many recent rewards count, >= 2 (of one the standard deviation is always 0).
        steps: of an episode.
        largest_reward: largest possible reward of an episode.
        most_missing: episodes in a row without a reward that end SERVING.
    """

    t_serving: float
    t_var: float
    largest_reward: float
    t_online: float = 0.0
    bootstrap: bool = True
    episodes: int = 10
    steps: int = 100
    most_missing: int = 3

    def __post_init__(self) -> None:
        for name in ("t_serving", "t_var", "t_online", "largest_reward"):
            if not math.isfinite(getattr(self, name)):
                raise InputError(f"profile: {name}: expected a finite number, got {getattr(self, name)}")
        for name, least in (("episodes", 2), ("steps", 1), ("most_missing", 1)):
            if getattr(self, name) < least:
                raise InputError(f"profile: {name}: expected at least {least}, got {getattr(self, name)}")
        if self.t_var <= 0:
            raise InputError(f"profile: t_var: expected a number above 0, got {self.t_var:g}; rewards that differ at "
                             "all would never reach it")
        names = ("t_online", "t_serving") if self.bootstrap else ("t_serving",)
        for name in names:
            if (threshold := getattr(self, name)) > self.largest_reward:
                raise InputError(f"profile: {name}: expected at most the largest possible reward of an episode, "
                                 f"{self.largest_reward:g}, got {threshold:g}; no policy could ever reach it")


@dataclass(frozen=True)
class EpisodeEnded:
    """An episode is over.

    Attributes:
        episode: its number, >= 0.
        reward: the sum over its steps; None or NaN where one was not measured in time.
        actor: who acted.
    """

    episode: int
    reward: float | None
    actor: Actor


@dataclass(frozen=True)
class Started:
    """A policy is there; its training begins."""


@dataclass(frozen=True)
class State:
    """Where a policy stands.

    Attributes:
        stage: of Algorithm 5.1.
        rewards: the latest of the present stage that count, at most `Profile.episodes`, oldest first.
        last_episode: the latest that ended, -1 before the first.
        missing: episodes in a row without a reward.
    """

    stage: Stage = Stage.INITIALIZED
    rewards: tuple[float, ...] = ()
    last_episode: int = -1
    missing: int = 0


@dataclass(frozen=True)
class Transition:
    """A change of stage, and on what grounds.

    Attributes:
        before, after: stages.
        episode: the latest episode.
        mean, deviation: of the rewards that decided; None where none did.
        episodes: how many they were.
        reason: one phrase with the figures.
    """

    before: Stage
    after: Stage
    episode: int
    mean: float | None
    deviation: float | None
    episodes: int
    reason: str


def advance(state: State, happening: EpisodeEnded | Started, profile: Profile) -> tuple[State, Transition | None]:
    """The next state, and the transition where the stage changed (Algorithm 5.1, one pass of its loop)."""
    match happening:
        case Started():
            if state.stage is not Stage.INITIALIZED:
                return state, None
            after = Stage.OFFLINE if profile.bootstrap else Stage.ONLINE
            return _moved(state, after, "bootstrapping" if profile.bootstrap else "without bootstrapping")
        case EpisodeEnded():
            return _decided(_counted(state, happening, profile), profile)


def _counted(state: State, ended: EpisodeEnded, profile: Profile) -> State:
    """The state with an episode's reward, or with its absence."""
    if ended.episode <= state.last_episode:
        return state  # late: it was counted as missing when it was passed over, or is there already
    passed_over = ended.episode - state.last_episode - 1 if state.last_episode >= 0 else 0
    state = replace(state, last_episode=ended.episode)
    if passed_over:
        state = _without_reward(state, passed_over)
    if state.stage in (Stage.ONLINE, Stage.SERVING) and ended.actor != "policy":
        return state  # says nothing about the policy, neither good nor bad
    reward = ended.reward
    if reward is None or not _is_possible(reward, profile):
        return _without_reward(state, 1)
    if state.stage is Stage.INITIALIZED:
        return state
    return replace(state, rewards=(*state.rewards, reward)[-profile.episodes:], missing=0)


def _is_possible(reward: float, profile: Profile) -> bool:
    most = profile.largest_reward + _ROUNDING * abs(profile.largest_reward)
    return math.isfinite(reward) and -_ABSURD <= reward <= most


def _without_reward(state: State, episodes: int) -> State:
    kept = state.rewards if state.stage is Stage.SERVING else ()
    return replace(state, rewards=kept, missing=state.missing + episodes)


def _decided(state: State, profile: Profile) -> tuple[State, Transition | None]:
    """Lines 10 to 21 of Algorithm 5.1."""
    if state.stage is Stage.SERVING and state.missing >= profile.most_missing:
        return _moved(state, Stage.ONLINE, f"{state.missing} episodes in a row without a reward")
    if len(state.rewards) < profile.episodes:
        return state, None
    mean, deviation = fmean(state.rewards), pstdev(state.rewards)
    figures = f"mean reward {mean:.6g}, standard deviation {deviation:.6g} over {len(state.rewards)} episodes"
    serves = mean >= profile.t_serving and deviation <= profile.t_var
    match state.stage:
        case Stage.OFFLINE if mean >= profile.t_online:
            return _moved(state, Stage.ONLINE, f"{figures}; T_online {profile.t_online:g}", mean, deviation)
        case Stage.ONLINE if serves:
            reason = f"{figures}; T_serving {profile.t_serving:g}, T_var {profile.t_var:g}"
            return _moved(state, Stage.SERVING, reason, mean, deviation)
        case Stage.SERVING if not serves:
            reason = f"{figures}; T_serving {profile.t_serving:g}, T_var {profile.t_var:g}"
            return _moved(state, Stage.ONLINE, reason, mean, deviation)
    return state, None


def _moved(state: State, after: Stage, reason: str, mean: float | None = None,
           deviation: float | None = None) -> tuple[State, Transition]:
    transition = Transition(state.stage, after, state.last_episode, mean, deviation,
                            len(state.rewards) if mean is not None else 0, reason)
    # into SERVING the policy's own rewards go along: it is held to them from its first episode on
    kept = state.rewards if after is Stage.SERVING else ()
    return replace(state, stage=after, rewards=kept, missing=0), transition
