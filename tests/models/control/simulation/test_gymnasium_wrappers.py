import warnings
from itertools import combinations

import gymnasium
import numpy as np
import pytest
from gymnasium.utils import env_checker
from gymnasium.utils.performance import benchmark_vector_step
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from feature_store.errors import InputError
from models.control.simulation.gymnasium_wrappers import ApplicationEnv, ApplicationsEnv, Episodes, Interface
from tests.models.control.leaky_queue import LeakyQueue

INTERFACES = [Interface(observations, actions, reward, 10.0)
              for observations, actions, reward in (("features", "changes", "paper"), ("signals", "targets", "cost"))]
MODES = list(AutoresetMode)


@pytest.fixture
def registered():
    """Gymnasium checks determinism only of environments that its registry has made."""
    gymnasium.register("LeakyQueue-v0", ApplicationEnv, vector_entry_point=ApplicationsEnv,
                       kwargs={"environment": LeakyQueue()})
    yield "LeakyQueue-v0"
    gymnasium.registry.pop("LeakyQueue-v0")


@pytest.fixture(params=INTERFACES, ids=lambda interface: interface.observations)
def interface(request):
    return request.param


def test_gymnasiums_own_check_of_an_environment_passes(registered, interface):
    with warnings.catch_warnings():
        if interface.actions == "targets":  # raw units are what that interface is for
            warnings.filterwarnings("ignore", ".*we recommend using a symmetric and normalized space")
        env_checker.check_env(gymnasium.make(registered, interface=interface).unwrapped)


# Gymnasium 1.4 has no `check_env` of vector environments; these are its parts that take one.
@pytest.mark.parametrize("mode", MODES)
def test_gymnasiums_checks_that_know_vector_environments_pass(registered, interface, mode):
    env = gymnasium.make_vec(registered, num_envs=3, interface=interface, autoreset_mode=mode)
    assert env.metadata["autoreset_mode"] is mode
    env_checker.check_reset_seed_determinism(env)
    env_checker.check_reset_options(env)
    calls = list(run(env, [env.action_space.sample() for _ in range(5)]))
    assert not any(env_checker.data_shares_objects(one, other) for one, other in combinations(calls, 2))
    assert benchmark_vector_step(env, target_duration=0, seed=3) > 0


def run(env, actions, seed=7):
    yield env.reset(seed=seed)
    for action in actions:
        yield env.step(action)


@pytest.mark.parametrize("mode", MODES)
def test_vector_environment_resets_itself_as_gymnasiums_own_one_does(interface, mode):
    ours = ApplicationsEnv(LeakyQueue(), 1, interface, autoreset_mode=mode)
    theirs = SyncVectorEnv([lambda: ApplicationEnv(LeakyQueue(), interface)], autoreset_mode=mode)
    theirs.action_space.seed(0)
    steps = 5 if mode is AutoresetMode.DISABLED else 17  # three episodes of 5 steps
    actions = [theirs.action_space.sample() for _ in range(steps)]
    for our, their in zip(run(ours, actions), run(theirs, actions), strict=True):
        assert env_checker.data_equivalence(list(our[:-1]), list(their[:-1]), exact=True)
        assert env_checker.data_equivalence(our[-1], their[-1], exact=True)


def test_equal_seeds_repeat_every_episode_to_the_bit(interface):
    env = ApplicationsEnv(LeakyQueue(), 64, interface)
    env.action_space.seed(1)
    actions = [env.action_space.sample() for _ in range(12)]
    first, again, other = (list(run(env, actions, seed)) for seed in (3, 3, 4))
    assert env_checker.data_equivalence(first, again, exact=True)
    assert not env_checker.data_equivalence(first, other, exact=True)


def test_applications_of_one_batch_differ_and_episodes_differ():
    env = ApplicationsEnv(LeakyQueue(), 2, Interface(observations="signals"))
    load = [observation[:, 2] for observation, *_ in run(env, [np.zeros((2, 2), np.float32)] * 6)]
    assert load[0][0] != load[0][1]
    assert (load[0] != load[6]).all()  # the seventh is the first of a new episode


