"""Aliases follow the ledger: after a crash at any point, and after someone moved them by hand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from feature_store.errors import AssayError, RefusedError
from serving.ledger import Ledger
from serving.ledger_heads import head_file
from serving.moves import Move
from serving.promotion import Aliases, Promotions
from serving.review_tags import WAITS_TAG

Keys = tuple[Path, Path]
MODEL = "assay.performance.redis"


def move(action: Any, version: int, previous: int | None = None) -> Move:
    return Move(
        action, "2026-01-31T12:00:00+00:00", "performance", "redis", MODEL, version, previous, "a" * 64,
        gates_passed=action != "reject", reason="because", actor="test",
    )  # fmt: skip


@pytest.fixture
def no_promotions(tmp_path: Path, keys: Keys, fake_store: Any) -> Promotions:
    """Three versions are in the registry, none in the ledger."""
    ledger = Ledger(tmp_path / "ledger.jsonl", keys[1], keys[0])
    for version in (1, 2, 3):
        fake_store.versions[MODEL, version] = {"tags": {}}
    names: Callable[[str, str], str] = lambda task, workload: f"assay.{task}.{workload}"  # noqa: E731
    return Promotions(ledger, fake_store, names, Aliases("champion", "challenger"))


@pytest.fixture
def promotions(no_promotions: Promotions) -> Promotions:
    """Version 1 is champion, version 2 challenger."""
    made = no_promotions
    made.record([move("register", 1), move("challenger", 1), move("champion", 1)])
    made.record([move("register", 2, 1), move("challenger", 2, 1)])
    return made


def test_aliases_and_head_follow_every_move(promotions: Promotions, fake_store: Any) -> None:
    assert fake_store.aliases == {(MODEL, "champion"): 1, (MODEL, "challenger"): 2}
    promotions.record([move("approve", 2, 1)])
    assert fake_store.aliases == {(MODEL, "champion"): 2}
    promotions.record([move("rollback", 1, 2)])
    assert fake_store.aliases == {(MODEL, "champion"): 1}
    assert fake_store.heads_by_model[MODEL] == promotions.ledger.verify()[-1].head
    assert promotions.reconcile("performance", "redis") == ()


def test_an_alias_moved_by_hand_is_set_back_and_reported(promotions: Promotions, fake_store: Any) -> None:
    fake_store.aliases[MODEL, "champion"] = 2
    del fake_store.aliases[MODEL, "challenger"]
    drifts = promotions.reconcile("performance", "redis")
    assert [(d.alias, d.found, d.expected, d.cause, d.repaired) for d in drifts] == [
        ("champion", 2, 1, "foreign", True),
        ("challenger", None, 2, "foreign", True),
    ]
    assert "must be version 1 as the ledger says, got version 2; it was moved outside" in str(drifts[0])
    assert fake_store.aliases == {(MODEL, "champion"): 1, (MODEL, "challenger"): 2}
    assert promotions.reconcile("performance", "redis") == ()


def test_an_alias_on_a_model_that_the_ledger_does_not_know_is_removed(
    promotions: Promotions, fake_store: Any
) -> None:
    fake_store.aliases["assay.performance.nginx", "champion"] = 1
    (drift,) = promotions.reconcile("performance", "nginx")
    assert (drift.found, drift.expected, drift.repaired) == (1, None, True)
    assert ("assay.performance.nginx", "champion") not in fake_store.aliases


def test_a_champion_deleted_from_the_registry_is_reported_as_gone(
    promotions: Promotions, fake_store: Any
) -> None:
    del fake_store.versions[MODEL, 1]
    del fake_store.aliases[MODEL, "champion"]
    (drift,) = promotions.reconcile("performance", "redis")
    assert (drift.repaired, drift.gone) == (False, True)
    assert "version 1 was deleted from the registry" in str(drift)
    assert promotions.record([move("register", 3, 1)]) == (drift,)
    assert fake_store.heads_by_model[MODEL] == promotions.ledger.verify()[-1].head, "a cut would be seen"
    fake_store.versions.clear()  # the whole model
    fake_store.heads_by_model.clear()
    assert all(drift.gone for drift in promotions.reconcile("performance", "redis"))


def test_an_alias_that_the_registry_does_not_take_is_an_error_after_the_move(
    promotions: Promotions, fake_store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> None:
        raise AssayError("registry must take it")

    with monkeypatch.context() as patch:
        patch.setattr(fake_store, "set_alias", fail)
        with pytest.raises(AssayError, match=r"could not be set.*The move is in the ledger, entry 5"):
            promotions.record([move("approve", 2, 1)])
    assert {drift.repaired for drift in promotions.reconcile("performance", "redis")} == {True}
    assert fake_store.aliases == {(MODEL, "champion"): 2}


def test_a_move_whose_alias_could_not_be_set_is_still_told_as_interrupted_later(
    promotions: Promotions, fake_store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The registry has not seen the move before its aliases follow it."""
    def refuse(*_: Any) -> None:
        raise AssayError("registry must take an alias, got no answer")

    with monkeypatch.context() as patch:
        patch.setattr(fake_store, "set_alias", refuse)
        with pytest.raises(AssayError, match="could not be set"):
            promotions.record([move("approve", 2, 1)])
    assert fake_store.heads_by_model[MODEL] == promotions.ledger.verify()[-2].head
    drifts = promotions.reconcile("performance", "redis")
    assert [(drift.alias, drift.cause, drift.repaired) for drift in drifts] == [
        ("champion", "interrupted", True), ("challenger", "interrupted", True)]
    assert fake_store.heads_by_model[MODEL] == promotions.ledger.verify()[-1].head


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", range(9))
def test_a_crash_at_any_call_leaves_the_aliases_to_be_completed(
    promotions: Promotions, fake_store: Any, crash: type[BaseException], call: int, when: str
) -> None:
    fake_store.calls, fake_store.crash_at = 0, (call, when)
    crashed = False
    try:
        promotions.record([move("approve", 2, 1)])
    except crash:
        crashed = True
    fake_store.revive()
    drifts = promotions.reconcile("performance", "redis")
    assert all(drift.cause == "interrupted" and drift.repaired for drift in drifts)
    made = call > 0  # the first call asks for the heads, before anything is written
    assert promotions.ledger.champion_of("performance", "redis") == (2 if made else 1)
    assert fake_store.aliases[MODEL, "champion"] == (2 if made else 1)
    assert fake_store.aliases.get((MODEL, "challenger")) == (None if made else 2)
    assert fake_store.heads_by_model[MODEL] == promotions.ledger.verify()[-1].head
    assert (WAITS_TAG in fake_store.versions[MODEL, 2]["tags"]) is not made
    assert crashed == (call < 7), "seven calls make a move"


