"""Register, promote, roll back on a registry in memory: every rule, and a crash at every call."""

import errno
import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import onnx
import pytest

from feature_store.errors import AssayError, InputError, RefusedError, UnavailableError
from models.configuration import Configuration, PromotionRule
from models.gates import parse_gate, parse_gates
from serving.bundle import check_bundle, open_bundle
from serving.kept_bundles import keep_bundle, kept_bundle
from serving.ledger import Ledger
from serving.ledger_file import LedgerFile
from serving.ledger_heads import head_file
from serving.lifecycle import Lifecycle
from serving.model_function import function_digest
from serving.outcomes import Retirement
from serving.signature import SIGNATURE_FILE
from tests.serving.conftest import made_up_proof
from tests.serving.measured import GATES, measured_champion

MODEL = "assay.performance.redis"
PAIR = ("performance", "redis")
Writer = Callable[..., Path]


def noon() -> datetime:
    return datetime(2026, 1, 31, 12, tzinfo=UTC)


Opener = Callable[..., Lifecycle]


@pytest.fixture
def opened(configuration: Configuration, fake_store: Any, checker: Any) -> Opener:
    """Opens another lifecycle on the same state, as another process would."""

    def open_another(actor: str = "ann", **changes: Any) -> Lifecycle:
        return Lifecycle(replace(configuration, **changes), fake_store, actor, noon, checker)

    return open_another


@pytest.fixture
def lifecycle(opened: Opener) -> Lifecycle:
    return opened()


@pytest.fixture
def write(bundle_writer: Writer, tmp_path: Path) -> Writer:
    """Writes a bundle to a numbered folder."""
    folders = iter(tmp_path / f"bundle{number}" for number in range(100))
    return lambda **options: bundle_writer(next(folders), **options)


def measured(lifecycle: Lifecycle, test_mse: float) -> dict[str, Any] | None:
    """What the gate step hands over: the champion measured on the new test set."""
    version = lifecycle.champion(*PAIR)
    return None if version is None else measured_champion(version, test_mse)


def test_the_first_version_that_passes_becomes_champion(
    lifecycle: Lifecycle, write: Writer, fake_store: Any, configuration: Configuration
) -> None:
    folder = write()
    done = lifecycle.register(folder, command="assay run --seed 7")
    assert (done.model, done.version, done.alias, done.gates_passed) == (MODEL, 1, "champion", True)
    assert done.reason == "no champion yet"
    assert (folder / SIGNATURE_FILE).exists()
    assert fake_store.aliases == {(MODEL, "champion"): 1}
    tags = fake_store.versions[MODEL, 1]["tags"]
    del tags["assay.ticket"]
    assert tags == {
        "task": "performance",
        "workload": "redis",
        "verdict": "PROVED",
        "gates_passed": "true",
        "gates": "8 of 8",
        "decision": "no champion yet",
        "data_version": "d1",
        "code_version": "c1",
        "seed": "7",
        "model_sha256": open_bundle(folder).contract.model.sha256,
        "function_sha256": function_digest(open_bundle(folder).model),
        "bundle_sha256": done.bundle_sha256,
        "reproduce": "assay run --seed 7",
    }
    assert "| latency | yes | latency_us | 12 | <= | 500 | µs |" in fake_store.versions[MODEL, 1]["text"]
    moves = [entry.move for entry in lifecycle.history()]
    assert [move.action for move in moves] == ["register", "challenger", "champion"]
    assert {(move.actor, move.at) for move in moves} == {("ann", "2026-01-31T12:00:00+00:00")}
    assert check_bundle(folder, configuration.public_key_path).sha256 == moves[0].bundle_sha256


def test_a_bundle_that_fails_a_gate_is_recorded_unsigned_and_without_an_alias(
    lifecycle: Lifecycle, write: Writer, fake_store: Any
) -> None:
    folder = write(status="REFUTED")
    done = lifecycle.register(folder)
    assert (done.version, done.alias, done.gates_passed) == (1, None, False)
    assert done.reason == "gates failed: specification"
    assert not (folder / SIGNATURE_FILE).exists()
    assert fake_store.aliases == {}
    assert fake_store.versions[MODEL, 1]["tags"]["gates_passed"] == "false"
    assert [entry.move.action for entry in lifecycle.history()] == ["reject"]
    with pytest.raises(RefusedError, match=r"got 1 of assay\.performance\.redis; it was rejected"):
        lifecycle.promote(*PAIR, version=1)
    with pytest.raises(RefusedError, match="must have a champion, got none"):
        lifecycle.open_champion(*PAIR)


@pytest.mark.parametrize(
    ("standing_mse", "alias"), [(1.1, "champion"), (1.0, "challenger"), (0.99, "challenger")]
)
def test_a_later_version_must_beat_the_champion_on_the_same_test_set(
    lifecycle: Lifecycle, write: Writer, standing_mse: float, alias: str
) -> None:
    lifecycle.register(write())
    champion = measured(lifecycle, standing_mse)
    done = lifecycle.register(write(test_mse=1.0, slope=9.0, champion=champion), champion=champion)
    assert (done.version, done.alias) == (2, alias)
    assert lifecycle.champion(*PAIR) == (2 if alias == "champion" else 1)


def test_with_manual_approval_even_the_first_waits_for_a_person(
    opened: Opener, fake_store: Any, write: Writer
) -> None:
    lifecycle = opened(approval="manual")
    done = lifecycle.register(write())
    assert (done.alias, done.reason) == ("challenger", "no champion yet; waits for assay promote")
    assert lifecycle.champion(*PAIR) is None
    promoted = lifecycle.promote(*PAIR, reason="report read")
    assert (promoted.model, promoted.version, promoted.previous_version) == (MODEL, 1, None)
    assert fake_store.aliases == {(MODEL, "champion"): 1}
    last = lifecycle.history()[-1].move
    assert (last.action, last.reason, last.actor) == ("approve", "report read", "ann")


def test_promote_refuses_what_may_not_be_promoted(lifecycle: Lifecycle, write: Writer) -> None:
    with pytest.raises(RefusedError, match="must have a challenger to promote, got none"):
        lifecycle.promote(*PAIR)
    lifecycle.register(write())
    with pytest.raises(RefusedError, match="must not be champion already, got 1"):
        lifecycle.promote(*PAIR, version=1)
    with pytest.raises(RefusedError, match=r"got 7 of .*; the ledger does not know it"):
        lifecycle.promote(*PAIR, version=7)


