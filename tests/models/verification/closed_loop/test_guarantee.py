"""Guarantees about the closed loop: held against trajectories of the exact law, and against mutants of their proofs."""

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feature_store.errors import InputError
from models.verification.checker.chain import Chain
from models.verification.closed_loop.check_guarantee import check_guarantee
from models.verification.closed_loop.fluid_law import FluidLaw, Observation
from models.verification.closed_loop.guarantee import Guarantee, closed_loop_guarantee, guarantee_table
from models.verification.closed_loop.one_step import OneStep, Ramp
from models.verification.closed_loop.simulation import in_runtime, simulate
from models.verification.proof_document import proof_bytes, read_document, read_trees, trees_digest
from models.verification.verdict import BoxTree, Status
from tests.models.verification.closed_loop.policies import SEEN, affine, fitted, law, lazy, random_policy, rate_limited
from tests.models.verification.onnx_files import dense_file

START = 2.0
# float64 against the real arithmetic of the proof
SLACK = 1e-9


def guarantee(policy: Chain, folder: Path, change: float = 0.05, **options: Any) -> Guarantee:
    return closed_loop_guarantee(policy, SEEN, law(change), START, folder, seconds=400.0, **options)


@pytest.fixture(scope="module")
def proved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Guarantee, Path]:
    folder = tmp_path_factory.mktemp("affine")
    return guarantee(affine(), folder), folder


def assert_kept(found: Guarantee, policy: Chain, observation: Observation = SEEN, ramp: Ramp | None = None) -> None:
    """No sampled trajectory of the law with the policy as it is executed breaks what is proved."""
    assert found.backlog is not None and found.steps is not None
    assert found.excess is not None and found.excess_steps is not None
    loop = OneStep(policy, observation, found.law, ramp)
    for seed in range(3):
        seen = simulate(loop, found.start, found.excess_steps + 300, 2000, seed=100 + seed)
        assert seen.largest(found.steps)[0] <= found.backlog + SLACK
        assert seen.largest(found.excess_steps)[1] <= found.excess + SLACK


@pytest.mark.parametrize(("policy", "change"), [(affine(), 0.02), (affine(), 0.1), (fitted(16), 0.05),
                                                (fitted(32, seed=1), 0.02)], ids=["affine", "fast", "16", "32"])
def test_what_is_proved_is_kept_by_every_trajectory_and_certified(policy: Chain, change: float, tmp_path: Path) -> None:
    found = guarantee(policy, tmp_path, change)
    assert found.status is Status.PROVED
    assert_kept(found, policy)
    checked = check_guarantee(tmp_path, policy, SEEN, found.law)
    assert checked.accepted and checked.leaves == sum(ranking.leaves for ranking in found.rankings)
    assert found.attained is not None and found.excess is not None
    assert found.attained[1] <= found.excess <= found.attained[1] + 0.5


@pytest.mark.slow
def test_a_policy_that_may_only_go_so_fast_is_proved_with_a_ramp(tmp_path: Path) -> None:
    policy = rate_limited()
    plain = closed_loop_guarantee(policy, SEEN, law(0.05), START, tmp_path / "plain", seconds=5.0)
    assert plain.status is not Status.PROVED  # V alone rises while capacity catches up
    found = guarantee(policy, tmp_path / "ramp", ramp_factor=1.5, ramp_headroom=0.08)
    assert found.status is Status.PROVED and check_guarantee(tmp_path / "ramp", policy, SEEN, found.law).accepted
    assert_kept(found, policy, ramp=Ramp.of(found.law, 1.5, 0.08))


def test_a_policy_that_commands_too_little_at_a_large_backlog_is_refuted_and_explained(tmp_path: Path) -> None:
    found = guarantee(lazy(), tmp_path)
    assert found.status is Status.REFUTED
    assert found.trajectory[0][0] <= START < found.trajectory[-1][0]
    assert "it commands 0.8 of 1.2, although the load may be 0.9 in the next step" in found.statement()
    assert not check_guarantee(tmp_path, lazy(), SEEN, found.law).accepted


def test_a_refuting_trajectory_is_run_by_onnxruntime(tmp_path: Path) -> None:
    policy = lazy()
    model = dense_file(tmp_path / "policy.onnx", policy.weights, policy.biases)
    found = guarantee(policy, tmp_path / "found", execute=in_runtime(model))
    assert found.status is Status.REFUTED and found.trajectory[-1][0] > START
    # a runtime in which the policy commands all there is refutes nothing
    full = guarantee(policy, tmp_path / "full", execute=lambda seen: np.full(len(seen), 1.2))
    assert full.status is Status.UNKNOWN and not full.trajectory


