"""The learners of benchmarks/adaptation/accuracy.py, and how each chooses what is measured of a new workload.

    random      three configurations drawn at random, DRAWS times a workload
    chosen      base configurations chosen on the pool, the same for all new workloads (models/adaptation/design.py)
    planned     as chosen, but the set that is best for the number of runs, another one for each
    sequential  the next configuration chosen after the runs so far, by the same rule
    all         every other configuration measured: what is left then is noise and what no learner of these knows

Every learner's point is the one that makes its expected percentage error least (combination.py);
`_median` variants report exp(mean) instead, as is usual, and so do networks that are trained on percentage errors.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from models.adaptation.learner import Learner
from models.adaptation.learners import learner_named

DEFAULT = "hierarchical_nearest"
DRAWS = 5


@dataclass(frozen=True)
class Method:
    """A learner of models/adaptation/learners.py, and how it is measured.

    Attributes:
        learner: its name.
        title: in tables.
        bases: how its runs are chosen.
        loss: of the point that is reported; empty: the learner's own.
        splits: kinds of splits on which it is measured, empty for all (networks take long).
    """

    learner: str
    title: str
    bases: tuple[str, ...] = ("random", "chosen")
    loss: str = ""
    splits: tuple[str, ...] = ()

    def make(self) -> Learner:
        """The learner."""
        return learner_named(self.learner).make()

    @property
    def point_loss(self) -> str:
        """Of the point that is reported."""
        return self.loss or learner_named(self.learner).loss


_NETWORK = ("workload",)
METHODS: Mapping[str, Method] = {
    DEFAULT: Method(DEFAULT, "hierarchical Bayes and nearest workloads, mean (default)",
                    ("random", "chosen", "planned", "sequential", "all")),
    f"{DEFAULT}_median": Method(DEFAULT, "the same, reported as exp(mean)", loss="median"),
    "hierarchical": Method("hierarchical", "hierarchical Bayes linear model"),
    "nearest": Method("nearest", "nearest workloads in log residuals"),
    "gaussian_process": Method("gaussian_process", "Gaussian process, exchangeable workloads"),
    "low_rank": Method("low_rank", "low rank in logs"),
    "additive": Method("additive", "additive in logs"),
    "boosted_ratios": Method("boosted_ratios", "gradient-boosted ratios"),
    "meta_network": Method("meta_network", "network (attention) that corrects hierarchical Bayes", splits=_NETWORK),
    "flash": Method("flash", "FLASH-Sizeless (GRU), as published", ("random",), splits=_NETWORK),
    "transfer": Method("transfer", "Sizeless, then tuned on the support", ("random",), splits=_NETWORK),
    "sizeless": Method("sizeless", "Sizeless, as published", ("random",), splits=_NETWORK),
    "support_mean": Method("support_mean", "mean of the support"),
    "support_mean_median": Method("support_mean", "the same, reported as exp(mean)", loss="median"),
}