def test_rollbacks_go_back_through_the_champions(
    lifecycle: Lifecycle, write: Writer, fake_store: Any
) -> None:
    with pytest.raises(RefusedError, match="got None as its first"):
        lifecycle.rollback(*PAIR)
    for slope in (8.0, 9.0, 10.0):
        champion = measured(lifecycle, 2.0)
        lifecycle.register(write(slope=slope, champion=champion), champion=champion)
    assert lifecycle.champion(*PAIR) == 3
    assert lifecycle.rollback(*PAIR, reason="slow").version == 2
    assert lifecycle.rollback(*PAIR).version == 1
    assert fake_store.aliases[MODEL, "champion"] == 1
    with pytest.raises(RefusedError, match="got 1 as its first"):
        lifecycle.rollback(*PAIR)
    assert lifecycle.promote(*PAIR, version=3).previous_version == 1
    assert lifecycle.rollback(*PAIR).version == 1


def test_a_rollback_of_another_champion_than_the_one_that_was_looked_at_is_refused(
    lifecycle: Lifecycle, write: Writer, opened: Opener
) -> None:
    for slope in (8.0, 9.0, 10.0):
        champion = measured(lifecycle, 2.0)
        lifecycle.register(write(slope=slope, champion=champion), champion=champion)
    opened("bob").rollback(*PAIR)  # while somebody decides about version 3
    before = lifecycle.history()
    with pytest.raises(RefusedError, match="expected version 3 to be the champion still, got version 2 "):
        lifecycle.rollback(*PAIR, expected=3)
    with pytest.raises(RefusedError, match="expected version 1 to be the champion still, got none "):
        lifecycle.rollback("performance", "nginx", expected=1)
    assert lifecycle.champion(*PAIR) == 2 and lifecycle.history() == before
    assert lifecycle.rollback(*PAIR, expected=2).version == 1


@pytest.mark.parametrize(("champion_alias", "challenger_alias"), [("live", "next"), ("challenger", "champion")])
def test_a_registration_says_the_role_whatever_the_alias_is_called(
    opened: Opener, write: Writer, champion_alias: str, challenger_alias: str
) -> None:
    lifecycle = opened(champion_alias=champion_alias, challenger_alias=challenger_alias)
    first = lifecycle.register(write())
    assert (first.role, first.alias) == ("champion", champion_alias)
    again = lifecycle.register(write())
    assert (again.is_new, again.role, again.alias) == (False, "champion", champion_alias)
    champion = measured(lifecycle, 1.0)
    second = lifecycle.register(write(slope=9.0, champion=champion), champion=champion)
    assert (second.role, second.alias) == ("challenger", challenger_alias)
    rejected = lifecycle.register(write(status="UNKNOWN"))
    assert (rejected.role, rejected.alias) == (None, None)


def test_workloads_do_not_touch_each_other(lifecycle: Lifecycle, write: Writer) -> None:
    lifecycle.register(write())
    lifecycle.register(write(workload="nginx", status="UNKNOWN"))
    assert lifecycle.champion(*PAIR) == 1
    assert lifecycle.champion("performance", "nginx") is None
    assert len(lifecycle.history(workload="nginx")) == 1


def test_a_champion_moved_meanwhile_is_compared_on_the_same_test_rows_only(
    lifecycle: Lifecycle, write: Writer
) -> None:
    """Two pipelines at once: both gates ran when there was no champion."""
    lifecycle.register(write(test_mse=1.0))
    worse = lifecycle.register(write(test_mse=1.2, slope=9.0), champion=None)
    assert worse.alias == "challenger"
    assert "does not hold against version 1, attempt 1: mean squared error 4.8" in worse.reason
    better = lifecycle.register(write(test_mse=0.5, slope=8.0), champion=None)
    assert better.alias == "champion"
    other = lifecycle.register(write(test_mse=0.1, slope=7.0, test_set="other"), champion=None)
    assert other.alias == "challenger"
    assert "champion version 3 was not measured on the same cases" in other.reason


def test_two_splits_of_the_same_data_are_never_compared(lifecycle: Lifecycle, write: Writer) -> None:
    """Seeds 5 and 6, both gated when version 1 was champion; data_version and everything else are equal."""
    lifecycle.register(write())
    first = measured_champion(1, 1.0, "seed 5")
    assert lifecycle.register(write(test_mse=0.9, slope=9.0, test_set="seed 5"), champion=first).alias == "champion"
    second = measured_champion(1, 1.0, "seed 6")
    late = lifecycle.register(write(test_mse=0.8, slope=8.0, test_set="seed 6"), champion=second)
    assert (late.alias, lifecycle.champion(*PAIR)) == ("challenger", 2)
    assert "version 2 was not measured on the same cases" in late.reason


def test_a_champion_measured_on_other_rows_than_the_bundles_is_not_compared(
    lifecycle: Lifecycle, write: Writer
) -> None:
    lifecycle.register(write())
    champion = measured_champion(1, 2.0, "other rows")
    done = lifecycle.register(write(slope=9.0, champion=champion), champion=champion)
    assert done.alias == "challenger" and "was not measured on the same cases" in done.reason


def test_without_paired_cases_nothing_replaces_the_champion(lifecycle: Lifecycle, write: Writer) -> None:
    lifecycle.register(write())
    champion = measured_champion(1, 2.0)
    del champion["cases"]
    assert lifecycle.register(write(slope=9.0, champion=champion), champion=champion).alias == "challenger"


def test_cases_that_do_not_say_which_they_are_register_nothing(lifecycle: Lifecycle, write: Writer) -> None:
    lifecycle.register(write())
    champion = measured_champion(1, 2.0)
    del champion["cases"]["sha256"]
    with pytest.raises(RefusedError, match="expected the key 'sha256'"):
        lifecycle.register(write(slope=9.0, champion=champion), champion=champion)
    assert lifecycle.champion(*PAIR) == 1


def test_what_the_champion_was_measured_at_is_signed_with_the_bundle(lifecycle: Lifecycle, write: Writer) -> None:
    lifecycle.register(write())
    champion = measured(lifecycle, 2.0)
    lifecycle.register(write(slope=9.0, champion=champion), champion=champion)
    assert lifecycle.open_champion(*PAIR).evidence["champion"] == champion


# The same model again


def test_the_champions_own_model_registers_nothing_and_says_so(
    lifecycle: Lifecycle, write: Writer, fake_store: Any
) -> None:
    first = lifecycle.register(write())
    champion = measured(lifecycle, 100.0)  # however well it seems to do
    again = lifecycle.register(write(champion=champion), champion=champion)
    assert (again.is_new, again.version, again.alias, again.gates_passed) == (False, 1, "champion", True)
    assert again.bundle_sha256 == first.bundle_sha256
    assert "is that of version 1, the champion, byte for byte; nothing is registered" in again.reason
    assert list(fake_store.versions) == [(MODEL, 1)] and len(fake_store.uploads) == 1
    assert len(lifecycle.history()) == 3


def test_the_challengers_own_model_registers_nothing_either(opened: Opener, write: Writer, fake_store: Any) -> None:
    lifecycle = opened(approval="manual")
    lifecycle.register(write())
    again = lifecycle.register(write())
    assert (again.is_new, again.version, again.alias) == (False, 1, "challenger")
    assert list(fake_store.versions) == [(MODEL, 1)]