@pytest.mark.parametrize("seed", range(4))
def test_a_random_policy_is_refuted_or_what_is_proved_of_it_is_kept(seed: int, tmp_path: Path) -> None:
    policy = random_policy(seed, 16)
    found = closed_loop_guarantee(policy, SEEN, law(), START, tmp_path, seconds=6.0)
    if found.status is Status.PROVED:
        assert_kept(found, policy)
    elif found.status is Status.REFUTED:
        assert found.trajectory[-1][0] > START
    assert found.status is not Status.PROVED or check_guarantee(tmp_path, policy, SEEN, found.law).accepted


def test_no_policy_keeps_up_with_more_load_than_there_is_capacity(tmp_path: Path) -> None:
    weak = FluidLaw(1.0, 0.2, 0.9, 0.05, 0.85, 0.05)
    found = closed_loop_guarantee(affine(), SEEN, weak, START, tmp_path, seconds=5.0)
    assert found.status is Status.REFUTED and found.backlog is None


def test_inputs_that_are_no_state_are_free_and_noise_costs_a_little(tmp_path: Path) -> None:
    policy = affine()
    wide = Chain((np.hstack([policy.weights[0], [[0.25]]]),), policy.biases, (), policy.fed, policy.executed)
    seen = Observation.of([*np.eye(3), [0, 0, 0]], [-0.01, -0.02, 0.0, 0.0], [0.01, 0.02, 0.0, 0.2])
    found = closed_loop_guarantee(wide, seen, law(), START, tmp_path, seconds=400.0)
    exact = guarantee(policy, tmp_path / "exact")
    assert found.status is Status.PROVED and check_guarantee(tmp_path, wide, seen, law()).accepted
    assert_kept(found, wide, seen)
    assert found.excess is not None and exact.excess is not None
    assert exact.excess + 0.05 < found.excess < exact.excess + 0.12  # 0.25 times 0.2, and noise


