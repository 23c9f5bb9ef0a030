"""Guarantees of policies that set replicas and limits: held against runs, and against mutants of their proofs."""

import json
import re
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feature_store.errors import InputError
from models.verification.checker.chain import Chain
from models.verification.closed_loop.answer import GuaranteeCheck
from models.verification.closed_loop.chain_builder import chain_values
from models.verification.decide import decide
from models.verification.verdict import Status
from systems.autoscaling.guarantee.backlog_bound import backlog_bound
from systems.autoscaling.guarantee.catching_up import CatchingUp
from systems.autoscaling.guarantee.check_scaler_guarantee import (
    DOCUMENT,
    check_scaler_guarantee,
    files_of,
    write_claim,
)
from systems.autoscaling.guarantee.scaler_guarantee import ScalerGuarantee, scaler_guarantee
from tests.systems.autoscaling.guarantee.scalers import growing, hpa, law, scaler

START = 30.0


def guarantee(policy: Chain, folder: Path, **options: Any) -> ScalerGuarantee:
    return scaler_guarantee(scaler(policy), law(**options), START, folder, threshold=4.0, headroom=0.25, seconds=60.0)


def check(folder: Path, policy: Chain, **options: Any) -> GuaranteeCheck:
    return check_scaler_guarantee(folder, scaler(policy), law(**{"limits": (1.0, 1.0), **options}))


@pytest.fixture(scope="module")
def proved(tmp_path_factory: pytest.TempPathFactory) -> tuple[ScalerGuarantee, Path]:
    folder = tmp_path_factory.mktemp("hpa")
    return guarantee(hpa(), folder, limits=(1.0, 1.0)), folder


def test_a_rule_that_follows_utilisation_is_proved_and_certified(proved: tuple[ScalerGuarantee, Path]) -> None:
    found, folder = proved
    assert found.status is Status.PROVED and found.bound is not None
    assert 1.1 < found.growth < found.sampled_growth <= 1 / 0.7
    checked = check(folder, hpa())
    assert checked.accepted and checked.leaves == found.leaves >= len(found.claims)
    assert f"after {found.bound.steps} steps and for ever after" in found.statement()


def test_what_is_proved_is_kept_by_every_run(proved: tuple[ScalerGuarantee, Path]) -> None:
    found, _ = proved
    assert found.bound is not None
    its, policy, random, count = found.law, hpa(), np.random.default_rng(0), 500
    k, limit = np.full(count, 2.0), np.ones(count)
    b, a = np.full(count, START), random.uniform(its.load_low, its.load_high, count)
    for step in range(found.bound.steps + 200):
        c = k * limit
        value = b + (a - c) * its.step_s
        used = np.minimum(c, a + b / its.step_s)
        targets = chain_values(policy, np.stack([a, limit, k, used, 1e3 * np.maximum(b, value) / c], axis=1))
        drops = (value <= 0) & (random.random(count) < 0.2)  # what it may do where nothing is proved
        k = np.where(drops, np.ceil(k / 2), np.ceil(targets[:, 1] - 1e-3)).clip(2, 8)
        b = np.maximum(value, 0.0)
        a = np.clip(a + its.change * random.choice([-1, 1], count), its.load_low, its.load_high)
        if step + 1 >= found.bound.steps:
            assert b.max() <= found.bound.backlog


def test_limits_count_as_replicas_do(tmp_path: Path) -> None:
    by_limit = guarantee(growing(1.0, 1.3), tmp_path / "limit")
    by_both = guarantee(growing(1.2, 1.2), tmp_path / "both")
    assert by_limit.status is by_both.status is Status.PROVED
    assert by_both.growth > by_limit.growth > 1.15


def test_a_policy_that_does_nothing_is_not_proved_and_says_where(tmp_path: Path) -> None:
    found = guarantee(growing(1.0), tmp_path)
    assert found.status is Status.UNKNOWN and found.bound is None
    assert "grows by a factor of 1 a step" in found.reason and "nothing is guaranteed" in found.statement()
    assert not check(tmp_path, growing(1.0)).accepted


def test_a_claim_with_more_growth_than_there_is_is_refuted(tmp_path: Path) -> None:
    write_claim(CatchingUp(scaler(growing(1.3)), law(), 3, 4.0, 0.25, 1.35), tmp_path)
    model, claim, _ = files_of(tmp_path, 3)
    assert decide(model, claim, 20.0).status is Status.REFUTED


@pytest.mark.parametrize(("change", "reason"), [
    ({"growth": 1.39}, "SHA-256 differs"), ({"bound": {"backlog": 4.1, "steps": 500}}, "S and N"),
    ({"bound": {"backlog": 900.0, "steps": 2}}, "S and N"), ({"start": 1e6}, "S and N"),
    ({"threshold": 3.5}, "S and N|SHA-256 differs"), ({"status": "UNKNOWN"}, "PROVED"), ({"headroom": -1.0}, "> 0"),
    ({"statement": "The backlog is 0 for ever."}, "statement must be what was proved"), ({"attained": 0}, "must hold"),
    ({"bound": {"backlog": 900.0, "steps": 500}}, "statement must be"), ({"growth": float("nan")}, "> 0"),
    ({"policy_sha256": "0"}, "SHA-256")])
