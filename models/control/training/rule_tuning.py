"""Tunes rules by Optuna, as fairly as a policy is trained: on the same training applications.

Many settings are tried on the same episodes as one batch. Every trial of a rule is kept, so that one search serves
several objectives, and a front of cost and violations comes of it without more.

    violations  the least cost with at most `target` of the steps violated; where none keeps that, the fewest violations
    reward      the largest reward of the paper, of those with at most `target` of the steps violated where one is given

Symbols: K settings of a trial batch, N applications.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray

from feature_store.errors import InputError
from models.control.contract.controller import RuleFamily
from models.control.contract.environment import Environment, agents_of
from models.control.contract.setting import Setting, Value
from models.control.simulation.rollout import WARM_UP_STEPS, Rollout, roll_out
from models.control.training.objective import excess

Numbers = NDArray[np.float64]
Settings = Mapping[str, float | str]
_STEP = 0.2  # of a range, the standard deviation of a neighbour (Tolson and Shoemaker)
BATCH = 8192  # applications times settings side by side: what the caches hold


@dataclass(frozen=True)
class Trial:
    """One rule with one choice of settings, on all tuning applications.

    Attributes:
        settings: what differs from the defaults.
        rollout: what came of it.
    """

    settings: Settings
    rollout: Rollout = field(repr=False)

    @property
    def cost(self) -> float:
        """Mean over the applications."""
        return float(self.rollout.cost.mean())

    @property
    def violated(self) -> float:
        """Share of the steps, mean over the applications."""
        return float(self.rollout.violated.mean())

    @property
    def reward(self) -> float:
        """Mean over the applications."""
        return float(self.rollout.reward.mean())


@dataclass(frozen=True)
class Tuned:
    """A rule with the settings that were found.

    Attributes:
        objective: violations or reward.
        target: largest share of violating steps; None: whatever they violate, for the reward.
        settings: all of the rule's, defaults included.
        cost: on the tuning applications.
        violated: share of steps on them.
        reward: the paper's, on them.
        trials: how many settings were tried.
        kept: whether `violated` is at most `target`.
    """

    objective: str
    target: float | None
    settings: dict[str, float | str]
    cost: float
    violated: float
    reward: float
    trials: int
    kept: bool


class Tuner:
    """Searches the settings of one rule on fixed episodes; remembers every trial."""

    def __init__(self, environment: Environment, family: RuleFamily, episodes: Any, steps: int, seed: int = 0,
                 warm_up: int = WARM_UP_STEPS) -> None:
        """A search that has tried nothing.

        Args:
            environment: where the rule acts.
            family: the rule, with whatever settings.
            episodes: N of them, of `Environment.draw`; `take(index)` repeats them for many settings.
            steps: decisions of a trial.
            seed: of the search.
            warm_up: decisions that do not count.
        """
        self.family = family
        self.trials: list[Trial] = []
        self._environment = environment
        self._episodes = episodes
        self._agents = agents_of(environment)
        self._count = len(environment.observe(environment.reset(episodes))) // self._agents
        self._steps = steps
        self._warm_up = warm_up
        self._seed = seed
        self._searched = [setting for setting in self.family.declared if setting.search or setting.searched]

    def search(self, trials: int, target: float | None, batch: int = 16, reward: bool = False) -> None:
        """Tries so many more settings anywhere, by Optuna's tree-structured Parzen estimator.

        Args:
            trials: how many.
            target: largest share of violating steps, for the least cost; None: for the largest reward.
            batch: settings proposed and tried at once.
            reward: for the largest reward also where there is a target.
        """
        sampler = optuna.samplers.TPESampler(seed=self._seed + len(self.trials), n_startup_trials=batch,
                                             constant_liar=True)
        spaces = {setting.name: _distribution(setting) for setting in self._searched}
        with _quiet_optuna():
            study = optuna.create_study(sampler=sampler)
            for trial in self.trials:
                study.add_trial(optuna.trial.create_trial(
                    params=dict(trial.settings), distributions=spaces, value=_loss(trial, target, reward)))
            if not self.trials:
                study.enqueue_trial(self.searched({}))
            end = len(self.trials) + trials
            while len(self.trials) < end:
                asked = [study.ask(spaces) for _ in range(min(batch, end - len(self.trials)))]
                for number, trial in zip(asked, self.evaluate([one.params for one in asked]), strict=True):
                    study.tell(number, _loss(trial, target, reward))

    def refine(self, trials: int, target: float | None, batch: int = 16) -> None:
        """Tries so many settings near to the best: fewer and fewer of its numbers are moved at once.

        Tolson and Shoemaker, Dynamically dimensioned search algorithm, Water Resources Research 43 (2007), equations 1
        to 3, with a batch of neighbours in place of one.
        """
        random = np.random.default_rng([self._seed, len(self.trials)])
        for first in range(0, trials, batch):
            best = min(self.trials, key=lambda trial: _loss(trial, target)).settings
            share = 1.0 - np.log1p(first) / np.log1p(trials)
            self.evaluate([self.neighbour(best, share, random) for _ in range(min(batch, trials - first))])

    def neighbour(self, settings: Settings, share: float, random: np.random.Generator) -> dict[str, float | str]:
        """Settings of which each is moved with probability `share`, but at least one."""
        moved = random.random(len(self._searched)) < share
        moved[random.integers(len(moved))] = True
        return {setting.name: _moved(setting, settings[setting.name], random) if change else settings[setting.name]
                for setting, change in zip(self._searched, moved, strict=True)}

    def evaluate(self, choices: Sequence[Settings]) -> list[Trial]:
        """Tries these settings on the tuning episodes, as few batches, and remembers them."""
        count = self._count
        size = max(1, BATCH // count)
        done: list[Trial] = []
        for first in range(0, len(choices), size):
            part = choices[first:first + size]
            index = np.tile(np.arange(count), len(part))
            rule = self.family.make(side_by_side(part, count * self._agents))
            rollout = roll_out(self._environment, rule, self._episodes.take(index), self._steps, self._warm_up)
            done += [Trial(one, own) for one, own in zip(part, rollout.split(len(part)), strict=True)]
        self.trials += done
        return done

    def searched(self, settings: Settings) -> dict[str, float | str]:
        """What is searched: from these settings moved into the ranges of the search, the rest from the defaults."""
        return {setting.name: _inside(setting, settings.get(setting.name, setting.default))
                for setting in self._searched}

    def leading(self, count: int, target: float | None) -> list[Settings]:
        """Settings of the best trials, the best first."""
        return [trial.settings for trial in sorted(self.trials, key=lambda trial: _loss(trial, target))[:count]]

    def best(self, target: float | None, reward: bool = False) -> Tuned:
        """The best trial so far, as of `search`. Raises InputError before any."""
        if not self.trials:
            raise InputError("search must come before the best settings are asked for")
        best = min(self.trials, key=lambda trial: _order(trial, target, reward))
        return Tuned("reward" if reward or target is None else "violations", target,
                     dict(self.family.make(best.settings).settings), best.cost, best.violated, best.reward,
                     len(self.trials), target is None or best.violated <= target)

    def front(self) -> list[Trial]:
        """Trials that no other beats in cost and violations, by cost."""
        front: list[Trial] = []
        for trial in sorted(self.trials, key=lambda trial: (trial.cost, trial.violated)):
            if not front or trial.violated < front[-1].violated:
                front.append(trial)
        return front


def side_by_side(choices: Sequence[Settings], count: int) -> dict[str, Value]:
    """Settings of K choices for K * count applications: each choice for `count` neighbours."""
    names = {name for choice in choices for name in choice}
    missing = next((name for choice in choices for name in names if name not in choice), None)
    if missing is not None:
        raise InputError(f"settings tried side by side must name the same ones, got one without {missing!r}")
    return {name: np.repeat(np.asarray([choice[name] for choice in choices]), count) for name in sorted(names)}


def tune(environment: Environment, family: RuleFamily, applications: int = 256, steps: int = 240, target: float = 0.02,
         seed: int = 0, effort: float = 1.0, start: Sequence[Settings] = ()) -> Tuner:
    """Tunes a rule on training applications for `target` and for the reward.

    A wide search on few applications and short episodes comes first; its best are tried on all, and searched about.

    Args:
        family: the rule, with whatever settings.
        applications: of the training split.
        steps: decisions of an episode.
        target: largest share of violating steps.
        seed: of episodes and search.
        effort: scales the number of trials.
        start: settings to try first, such as what was found for a rule of which this one is an extension; settings that
            the rule does not have are left out.

    Returns:
        The search on all applications; ask `best(target)` and `best(None)`.
    """
    def trials(count: int) -> int:
        return max(1, round(effort * count))

    episodes = environment.draw("train", applications, steps + 1, seed)
    few = episodes.take(np.arange(0, applications, max(1, applications // 96)))
    coarse = Tuner(environment, family, few, max(steps * 2 // 5, WARM_UP_STEPS + 1), seed)
    tuner = Tuner(environment, family, episodes, steps, seed)
    known = [tuner.searched(one) for one in start]
    if known:
        coarse.evaluate(known)
    coarse.search(trials(96), target)
    coarse.refine(trials(64), target)
    coarse.refine(trials(48), None)
    # Few applications judge violations badly, and other applications violate more or less than these at equal settings:
    # so the best for neighbouring targets are tried as well, and a front has both sides of the target.
    leading = [one for share in (0.5, 1.0, 2.0) for one in coarse.leading(trials(6), share * target)]
    tuner.evaluate([*known, *leading, *coarse.leading(trials(6), None)])
    for share, count in ((1.0, 48), (0.5, 32), (2.0, 16)):
        tuner.refine(trials(count), share * target)
    tuner.refine(trials(24), None)
    return tuner


def _loss(trial: Trial, target: float | None, reward: bool = False) -> float:
    """What Optuna makes small: the cost, or the reward, negated, with a price for violations beyond the target."""
    beyond = 0.0 if target is None else excess(trial.violated, target)
    if reward or target is None:
        return abs(trial.reward) * beyond - trial.reward
    return trial.cost * (1.0 + beyond)


def _order(trial: Trial, target: float | None, reward: bool = False) -> tuple[float, float]:
    wanted = -trial.reward if reward or target is None else trial.cost
    return (0.0 if target is None or trial.violated <= target else trial.violated, wanted)


def _distribution(setting: Setting) -> optuna.distributions.BaseDistribution:
    if setting.choices:
        return optuna.distributions.CategoricalDistribution(setting.choices)
    low, high = setting.search or (setting.low, setting.high)
    return optuna.distributions.FloatDistribution(low, high, log=setting.log, step=1.0 if setting.whole else None)


def _moved(setting: Setting, value: float | str, random: np.random.Generator) -> float | str:
    """A value near to it, reflected at the ends of what is searched."""
    if setting.choices:
        return str(random.choice(setting.choices))
    low, high = setting.search or (setting.low, setting.high)
    if setting.log:
        low, high, value = np.log(low), np.log(high), np.log(float(value))
    place = abs((float(value) - low) / (high - low) + _STEP * random.standard_normal()) % 2.0
    number = low + (high - low) * min(place, 2.0 - place)
    number = np.exp(number) if setting.log else number
    return _inside(setting, float(np.rint(number) if setting.whole else number))


@contextmanager
def _quiet_optuna() -> Iterator[None]:
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(verbosity)


def _inside(setting: Setting, value: float | str) -> float | str:
    """The value, moved into the range of the search."""
    return value if setting.choices or setting.search is None else float(np.clip(float(value), *setting.search))