def edited(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        document = json.loads((folder / "guarantee.json").read_text())
        change(document)
        (folder / "guarantee.json").write_text(json.dumps(document))

    return apply


def put(*path: Any, by: Callable[[Any], Any]) -> Callable[[Path], None]:
    def change(document: dict[str, Any]) -> None:
        here: Any = document
        for key in path[:-1]:
            here = here[key]
        here[path[-1]] = by(here[path[-1]])

    return edited(change)


def cut(path: Path) -> None:
    path.write_text(path.read_text()[:-20])


def swapped(folder: Path) -> None:
    for ending in ("npz", "onnx", "vnnlib"):
        shutil.copy(folder / f"capacity.{ending}", folder / f"backlog.{ending}")


def one_leaf(folder: Path) -> None:
    """The proof of a single box, with every digest and count made to fit."""
    path = folder / "backlog.npz"
    document = read_document(path.read_bytes())
    assert read_trees(path.read_bytes(), 1)[0].leaves > 1
    trees = [BoxTree(np.array([-1], dtype=np.int16), np.zeros(1))]
    document |= {"trees_sha256": trees_digest(trees), "parts": [{"name": "outputs", "leaves": 1}]}
    path.write_bytes(proof_bytes(document, trees))


MUTANTS: dict[str, Callable[[Path], None]] = {
    "backlog": put("backlog", by=lambda v: v * 0.99), "steps": put("steps", by=lambda v: v - 1),
    "excess": put("excess", by=lambda v: v - 1e-6), "excess steps": put("excess_steps", by=lambda v: v - 1),
    "start": put("start", by=lambda v: v + 0.1),
    "base": put("rankings", 0, "base", by=lambda v: v - 1e-3), "step": put("rankings", 0, "step", by=lambda v: v * 1.1),
    "step of nothing": put("rankings", 0, "step", by=lambda v: 0.0),
    "highest": put("rankings", 0, "highest", by=lambda v: v - 0.1),
    "states": put("rankings", 0, "backlog", by=lambda v: v / 2),
    "base of capacity": put("rankings", 1, "base", by=lambda v: v - 1e-3),
    "states of capacity": put("rankings", 1, "backlog", by=lambda v: v / 2),
    "within": put("rankings", 0, "within", by=lambda v: 0.5),
    "order of rankings": put("rankings", by=lambda v: v[::-1]),
    "one ranking": put("rankings", by=lambda v: v[:1]),
    "load": put("law", "load_high", by=lambda v: v + 0.01), "change": put("law", "change", by=lambda v: v * 2),
    "capacity": put("law", "capacity_low", by=lambda v: v / 2), "time": put("law", "step_s", by=lambda v: v * 1.1),
    "observation": put("observation", "matrix", 0, 0, by=lambda v: v * 2),
    "noise": put("observation", "high", 1, by=lambda v: v + 0.05),
    "ramp": put("ramp", by=lambda v: {"factor": 1.5, "steps": 3, "headroom": 0.0}),
    "policy": put("policy_sha256", by=lambda v: v[::-1]), "status": put("status", by=lambda v: "UNKNOWN"),
    "sentence": put("statement", by=lambda v: v.replace("at most", "at most half of")),
    "more than is derived": edited(lambda document: document.update(attained=[0, 0])),
    "more of a ranking": edited(lambda document: document["rankings"][0].update(reason="It never rises.")),
    "nan": put("rankings", 0, "base", by=lambda v: float("nan")),
    "missing": edited(lambda document: document.pop("law")), "no JSON": lambda folder: cut(folder / "guarantee.json"),
    "another's proof": swapped,
    "no proof": lambda folder: (folder / "capacity.npz").unlink(),
    "one leaf": one_leaf,
}


@pytest.mark.parametrize("name", MUTANTS)
def test_no_mutant_of_a_guarantee_is_accepted(name: str, proved: tuple[Guarantee, Path], tmp_path: Path) -> None:
    folder = proved[1]
    mutant = tmp_path / "mutant"
    shutil.copytree(folder, mutant)
    assert check_guarantee(mutant, affine(), SEEN, proved[0].law).accepted
    MUTANTS[name](mutant)
    checked = check_guarantee(mutant, affine(), SEEN, proved[0].law)
    assert not checked.accepted and checked.reason


def test_a_guarantee_is_of_its_own_policy(proved: tuple[Guarantee, Path]) -> None:
    assert not check_guarantee(proved[1], affine(headroom=0.09), SEEN, proved[0].law).accepted


def test_only_what_is_proved_stands_in_the_table(proved: tuple[Guarantee, Path], tmp_path: Path) -> None:
    found, _ = proved
    table = guarantee_table([found, guarantee(lazy(), tmp_path)])
    first, second = table.splitlines()[2:]
    assert "PROVED" in first and f"| {found.steps} |" in first
    assert second.split("|")[2:7] == [" REFUTED ", " - ", " - ", " - ", " - "]
    assert "In the fluid law, from any backlog up to 2 cores x s" in found.statement()


@pytest.mark.parametrize(("build", "message"), [
    (lambda: law(-0.1), "change of a law must be a number >= 0, got -0.1"),
    (lambda: FluidLaw(1.0, 0.9, 0.2, 0.0, 1.0, 0.1), "load must be from load_low to load_high, got 0.9 and 0.2"),
    (lambda: Observation.of([[1, 0]]), "observation must have a row of 3"),
    (lambda: Observation.of(np.eye(3), [0, 0, 1], [0, 0, 0]), "interval of an observation must have low <= high"),
    (lambda: OneStep(affine(), Observation.of(np.eye(3)[:2]), law()), "policy must take the 2 inputs"),
    (lambda: Ramp.of(law(), 1.0001, 0.0), "ramp must reach the highest load"),
])
def test_what_does_not_fit_is_said(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build()


def test_law_and_observation_are_of_whoever_checks(proved: tuple[Guarantee, Path], tmp_path: Path) -> None:
    found, folder = proved
    other = Observation.of(SEEN.matrix, SEEN.low, SEEN.high + 0.01)
    checked = check_guarantee(folder, affine(), other, found.law)
    assert "observation must be the one that is asked about" in checked.reason
    law_now = replace(found.law, load_high=found.law.load_high + 0.01)
    assert "law must be the one that is asked about" in check_guarantee(folder, affine(), SEEN, law_now).reason
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    put("law", by=lambda v: asdict(law_now))(tmp_path)  # where both name it, it must be what was proved
    put("statement", by=lambda v: replace(found, law=law_now).statement())(tmp_path)
    assert not check_guarantee(tmp_path, affine(), SEEN, law_now).accepted
