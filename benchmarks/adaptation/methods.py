"""The learners of benchmarks/adaptation/accuracy.py, and how each chooses what is measured of a new workload.

    random      three configurations drawn at random, DRAWS times a workload
    chosen      base configurations chosen on the pool, the same for all new workloads (models/adaptation/design.py)
    planned     as chosen, but the set that is best for the number of runs, another one for each
    sequential  the next configuration chosen after the runs so far, by the same rule
    all         every other configuration measured: what is left then is noise and what no learner of these knows

Every learner's point is the one that makes its expected percentage error least (combination.py);
`_median` variants report exp(mean) instead, as is usual, and so do networks that are trained on percentage errors.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from models.adaptation.closed_form.baselines import BoostedRatios, LowRank, SupportMean, additive
from models.adaptation.closed_form.hierarchical import Hierarchical
from models.adaptation.closed_form.neighbours import Neighbours
from models.adaptation.learner import Learner
from models.adaptation.networks.meta_network import MetaNetwork, flash_sizeless
from models.adaptation.networks.sizeless import Sizeless, Transfer
from models.adaptation.pool.selection import default_learner

DEFAULT = "hierarchical_nearest"
DRAWS = 5


@dataclass(frozen=True)
class Method:
    """make: the learner; bases: how its runs are chosen; loss: of the point; title: in tables; splits: kinds of splits
    on which it is measured, empty for all (networks take long)."""

    make: Callable[[], Learner]
    title: str
    bases: tuple[str, ...] = ("random", "chosen")
    loss: str = "mape"
    splits: tuple[str, ...] = ()


METHODS: Mapping[str, Method] = {
    DEFAULT: Method(default_learner, "hierarchical Bayes and nearest workloads, mean (default)",
                    ("random", "chosen", "planned", "sequential", "all")),
    f"{DEFAULT}_median": Method(default_learner, "the same, reported as exp(mean)", loss="median"),
    "hierarchical": Method(Hierarchical, "hierarchical Bayes linear model"),
    "nearest": Method(Neighbours, "nearest workloads in log residuals"),
    "gaussian_process": Method(lambda: Hierarchical(strength=1e9, name="gaussian_process"),
                               "Gaussian process, exchangeable workloads"),
    "low_rank": Method(LowRank, "low rank in logs"),
    "additive": Method(additive, "additive in logs"),
    "boosted_ratios": Method(BoostedRatios, "gradient-boosted ratios"),
    "meta_network": Method(lambda: MetaNetwork(prior=Hierarchical()),
                           "network (attention) that corrects hierarchical Bayes", splits=("workload",)),
    "flash": Method(flash_sizeless, "FLASH-Sizeless (GRU), as published", ("random",), "median", ("workload",)),
    "transfer": Method(Transfer, "Sizeless, then tuned on the support", ("random",), "median", ("workload",)),
    "sizeless": Method(Sizeless, "Sizeless, as published", ("random",), "median", ("workload",)),
    "support_mean": Method(SupportMean, "mean of the support"),
    "support_mean_median": Method(SupportMean, "the same, reported as exp(mean)", loss="median"),
}
