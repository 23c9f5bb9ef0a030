"""The methods that learn by acting, by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from feature_store.errors import InputError, nearest
from models.training.reinforcement.online import ddpg, ppo, sac, td3
from models.training.reinforcement.training_run import RunSettings, Trained


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


def method(name: str) -> Method:
    """The method of that name. Raises InputError."""
    if name not in METHODS:
        raise InputError(f"method must be one of {', '.join(METHODS)}, got {name!r}; {nearest(name, METHODS)}")
    return METHODS[name]
