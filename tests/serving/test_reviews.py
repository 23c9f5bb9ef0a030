"""What a reviewer writes in the registry is carried out through the gates, once, and answered."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from feature_store.errors import AssayError
from models.configuration import Configuration
from models.gates import parse_gate
from serving.lifecycle import Lifecycle
from serving.review_tags import BY_TAG, COMMENT_TAG, DONE_TAG, REVIEW_TAG, WAITS_FOR, WAITS_TAG
from serving.reviews import Review, Waiting
from tests.serving.measured import GATES, measured_champion

MODEL = "assay.performance.redis"
PAIR = ("performance", "redis")
Writer = Callable[..., Path]


@pytest.fixture
def configuration(configuration: Configuration) -> Configuration:
    return replace(configuration, approval="manual")


@pytest.fixture
def lifecycle(configuration: Configuration, fake_store: Any, checker: Any) -> Lifecycle:
    return Lifecycle(configuration, fake_store, "cron", lambda: datetime(2026, 1, 31, 12, tzinfo=UTC), checker)


@pytest.fixture
def register(lifecycle: Lifecycle, bundle_writer: Writer, tmp_path: Path) -> Callable[..., int]:
    """Registers another model; of a version that is compared with a champion, whose error was measured."""
    numbers = iter(range(100))

    def register_another(champion: dict[str, Any] | None = None, **options: Any) -> int:
        number = next(numbers)
        folder = bundle_writer(tmp_path / f"b{number}", slope=10.0 + number, champion=champion, **options)
        return lifecycle.register(folder, champion=champion).version

    return register_another


def write(store: Any, version: int, word: str, by: str = "ann", comment: str = "") -> None:
    tags = store.versions[MODEL, version]["tags"]
    tags.update({REVIEW_TAG: word} | ({BY_TAG: by} if by else {}) | ({COMMENT_TAG: comment} if comment else {}))


def tags(store: Any, version: int) -> dict[str, str]:
    found: dict[str, str] = store.versions[MODEL, version]["tags"]
    return found


def test_an_approved_version_becomes_champion_and_the_ledger_says_who_and_why(
    lifecycle: Lifecycle, register: Callable[..., int], fake_store: Any
) -> None:
    register()
    assert lifecycle.reviews.waiting() == (Waiting(MODEL, 1),) and tags(fake_store, 1)[WAITS_TAG] == WAITS_FOR
    assert lifecycle.reviews.carry_out() == (), "nobody has said anything"
    write(fake_store, 1, " Approve ", comment="plots read")
    assert lifecycle.reviews.carry_out() == (Review(MODEL, 1, "Approve", "ann", "approved", "champion now"),)
    move = lifecycle.history()[-1].move
    assert (move.action, move.version, move.reason) == ("approve", 1, "plots read")
    assert move.actor == "ann, in the registry (by cron)"
    assert fake_store.aliases == {(MODEL, "champion"): 1} and lifecycle.reviews.waiting() == ()
    assert tags(fake_store, 1)[DONE_TAG] == "approved, ann: champion now"
    assert not {REVIEW_TAG, BY_TAG, COMMENT_TAG, WAITS_TAG} & tags(fake_store, 1).keys()
    assert lifecycle.reviews.carry_out() == (), "each tag is answered once"


def test_a_rejected_version_is_retired(lifecycle: Lifecycle, register: Callable[..., int], fake_store: Any) -> None:
    register()
    write(fake_store, 1, "reject", by="", comment="too few hours")
    (review,) = lifecycle.reviews.carry_out()
    assert (review.outcome, review.message) == ("rejected", "taken out: too few hours")
    move = lifecycle.history()[-1].move
    assert (move.action, move.reason, move.actor) == ("retire", "too few hours", "somebody, in the registry (by cron)")
    assert fake_store.aliases == {} and lifecycle.reviews.waiting() == ()
    write(fake_store, 1, "approve")
    (review,) = lifecycle.reviews.carry_out()
    assert (review.outcome, lifecycle.champion(*PAIR)) == ("refused", None) and "was retired" in review.message


@pytest.mark.parametrize(("word", "hint"), [("aprove", "did you mean 'approve'?"), ("", "known: approve, reject")])
def test_an_unknown_word_is_refused_by_name(
    lifecycle: Lifecycle, register: Callable[..., int], fake_store: Any, word: str, hint: str
) -> None:
    register()
    write(fake_store, 1, word)
    (review,) = lifecycle.reviews.carry_out()
    said = f"{REVIEW_TAG} must be approve or reject, got {word!r}; {hint}"
    assert (review.outcome, review.message) == ("refused", said)
    assert tags(fake_store, 1)[DONE_TAG] == f"refused, ann: {said}" and REVIEW_TAG not in tags(fake_store, 1)
    assert lifecycle.champion(*PAIR) is None and lifecycle.reviews.waiting() == (Waiting(MODEL, 1),)


def test_a_version_that_does_not_wait_is_told_why(
    lifecycle: Lifecycle, register: Callable[..., int], fake_store: Any
) -> None:
    register()
    lifecycle.promote(*PAIR)
    champion = measured_champion(1, 2.0)
    for status in ("REFUTED", "PROVED", "PROVED"):
        register(champion, status=status)
    for version in (1, 2, 3):
        write(fake_store, version, "approve")
    assert [(review.version, review.outcome, review.message.partition("got one that ")[2])
            for review in lifecycle.reviews.carry_out()] == [
        (1, "refused", "is champion already"), (2, "refused", "failed its gates"),
        (3, "refused", "waits no more; version 4 does")]
    assert lifecycle.champion(*PAIR) == 1 and len(lifecycle.history()) == 8


def test_a_version_that_somebody_put_into_the_registry_is_not_promoted(
    lifecycle: Lifecycle, register: Callable[..., int], fake_store: Any
) -> None:
    register()
    fake_store.versions[MODEL, 7] = {**fake_store.versions[MODEL, 1], "tags": {REVIEW_TAG: "approve"}}
    (review,) = lifecycle.reviews.carry_out()
    assert (review.version, review.outcome) == (7, "refused") and "the ledger does not know" in review.message


def test_a_gate_of_today_that_fails_refuses_the_approval(
    lifecycle: Lifecycle, register: Callable[..., int], fake_store: Any, configuration: Configuration, checker: Any
) -> None:
    register()
    write(fake_store, 1, "approve")
    stricter = parse_gate("latency", {**GATES["latency"], "at_most": 1}, "tests")
    today = replace(configuration, gates={"performance": (stricter,)})
    (review,) = Lifecycle(today, fake_store, "cron", lambda: datetime.now(UTC), checker).reviews.carry_out()
    assert review.outcome == "refused" and "gates of mlflow.yaml as they are now, got latency" in review.message
    assert lifecycle.champion(*PAIR) is None and DONE_TAG in tags(fake_store, 1)


def test_evidence_that_was_edited_after_it_was_signed_refuses_the_approval(
    lifecycle: Lifecycle, register: Callable[..., int], fake_store: Any
) -> None:
    register()
    write(fake_store, 1, "approve")
    evidence = Path(fake_store.versions[MODEL, 1]["source"]) / "evidence.json"
    evidence.write_text(evidence.read_text().replace('"latency_us": 12.0', '"latency_us": 1.0'))
    (review,) = lifecycle.reviews.carry_out()
    assert review.outcome == "refused" and "evidence.json changed" in review.message
    assert lifecycle.champion(*PAIR) is None


@pytest.mark.parametrize(("mse", "outcome"), [(1.0, "refused"), (0.5, "approved")])
def test_where_another_champion_stands_than_the_one_it_was_compared_with_it_is_compared_again(
    lifecycle: Lifecycle, register: Callable[..., int], fake_store: Any, mse: float, outcome: str
) -> None:
    register()
    lifecycle.promote(*PAIR)
    register(measured_champion(1, 2.0))
    register(measured_champion(1, 2.0), test_mse=mse)  # the reviewer reads that it is better than version 1
    lifecycle.promote(*PAIR, version=2)
    write(fake_store, 3, "approve")
    (review,) = lifecycle.reviews.carry_out()
    assert review.outcome == outcome
    assert lifecycle.champion(*PAIR) == (3 if outcome == "approved" else 2)
    if outcome == "refused":
        assert "that version 3 was compared with, 1, got 2; compared again, better_than_champion does not hold" \
            in review.message and review.message.endswith("--version 3` promotes it all the same")


def test_in_what_it_is_weaker_is_said(
    lifecycle: Lifecycle, register: Callable[..., int], fake_store: Any
) -> None:
    register()
    lifecycle.promote(*PAIR)

    def smaller_box(contract: dict[str, Any]) -> None:
        contract["inputs"][0]["maximum"] = 0.3

    register(measured_champion(1, 2.0), change=smaller_box)
    write(fake_store, 2, "approve")
    (review,) = lifecycle.reviews.carry_out()
    assert review.outcome == "approved" and "weaker than version 1: box of psi_cpu_some" in review.message
    assert "weaker than version 1" in lifecycle.history()[-1].move.reason


def test_a_registry_that_fails_postpones_and_the_next_time_does_it(
    lifecycle: Lifecycle, register: Callable[..., int], fake_store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    register()
    write(fake_store, 1, "approve")

    def fail(*_: Any) -> None:
        raise AssayError("registry must list its head tags, got no answer")

    append = lifecycle._ledger.append
    monkeypatch.setattr(lifecycle._ledger, "append", fail)
    (review,) = lifecycle.reviews.carry_out()
    assert review.outcome == "postponed" and tags(fake_store, 1)[REVIEW_TAG] == "approve"
    monkeypatch.setattr(lifecycle._ledger, "append", append)
    assert [review.outcome for review in lifecycle.reviews.carry_out()] == ["approved"]


def test_a_tag_that_cannot_be_answered_changes_nothing_the_next_time(
    lifecycle: Lifecycle, register: Callable[..., int], fake_store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    register()
    write(fake_store, 1, "approve")

    def fail(*_: Any) -> None:
        raise AssayError("registry must take a tag, got no answer")

    with monkeypatch.context() as patch:
        patch.setattr(fake_store, "set_tag", fail)
        (review,) = lifecycle.reviews.carry_out()
    assert review.outcome == "approved" and "the tag could not be answered" in review.message
    moves = len(lifecycle.history())
    (review,) = lifecycle.reviews.carry_out()
    assert review.outcome == "refused" and "is champion already" in review.message
    assert len(lifecycle.history()) == moves and REVIEW_TAG not in tags(fake_store, 1)


def test_of_two_processes_one_answers(
    lifecycle: Lifecycle, register: Callable[..., int], fake_store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    register()
    write(fake_store, 1, "approve")
    seen = fake_store.models()
    lifecycle.reviews.carry_out()
    monkeypatch.setattr(fake_store, "models", lambda: seen)  # listed before the other one answered
    assert lifecycle.reviews.carry_out() == ()


def test_only_the_asked_for_workload_is_reviewed(
    lifecycle: Lifecycle, register: Callable[..., int], fake_store: Any
) -> None:
    register()
    register(workload="nginx")
    write(fake_store, 1, "approve")
    assert lifecycle.reviews.carry_out("performance", "nginx") == ()
    assert lifecycle.reviews.waiting(workload="nginx") == (Waiting("assay.performance.nginx", 1),)
    assert len(lifecycle.reviews.carry_out(workload="redis")) == 1