@pytest.mark.parametrize("action, rate, room", [
    ([0, 0], 8.0, 16.0), ([1, 1], 16.0, 24.0), ([-1, -1], 6.0, 8.0), ([0.5, -0.1], 12.0, 16.0)])
def test_a_change_is_a_share_of_the_present_value(action, rate, room):
    env = ApplicationEnv(LeakyQueue(), Interface("signals"))
    env.reset(seed=0)
    observation, *_ = env.step(np.array(action, np.float32))
    assert observation[:2].tolist() == pytest.approx([rate, room])  # 16 * (1 - 0.05) = 15.2 is rounded up


def test_a_whole_number_may_always_change_by_one():
    env = ApplicationEnv(LeakyQueue(), Interface("signals"))
    env.reset(seed=0)
    rooms = [env.step(np.array([0, sign], np.float32))[0][1] for sign in (-1, -1, -1, -1)]
    assert rooms == [8.0, 4.0, 2.0, 1.0]
    assert env.step(np.array([0, 1], np.float32))[0][1] == 2.0  # half of one more would be 1.5


def test_changes_stay_inside_of_the_controls_bounds():
    env = ApplicationEnv(LeakyQueue(), Interface("signals"))
    env.reset(seed=0)
    rates = [env.step(np.array([1, 0], np.float32))[0][0] for _ in range(5)]
    assert rates == [16.0, 32.0, 64.0, 64.0, 64.0]


def test_reward_is_the_papers_or_cost_and_violation():
    action = np.array([1.0, 1.0], np.float32)  # raw targets: lose nearly all
    found = {}
    for reward in ("paper", "cost"):
        env = ApplicationEnv(LeakyQueue(), Interface("signals", "targets", reward, violation_weight=10.0))
        env.reset(seed=0)
        _, found[reward], _, _, info = env.step(action)
    lost = info["measures"]["lost"]
    assert lost > 0 and info["violated"] is True and info["cost"] == 1.0 and info["violation"] == lost
    assert found["cost"] == pytest.approx(-1.0 - 10.0 * lost)
    assert found["paper"] == pytest.approx(-1.0 - (lost + 1.0))


def test_features_reach_the_ends_of_their_range_and_no_further():
    features = ApplicationEnv(LeakyQueue(), Interface("features", "targets"))
    features.reset(seed=0)
    low, *_ = features.step(np.array([1.0, 64.0], np.float32))
    high, *_ = features.step(np.array([64.0, 1.0], np.float32))
    assert low[:2].tolist() == [-1.0, 1.0] and high[:2].tolist() == [1.0, -1.0]


def test_scenario_and_applications_are_options_of_a_reset():
    env = ApplicationEnv(LeakyQueue(), Interface("signals"), Episodes(steps=2))
    assert env.reset(seed=0, options={"scenario": "calm"})[0][2] == 5.0
    assert env.reset(seed=0)[0][2] != 5.0
    _, _, terminated, truncated, _ = [env.step(np.zeros(2, np.float32)) for _ in range(2)][-1]
    assert truncated and not terminated


def test_a_step_beyond_the_end_and_a_partial_reset_are_refused():
    env = ApplicationEnv(LeakyQueue())
    with pytest.raises(InputError, match="expected a reset before the first"):
        env.step(np.zeros(2, np.float32))
    many = ApplicationsEnv(LeakyQueue(), 3, autoreset_mode=AutoresetMode.DISABLED)
    with pytest.raises(InputError, match="all 3 applications, which end together, got 1"):
        many.reset(options={"reset_mask": np.array([True, False, False])})
    many.reset(seed=0)
    for _ in range(5):
        many.step(np.zeros((3, 2), np.float32))
    with pytest.raises(InputError, match="expected a reset after the last of 5 steps"):
        many.step(np.zeros((3, 2), np.float32))
