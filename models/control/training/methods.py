"""The methods by name: those that learn by acting, and those that learn from what others did."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from feature_store.errors import InputError, nearest
from models.control.contract.environment import Environment
from models.control.policy.policy import Policy
from models.control.training import training_run
from models.control.training.actions import Actions
from models.control.training.monotone import Demands, NoDemands
from models.control.training.offline import bcq, behaviour_cloning, cql, iql, offline_run, td3_bc
from models.control.training.offline.offline_run import OfflineMethod, OfflineSettings, OfflineTrained
from models.control.training.online import ddpg, ppo, sac, td3
from models.control.training.online.off_policy import OffPolicyLearner, OffPolicyMethod, OffPolicySettings
from models.control.training.training_run import RunSettings, TrainedPolicy, run_digest, start_from
from models.control.training.trajectories import Transitions
from models.training.seeds import seeded


@dataclass(frozen=True)
class Online:
    """A method that learns by acting.

    Attributes:
        name: of the method.
        settings: what its settings are; all have defaults.
        make: (policy, settings, generator) -> what differs between off-policy methods; None: PPO, which has no buffer.
        source: the paper.
    """

    name: str
    settings: type[RunSettings]
    make: Callable[[Policy, Any, torch.Generator], OffPolicyMethod] | None
    source: str

    def train(self, environment: Environment, settings: Any, seed: int, checkpoint: Path | None = None,
              progress: training_run.Progress | None = None, start: Policy | None = None,
              experience: Transitions | None = None, demands: Demands = NoDemands()) -> TrainedPolicy:
        """Trains a policy across applications.

        Args:
            settings: of `settings`.
            checkpoint: file; goes on from it where it is there. None: nothing is written.
            start: what to start from; None: a new policy.
            experience: of others, which the buffer begins with; the critics learn from it before the first episode.
            demands: what the policy keeps after each of its steps.

        Raises:
            InputError: the checkpoint is of another run, or there is experience and no buffer.
        """
        generator = seeded(seed)
        policy = start_from(environment, settings, seed, start)
        demands.project(policy)
        learner: training_run.Learner
        if self.make is not None:
            learner = OffPolicyLearner(environment, settings, policy, self.make(policy, settings, generator), generator,
                                       seed, experience, demands)
        elif experience is not None:
            raise InputError(f"experience must be left out, as {self.name} learns from its own steps alone, got "
                             f"{len(experience)} transitions")
        else:
            learner = ppo.PpoLearner(environment, settings, policy, generator, seed, demands)
        return training_run.run(environment, learner, settings, seed, checkpoint, progress,
                                run_digest(self.name, settings, seed, start, experience))

    @property
    def takes_experience(self) -> bool:
        """Whether it can begin with what others did."""
        return issubclass(self.settings, OffPolicySettings)


@dataclass(frozen=True)
class Offline:
    """A method that learns from trajectories.

    Attributes:
        name: of the method.
        settings: what its settings are; all have defaults.
        make: (actions, settings, generator) -> what differs between methods.
        source: the paper.
    """

    name: str
    settings: type[OfflineSettings]
    make: Callable[[Actions, Any, torch.Generator], OfflineMethod]
    source: str

    def train(self, start: Policy, experience: Transitions, settings: Any, seed: int, checkpoint: Path | None = None,
              progress: offline_run.Progress | None = None, demands: Demands = NoDemands()) -> OfflineTrained:
        """Trains a copy of a policy on what others did.

        Args:
            start: see offline_run.policy_for.
            settings: of `settings`.
            checkpoint: as of `Online.train`.
            demands: what the policy keeps after each of its steps.

        Raises:
            InputError: the checkpoint is of another run.
        """
        generator, policy = seeded(seed), deepcopy(start)
        demands.project(policy)
        actions = Actions(policy)
        return offline_run.run(self.name, self.make(actions, settings, generator), actions, experience, settings,
                               generator, seed, checkpoint, progress, demands)


ONLINE: Mapping[str, Online] = {one.name: one for one in (
    Online("ddpg", ddpg.DdpgSettings, ddpg.Ddpg,
           "Lillicrap et al., ICLR 2016; thesis, Algorithm 3.3 and Table 5.2"),
    Online("td3", td3.Td3Settings, td3.Td3, "Fujimoto, van Hoof and Meger, ICML 2018"),
    Online("sac", sac.SacSettings, sac.Sac, "Haarnoja et al., arXiv 1812.05905"),
    Online("ppo", ppo.PpoSettings, None, "Schulman et al., arXiv 1707.06347"),
)}
OFFLINE: Mapping[str, Offline] = {one.name: one for one in (
    Offline("behaviour_cloning", OfflineSettings, behaviour_cloning.BehaviourCloning,
            "Pomerleau, Neural Computation 1991"),
    Offline("td3_bc", td3_bc.Td3BcSettings, td3_bc.Td3Bc, "Fujimoto and Gu, NeurIPS 2021"),
    Offline("bcq", bcq.BcqSettings, bcq.Bcq, "Fujimoto, Meger and Precup, ICML 2019; thesis, section 5.3.4"),
    Offline("cql", cql.CqlSettings, cql.Cql, "Kumar et al., NeurIPS 2020"),
    Offline("iql", iql.IqlSettings, iql.Iql, "Kostrikov, Nair and Levine, ICLR 2022"),
)}
METHODS: Mapping[str, Online | Offline] = {**ONLINE, **OFFLINE}


def method(name: str) -> Any:
    """The method of that name, an `Online` or an `Offline`. Raises InputError."""
    if name not in METHODS:
        raise InputError(f"method must be one of {', '.join(METHODS)}, got {name!r}; {nearest(name, METHODS)}")
    return METHODS[name]