@pytest.mark.parametrize("call", range(5))
def test_a_crash_at_the_first_registration_is_told_as_one(
    no_promotions: Promotions, fake_store: Any, crash: type[BaseException], call: int
) -> None:
    """The registry has seen no entry of the ledger yet."""
    fake_store.calls, fake_store.crash_at = 0, (call, "before")
    with pytest.raises(crash):
        no_promotions.record([move("register", 1), move("challenger", 1), move("champion", 1)])
    fake_store.revive()
    drifts = no_promotions.reconcile("performance", "redis")
    made = call > 0  # the first call asks for the heads, before anything is written
    assert [(drift.alias, drift.cause) for drift in drifts] == [("champion", "interrupted")][: made and call < 3]
    assert fake_store.aliases == ({(MODEL, "champion"): 1} if made else {})


@pytest.mark.parametrize("part", [0.0, 0.5, 1.0])
def test_a_crash_in_the_ledgers_write_means_either_all_or_nothing(
    promotions: Promotions,
    fake_store: Any,
    crash: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
    part: float,
) -> None:
    def die(data: bytes) -> None:
        with promotions.ledger.path.open("ab") as file:
            file.write(data[: int(len(data) * part)])
        raise crash

    monkeypatch.setattr(promotions.ledger._place, "_write", die)
    with pytest.raises(crash):
        promotions.record([move("approve", 2, 1)])
    monkeypatch.undo()
    promotions.reconcile("performance", "redis")
    expected = 2 if part == 1.0 else 1
    assert promotions.ledger.champion_of("performance", "redis") == expected
    assert fake_store.aliases[MODEL, "champion"] == expected
    promotions.record([move("register", 3, expected)])
    promotions.ledger.verify()


def test_a_ledger_whose_end_was_cut_off_is_refused(promotions: Promotions) -> None:
    path = promotions.ledger.path
    whole = path.read_bytes()
    kept = b"".join(whole.splitlines(keepends=True)[:-1])
    for damaged in (kept, b""):
        path.write_bytes(damaged)
        for call in (
            lambda: promotions.reconcile("performance", "redis"),
            lambda: promotions.standing("performance", "redis").__enter__(),
        ):
            with pytest.raises(RefusedError, match="its end was cut off or it was replaced"):
                call()
    head_file(path).unlink()  # the registry remembers it too
    for call in (
        lambda: promotions.reconcile("performance", "redis"),
        lambda: promotions.read("performance", "redis"),
        lambda: promotions.history(None, None),
        lambda: promotions.record([move("approve", 2, 1)]),
    ):
        with pytest.raises(RefusedError, match=r"the registry saw for assay\.performance\.redis"):
            call()
    path.write_bytes(whole)
    assert promotions.reconcile("performance", "redis") == ()


def test_a_ledger_whose_end_was_rewritten_is_refused(promotions: Promotions, fake_store: Any) -> None:
    """By someone who has the key: cut one entry, append another."""
    path = promotions.ledger.path
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    head_file(path).unlink()
    promotions.ledger.append([move("approve", 2, 1)])
    with pytest.raises(RefusedError, match="must hold entry '4:"):
        promotions.reconcile("performance", "redis")


@pytest.mark.parametrize("head", ["", "x", "4", "4:", "-1:abc", "99:abc", "²:abc"])
def test_a_head_tag_that_fits_no_entry_is_refused(promotions: Promotions, fake_store: Any, head: str) -> None:
    fake_store.heads_by_model[MODEL] = head
    with pytest.raises(RefusedError, match="restore it from a backup"):
        promotions.reconcile("performance", "redis")


def test_a_lost_head_tag_is_written_again(promotions: Promotions, fake_store: Any) -> None:
    del fake_store.heads_by_model[MODEL]
    assert promotions.reconcile("performance", "redis") == ()
    assert fake_store.heads_by_model[MODEL] == promotions.ledger.verify()[-1].head