def test_a_document_that_says_more_than_is_proved_is_refused(proved: tuple[ScalerGuarantee, Path], tmp_path: Path,
                                                             change: dict[str, Any], reason: str) -> None:
    shutil.copytree(proved[1], tmp_path, dirs_exist_ok=True)
    document = json.loads((tmp_path / DOCUMENT).read_text()) | change
    (tmp_path / DOCUMENT).write_text(json.dumps(document))
    checked = check(tmp_path, hpa())
    assert not checked.accepted
    assert re.search(reason, checked.reason), checked.reason


def test_proofs_that_are_missing_and_other_policies_are_refused(proved: tuple[ScalerGuarantee, Path],
                                                               tmp_path: Path) -> None:
    shutil.copytree(proved[1], tmp_path, dirs_exist_ok=True)
    assert "SHA-256" in check(tmp_path, hpa(0.6)).reason
    (tmp_path / "replicas_3.npz").unlink()
    assert not check(tmp_path, hpa()).accepted
    assert not check(tmp_path / "nothing", hpa()).accepted


def test_targets_beyond_the_laws_limits_count_as_these(tmp_path: Path) -> None:
    """A policy that adds replicas alone has no more capacity at the most of them, whatever it asks for."""
    narrow = law(limits=(0.5, 1.0), replicas=(2, 6))
    found = scaler_guarantee(scaler(growing(1.5)), narrow, 60.0, tmp_path, threshold=10.0, headroom=0.5)
    assert found.status is not Status.PROVED and found.sampled_growth <= 1.0 and found.worst_replicas == 6
    x = np.array([3.0, 0.5, 1000.0])
    claim = CatchingUp(scaler(growing(1.5, 4.0)), narrow, 6, 10.0, 0.5, 1.0)
    (y,) = chain_values(claim.chain(), np.concatenate([x, np.zeros(claim.chain().weights[0].shape[1] - 3)])[None])
    assert y == pytest.approx([0.0, 6 * 1.0 - 6 * 0.5]), "6 replicas, and a limit of 1, not of 2"


def test_an_order_that_may_be_violated_leaves_that_much_less(tmp_path: Path) -> None:
    exact = CatchingUp(scaler(growing(1.5)), law(), 4, 10.0, 0.5, 1.1)
    loose = CatchingUp(replace(scaler(growing(1.5)), falls=(0.002, 0.25)), law(), 4, 10.0, 0.5, 1.1)
    for cell in exact.cells():
        assert loose.slack(cell) - exact.slack(cell) == pytest.approx(cell[0] * 0.25 + 4 * 0.002)
    with pytest.raises(InputError, match="targets must rise with the latency but for a known amount"):
        replace(scaler(growing(1.5)), falls=(np.inf, 0.0))


def test_bad_numbers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="start must be a number > 0"):
        scaler_guarantee(scaler(hpa()), law(), 0.0, tmp_path, threshold=4.0, headroom=0.25)
    with pytest.raises(InputError, match="low <= high"):
        law(limits=(2.0, 0.5))


@pytest.mark.parametrize("said", [{"kept_share": 1.0}, {"objective_ms": 1.0}, {"change": 0.0}, {"load_high": 9.0}])
def test_the_law_of_whoever_checks_counts_and_not_that_of_the_folder(proved: tuple[ScalerGuarantee, Path],
                                                                     tmp_path: Path, said: dict[str, float]) -> None:
    """With more of its capacity kept S is smaller, and nothing that was proved depends on that share."""
    shutil.copytree(proved[1], tmp_path, dirs_exist_ok=True)
    document = json.loads((tmp_path / DOCUMENT).read_text())
    its = replace(proved[0].law, **said)
    bound = backlog_bound(its, document["threshold"], document["headroom"], document["growth"], document["start"])
    found = replace(proved[0], law=its, bound=bound or proved[0].bound)
    document |= {"law": asdict(its), "bound": asdict(found)["bound"], "statement": found.statement()}
    (tmp_path / DOCUMENT).write_text(json.dumps(document))
    assert "law must be the one that is asked about" in check(tmp_path, hpa()).reason


def test_what_the_policy_sees_is_of_whoever_checks(proved: tuple[ScalerGuarantee, Path]) -> None:
    other = replace(scaler(hpa()), high=scaler(hpa()).high + 0.5)
    checked = check_scaler_guarantee(proved[1], other, law(limits=(1.0, 1.0)))
    assert "observation must be the one that is asked about" in checked.reason
