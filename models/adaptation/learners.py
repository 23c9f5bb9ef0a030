"""All few-shot learners by name: what `assay recommend --learner` takes, and benchmarks/adaptation compares.

Without a name the learner is chosen on the pool (models/adaptation/pool/selection.py). The networks of the papers are
behind the default on small pools (docs/decisions/0006-few-shot-learner.md) and stay selectable here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from feature_store.errors import InputError, nearest
from models.adaptation.closed_form.baselines import BoostedRatios, LowRank, SupportMean, additive
from models.adaptation.closed_form.hierarchical import Hierarchical
from models.adaptation.closed_form.neighbours import Neighbours
from models.adaptation.learner import Learner
from models.adaptation.networks.meta_network import MetaNetwork, flash_sizeless
from models.adaptation.networks.sizeless import Sizeless, Transfer
from models.adaptation.pool.selection import default_learner


@dataclass(frozen=True)
class NamedLearner:
    """A learner that can be asked for by name.

    Attributes:
        make: the learner with its default settings.
        loss: of the point that is reported (models/adaptation/closed_form/combination.py): "median" for networks that
            are trained on percentage errors, whose mean is that point already.
    """

    make: Callable[[], Learner]
    loss: str = "mape"


LEARNERS: Mapping[str, NamedLearner] = {
    "hierarchical_nearest": NamedLearner(default_learner),
    "hierarchical": NamedLearner(Hierarchical),
    "nearest": NamedLearner(Neighbours),
    "gaussian_process": NamedLearner(lambda: Hierarchical(strength=1e9, name="gaussian_process")),
    "low_rank": NamedLearner(LowRank),
    "additive": NamedLearner(additive),
    "boosted_ratios": NamedLearner(BoostedRatios),
    "support_mean": NamedLearner(SupportMean),
    "meta_network": NamedLearner(lambda: MetaNetwork(prior=Hierarchical())),
    "flash": NamedLearner(flash_sizeless, loss="median"),
    "transfer": NamedLearner(Transfer, loss="median"),
    "sizeless": NamedLearner(Sizeless, loss="median"),
}


def learner_named(name: str) -> NamedLearner:
    """Raises InputError: there is none of that name; the message has the nearest one."""
    if name not in LEARNERS:
        raise InputError(f"learner: expected one of {', '.join(LEARNERS)}, got {name!r}; {nearest(name, LEARNERS)}")
    return LEARNERS[name]
