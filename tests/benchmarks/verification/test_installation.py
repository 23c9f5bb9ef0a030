"""Peers: the encoding holds for real pairs, verdicts agree with our own verifier, limits end a peer for good.

HiGHS is tested in full. The others need packages and checkouts of their own; set PEERS_PYTHON (an interpreter that has
the packages), AUTO_LIRPA_SOURCE and ALPHA_BETA_CROWN_SOURCE to run them too.
"""

import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.verification.campaign_process import Limits, ask
from benchmarks.verification.peers import highs
from benchmarks.verification.peers.big_m import mixed_integer_program
from benchmarks.verification.peers.installation import PEERS, Installation, missing
from benchmarks.verification.peers.preactivation import preactivation_bounds
from benchmarks.verification.peers.question import Question, pairs_around, refuted, signed_slopes, violations
from feature_store.errors import InputError
from models.verification.language.specification import FloatArray
from models.verification.verdict import Status
from models.verification.verify import verify
from tests.models.verification.networks import (
    monotone_network,
    preactivations,
    random_network,
    sampled_slopes,
    specification,
)

INSTALLATION = Installation(
    Path(os.environ.get("PEERS_PYTHON", sys.executable)),
    tuple((name, Path(os.environ[f"{name.upper()}_SOURCE"])) for name in ("auto_lirpa", "alpha_beta_crown")
          if f"{name.upper()}_SOURCE" in os.environ))
TOLERANCE = 1e-4
# Float64 rounding of sums of tens of terms near 1.
ROUNDING = 1e-9


def box(inputs: int) -> tuple[FloatArray, FloatArray]:
    return np.zeros(inputs), np.ones(inputs)


def rising(hidden: list[int], sign: int = 1) -> Question:
    return Question(monotone_network(3, hidden, [(1, sign)]), 1, sign, *box(3), TOLERANCE)


def mixed(hidden: list[int], seed: int = 0, sign: int = 1) -> Question:
    return Question(random_network(np.random.default_rng(seed), 3, hidden), 1, sign, *box(3), TOLERANCE)


@st.composite
def questions_and_pairs(draw: st.DrawFn) -> tuple[Question, FloatArray, FloatArray]:
    """A question on a random box and pairs (low, high), (50, n), of that box that differ in the feature alone."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    hidden = draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    network = random_network(rng, 3, hidden, scale=draw(st.sampled_from([0.5, 2.0])), zeros=0.2, dead=0.1)
    lower = rng.normal(size=3)
    upper = lower + rng.random(3) * draw(st.sampled_from([0.0, 0.1, 3.0]))
    question = Question(network, int(rng.integers(3)), int(rng.choice([-1, 1])), lower, upper, TOLERANCE)
    low, high = (lower + rng.random((50, 3)) * (upper - lower) for _ in range(2))
    feature = question.feature
    low[:, feature], end = np.minimum(low[:, feature], high[:, feature]), np.maximum(low[:, feature], high[:, feature])
    high = low.copy()
    high[:, feature] = end
    return question, low, high


@given(questions_and_pairs())
@settings(max_examples=40, deadline=None)
def test_preactivation_bounds_hold_at_every_sampled_point(case: tuple[Question, FloatArray, FloatArray]) -> None:
    question, low, high = case
    bounds = preactivation_bounds(question.network, question.lower, question.upper)
    for x in (low, high):
        found = [*preactivations(question.network, x), question.network.value(x)[:, None]]
        for z, (below, above) in zip(found, bounds, strict=True):
            assert (z >= below - ROUNDING).all() and (z <= above + ROUNDING).all()


@given(questions_and_pairs())
@settings(max_examples=40, deadline=None)
def test_every_row_of_the_program_holds_for_real_pairs(case: tuple[Question, FloatArray, FloatArray]) -> None:
    question, low, high = case
    program = mixed_integer_program(question)
    hidden = [part for x in (low, high) for z in preactivations(question.network, x) for part in (z, np.maximum(z, 0))]
    values = np.hstack([low, high[:, [question.feature]], *hidden, violations(question, low, high)[:, None]])
    copies = program.copies
    unstable = [z for z, _ in copies.relus if copies.lower[z] < 0 < copies.upper[z]]
    values = np.hstack([values, values[:, unstable] > 0])
    for row in program.rows:
        sums = values[:, row.indices] @ row.coefficients - row.constant
        assert (sums >= -ROUNDING).all()
        assert row.at_least or (sums <= ROUNDING).all()
    bounded = np.arange(values.shape[1]) != copies.violation
    assert (values >= program.lower - ROUNDING)[:, bounded].all() and (values <= program.upper + ROUNDING).all()


def test_slopes_are_those_of_the_network() -> None:
    question = mixed([8, 8], sign=-1)
    x = np.random.default_rng(1).random((200, 3))
    expected = sampled_slopes(question.network, x, [(1, -1)])[:, 0]
    np.testing.assert_allclose(signed_slopes(question, x), expected, atol=ROUNDING)


def test_a_pair_that_violates_nothing_is_no_counterexample() -> None:
    question = rising([8])
    point = np.full((1, 3), 0.5)
    result = refuted(question, *pairs_around(question, point), "claimed", 1.0, 2.0)
    assert result.status is Status.UNKNOWN and "does not replay" in result.reason and result.witness is None
    assert refuted(question, point, point, "claimed", 1.0, 2.0).status is Status.UNKNOWN


def needs(name: str) -> None:
    line = missing(name, INSTALLATION)
    if line is not None:
        pytest.skip(line)


@pytest.mark.parametrize("seed", range(6))
def test_highs_agrees_with_our_verifier(seed: int) -> None:
    needs("highs")
    question = mixed([6, 6] if seed % 2 else [8], seed, sign=1 if seed % 3 else -1)
    ours = verify(question.network, specification(3, [(1, question.sign)], tolerance=TOLERANCE))
    result = highs.solve(question, 60.0, 1)
    assert result.status is ours.status and result.status in (Status.PROVED, Status.REFUTED)


@pytest.mark.parametrize("sign", [1, -1])
def test_highs_proves_a_network_that_is_monotone_by_construction(sign: int) -> None:
    needs("highs")
    assert highs.solve(rising([16, 16], sign), 60.0, 1).status is Status.PROVED


def test_highs_stops_at_its_time_limit() -> None:
    needs("highs")
    result = highs.solve(mixed([64, 64]), 0.01, 1)
    assert result.status is Status.TIMEOUT and result.seconds < 10 and result.witness is None


def test_a_missing_peer_is_one_line_with_its_install_command() -> None:
    line = missing("auto_lirpa")
    assert line is not None and re.search(r"pip install appdirs .* checkout of github\.com/.*auto_LiRPA$", line)
    with pytest.raises(InputError, match="did you mean 'highs'"):
        missing("high")


@pytest.mark.parametrize("name", sorted(PEERS))
def test_every_installed_peer_gives_both_verdicts(name: str) -> None:
    needs(name)
    refutation = ask(name, [mixed([16, 16])], Limits(60.0), INSTALLATION)
    assert refutation.status is Status.REFUTED, refutation
    proof = ask(name, [rising([16, 16])], Limits(60.0), INSTALLATION)
    assert proof.status is Status.PROVED, proof
