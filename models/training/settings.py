"""How a base learner is trained: the `training` of a task file."""

from pydantic import Field

from feature_store.written.fields import PositiveNumber, PositiveWholeNumber, WholeNumber
from feature_store.written.model import Written
from models.training.methods import Method


class TrainingSettings(Written):
    """How a base learner is trained: Adam and mean squared error, vPALs, section "DNN Training"."""

    method: Method = Field(default="monotone", description="How the specification is trained for")
    learning_rate: PositiveNumber = Field(default=2e-3, description="Of Adam")
    batch_size: PositiveWholeNumber = Field(
        default=64, json_schema_extra={"unit": "rows"}, description="Rows of a step")
    epochs: PositiveWholeNumber = Field(default=150, description="Planned epochs of fine-tuning")
    pretrain_epochs: WholeNumber = Field(
        default=30, description="Epochs of the backbone that all workloads start from")
    trunk_width: PositiveWholeNumber = Field(
        default=300, json_schema_extra={"unit": "neurons"}, description="Width of that backbone's layers; "
        "a workload starts from it that has two or more hidden layers, none narrower")
    iterations: WholeNumber = Field(
        default=20, description="Limit of the train-verify loop after the planned epochs (Algorithm 1, epsilon)")
    epochs_per_iteration: PositiveWholeNumber = Field(default=10, description="Epochs between two proofs of the loop")
    counterexamples_per_iteration: PositiveWholeNumber = Field(
        default=256, description="Most counterexamples that a proof of the loop adds to the training")
    hinge_margin: float = Field(
        default=2e-3, ge=0, json_schema_extra={"unit": "scaled target"},
        description="By how much a counterexample pair shall be ordered")
    certified_weight: PositiveNumber = Field(
        default=10.0, description="Of the certified loss beside the mean squared error, at full ramp")
    certified_margin: float = Field(
        default=5e-3, ge=0, json_schema_extra={"unit": "scaled target / scaled feature"},
        description="Slope that the certified loss asks for")
    certified_boxes: PositiveWholeNumber = Field(default=4, description="Boxes bounded in a step of the certified loss")
    loop_verify_seconds: PositiveNumber = Field(
        default=15.0, json_schema_extra={"unit": "s"}, description="Budget of a proof of the loop")
    verify_seconds: PositiveNumber = Field(
        default=60.0, json_schema_extra={"unit": "s"}, description="Budget of the final proof")