def test_the_model_of_a_version_that_was_rolled_back_does_not_come_back(
    lifecycle: Lifecycle, write: Writer, fake_store: Any
) -> None:
    lifecycle.register(write())
    champion = measured(lifecycle, 2.0)
    lifecycle.register(write(slope=9.0, champion=champion), champion=champion)
    lifecycle.rollback(*PAIR, reason="alarms")
    champion = measured(lifecycle, 2.0)
    again = lifecycle.register(write(slope=9.0, champion=champion), champion=champion)
    assert (again.is_new, again.version, again.alias) == (False, 2, None)
    assert "is that of version 2, byte for byte; nothing is registered" in again.reason
    assert lifecycle.champion(*PAIR) == 1 and len(fake_store.versions) == 2


def test_a_tag_that_somebody_changed_does_not_hide_the_champion(
    lifecycle: Lifecycle, write: Writer, fake_store: Any
) -> None:
    lifecycle.register(write())
    fake_store.versions[MODEL, 1]["tags"]["model_sha256"] = "0" * 64
    champion = measured(lifecycle, 2.0)
    assert not lifecycle.register(write(champion=champion), champion=champion).is_new
    fake_store.versions[MODEL, 1]["tags"]["model_sha256"] = open_bundle(write(slope=9.0)).contract.model.sha256
    assert lifecycle.register(write(slope=9.0, champion=champion), champion=champion).is_new


def test_the_same_model_with_another_specification_is_a_version(lifecycle: Lifecycle, write: Writer) -> None:
    fewer = [{"monotone": {"features": ["psi_io_full"], "direction": "increasing", "output": "latency_ms"}}]
    lifecycle.register(write())
    champion = measured(lifecycle, 1.0)
    done = lifecycle.register(write(champion=champion, properties=fewer), champion=champion)
    assert (done.is_new, done.version, done.alias) == (True, 2, "challenger")


def test_the_same_model_whose_gates_fail_now_is_recorded_as_rejected(lifecycle: Lifecycle, write: Writer) -> None:
    lifecycle.register(write())
    champion = measured(lifecycle, 0.1)
    done = lifecycle.register(write(champion=champion), champion=champion)
    assert (done.is_new, done.gates_passed, done.reason) == (True, False, "gates failed: champion_mse")


def write_few_shot(write: Writer, encoder: bytes, champion: dict[str, Any] | None, **changes: Any) -> Path:
    """A bundle with an encoder, that takes one input of the model from runs."""
    embedding = {"file": "encoder.onnx", "sha256": hashlib.sha256(encoder).hexdigest(), "inputs": ["psi_cpu_some"],
                 "configuration": ["psi_io_full", "connections"], "target": "latency_ms", "runs": 4, "own": [0.1],
                 "similarity": 0.9, "threshold": 0.5, **changes}
    folder = write(change=lambda contract: contract.update(embedding=embedding), champion=champion)
    (folder / "encoder.onnx").write_bytes(encoder)
    return folder


def test_the_same_model_with_another_encoder_is_a_version(
    lifecycle: Lifecycle, write: Writer, model_bytes: Callable[..., bytes]
) -> None:
    lifecycle.register(write_few_shot(write, model_bytes(1.0), None))
    champion = measured(lifecycle, 1.0)
    assert not lifecycle.register(write_few_shot(write, model_bytes(1.0), champion), champion=champion).is_new
    for version, (encoder, own) in enumerate(((2.0, 0.1), (2.0, 0.3)), start=2):
        folder = write_few_shot(write, model_bytes(encoder), champion, own=[own])
        done = lifecycle.register(folder, champion=champion)
        assert (done.is_new, done.version) == (True, version)


