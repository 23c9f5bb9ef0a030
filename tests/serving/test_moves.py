"""The rules of promotion as a pure fold; test_ledger.py has the moves that break one."""

from typing import Any

import pytest

from feature_store.errors import RefusedError
from serving.moves import Move, Standing, after


def move(action: Any, version: int, previous: int | None = None) -> Move:
    return Move(
        action, "2026-01-31T12:00:00+00:00", "performance", "redis", "assay.performance.redis", version,
        previous, "a" * 64, gates_passed=action != "reject", reason="because", actor="test",
    )  # fmt: skip


def fold(*moves: Move) -> Standing:
    standing = Standing()
    for item in moves:
        standing = after(standing, item, "test")
    return standing


def test_rollbacks_walk_back_through_the_champions() -> None:
    versions = [1, 2, 3]
    moves: list[Move] = []
    for version in versions:
        previous = version - 1 or None
        moves += [move("register", version, previous), move("champion", version, previous)]
    assert fold(*moves).champions == (1, 2, 3)
    moves.append(move("rollback", 2, 3))
    assert fold(*moves).champion == 2
    moves.append(move("rollback", 1, 2))
    assert fold(*moves).champion == 1
    assert fold(*moves).previous_champion is None
    moves.append(move("approve", 3, 1))
    assert fold(*moves).champions == (1, 3)


def test_a_challenger_stays_until_it_is_champion_or_another_one_comes() -> None:
    first = [move("register", 1), move("challenger", 1), move("champion", 1)]
    assert fold(*first).challenger is None
    second = [*first, move("register", 2, 1), move("challenger", 2, 1)]
    assert fold(*second).challenger == 2
    third = [*second, move("reject", 3, 1), move("register", 4, 1), move("challenger", 4, 1)]
    assert fold(*third).challenger == 4
    assert fold(*third, move("approve", 2, 1)).challenger == 4
    assert fold(*third, move("approve", 4, 1)).challenger is None


def test_an_older_version_may_become_champion_again_and_be_rolled_back() -> None:
    moves = [move("register", 1), move("champion", 1), move("register", 2, 1), move("champion", 2, 1)]
    moves.append(move("approve", 1, 2))
    assert fold(*moves).champions == (1, 2, 1)
    assert fold(*moves, move("rollback", 2, 1)).champion == 2


def test_attempts_are_all_versions_made_beside_a_champion_whenever_it_was_champion() -> None:
    moves = [move("register", 1), move("challenger", 1), move("champion", 1)]
    assert fold(*moves).attempts == 0, "the first one was held to nobody"
    moves += [move("register", 2, 1), move("challenger", 2, 1), move("reject", 3, 1), move("register", 4, 1),
              move("stop_acting", 1, 1), move("resume_acting", 1, 1), move("retire", 2, 1)]
    assert fold(*moves).attempts == 3, "gates see the same cases: a rejected one was tried, too"
    moves.append(move("champion", 4, 1))
    assert fold(*moves).attempts == 0
    moves += [move("register", 5, 4), move("register", 6, 4)]
    assert fold(*moves).attempts == 2
    for back in ("rollback", "retire"):
        other = move(back, 1 if back == "rollback" else 4, 4)
        assert (fold(*moves, other).champion, fold(*moves, other).attempts) == (1, 3), "it is not new"
        assert fold(*moves, move("challenger", 6, 4), other).attempts == 4, "who waits is held to it by a review"


def test_stages_follow_each_other_as_in_algorithm_5_1_and_make_no_champion() -> None:
    moves = [move("register", 1), move("stage_online", 1), move("stage_serving", 1)]
    assert (fold(*moves).stages, fold(*moves).champion) == ({1: "serving"}, None)
    assert fold(*moves, move("stage_initialized", 1)).stages == {1: "initialized"}
    with pytest.raises(RefusedError, match=r"stage must follow initialized \(Algorithm 5.1\), got serving"):
        fold(moves[0], moves[2])
    with pytest.raises(RefusedError, match="version must be registered with its gates passed"):
        fold(*moves, move("stage_online", 2))


def test_a_rule_that_is_broken_names_the_place() -> None:
    with pytest.raises(RefusedError, match=r"version must be new, got 1 \(here\)"):
        after(fold(move("register", 1)), move("register", 1), "here")
