"""A small autoscaling environment and small policies, for tests of adaptation."""

import torch

from models.control.adaptation.inputs import Inputs
from models.control.policy.policy import Policy, PolicyShape
from systems.autoscaling.simulator.applications import generate
from systems.autoscaling.simulator.arrivals import made_traces
from systems.autoscaling.simulator.simulator import Autoscaling

TRAINING = tuple(range(12))


def small() -> Autoscaling:
    """Twelve applications to train, four held out."""
    return Autoscaling(generate(16), made_traces(10, seed=0), held_out=4)


def policies(environment: Autoscaling, count: int, inputs: Inputs, hidden: tuple[int, ...] = (8,)) -> Policy:
    """(count,) untrained ones."""
    shape = PolicyShape(environment.signals, environment.controls, environment.features, hidden)
    return Policy(shape.with_inputs(inputs.names, inputs.reach), torch.Generator().manual_seed(0), (count,))
