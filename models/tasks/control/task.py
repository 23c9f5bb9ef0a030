"""The task file of control tasks: which environment, how a policy is trained in it, what is demanded and for whom.

    name: autoscaling
    kind: control
    environment: autoscaling            # a folder of systems/, or an import path
    objective: {violating_share: 0.02}  # least cost at so many violating steps; or {maximise: reward}
    specification: {...}                # of all workloads; a workload may have its own
    fallback: hpa                       # acts until the policy may
    workloads:
      shop: {settings: {slo_ms: 250}, limits: {target_replicas: [2, 20]}}

Names of settings, controls, signals and rules are the environment's; kind.py (`check`) holds the file against it.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from feature_store.written.field_errors import FieldError
from feature_store.written.fields import PositiveNumber, PositiveShare, PositiveWholeNumber, WholeNumber
from feature_store.written.model import ListOf, Written
from models.control.contract.own_service import MINIMUM_ROWS
from models.paired_comparison import MINIMUM_CASES
from models.tasks.task_file import TaskFile
from models.training.methods import PolicyMethod

LayerWidths = Annotated[ListOf[PositiveWholeNumber], Field(min_length=1)]
Limits = Annotated[ListOf[float], Field(min_length=2, max_length=2, json_schema_extra={"expected": "[lower, upper]"})]


class Objective(Written):
    """What training is for."""

    maximise: Literal["saving", "reward"] = Field(
        default="saving", description="While at most `violating_share` of the steps violate, `saving`: least cost, "
                                      "`reward`: the paper's reward; rules are tuned, and policies chosen, alike")
    violating_share: float = Field(
        default=0.02, ge=0, lt=1, json_schema_extra={"unit": "share of the steps"},
        description="Steps that may miss the objective")


class Training(Written):
    """How a policy is trained."""

    method: PolicyMethod = Field(
        default="through_environment", description="Gradients through the environment, or a method of reinforcement "
                                                   "learning; see training-by-acting.md")
    settings: dict[str, Any] = Field(
        default_factory=dict, description="Of the method, by name, where it is another one than `through_environment`; "
                                          "training-by-acting.md lists them")
    rounds: PositiveWholeNumber = Field(
        default=120, json_schema_extra={"unit": "episodes"},
        description="Of pretraining, on all applications; what a method that never acts watches of the fallback")
    finetune_rounds: WholeNumber = Field(
        default=20, json_schema_extra={"unit": "episodes"},
        description="For each workload; 0: the generic policy ships")
    applications: PositiveWholeNumber = Field(default=64, description="Side by side in a round, for each policy")
    steps: PositiveWholeNumber | None = Field(
        default=None, description="Steps of an episode, through the environment; default: the environment's")
    window: PositiveWholeNumber = Field(
        default=20, json_schema_extra={"unit": "steps"},
        description="Through which a gradient flows back, through the environment")
    aims: Annotated[ListOf[Annotated[float, Field(gt=0)]], Field(min_length=1)] = Field(
        default=(0.4, 0.6, 0.8, 1.0), json_schema_extra={"unit": "of the allowed violating share"},
        description="Policies that are trained, each for its share of violating steps; the best stays. Side by side "
                    "through the environment, else one after the other")
    finetune_aims: ListOf[Annotated[float, Field(gt=0)]] = Field(
        default=(), json_schema_extra={"unit": "of the allowed violating share"},
        description="The same, for a workload, whose later load is another one: less than is allowed; default: `aims`")
    learning_rate: PositiveNumber = Field(
        default=5e-3, description="Of Adam, through the environment; falls by a cosine to a fiftieth")
    finetune_learning_rate: PositiveNumber = Field(default=1e-3, description="The same, for a workload")
    finetune_reward_weight: float = Field(
        default=0.0, ge=0, json_schema_extra={"unit": "cost a unit of reward"},
        description="What a unit of the paper's reward is worth beside the cost, for a workload, where the objective "
                    "is `saving`; in training it counts through the environment alone")
    rule_trials: PositiveWholeNumber = Field(
        default=30, description="Settings that are tried for each rule, on the training applications")
    budget: PositiveNumber = Field(
        default=1.0, description="Times the rounds and trials above: `assay run --budget 4`")
    verify_seconds: PositiveNumber = Field(
        default=60.0, json_schema_extra={"unit": "s"}, description="Budget of the proof")

    def times_budget(self, count: int) -> int:
        """A number of steps at the task's budget; 0 stays 0."""
        return 0 if not count else max(1, round(count * self.budget))