def test_the_same_model_with_another_guarantee_is_a_version_and_waits(
    lifecycle: Lifecycle, write: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def guaranteed(statement: str, proof: bytes = b"proof") -> Path:
        spec = {"file": "guarantee.npz", "sha256": hashlib.sha256(proof).hexdigest(), "statement": statement}
        folder = write(change=lambda contract: contract.update(guarantee=spec), champion=measured(lifecycle, 1.0))
        (folder / "guarantee.npz").write_bytes(proof)
        return folder

    monkeypatch.setattr("serving.bundle._check_policy", lambda *_: None)
    lifecycle.register(write())
    champion = measured(lifecycle, 1.0)
    done = lifecycle.register(guaranteed("It holds."), champion=champion)
    assert (done.version, done.alias) == (2, "challenger")
    lifecycle.promote(*PAIR, 2)
    champion = measured(lifecycle, 1.0)
    for folder in (guaranteed("It holds."), guaranteed("It holds.", b"found otherwise"), write(champion=champion)):
        assert not lifecycle.register(folder, champion=champion).is_new
    done = lifecycle.register(guaranteed("It holds a little."), champion=champion)
    assert (done.version, done.alias) == (3, "challenger") and "guarantee of the closed loop is another" in done.reason


def test_the_same_model_with_evidence_that_fails_is_refused_though_gates_json_says_passed(
    lifecycle: Lifecycle, write: Writer
) -> None:
    lifecycle.register(write())
    champion = measured(lifecycle, 1.0)
    folder = write(champion=champion)
    evidence = json.loads((folder / "evidence.json").read_text())
    evidence["metrics"]["test_accuracy"] = 0.0
    (folder / "evidence.json").write_text(json.dumps(evidence))
    with pytest.raises(RefusedError, match="got passed although test_accuracy"):
        lifecycle.register(folder, champion=champion)


def rewritten(folder: Path) -> Path:
    """The bundle with a model that computes the same and is another file, as its contract and proof say."""
    path = folder / "model.onnx"
    model = onnx.load(path)
    model.doc_string, model.producer_name = "made on a Tuesday", "someone else"
    model.graph.node[3].name = "the addition"
    for node in model.graph.node:
        node.input[:] = [f"{name} again" if name == "z1" else name for name in node.input]
        node.output[:] = [f"{name} again" if name == "z1" else name for name in node.output]
    path.write_bytes(model.SerializeToString())
    agreed = json.loads((folder / "contract.json").read_text())
    agreed["model"]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (folder / "contract.json").write_text(json.dumps(agreed))
    (folder / "proof.npz").write_bytes(made_up_proof(agreed))
    return folder


@pytest.mark.parametrize("lost", ["nothing", "tag", "artifacts"])
def test_a_retired_model_in_another_file_is_no_champion_without_a_person(
    lifecycle: Lifecycle, write: Writer, fake_store: Any, lost: str
) -> None:
    lifecycle.register(write())
    lifecycle.retire(*PAIR, 1, reason="bad in production")
    if lost == "tag":
        del fake_store.versions[MODEL, 1]["tags"]["function_sha256"]
    elif lost == "artifacts":
        shutil.rmtree(stored(fake_store, 1))
    again = lifecycle.register(rewritten(write()))
    assert (again.version, again.alias, lifecycle.champion(*PAIR)) == (2, "challenger", None)
    assert "model.onnx computes what that of version 1 did, which was retired" in again.reason


def test_a_model_that_was_rolled_back_comes_back_by_a_person_alone(lifecycle: Lifecycle, write: Writer) -> None:
    lifecycle.register(write(slope=9.0))
    assert lifecycle.register(write(test_mse=0.5)).alias == "champion"
    lifecycle.rollback(*PAIR, reason="latency alarms")
    again = lifecycle.register(rewritten(write(test_mse=0.5)))
    assert (again.version, again.alias, lifecycle.champion(*PAIR)) == (3, "challenger", 1)
    assert "model.onnx computes what that of version 2 did, which was rolled back" in again.reason
    lifecycle.promote(*PAIR, version=2)
    assert lifecycle.champion(*PAIR) == 2


@pytest.mark.parametrize("lost", ["nothing", "tag", "artifacts"])
def test_the_model_of_a_retired_version_is_no_champion_without_a_person(
    lifecycle: Lifecycle, write: Writer, fake_store: Any, lost: str
) -> None:
    lifecycle.register(write())
    lifecycle.retire(*PAIR, 1, reason="bad data")
    if lost == "tag":
        del fake_store.versions[MODEL, 1]["tags"]["model_sha256"]
    elif lost == "artifacts":
        shutil.rmtree(stored(fake_store, 1))
    again = lifecycle.register(write())
    assert (again.version, again.alias, lifecycle.champion(*PAIR)) == (2, "challenger", None)
    assert again.reason.endswith("; model.onnx computes what that of version 1 did, which was retired; waits for "
                                 "assay promote")
    assert lifecycle.register(write(slope=9.0)).alias == "champion", "another model may"
    assert lifecycle.promote(*PAIR, version=2).version == 2


# A weaker specification


def narrow(contract: dict[str, Any]) -> None:
    contract["inputs"][0]["maximum"] = 0.4


def test_a_weaker_specification_stays_challenger_until_a_person_promotes_it(
    lifecycle: Lifecycle, write: Writer
) -> None:
    lifecycle.register(write())
    champion = measured(lifecycle, 4.0)
    done = lifecycle.register(write(slope=9.0, champion=champion, change=narrow), champion=champion)
    line = "box of psi_cpu_some is 0 to 0.4 share, the champion's is 0 to 0.6 share: not all of it is covered"
    assert done.alias == "challenger" and lifecycle.champion(*PAIR) == 1
    assert "better_than_champion holds" in done.reason
    assert f"specification_not_weaker does not hold: {line}" in done.reason
    promoted = lifecycle.promote(*PAIR, reason="never above 0.4 here")
    assert promoted.notes == (f"weaker than version 1: {line}",)
    assert lifecycle.history()[-1].move.reason == f"never above 0.4 here; weaker than version 1: {line}"


def test_a_specification_is_held_to_the_champion_at_registration(lifecycle: Lifecycle, write: Writer) -> None:
    """When the gates ran, the champion was as narrow; meanwhile a wider one became champion."""
    lifecycle.register(write(change=narrow))
    champion = measured(lifecycle, 4.0)
    lifecycle.register(write(slope=9.0, test_mse=2.0, champion=champion), champion=champion)
    assert lifecycle.champion(*PAIR) == 2
    late = lifecycle.register(write(slope=8.0, champion=champion, change=narrow), champion=champion)
    assert late.alias == "challenger" and "specification_not_weaker does not hold: box of psi_cpu_some" in late.reason


def test_a_leeway_of_the_configuration_lets_it_through(opened: Opener, write: Writer) -> None:
    lifecycle = opened(promotion=PromotionRule(specification_leeway=0.4))
    lifecycle.register(write())
    champion = measured(lifecycle, 4.0)
    done = lifecycle.register(write(slope=9.0, champion=champion, change=narrow), champion=champion)
    assert done.alias == "champion"


def test_a_champion_that_cannot_be_opened_is_not_replaced_unseen(
    lifecycle: Lifecycle, write: Writer, fake_store: Any
) -> None:
    lifecycle.register(write())
    champion = measured(lifecycle, 4.0)
    model = stored(fake_store, 1) / "model.onnx"
    model.write_bytes(model.read_bytes()[:-1] + b"\0")
    done = lifecycle.register(write(slope=9.0, champion=champion), champion=champion)
    assert done.alias == "challenger" and "champion version 1 cannot be compared" in done.reason
    (note,) = lifecycle.promote(*PAIR).notes
    assert "specification_not_weaker could not be decided: champion version 1" in note


# Gates when a person promotes


def test_promote_evaluates_the_gates_of_today_on_the_stored_evidence(
    lifecycle: Lifecycle, opened: Opener, write: Writer, configuration: Configuration
) -> None:
    lifecycle.register(write())
    champion = measured(lifecycle, 1.0)
    lifecycle.register(write(slope=9.0, champion=champion), champion=champion)
    quicker = parse_gate("latency", {**GATES["latency"], "at_most": 5}, "test")
    gates = tuple(quicker if gate.name == "latency" else gate for gate in configuration.gates["performance"])
    stricter = opened(gates={"performance": gates})
    with pytest.raises(RefusedError, match=r"as they are now, got latency: latency_us 12 <= 5 does not hold \(perf"):
        stricter.promote(*PAIR)
    assert lifecycle.champion(*PAIR) == 1 and len(lifecycle.history()) == 5
    made = stricter.promote(*PAIR, reason="the slow machine is gone", override_gates=True)
    assert made.notes == ("gate overridden: latency: latency_us 12 <= 5 does not hold",)
    assert lifecycle.history()[-1].move.reason == f"the slow machine is gone; {made.notes[0]}"
    assert lifecycle.champion(*PAIR) == 2


def test_promote_holds_a_version_to_the_champion_that_its_gates_measured(
    lifecycle: Lifecycle, opened: Opener, write: Writer, configuration: Configuration
) -> None:
    lifecycle.register(write())
    champion = measured(lifecycle, 1.0)
    lifecycle.register(write(slope=9.0, test_mse=1.04, champion=champion), champion=champion)
    gates = {"performance": parse_gates({"champion_mse": {**GATES["champion_mse"], "at_most_ratio": 1.0}}, "test")}
    with pytest.raises(RefusedError, match=r"champion_mse: test_mse 1\.04 <= 1 does not hold"):
        opened(gates=gates).promote(*PAIR)
    assert lifecycle.promote(*PAIR, override_gates=True).notes == (), "nothing was overridden: all gates hold"


# What the ledger holds is what is said


@pytest.mark.parametrize(("status", "alias"), [("UNKNOWN", None), ("PROVED", "challenger")])
def test_a_version_in_the_ledger_is_no_error_though_an_alias_cannot_follow(
    lifecycle: Lifecycle, write: Writer, fake_store: Any, status: str, alias: str | None
) -> None:
    """Somebody deleted the champion in the registry: its alias can be set no more."""
    lifecycle.register(write())
    champion = measured(lifecycle, 1.0)
    location = fake_store.location

    def gone(model: str, version: int) -> str:
        if version == 1:
            raise AssayError("registry must have version 1, got none")
        return str(location(model, version))

    fake_store.location = gone
    del fake_store.versions[MODEL, 1]
    del fake_store.aliases[MODEL, "champion"]
    done = lifecycle.register(write(slope=9.0, status=status, champion=champion), champion=champion)
    assert (done.version, done.alias, done.gates_passed) == (2, alias, status == "PROVED")
    standing = Ledger(lifecycle._configuration.ledger_path, lifecycle._configuration.public_key_path).standing(*PAIR)
    assert (2 in standing.rejected, 2 in standing.registered) == (status != "PROVED", status == "PROVED")
    assert [drift.alias for drift in done.drifts] == ["champion"] and not done.drifts[0].repaired


def test_a_store_that_fails_after_the_ledgers_entry_does_not_undo_it(
    lifecycle: Lifecycle, write: Writer, fake_store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> None:
        raise AssayError("registry must take its head tag, got no answer")

    monkeypatch.setattr(fake_store, "set_head", fail)
    done = lifecycle.register(write(status="UNKNOWN"))
    assert (done.version, done.gates_passed) == (1, False)
    assert [entry.move.action for entry in lifecycle.history()] == ["reject"]


def test_a_version_is_known_by_its_data_code_and_seed_also_where_it_was_rejected(
    lifecycle: Lifecycle, write: Writer, fake_store: Any
) -> None:
    folder = write()
    contract = open_bundle(folder).contract
    assert not lifecycle.is_known(contract)
    lifecycle.register(folder)
    assert lifecycle.is_known(contract)
    assert lifecycle.is_known(contract.to_json())
    for change in ({"data_version": "d2"}, {"code_version": "c2"}, {"seed": 8}, {"workload": "nginx"}):
        assert not lifecycle.is_known({**contract.to_json(), **change})
    lifecycle.register(write(workload="nginx", status="UNKNOWN"))
    assert lifecycle.is_known({**contract.to_json(), "workload": "nginx"})
    fake_store.versions[MODEL, 9] = {"tags": {"data_version": "d9", "code_version": "c1", "seed": "7"}}
    assert not lifecycle.is_known({**contract.to_json(), "data_version": "d9"}), "not in the ledger"


# What a champion is opened with


def test_the_champions_bundle_is_downloaded_checked_and_complete(
    lifecycle: Lifecycle, write: Writer, tmp_path: Path, configuration: Configuration
) -> None:
    lifecycle.register(write())
    bundle = lifecycle.download_bundle(*PAIR, tmp_path / "out" / "redis")
    assert check_bundle(tmp_path / "out" / "redis", configuration.public_key_path, library=True) is not None
    assert bundle.sha256 == lifecycle.open_champion(*PAIR).sha256
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["redis"]
    with pytest.raises(InputError, match="must be a new folder"):
        lifecycle.download_bundle(*PAIR, tmp_path / "out" / "redis")


def stored(fake_store: Any, version: int) -> Path:
    return Path(fake_store.versions[MODEL, version]["source"])


def test_a_tampered_artifact_is_neither_served_nor_promoted_nor_rolled_back_to(
    lifecycle: Lifecycle, write: Writer, fake_store: Any
) -> None:
    lifecycle.register(write())
    champion = measured(lifecycle, 2.0)
    lifecycle.register(write(slope=9.0, champion=champion), champion=champion)
    model = stored(fake_store, 1) / "model.onnx"
    model.write_bytes(model.read_bytes()[:-1] + b"\0")
    for call in (lambda: lifecycle.rollback(*PAIR), lambda: lifecycle.promote(*PAIR, version=1)):
        with pytest.raises(RefusedError, match=r"got model\.onnx changed.*assay retire .*--version 1"):
            call()
    assert lifecycle.champion(*PAIR) == 2
    lifecycle.open_champion(*PAIR)


def test_another_signed_bundle_in_the_champions_place_is_refused(
    lifecycle: Lifecycle, write: Writer, fake_store: Any
) -> None:
    """Its signature is valid: only the ledger knows that it is not version 2's."""
    lifecycle.register(write())
    champion = measured(lifecycle, 2.0)
    lifecycle.register(write(slope=9.0, champion=champion), champion=champion)
    fake_store.versions[MODEL, 2]["source"] = str(stored(fake_store, 1))
    with pytest.raises(RefusedError, match="its artifacts were exchanged"):
        lifecycle.open_champion(*PAIR)


def test_an_alias_moved_by_hand_decides_nothing(lifecycle: Lifecycle, write: Writer, fake_store: Any) -> None:
    lifecycle.register(write())
    champion = measured(lifecycle, 2.0)
    lifecycle.register(write(slope=9.0, champion=champion), champion=champion)
    fake_store.aliases[MODEL, "champion"] = 1
    assert lifecycle.champion(*PAIR) == 2
    assert lifecycle.open_champion(*PAIR).sha256 == lifecycle.history()[-1].move.bundle_sha256
    (drift,) = lifecycle.reconcile()
    assert (drift.found, drift.expected, drift.cause) == (1, 2, "foreign")
    assert fake_store.aliases[MODEL, "champion"] == 2


def test_a_tampered_ledger_stops_everything_and_registers_nothing(
    lifecycle: Lifecycle, opened: Opener, write: Writer, fake_store: Any, configuration: Configuration
) -> None:
    lifecycle.register(write())
    path = configuration.ledger_path
    path.write_bytes(path.read_bytes().replace(b'"no champion yet"', b'"no champion yes"'))
    fresh = opened()
    for call in (
        lambda: fresh.register(write(slope=9.0)),
        lambda: fresh.open_champion(*PAIR),
        lambda: fresh.rollback(*PAIR),
        fresh.history,
        fresh.reconcile,
    ):
        with pytest.raises(RefusedError, match="entry 0"):
            call()
    assert list(fake_store.versions) == [(MODEL, 1)]


def test_the_wrong_key_stops_everything(
    lifecycle: Lifecycle, opened: Opener, write: Writer, fake_store: Any, other_keys: Any
) -> None:
    lifecycle.register(write())
    stranger = opened("eve", private_key_path=other_keys[0], public_key_path=other_keys[1])
    for call in (lambda: stranger.register(write(slope=9.0)), lambda: stranger.open_champion(*PAIR)):
        with pytest.raises(RefusedError, match="signed with the project's key"):
            call()
    assert list(fake_store.versions) == [(MODEL, 1)]


# The ledger's end


def cut_last_byte(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def cut_last_line(path: Path) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def delete(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("cut", [cut_last_byte, cut_last_line, delete])
@pytest.mark.parametrize("kept_head", [True, False], ids=["head file kept", "head file deleted"])
def test_a_ledger_that_was_cut_is_noticed_by_everybody(
    lifecycle: Lifecycle, opened: Opener, write: Writer, fake_store: Any, configuration: Configuration,
    tmp_path: Path, cut: Callable[[Path], None], kept_head: bool,
) -> None:
    lifecycle.register(write())
    champion = measured(lifecycle, 2.0)
    lifecycle.register(write(slope=9.0, champion=champion), champion=champion)
    before = configuration.ledger_path.read_bytes()
    cut(configuration.ledger_path)
    if not kept_head:
        head_file(configuration.ledger_path).unlink()
    damaged = configuration.ledger_path.read_bytes() if configuration.ledger_path.exists() else None
    fresh = opened()
    for call in (
        lambda: fresh.open_champion(*PAIR),
        lambda: fresh.champion(*PAIR),
        lambda: fresh.download_bundle(*PAIR, tmp_path / "out"),
        lambda: fresh.download_bundle(*PAIR, tmp_path / "out", version=1),
        fresh.history,
        lambda: fresh.history(*PAIR),
        fresh.reconcile,
        lambda: fresh.promote(*PAIR, version=1),
        lambda: fresh.rollback(*PAIR),
        lambda: fresh.retire(*PAIR, 1),
        lambda: fresh.register(write(slope=8.0, champion=champion), champion=champion),
        lambda: fresh.register(write(workload="nginx")),
        lambda: fresh.is_known(open_bundle(write()).contract),
    ):
        with pytest.raises(RefusedError, match=r"ledger must hold entry '5:.*cut off.*restore it from a backup"):
            call()
    assert (configuration.ledger_path.read_bytes() if damaged is not None else None) == damaged
    assert [name for name, _ in fake_store.versions] == [MODEL, MODEL], "nothing of nginx is left"
    configuration.ledger_path.write_bytes(before)
    assert opened().register(write(workload="nginx")).alias == "champion"


def test_a_move_of_another_workload_does_not_bury_the_gap(
    lifecycle: Lifecycle, opened: Opener, write: Writer, configuration: Configuration
) -> None:
    """Cut by someone who also takes back the head beside the ledger: only redis' own tag remembers."""
    lifecycle.register(write(workload="nginx"))
    whole, head = configuration.ledger_path.read_bytes(), head_file(configuration.ledger_path).read_text()
    lifecycle.register(write())
    configuration.ledger_path.write_bytes(whole)
    head_file(configuration.ledger_path).write_text(head)
    fresh = opened()
    assert fresh.champion("performance", "nginx") == 1, "what is read of nginx is whole"
    with pytest.raises(RefusedError, match=r"must hold entry '5:.* the registry saw for assay\.performance\.redis"):
        fresh.rollback("performance", "nginx")
    with pytest.raises(RefusedError, match="must hold entry '5:"):
        fresh.register(write(workload="nginx", slope=9.0))
    assert configuration.ledger_path.read_bytes() == whole


def test_a_controller_pins_the_least_head_that_it_takes(
    lifecycle: Lifecycle, opened: Opener, write: Writer, fake_store: Any, configuration: Configuration, tmp_path: Path
) -> None:
    """Against an old state that was put back as a whole: ledger, head file and the registry's tags."""
    lifecycle.register(write())
    old = configuration.ledger_path.read_bytes(), head_file(configuration.ledger_path).read_text()
    old_tags = dict(fake_store.heads_by_model)
    first = lifecycle.history()[-1].head
    champion = measured(lifecycle, 2.0)
    lifecycle.register(write(slope=9.0, champion=champion), champion=champion)
    pinned = lifecycle.history()[-1].head
    expected = lifecycle.open_champion(*PAIR, least_head=pinned).sha256
    assert lifecycle.open_champion(*PAIR, least_head=first).sha256 == expected, "the ledger has gone on since"
    configuration.ledger_path.write_bytes(old[0])
    head_file(configuration.ledger_path).write_text(old[1])
    fake_store.heads_by_model.update(old_tags)
    fresh = opened()
    assert fresh.open_champion(*PAIR).sha256 != expected, "nothing else can tell"
    for call in (
        lambda: fresh.open_champion(*PAIR, least_head=pinned),
        lambda: fresh.download_bundle(*PAIR, tmp_path / "out", least_head=pinned),
    ):
        with pytest.raises(RefusedError, match=r"must hold entry '5:.* that the caller pins as the least head"):
            call()
    fresh.open_champion(*PAIR, least_head=first)
    for nonsense in ("", "5", f"2:{'0' * 64}", "9" * 5000 + ":x"):
        with pytest.raises(RefusedError, match="as the least head"):
            fresh.open_champion(*PAIR, least_head=nonsense)


def test_a_loss_that_is_accepted_as_the_message_says_leaves_a_ledger_that_goes_on(
    lifecycle: Lifecycle, opened: Opener, write: Writer, fake_store: Any, configuration: Configuration
) -> None:
    lifecycle.register(write())
    champion = measured(lifecycle, 2.0)
    lifecycle.register(write(slope=9.0, champion=champion), champion=champion)
    cut_last_line(configuration.ledger_path)
    fresh = opened()
    with pytest.raises(RefusedError, match=r"delete the tag assay\.ledger_head of .*redis; delete .*\.head to accept"):
        fresh.reconcile()
    del fake_store.heads_by_model[MODEL]
    head_file(configuration.ledger_path).unlink()
    (drift, other) = fresh.reconcile()
    assert (drift.found, drift.expected, other.expected) == (2, 1, 2), "what the ledger still says"
    assert fresh.promote(*PAIR).version == 2
    assert fake_store.heads_by_model[MODEL] == fresh.history()[-1].head


# Versions that are gone from the registry


def keep(lifecycle: Lifecycle, folder: Path, configuration: Configuration, version: int) -> None:
    keep_bundle(folder, kept_bundle(configuration.home, *PAIR, version))


def deleted(fake_store: Any, version: int, artifacts: bool = True) -> None:
    """As MLflow's page does it: the version and the aliases on it; with the artifacts as whoever cleans up after it."""
    location = fake_store.versions.pop((MODEL, version))["source"]
    if artifacts:
        fake_store.uploads = {ticket: at for ticket, at in fake_store.uploads.items() if at != location}
    for key in [key for key, at in fake_store.aliases.items() if at == version]:
        del fake_store.aliases[key]


def test_a_first_champion_that_was_deleted_in_the_registry_stands_on_by_its_kept_copy(
    lifecycle: Lifecycle, write: Writer, fake_store: Any, configuration: Configuration
) -> None:
    folder = write()
    sha256 = lifecycle.register(folder).bundle_sha256
    keep(lifecycle, folder, configuration, 1)
    deleted(fake_store, 1)
    assert lifecycle.open_champion(*PAIR).sha256 == sha256
    (drift,) = lifecycle.reconcile()
    assert (drift.expected, drift.repaired, drift.gone) == (1, False, True)
    assert "assay retire --version 1" in str(drift)

    champion = measured(lifecycle, 0.5)
    worse = lifecycle.register(write(slope=9.0, champion=champion, test_mse=0.51), champion=champion)
    assert (worse.alias, worse.gates_passed) == ("challenger", True)
    assert [item.gone for item in worse.drifts] == [True]
    rejected = lifecycle.register(write(slope=7.0, status="REFUTED"), champion=champion)
    assert (rejected.alias, rejected.gates_passed) == (None, False), "not an error: it is in the ledger"
    champion = measured(lifecycle, 2.0)
    better = lifecycle.register(write(slope=8.0, champion=champion), champion=champion)
    assert (better.alias, lifecycle.champion(*PAIR)) == ("champion", better.version)
    assert lifecycle.reconcile() == ()
    assert lifecycle.rollback(*PAIR).version == 1
    assert lifecycle.open_champion(*PAIR).sha256 == sha256
    assert (MODEL, "champion") not in fake_store.aliases, "none is better than one on another version"


def test_a_deleted_version_is_read_from_the_artifacts_that_it_left_by_its_digest(
    lifecycle: Lifecycle, write: Writer, fake_store: Any
) -> None:
    sha256 = lifecycle.register(write()).bundle_sha256
    location = Path(stored(fake_store, 1))
    deleted(fake_store, 1, artifacts=False)
    assert lifecycle.open_champion(*PAIR).sha256 == sha256
    (location / "model.onnx").write_bytes(b"")
    with pytest.raises(RefusedError, match="got neither"):
        lifecycle.open_champion(*PAIR)


def test_a_store_that_is_away_is_no_lost_bundle_and_a_kept_copy_does_without_it(
    lifecycle: Lifecycle, write: Writer, fake_store: Any, configuration: Configuration, monkeypatch: Any
) -> None:
    def away(location: str) -> Any:
        raise UnavailableError("registry must give a bundle, got nothing")

    folder = write()
    sha256 = lifecycle.register(folder).bundle_sha256
    monkeypatch.setattr(fake_store, "fetched", away)
    with pytest.raises(UnavailableError, match=r"^registry must give a bundle, got nothing$"):
        lifecycle.open_champion(*PAIR)
    keep(lifecycle, folder, configuration, 1)
    assert lifecycle.open_champion(*PAIR).sha256 == sha256


def test_while_the_store_is_away_no_model_is_taken_for_new(
    lifecycle: Lifecycle, write: Writer, fake_store: Any, monkeypatch: Any
) -> None:
    """Whether it is one that a person took out cannot be seen then: nothing is registered."""
    first = write()
    lifecycle.register(first)
    lifecycle.retire(*PAIR, 1, "it harmed")

    def away(location: str) -> Any:
        raise UnavailableError("registry must give a bundle, got nothing")

    with monkeypatch.context() as patch:
        patch.setattr(fake_store, "fetched", away)
        with pytest.raises(UnavailableError):
            lifecycle.register(write(slope=11.0))
    assert lifecycle.register(write(slope=11.0)).version == 2


def test_a_kept_copy_that_is_another_bundle_is_not_served(
    lifecycle: Lifecycle, write: Writer, fake_store: Any, configuration: Configuration
) -> None:
    lifecycle.register(write())
    champion = measured(lifecycle, 2.0)
    other = write(slope=9.0, champion=champion)
    lifecycle.register(other, champion=champion)
    keep(lifecycle, other, configuration, 1)
    lifecycle.rollback(*PAIR)
    deleted(fake_store, 1)
    with pytest.raises(RefusedError, match=r"must be .* as the ledger says, got .*assay retire"):
        lifecycle.open_champion(*PAIR)
    kept_bundle(configuration.home, *PAIR, 1).parent.rename(configuration.home / "away")
    kept_bundle(configuration.home, *PAIR, 1).parent.symlink_to(configuration.home / "away")
    with pytest.raises(RefusedError, match=r"path: expected one below .*assay retire"):
        lifecycle.open_champion(*PAIR)
    (configuration.home / "bundles" / "performance" / "redis").unlink()
    (configuration.home / "away").rename(configuration.home / "bundles" / "performance" / "redis")
    (kept_bundle(configuration.home, *PAIR, 1) / "model.onnx").write_bytes(b"")
    with pytest.raises(RefusedError, match=r"got model\.onnx changed.*assay retire"):
        lifecycle.open_champion(*PAIR)


def test_a_champion_that_is_lost_is_retired_and_the_workload_goes_on(
    lifecycle: Lifecycle, write: Writer, fake_store: Any
) -> None:
    lifecycle.register(write())
    deleted(fake_store, 1)
    way_out = "assay retire --task performance --workload redis --version 1"
    with pytest.raises(RefusedError, match=f"got neither .*{way_out}"):
        lifecycle.open_champion(*PAIR)
    done = lifecycle.retire(*PAIR, 1, reason="deleted by mistake")
    assert (done.model, done.version, done.was_champion, done.champion) == (MODEL, 1, True, None)
    last = lifecycle.history()[-1].move
    assert (last.action, last.reason, last.actor, last.previous_version) == ("retire", "deleted by mistake", "ann", 1)
    assert lifecycle.reconcile() == ()
    with pytest.raises(RefusedError, match="must have a champion, got none"):
        lifecycle.open_champion(*PAIR)
    again = lifecycle.register(write(slope=9.0))
    assert (again.version, again.alias, again.reason) == (2, "champion", "no champion yet")
    for call in (lambda: lifecycle.promote(*PAIR, version=1), lambda: lifecycle.retire(*PAIR, 1)):
        with pytest.raises(RefusedError, match="it was retired"):
            call()


def test_the_champion_before_stands_where_the_champion_is_retired(
    lifecycle: Lifecycle, write: Writer, fake_store: Any
) -> None:
    for slope in (8.0, 9.0, 10.0):
        champion = measured(lifecycle, 2.0)
        lifecycle.register(write(slope=slope, champion=champion), champion=champion)
    assert lifecycle.retire(*PAIR, 2).champion == 3, "an earlier one: nobody rolls back to it any more"
    assert lifecycle.retire(*PAIR, 3).champion == 1
    assert fake_store.aliases == {(MODEL, "champion"): 1}
    with pytest.raises(RefusedError, match="got 1 as its first"):
        lifecycle.rollback(*PAIR)
    for version, why in ((7, "the ledger does not know it"), (3, "it was retired")):
        with pytest.raises(RefusedError, match=why):
            lifecycle.retire(*PAIR, version)


def test_a_challenger_is_retired(lifecycle: Lifecycle, write: Writer, fake_store: Any) -> None:
    lifecycle.register(write())
    champion = measured(lifecycle, 1.0)
    lifecycle.register(write(slope=9.0, champion=champion), champion=champion)
    assert lifecycle.retire(*PAIR, 2) == Retirement(MODEL, 2, 1, False)
    assert fake_store.aliases == {(MODEL, "champion"): 1}
    with pytest.raises(RefusedError, match="must have a challenger to promote, got none"):
        lifecycle.promote(*PAIR)


# Faults


def invariants(configuration: Configuration, fake_store: Any) -> None:
    """What must hold after any crash, once the next process has started."""
    ledger = Ledger(configuration.ledger_path, configuration.public_key_path)
    standing = ledger.standing(*PAIR)
    known = {*standing.registered, *standing.rejected}
    assert {version for _, version in fake_store.versions} == known, "nothing half-registered, nothing lost"
    assert fake_store.aliases.get((MODEL, "champion")) == standing.champion
    assert fake_store.aliases.get((MODEL, "challenger")) == standing.challenger
    assert len(fake_store.uploads) == len(known), "no orphaned upload"
    unfinished = configuration.ledger_path.parent / "unfinished"
    assert list(unfinished.glob("*")) == []


def restart(opened: Opener, configuration: Configuration, fake_store: Any) -> Lifecycle:
    fake_store.revive()
    fresh = opened()
    fresh.reconcile()
    invariants(configuration, fake_store)
    return fresh


CALLS_OF_A_REGISTRATION = 17


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", range(CALLS_OF_A_REGISTRATION + 1))
def test_a_registration_killed_at_any_call_is_completed_or_gone(
    opened: Opener,
    configuration: Configuration,
    lifecycle: Lifecycle,
    write: Writer,
    fake_store: Any,
    crash: type[BaseException],
    call: int,
    when: str,
) -> None:
    lifecycle.register(write())
    champion = measured(lifecycle, 2.0)
    folder = write(slope=9.0, champion=champion)
    fake_store.calls, fake_store.crash_at = 0, (call, when)
    crashed = False
    try:
        lifecycle.register(folder, champion=champion)
    except crash:
        crashed = True
    assert crashed == (call < CALLS_OF_A_REGISTRATION)
    fresh = restart(opened, configuration, fake_store)
    champion_now = fresh.champion(*PAIR)
    assert champion_now in (1, 2)
    fresh.open_champion(*PAIR)
    again = fresh.register(write(slope=8.0, test_mse=0.5), champion=measured(fresh, 2.0))
    assert again.alias == "champion"
    assert again.version > (champion_now or 0)
    invariants(configuration, fake_store)


def test_a_ticket_that_a_power_cut_left_empty_blocks_no_registration(
    configuration: Configuration, lifecycle: Lifecycle, write: Writer, capsys: pytest.CaptureFixture[str]
) -> None:
    unfinished = configuration.ledger_path.parent / "unfinished"
    unfinished.mkdir(parents=True)
    (unfinished / "ab.json").touch()
    assert lifecycle.reconcile() == () and str(unfinished / "ab.json") in capsys.readouterr().err
    assert lifecycle.register(write()).alias == "champion"
    assert [path.name for path in unfinished.iterdir()] == ["ab.unreadable"]


@pytest.mark.parametrize("part", [0.0, 0.4, 1.0])
def test_a_registration_killed_in_the_ledgers_write_is_completed_or_gone(
    opened: Opener,
    configuration: Configuration,
    lifecycle: Lifecycle,
    write: Writer,
    fake_store: Any,
    crash: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
    part: float,
) -> None:
    lifecycle.register(write())

    def die(ledger: Ledger, data: bytes) -> None:
        with ledger.path.open("ab") as file:
            file.write(data[: int(len(data) * part)])
        fake_store.dead = True
        raise crash

    monkeypatch.setattr(LedgerFile, "_write", die)
    with pytest.raises(crash):
        lifecycle.register(write(slope=9.0), champion=measured(lifecycle, 2.0))
    monkeypatch.undo()
    fresh = restart(opened, configuration, fake_store)
    # Entries are written as one: what half a write leaves is a prefix, and a version that is registered.
    assert fresh.champion(*PAIR) == (2 if part == 1.0 else 1)
    fresh.register(write(slope=8.0, test_mse=0.5), champion=measured(fresh, 2.0))
    invariants(configuration, fake_store)


def test_a_failing_store_registers_nothing_and_cleans_up_at_once(
    configuration: Configuration, lifecycle: Lifecycle, write: Writer, fake_store: Any, monkeypatch: Any
) -> None:
    for name in ("upload", "create_version"):

        def fail(*args: Any, **options: Any) -> Any:
            raise AssayError("registry must take it, got No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(fake_store, name, fail)
            with pytest.raises(AssayError, match="No space left"):
                lifecycle.register(write())
        invariants(configuration, fake_store)
    assert lifecycle.register(write()).version == 1


def test_a_store_that_keeps_half_of_a_file_registers_nothing(
    configuration: Configuration, lifecycle: Lifecycle, write: Writer, fake_store: Any, monkeypatch: Any
) -> None:
    upload = fake_store.upload

    def halve(*args: Any) -> Any:
        done = upload(*args)
        evidence = Path(done.location) / "evidence.json"
        evidence.write_text(evidence.read_text().replace("0.8", "0.9"))
        return done

    with monkeypatch.context() as patch:
        patch.setattr(fake_store, "upload", halve)
        for options in ({}, {"status": "UNKNOWN"}):
            with pytest.raises(AssayError, match="expected the uploaded content, got other content"):
                lifecycle.register(write(**options))
            invariants(configuration, fake_store)


@pytest.mark.parametrize("function", ["fsync", "write"])
def test_a_full_disk_at_the_ledger_registers_nothing(
    opened: Opener,
    configuration: Configuration,
    lifecycle: Lifecycle,
    write: Writer,
    fake_store: Any,
    monkeypatch: pytest.MonkeyPatch,
    function: str,
) -> None:
    lifecycle.register(write())
    folder = write(slope=9.0)

    def full(*args: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(f"serving.ledger_file.os.{function}", full)
        with pytest.raises(AssayError, match="No space left on device"):
            lifecycle.register(folder, champion=measured(lifecycle, 2.0))
    restart(opened, configuration, fake_store)
    assert lifecycle.champion(*PAIR) == 1
    assert lifecycle.register(folder, champion=measured(lifecycle, 2.0)).alias == "champion"
