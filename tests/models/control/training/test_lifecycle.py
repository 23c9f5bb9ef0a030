"""Nothing gets to SERVING but by the rewards that the profile asks for; replaying the log equals living through it."""

import math
import subprocess
import sys
from pathlib import Path
from random import Random
from statistics import fmean, pstdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feature_store.errors import InputError
from models.control.training.lifecycle import (
    EDGES,
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
from models.control.training.lifecycle_track import Tracks
from models.control.training.trajectory_log import Event, Header, Record, Step, TrajectoryLog, mark_of, read_log

PROFILE = Profile(t_serving=10.0, t_var=1.0, t_online=5.0, largest_reward=20.0, episodes=3, steps=2, most_missing=2)
SHORT = Profile(t_serving=10.0, t_var=1.0, t_online=5.0, largest_reward=20.0, episodes=2, steps=2, most_missing=2)
BARE = Profile(t_serving=10.0, t_var=1.0, largest_reward=20.0, bootstrap=False, episodes=3, steps=2, most_missing=2)


def live(profile: Profile, happenings: list[Happening]) -> tuple[State, list[Transition]]:
    state, transitions = State(), []
    for happening in happenings:
        state, transition = advance(state, happening, profile)
        transitions += [transition] if transition else []
    return state, transitions


def episodes(*rewards: float | None, first: int = 0, actor: str = "policy") -> list[Happening]:
    return [EpisodeEnded(first + number, reward, actor) for number, reward in enumerate(rewards)]  # type: ignore[arg-type]


def test_algorithm_5_1_step_by_step() -> None:
    state, transitions = live(PROFILE, [Started(), *episodes(6, 6, 6, actor="fallback"),
                                        *episodes(11, 11, 11, first=3), *episodes(8, 8, first=6)])
    assert [(one.before, one.after) for one in transitions] == [
        (Stage.INITIALIZED, Stage.OFFLINE), (Stage.OFFLINE, Stage.ONLINE), (Stage.ONLINE, Stage.SERVING),
        (Stage.SERVING, Stage.ONLINE)]
    assert [one.episode for one in transitions] == [-1, 2, 5, 6]
    assert transitions[2].mean == 11 and transitions[2].deviation == 0 and transitions[2].episodes == 3
    assert state.acts == "fallback"


def test_without_bootstrapping_there_is_no_offline_stage() -> None:
    assert live(BARE, [Started()])[0].stage is Stage.ONLINE


@pytest.mark.parametrize("rewards", [(9, 10, 10.9), (8, 11, 14), (11, 11, None), (11, 11, math.nan), (11, math.inf, 11),
                                     (11, 11, 21)],
                         ids=["mean", "deviation", "missing", "NaN", "infinite", "more than possible"])
def test_what_does_not_promote(rewards: tuple[float | None, ...]) -> None:
    assert live(BARE, [Started(), *episodes(*rewards)])[0].stage is Stage.ONLINE


def test_a_late_reward_changes_nothing() -> None:
    state, _ = live(BARE, [Started(), *episodes(11, 11), EpisodeEnded(3, 11, "policy"), EpisodeEnded(2, 11, "policy")])
    assert state.stage is Stage.ONLINE and state.rewards == (11,)


def test_the_rewards_of_the_fallback_never_let_a_policy_serve() -> None:
    happenings = [Started(), *episodes(*[15] * 50, actor="fallback")]
    assert live(PROFILE, happenings)[0].stage is Stage.ONLINE
    assert live(BARE, happenings)[0].stage is Stage.ONLINE


def test_a_policy_whose_rewards_are_not_seen_any_more_stops_serving() -> None:
    state, transitions = live(BARE, [Started(), *episodes(11, 11, 11, None, None)])
    assert state.stage is Stage.ONLINE and transitions[-1].reason == "2 episodes in a row without a reward"
    assert live(BARE, [Started(), *episodes(11, 11, 11, None, 11, None)])[0].stage is Stage.SERVING


def test_a_withdrawn_policy_begins_again_without_its_rewards() -> None:
    state, transitions = live(BARE, [Started(), *episodes(11, 11, 11), Withdrawn("proof is gone"), Started(),
                                     *episodes(11, 11, first=3)])
    assert state.stage is Stage.ONLINE and transitions[-2].reason == "withdrawn: proof is gone"


REWARDS = st.one_of(st.none(), st.floats(), st.floats(min_value=9.0, max_value=12.0), st.just(11.0))
HAPPENINGS = st.lists(st.one_of(
    st.builds(Started), st.builds(Withdrawn, st.just("why")),
    st.builds(EpisodeEnded, st.integers(min_value=0, max_value=30), REWARDS, st.sampled_from(["policy", "fallback"])),
    ), max_size=60)  # fmt: skip


def in_order(happenings: list[Happening]) -> list[Happening]:
    """The same with episodes that grow, but for some that are late."""
    number, found = 0, list[Happening]()
    for happening in happenings:
        if isinstance(happening, EpisodeEnded):
            number += happening.episode % 7 != 0
            found.append(EpisodeEnded(number, happening.reward, happening.actor))
        else:
            found.append(happening)
    return found


@settings(deadline=None)
@given(happenings=HAPPENINGS.map(in_order), profile=st.sampled_from([PROFILE, BARE]))
def test_every_path_to_serving_has_its_rewards(happenings: list[Happening], profile: Profile) -> None:
    state, policy_rewards = State(), list[float]()
    for happening in happenings:
        before = state
        state, transition = advance(state, happening, profile)
        if isinstance(happening, EpisodeEnded) and happening.episode > before.last_episode:
            reward = happening.reward
            is_there = reward is not None and math.isfinite(reward) and reward <= 20.0
            if happening.actor == "policy":
                policy_rewards = [*policy_rewards, reward] if is_there else []  # type: ignore[list-item]
        assert (state.stage is before.stage) == (transition is None)
        if transition is None:
            continue
        assert (before.stage, state.stage) == (transition.before, transition.after) and \
            (before.stage, state.stage) in EDGES
        if state.stage is Stage.SERVING:
            assert isinstance(happening, EpisodeEnded) and happening.actor == "policy"
            last = policy_rewards[-3:]
            assert len(last) == 3 and fmean(last) >= 10.0 and pstdev(last) <= 1.0
        if state.stage is Stage.ONLINE:
            policy_rewards = []


def log_records(draw: Random, count: int) -> list[Record]:
    """A life of two applications: mostly whole episodes of good rewards in order, and everything else now and then."""
    found: list[Record] = [Event("a", "start"), Event("b", "start")]
    latest = 0
    for _ in range(count):
        application = draw.choice("ab")
        if draw.random() < 0.05:
            found.append(Event(application, draw.choice(["start", "withdraw"])))  # type: ignore[arg-type]
            continue
        latest += draw.choice([*[1] * 20, 0, 2, -1])
        reward = draw.choice([*[5.5] * 20, 1.0, None, math.nan, math.inf, -1e308, 11.0])
        actor = draw.choice([*["policy"] * 20, "fallback"])
        for number in draw.choice([*[(0, 1)] * 20, (0,), (1,), (1, 0), (0, 0, 1)]):
            value, mark = mark_of(reward)
            found.append(Step(application, max(latest, 0), number, actor, (1.0,), (1.0,), value, mark=mark))  # type: ignore[arg-type]
    return found


@settings(deadline=None, max_examples=40)
@given(draw=st.randoms(use_true_random=False))
def test_replaying_the_log_gives_the_states_that_were_lived_through(tmp_path_factory: pytest.TempPathFactory,
                                                                   draw: Random) -> None:
    folder = tmp_path_factory.mktemp("log")
    log = TrajectoryLog(folder / "log", Header("task", (("x", "1"),), (("y", "1"),)), part_bytes=2000)
    tracks, lived = Tracks(SHORT), list[tuple[str, Transition]]()
    records = log_records(draw, 50)
    while records:
        some = draw.randint(1, 30)
        log.append(records[:some])
        for record in records[:some]:
            lived += [(record.application, one) for one in tracks.record(record)]
        records = records[some:]
        tracks.save(folder / "states.json")  # the controller restarts
        tracks = Tracks.load(folder / "states.json", SHORT)
    replayed, transitions = Tracks.replay(SHORT, read_log(folder / "log").records)
    assert list(transitions) == lived
    assert [replayed.state(name) for name in "ab"] == [tracks.state(name) for name in "ab"]


def test_the_lives_that_are_replayed_reach_every_stage() -> None:
    reached = {one.after for seed in range(40)
               for _, one in Tracks.replay(SHORT, log_records(Random(seed), 50))[1]}
    assert reached == set(Stage)


def test_an_episode_that_misses_a_step_has_no_reward(tmp_path: Path) -> None:
    def run(*numbers: int) -> Stage:
        records: list[Record] = [Event("a", "start")]
        for episode in range(4):
            records += [Step("a", episode, number, "policy", (), (), 5.5) for number in numbers]
        return Tracks.replay(BARE, records)[0].state("a").stage

    assert run(0, 1) is Stage.SERVING
    assert run(0) is run(1) is Stage.ONLINE


@pytest.mark.parametrize(("changes", "message"), [
    ({"t_serving": 21.0}, "t_serving: expected at most the largest possible reward of an episode, 20, got 21"),
    ({"t_online": 30.0}, "t_online: expected at most the largest possible"),
    ({"t_var": 0.0}, "t_var: expected a number above 0"),
    ({"t_serving": math.nan}, "t_serving: expected a finite number, got nan"),
    ({"episodes": 1}, "episodes: expected at least 2, got 1"),
])
def test_a_profile_that_cannot_be_met_is_refused(changes: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Profile(**{"t_serving": 10.0, "t_var": 1.0, "largest_reward": 20.0, **changes})  # type: ignore[arg-type]


def test_states_of_another_profile_are_refused(tmp_path: Path) -> None:
    Tracks(BARE).save(tmp_path / "states.json")
    with pytest.raises(InputError, match="must be of the present profile"):
        Tracks.load(tmp_path / "states.json", PROFILE)
    (tmp_path / "states.json").write_bytes((tmp_path / "states.json").read_bytes()[:30])
    with pytest.raises(InputError, match="replay the trajectory log"):
        Tracks.load(tmp_path / "states.json", BARE)


def test_neither_torch_nor_pydantic_is_needed() -> None:
    code = ("import sys; import models.control.training.lifecycle_track; "
            "print([name for name in ('torch', 'pydantic', 'pandas') if name in sys.modules])")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