class Judging(Written):
    """The episodes that policies and rules are compared by."""

    episodes: PositiveWholeNumber = Field(
        default=96, ge=MINIMUM_CASES,
        description="Episodes, the same for every version; a champion is compared in no fewer")
    steps: PositiveWholeNumber | None = Field(
        default=None, description="Steps of an episode; default: the environment's")
    warm_up: WholeNumber = Field(
        default=20, description="Steps at the start of an episode that do not count: what it began with is gone by "
                                "then; at most a quarter of its steps")
    seed: WholeNumber = Field(default=7, description="Of the episodes; not that of the run")


    def counted_from(self, steps: int) -> int:
        """The first step that counts of an episode of so many."""
        return min(self.warm_up, steps // 4)


class LifecycleProfile(Written):
    """What a policy has to earn before it may act (thesis, Algorithm 5.1). Rewards are means a step."""

    t_online: float | None = Field(
        default=None, description="Mean reward that ends offline training; default: the fallback's, less 5 % of its "
                                  "size")
    t_serving: float | None = Field(
        default=None, description="Mean reward from which on it serves, and below which no longer; default: the "
                                  "fallback's")
    t_var: PositiveNumber | None = Field(
        default=None, description="Standard deviation over episodes that it may have; default: twice the fallback's")
    episodes: PositiveWholeNumber = Field(default=10, ge=2, description="Recent episodes that count")
    bootstrap: bool = Field(default=True, description="Whether there is offline training at all")


class Ceiling(Written):
    """What a target may be at most: all of its range up to `start` of a signal, `at_most` from `end` on, and between
    them on the line through both; with an end below its start the other way round. No limit of change overrules it."""

    start: float = Field(description="Where the ceiling begins to fall, in the signal's unit")
    end: float = Field(description="From here on the target is `at_most` at most, in the signal's unit")
    at_most: float = Field(description="In the target's unit")


class ByConstruction(Written):
    """Rules under conditions that are part of the network, so that training needs not find them."""

    metric: str = Field(default="", description="Signal that must not exceed `objective`, where there is one")
    objective: str = Field(default="", description="Signal of the same unit; given where `metric` is")
    near: float = Field(
        default=0.95, gt=0, lt=1, json_schema_extra={"unit": "share of the objective"},
        description="From here on changes away from the safe side are held back; while the objective is missed there "
                    "are none")
    idle: dict[str, dict[str, PositiveNumber]] = Field(
        default_factory=dict,
        description="Control -> {utilisation signal: floor}: below all floors, the objective being met, never raised; "
                    "never lowered where its safe side is less")
    hold: dict[str, dict[str, PositiveNumber]] = Field(
        default_factory=dict,
        description="Control -> {signal: until}: never lowered while the signal is at most that, such as the seconds "
                    "since it was raised; never raised where its safe side is less")
    ceilings: dict[str, dict[str, Ceiling]] = Field(
        default_factory=dict,
        description="Control -> {signal: ceiling}, such as of a clock by a temperature; of several, what each takes "
                    "off the largest value adds up")
    enough: dict[str, dict[str, PositiveNumber]] = Field(
        default_factory=dict,
        description="Control -> {signal: start}: never raised while the signal is at least that; never lowered where "
                    "its safe side is less")
    retreat: dict[str, PositiveShare] = Field(
        default_factory=dict, json_schema_extra={"unit": "share of the present value"},
        description="Control -> how much it goes to its safe side at least, in a step in which the objective is missed "
                    "or `hold` holds it, and `enough` does not")
    advance: dict[str, PositiveShare] = Field(
        default_factory=dict, json_schema_extra={"unit": "share of the present value"},
        description="Control -> how much it goes away from its safe side at least, in a step in which it is below all "
                    "floors of `idle`, or `enough` holds it, the objective is met, and `hold` does not hold it")
    calm: float = Field(
        default=1.0, gt=0, le=1, json_schema_extra={"unit": "share of the objective"},
        description="From here on no control counts as idle")
    monotone: dict[str, Literal["increasing", "decreasing"]] = Field(
        default_factory=dict, description="Signal -> direction in which every target goes when it rises")

    @model_validator(mode="after")
    def _metric_has_objective(self) -> "ByConstruction":
        if bool(self.metric) != bool(self.objective):
            missing = "objective" if self.metric else "metric"
            raise FieldError([missing], f"expected a signal, as {'metric' if self.metric else 'objective'} is given, "
                                        "got none")
        return self

    @model_validator(mode="after")
    def _what_is_demanded_has_a_reason(self) -> "ByConstruction":
        for name in self.retreat:
            if not (self.metric or name in self.hold):
                raise FieldError(["retreat", name], "expected metric and objective, or `hold` of this control, which "
                                                    "say when, got neither")
        for name in self.advance:
            if name not in self.idle and name not in self.enough:
                raise FieldError(["advance", name], "expected `idle` or `enough` of this control, which say when, got "
                                                    "neither")
            if self.metric and name in self.idle and self.calm >= self.near:
                raise FieldError(["calm"], f"expected less than near, {self.near:g}, from where on `{name}` is held "
                                           f"back, got {self.calm:g}")
        return self


class ControlWorkload(Written):
    """One workload."""

    settings: dict[str, float | str] = Field(
        default_factory=dict, description="What is known of it, such as its objective; the environment says which")
    limits: dict[str, Limits] = Field(
        default_factory=dict, description="`[lower, upper]` of its controls, inside of the environment's own")
    specification: dict[str, Any] = Field(
        default_factory=dict, description="What is to be proved in place of the task's")
    fallback: str | None = Field(default=None, description="Rule in place of the task's")
    note: str = Field(default="", description="What a reader of its report should know of it")
    experience: str | None = Field(
        default=None, description="Folder of a controller's state, whose log of steps (`steps/`) fine-tuning learns "
                                  "from, where the method learns from what others did; default: the fallback in the "
                                  "workload's twin")

    @model_validator(mode="after")
    def _limits_are_ordered(self) -> "ControlWorkload":
        for name, (low, high) in self.limits.items():
            if low > high:
                raise FieldError(["limits", name], f"expected lower <= upper, got [{low:g}, {high:g}]")
        return self


class ControlTask(TaskFile[ControlWorkload]):
    """A task that controls a system."""

    kind: Literal["control"] = Field(description="Kind of task")
    environment: str = Field(description="A folder of systems, or the import path of a module")
    objective: Objective = Field(default=Objective(), description="What training is for")
    training: Training = Field(default=Training(), description="How policies are trained")
    judging: Judging = Field(default=Judging(), description="The episodes that they are compared by")
    hidden: LayerWidths = Field(
        default=(64, 64), json_schema_extra={"unit": "neurons"}, description="Widths of the hidden layers")
    specification: dict[str, Any] = Field(description="What is to be proved, see specification.md; of all workloads")
    by_construction: ByConstruction | None = Field(
        default=None, description="What the network keeps by its form; without it the proof alone decides")
    by_policy: bool = Field(
        default=True, description="The specification is wished for, whatever recordings and rules say of it")
    profile: LifecycleProfile = Field(
        default=LifecycleProfile(), description="What a policy has to earn before it may act")
    fallback: str = Field(description="Name of the rule that acts until the policy may, and when it fails")
    minimum_rows: PositiveWholeNumber = Field(
        default=MINIMUM_ROWS, json_schema_extra={"unit": "rows"}, description="A workload with fewer rows is refused")

    def demanded(self, workload: str) -> dict[str, Any]:
        """The specification of a workload, as it is written."""
        return self.workload(workload).specification or self.specification

    def fallback_of(self, workload: str) -> str:
        """The name of its rule."""
        return self.workload(workload).fallback or self.fallback

    @model_validator(mode="after")
    def _is_demanded(self) -> "ControlTask":
        if not self.specification:
            raise FieldError(["specification"], "expected properties, got none")
        return self
