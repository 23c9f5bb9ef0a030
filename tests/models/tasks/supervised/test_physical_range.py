"""Predictors of the tasks that ship answer nothing that their target cannot be, whatever was learned."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feature_store.scaling import FeatureScaling, MinMaxScaling
from models.export.bundle import write_bundle
from models.export.onnx_model import INPUT
from models.export.product import Product, Versions
from models.tasks.supervised.product import network_product
from models.tasks.supervised.specifications import raw_specification, scaled_specification
from models.tasks.supervised.task import SupervisedTask
from models.tasks.task import load_task, parse_task
from models.verification.language.properties import OutputRange
from models.verification.network.fully_connected import ReluNetwork
from models.verification.network.runtime_session import open_session
from models.verification.verdict import Status
from tests.models.verification.networks import monotone_network

ROOT = Path(__file__).parents[4]
SHIPPED = [(name, workload) for name in ("performance", "examples/linnos/task.yaml", "examples/iocost/task.yaml")
           for workload in load_task(str(ROOT / name) if "/" in name else name).workloads]


def shipped(name: str) -> SupervisedTask:
    task = load_task(str(ROOT / name) if "/" in name else name)
    assert isinstance(task, SupervisedTask)
    return task


def product_that_falls_far(task: SupervisedTask, workload: str) -> Product:
    """Of a network as ordered as the task asks whose answers fall far below anything that was measured."""
    names = tuple(quantity.name for quantity in task.features(workload))
    scaling = FeatureScaling(MinMaxScaling(names, (0.0,) * len(names), (1.0,) * len(names)),
                             MinMaxScaling((task.target.name,), (0.3,), (150.0,)))
    specification = raw_specification(task, workload, scaling)
    queries = scaled_specification(specification, scaling).queries
    network = monotone_network(len(names), (16, 16), queries, seed=1)
    lowered = (*network.biases[:-1], network.biases[-1] - np.float32(2.0))
    return network_product(task, workload, ReluNetwork(network.weights, lowered), scaling, specification,
                           Versions("test", "test", 0))


@pytest.mark.parametrize(("name", "workload"), SHIPPED)
def test_no_input_of_the_box_is_answered_with_less_than_the_target_can_be(
    name: str, workload: str, tmp_path: Path,
) -> None:
    task = shipped(name)
    product, least = product_that_falls_far(task, workload), task.target.minimum
    assert least is not None and OutputRange(0, least, task.target.maximum) in product.specification.properties
    low, high = product.specification.lower, product.specification.upper
    generator = np.random.default_rng(2)
    shares = np.concatenate([generator.random((2000, len(low))), generator.integers(0, 2, (2000, len(low)))])
    answers = open_session(product.model).run(None, {INPUT: (low + shares * (high - low)).astype(np.float32)})[0]
    assert answers.min() >= least and answers.min() > 0
    assert write_bundle(tmp_path / "bundle", product).status is Status.PROVED


def task_of(target: dict[str, Any], **changed: Any) -> SupervisedTask:
    rules = {"properties": [{"monotone": {"features": ["load"]}}]}
    task = parse_task({"name": "t", "target": {"name": "y", "unit": "share", **target},
                       "inputs": [{"name": "load", "unit": "1/s"}],
                       "workloads": {"w": {"specification": rules, **changed}}}, "test")
    assert isinstance(task, SupervisedTask)
    return task


def test_a_share_is_held_on_both_sides(tmp_path: Path) -> None:
    product = product_that_falls_far(task_of({"minimum": 0.0, "maximum": 1.0}), "w")
    answers = open_session(product.model).run(None, {INPUT: np.linspace(-5, 9, 200, dtype=np.float32)[:, None]})[0]
    assert 0 < answers.min() < answers.max() < 1
    assert write_bundle(tmp_path / "bundle", product).status is Status.PROVED


@pytest.mark.parametrize(("target", "changed"), [({"minimum": 0.0}, {"physical_range": False}), ({}, {})])
def test_an_operator_may_drop_it_and_a_target_without_ends_has_none(
    target: dict[str, Any], changed: dict[str, Any],
) -> None:
    product = product_that_falls_far(task_of(target, **changed), "w")
    assert not [rule for rule in product.specification.properties if isinstance(rule, OutputRange)]
    (answer,) = open_session(product.model).run(None, {INPUT: np.zeros((1, 1), np.float32)})[0][0]
    assert answer < 0
