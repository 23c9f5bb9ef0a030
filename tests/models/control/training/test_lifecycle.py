"""Nothing gets to SERVING but by the rewards that the profile asks for; reading the log equals living through it."""

import json
import math
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, replace
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
    Profile,
    Stage,
    Started,
    State,
    Transition,
    advance,
)
from models.control.training.lifecycle_track import Track, follow, load, save
from models.control.training.trajectory_log import Header, Step, TrajectoryLog, read_log

PROFILE = Profile(t_serving=10.0, t_var=1.0, t_online=5.0, largest_reward=20.0, episodes=3, steps=2, most_missing=2)
SHORT = Profile(t_serving=10.0, t_var=1.0, t_online=5.0, largest_reward=20.0, episodes=2, steps=2, most_missing=2)
BARE = Profile(t_serving=10.0, t_var=1.0, largest_reward=20.0, bootstrap=False, episodes=3, steps=2, most_missing=2)
Happening = EpisodeEnded | Started


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
    assert state.stage is Stage.ONLINE


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


REWARDS = st.one_of(st.none(), st.floats(), st.floats(min_value=9.0, max_value=12.0), st.just(11.0))
HAPPENINGS = st.lists(st.one_of(
    st.builds(Started),
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


def log_steps(draw: Random, count: int) -> list[Step]:
    """A life of two applications: mostly whole episodes of good rewards in order, and everything else now and then."""
    found = list[Step]()
    latest = 0
    for _ in range(count):
        application = draw.choice("ab")
        latest += draw.choice([*[1] * 20, 0, 2, -1])
        reward = draw.choice([*[5.5] * 20, 1.0, math.nan, -1e308, 11.0])
        actor = draw.choice([*["policy"] * 20, "fallback"])
        for number in draw.choice([*[(0, 1)] * 20, (0,), (1,), (1, 0), (0, 0, 1)]):
            mark = "missing" if math.isnan(reward) else "measured"
            found.append(Step(application, max(latest, 0), number, actor, (1.0,), (1.0,), reward, mark=mark))  # type: ignore[arg-type]
    return found


def beginnings(draw: Random) -> dict[str, Track]:
    return {name: Track(State(draw.choice(list(Stage)))) for name in "ab"}


def followed(tracks: dict[str, Track], steps: Iterable[Step]) -> list[tuple[str, State]]:
    """Whose state a step changed, and to what; the tracks are then those after the steps."""
    found = []
    for step in steps:
        before = tracks[step.application].state
        track = tracks[step.application] = follow(tracks[step.application], step, SHORT)
        found += [(step.application, track.state)] if track.state != before else []
    return found


@settings(deadline=None, max_examples=40)
@given(draw=st.randoms(use_true_random=False))
def test_reading_the_log_gives_the_states_that_were_lived_through(tmp_path_factory: pytest.TempPathFactory,
                                                                  draw: Random) -> None:
    folder = tmp_path_factory.mktemp("log")
    log = TrajectoryLog(folder / "log", Header("task", (("x", "1"),), (("y", "1"),)), part_bytes=2000)
    first = beginnings(draw)
    tracks, lived = dict(first), list[tuple[str, State]]()
    steps = log_steps(draw, 50)
    while steps:
        some = draw.randint(1, 30)
        log.append(steps[:some])
        lived += followed(tracks, steps[:some])
        steps = steps[some:]
        save(folder / "states.json", SHORT, tracks)  # whoever follows them starts again
        tracks = load(folder / "states.json", SHORT)
    read = dict(first)
    assert followed(read, read_log(folder / "log").steps) == lived
    assert [read[name].state for name in "ab"] == [tracks[name].state for name in "ab"]


def test_the_lives_that_are_read_reach_every_stage_that_steps_lead_to() -> None:
    reached = {state.stage for seed in range(40)
               for _, state in followed({name: Track(State(Stage.OFFLINE)) for name in "ab"},
                                        log_steps(Random(seed), 50))}
    assert reached == {Stage.OFFLINE, Stage.ONLINE, Stage.SERVING}


def test_an_episode_that_misses_a_step_has_no_reward() -> None:
    def run(*numbers: int) -> State:
        track = Track(State(Stage.ONLINE))
        for episode in range(4):
            for number in numbers:
                track = follow(track, Step("a", episode, number, "policy", (), (), 5.5), BARE)
        return track.state

    assert run(0, 1).stage is Stage.SERVING
    assert run(0).stage is run(1).stage is Stage.ONLINE
    assert (run(0).missing, run(0).last_episode) == (3, 2)  # cut short by the next one; the last one runs
    assert (run(1).missing, run(1).last_episode) == (4, 3)


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


def test_states_are_kept_in_a_file_whose_form_stays(tmp_path: Path) -> None:
    running = follow(Track(State(Stage.SERVING, (5.5, 6.5), 4, 1)), Step("a", 7, 0, "policy", (), (), 2.5), PROFILE)
    lost = follow(Track(), Step("b", 0, 1, "fallback", (), (), 2.5), PROFILE)
    save(tmp_path / "states.json", PROFILE, {"a": running, "b": follow(lost, Step("b", 1, 1, "policy", (), (), 2.5),
                                                                       replace(PROFILE, steps=3)), "c": Track()})
    data = json.loads((tmp_path / "states.json").read_bytes())
    assert data["profile"] == asdict(PROFILE)
    assert data["tracks"] == {
        "a": {"state": {"stage": "serving", "rewards": [5.5, 6.5], "last_episode": 4, "missing": 1},
              "running": {"episode": 7, "actor": "policy", "steps": 1, "reward": 2.5}},
        "b": {"state": {"stage": "initialized", "rewards": [], "last_episode": 0, "missing": 1},
              "running": {"episode": 1, "actor": "policy", "steps": 2, "reward": None}},
        "c": {"state": {"stage": "initialized", "rewards": [], "last_episode": -1, "missing": 0}, "running": None}}
    assert load(tmp_path / "states.json", PROFILE)["a"] == running


def test_states_of_another_profile_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "states.json", BARE, {})
    with pytest.raises(InputError, match="must be of the present profile"):
        load(tmp_path / "states.json", PROFILE)
    for content in ((tmp_path / "states.json").read_bytes()[:30], b'{"profile": {}, "tracks": []}', b"[]", b"\xff"):
        (tmp_path / "states.json").write_bytes(content)
        with pytest.raises(InputError, match="must be readable"):
            load(tmp_path / "states.json", BARE)


def test_neither_torch_nor_pydantic_is_needed() -> None:
    code = ("import sys; import models.control.training.lifecycle_track; "
            "print([name for name in ('torch', 'pydantic', 'pandas') if name in sys.modules])")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
