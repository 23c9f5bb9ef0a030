"""The methods by name: those that learn by acting, and those that learn from what others did."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from feature_store.errors import InputError, nearest
from models.control.training.offline import bcq, behaviour_cloning, cql, iql, td3_bc
from models.control.training.offline.offline_run import OfflineSettings, OfflineTrained
from models.control.training.online import ddpg, ppo, sac, td3
from models.control.training.training_run import RunSettings, Trained


@dataclass(frozen=True)
class Method:
    """How a policy can be trained.

    Attributes:
        settings: what its settings are; all have defaults.
        train: (environment, settings, seed, checkpoint, progress, start) -> Trained; see ddpg.py.
        source: the paper.
    """

    settings: type[RunSettings]
    train: Callable[..., Trained]
    source: str


METHODS: Mapping[str, Method] = {
    "ddpg": Method(ddpg.DdpgSettings, ddpg.train, "Lillicrap et al., ICLR 2016; thesis, Algorithm 3.3 and Table 5.2"),
    "td3": Method(td3.Td3Settings, td3.train, "Fujimoto, van Hoof and Meger, ICML 2018"),
    "sac": Method(sac.SacSettings, sac.train, "Haarnoja et al., arXiv 1812.05905"),
    "ppo": Method(ppo.PpoSettings, ppo.train, "Schulman et al., arXiv 1707.06347"),
}


@dataclass(frozen=True)
class Offline:
    """How a policy can be trained on trajectories.

    Attributes:
        settings: what its settings are; all have defaults.
        train: (start, experience, settings, seed, checkpoint, progress) -> OfflineTrained; see behaviour_cloning.py.
        source: the paper.
    """

    settings: type[OfflineSettings]
    train: Callable[..., OfflineTrained]
    source: str


OFFLINE: Mapping[str, Offline] = {
    "behaviour_cloning": Offline(OfflineSettings, behaviour_cloning.train, "Pomerleau, Neural Computation 1991"),
    "td3_bc": Offline(td3_bc.Td3BcSettings, td3_bc.train, "Fujimoto and Gu, NeurIPS 2021"),
    "bcq": Offline(bcq.BcqSettings, bcq.train, "Fujimoto, Meger and Precup, ICML 2019; thesis, section 5.3.4"),
    "cql": Offline(cql.CqlSettings, cql.train, "Kumar et al., NeurIPS 2020"),
    "iql": Offline(iql.IqlSettings, iql.train, "Kostrikov, Nair and Levine, ICLR 2022"),
}


def method(name: str) -> Method:
    """The method of that name. Raises InputError."""
    if name not in METHODS:
        raise InputError(f"method must be one of {', '.join(METHODS)}, got {name!r}; {nearest(name, METHODS)}")
    return METHODS[name]


def offline_method(name: str) -> Offline:
    """The offline method of that name. Raises InputError."""
    if name not in OFFLINE:
        raise InputError(f"offline method must be one of {', '.join(OFFLINE)}, got {name!r}; {nearest(name, OFFLINE)}")
    return OFFLINE[name]
