"""Keys are rotated and revoked: what was signed stays, nothing comes in by a key that is gone. Attacks and kills."""

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from feature_store.errors import AssayError, RefusedError
from models.configuration import Configuration
from serving.admission import sign_again
from serving.bundle import CheckedBundle, check_bundle, open_bundle
from serving.control.champion import Champion, champion_of_ledger
from serving.control.last_good import LastGood
from serving.control.seen_ledger import SeenLedger
from serving.kept_bundles import keep_bundle, kept_bundle
from serving.keys import fingerprint, load_private_key, load_public_keys, write_public_keys
from serving.ledger import Ledger
from serving.ledger_entry import GENESIS, Entry, sign_entry, signer_of
from serving.lifecycle import Lifecycle
from serving.moves import Move
from serving.project_keys import KeyUse, SignedAgain, key_uses
from serving.signature import SIGNATURE_FILE, read_folder, sign_folder, verify_files, verify_with_library
from serving.state_folder import StateFolder, state_folder
from tests.serving.conftest import Crash, FakeStore, Verdict
from tests.serving.measured import measured_champion

PAIR = ("performance", "redis")
MODEL = "assay.performance.redis"
NOON = "2026-01-31T12:00:00+00:00"
Writer = Callable[..., Path]


@dataclass(frozen=True)
class Project:
    """A project whose first version was signed with a key that somebody has copied meanwhile."""

    configuration: Configuration
    store: FakeStore
    lifecycle: Lifecycle
    stolen: Path
    old: str

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.configuration.ledger_path, self.configuration.public_key_path)

    @property
    def path(self) -> Path:
        assert isinstance(self.configuration.ledger_path, Path)
        return self.configuration.ledger_path

    @property
    def kept(self) -> Path:
        return kept_bundle(self.configuration.home, *PAIR, 1)

    @property
    def public(self) -> Path:
        return self.configuration.public_key_path

    def current(self) -> str:
        return fingerprint(load_private_key(self.configuration.private_key_path).public_key())

    def controller(self, public: Path | None = None) -> StateFolder:
        return state_folder(self.configuration.home, self.path, public or self.public)


@pytest.fixture
def opened(configuration: Configuration, fake_store: FakeStore, checker: Any) -> Callable[..., Lifecycle]:
    def noon() -> datetime:
        return datetime(2026, 1, 31, 12, tzinfo=UTC)

    return lambda checker=checker: Lifecycle(configuration, fake_store, "ann", noon, checker)


@pytest.fixture
def project(configuration: Configuration, fake_store: FakeStore, opened: Callable[..., Lifecycle], tmp_path: Path,
            bundle_writer: Writer) -> Project:
    lifecycle = opened()
    folder = bundle_writer(tmp_path / "first")
    lifecycle.register(folder)
    keep_bundle(folder, kept_bundle(configuration.home, *PAIR, 1))
    stolen = tmp_path / "stolen.key"
    stolen.write_bytes(configuration.private_key_path.read_bytes())
    stolen.chmod(0o600)
    return Project(configuration, fake_store, lifecycle, stolen, fingerprint(load_private_key(stolen).public_key()))


@pytest.fixture
def second(bundle_writer: Writer, tmp_path: Path) -> Path:
    """The bundle of a run that is past its gates."""
    champion = measured_champion(1, 1.0)
    return bundle_writer(tmp_path / "second", slope=9.0, champion=champion)


def register(lifecycle: Lifecycle, folder: Path) -> Any:
    return lifecycle.register(folder, champion=measured_champion(1, 1.0))


def revoked(project: Project) -> Project:
    project.lifecycle.keys.rotate()
    project.lifecycle.keys.revoke(project.old, "stolen")
    return project


def append(project: Project, entries: list[Entry], below: int | None = None) -> None:
    """What somebody writes who may write the state folder; `below`: entries that he leaves."""
    lines = project.path.read_bytes().splitlines(keepends=True)[:below]
    project.path.write_bytes(b"".join([*lines, *(entry.line for entry in entries)]))
    project.path.with_name(f"{project.path.name}.head").unlink(missing_ok=True)


def forged(project: Project, action: Any, below: int | None = None, **changes: Any) -> list[Entry]:
    """An entry on top of the first ones, signed with the stolen key."""
    entries = project.ledger.verify()[:below]
    move = Move(action, NOON, *PAIR, MODEL, 1, 1, entries[0].move.bundle_sha256, True, "", "mallory")
    return [sign_entry(load_private_key(project.stolen), replace(move, **changes), len(entries), entries[-1].hash)]


def his_first_entry(project: Project) -> list[Entry]:
    """The first version registered with another bundle."""
    move = replace(project.ledger.verify()[0].move, bundle_sha256="e" * 64)
    return [sign_entry(load_private_key(project.stolen), move, 0, GENESIS)]


def about_key(key: str) -> dict[str, Any]:
    return {"task": "", "workload": "", "model": "", "version": 0, "previous_version": None, "bundle_sha256": key}


@contextmanager
def dying(point: int, failure: type[BaseException] = Crash) -> Iterator[list[str]]:
    """The process dies before its `point`-th change of a file, and changes nothing more. Yields where it died.

    `failure`: what every further change raises; of an OSError the process lives on, on a full disk.
    """
    died: list[str] = []
    here = threading.get_ident()  # no thread of another test dies
    changes = iter(range(point))

    def wrapped(name: str) -> Callable[..., Any]:
        original = getattr(os, name)

        def call(*arguments: Any, **options: Any) -> Any:
            is_change = name != "open" or arguments[1] & (os.O_WRONLY | os.O_RDWR)
            if is_change and threading.get_ident() == here and next(changes, None) is None:
                died.append(name)
                raise failure
            return original(*arguments, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in ("open", "write", "fsync", "chmod", "link", "replace", "unlink"):
            patch.setattr(os, name, wrapped(name))
        yield died


def test_a_rotation_is_told_by_the_old_key_and_everything_stays_valid(project: Project, second: Path) -> None:
    old, new = project.lifecycle.keys.rotate()
    private = project.configuration.private_key_path
    assert (old, new) == (project.old, project.current()) and old != new
    assert list(load_public_keys(project.public).by_fingerprint) == [new, old]
    assert project.public.stat().st_mode & 0o777 == 0o644
    assert private.with_name(f"{private.name}.{old[:12]}").read_bytes() == project.stolen.read_bytes()
    assert {path.name: path.stat().st_mode & 0o777 for path in private.parent.glob("assay.key*")} == {
        "assay.key": 0o600, f"assay.key.{old[:12]}": 0o600}

    assert register(project.lifecycle, second).version == 2
    entries, keys = project.ledger.verify(), load_public_keys(project.public)
    assert [entry.move.action for entry in entries[3:]] == ["rotate_key", "register", "challenger"]
    assert entries[3].move.bundle_sha256 == new and entries[3].move.actor == "ann"
    assert [signer_of(entry, keys) for entry in entries] == [old] * 4 + [new] * 2
    assert project.lifecycle.open_champion(*PAIR).sha256 == open_bundle(project.kept).sha256
    assert verify_files(read_folder(second), project.public, "") == new
    assert verify_files(read_folder(project.kept), project.public, "") == old
    verify_with_library(project.kept, project.public)
    assert project.lifecycle.reconcile() == () and project.lifecycle.registry_audit.audit() == ()


@pytest.mark.parametrize("when", ["before its signature", "after its signature"])
def test_keys_rotated_during_a_run(
    project: Project, opened: Callable[..., Lifecycle], second: Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run was exported and gated with the old key in place; its process was opened before."""
    run, upload = opened(), project.store.upload

    def rotated_meanwhile(*arguments: Any) -> Any:
        project.lifecycle.keys.rotate()
        return upload(*arguments)

    if when == "before its signature":
        project.lifecycle.keys.rotate()
    else:
        monkeypatch.setattr(project.store, "upload", rotated_meanwhile)
    assert register(run, second).alias == "challenger"
    signer = project.current() if when == "before its signature" else project.old
    assert verify_files(read_folder(second), project.public, "") == signer
    assert project.ledger.standing(*PAIR).challenger == 2 and len(project.ledger.verify()) == 6
    assert run.promote(*PAIR).version == 2


def test_a_run_whose_key_is_revoked_before_it_registers_is_refused(
    project: Project, second: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = project.store.upload

    def revoked_meanwhile(*arguments: Any) -> Any:
        revoked(project)
        return upload(*arguments)

    monkeypatch.setattr(project.store, "upload", revoked_meanwhile)
    with pytest.raises(RefusedError, match="got another key"):
        register(project.lifecycle, second)
    assert set(project.ledger.standing(*PAIR).registered) == {1}


FAILURES = pytest.mark.parametrize("failure", [Crash, OSError], ids=["killed", "full disk"])


def killed_everywhere(project: Project, work: Callable[[], object],
                      failure: type[BaseException]) -> Iterator[int]:
    """Yields after the death at each change of a file, on a state folder as it was before; ends with a whole run."""
    told = AssayError if failure is OSError else failure
    home, backup = project.configuration.home, project.configuration.home.with_name("backup")
    shutil.copytree(home, backup)
    for point in range(200):
        with dying(point, failure) as died, suppress(told):
            work()
        if not died:
            return
        yield point
        shutil.rmtree(home)
        shutil.copytree(backup, home)
    pytest.fail("it goes on changing files")


@FAILURES
def test_a_rotation_that_was_killed_anywhere_is_finished_by_the_next(
    project: Project, second: Path, failure: type[BaseException]
) -> None:
    points = 0
    for point in killed_everywhere(project, project.lifecycle.keys.rotate, failure):
        points += 1
        assert len(project.ledger.verify()) in (3, 4), point
        assert project.lifecycle.open_champion(*PAIR).sha256 == open_bundle(project.kept).sha256, point
        sign_folder(second, project.configuration.private_key_path)  # whoever signs in between
        assert verify_files(read_folder(second), project.public, ""), point
        if project.current() == project.old:  # else it died after the last of its steps
            project.lifecycle.keys.rotate()
        new = project.current()
        assert [entry.move.bundle_sha256 for entry in project.ledger.verify()[3:]] == [new], point
        assert list(load_public_keys(project.public).by_fingerprint) == [new, project.old], point
        assert len([*project.public.parent.glob("assay.key*")]) == 2, point
    assert points > 20


@pytest.mark.parametrize(("whose", "why"), [("current", "is the current one"), ("revoked", "was revoked")])
def test_a_key_that_was_left_lying_ready_does_not_come_back(project: Project, whose: str, why: str) -> None:
    revoked(project)
    private = project.configuration.private_key_path
    ready = private.with_name("assay.key.next")
    ready.write_bytes({"current": private, "revoked": project.stolen}[whose].read_bytes())
    ready.chmod(0o600)
    public = project.public.read_bytes()
    with pytest.raises(RefusedError, match=f"must be a new one, got .*{why}; remove that file"):
        project.lifecycle.keys.rotate()
    assert project.public.read_bytes() == public and len(project.ledger.verify()) == 5
    ready.unlink()
    assert project.lifecycle.keys.rotate()[1] == project.current()


@FAILURES
def test_a_revocation_that_was_killed_anywhere_is_finished_by_the_next(
    project: Project, failure: type[BaseException]
) -> None:
    project.lifecycle.keys.rotate()
    points = 0
    for point in killed_everywhere(project, lambda: project.lifecycle.keys.revoke(project.old, "stolen"), failure):
        points += 1
        assert len(project.ledger.verify()) in (4, 5), point
        project.lifecycle.keys.revoke(project.old, "stolen")
        assert [entry.move.action for entry in project.ledger.verify()[4:]] == ["revoke_key"], point
        assert list(load_public_keys(project.public).by_fingerprint) == [project.current()], point
    assert points > 5


def test_a_revocation_vouches_for_the_ledger_and_not_for_bundles(project: Project) -> None:
    files = read_folder(project.kept)
    project.lifecycle.keys.rotate()
    done = project.lifecycle.keys.revoke(project.old[:8], "stolen")
    assert (done.fingerprint, done.vouched_for, done.late) == (project.old, 4, ())
    assert list(load_public_keys(project.public).by_fingerprint) == [project.current()]
    entry = project.ledger.verify()[-1]
    assert (entry.move.action, entry.move.bundle_sha256, entry.move.reason) == ("revoke_key", project.old, "stolen")
    assert project.ledger.champion_of(*PAIR) == 1
    with pytest.raises(RefusedError, match="get a bundle that was signed again"):
        project.lifecycle.open_champion(*PAIR)
    with pytest.raises(RefusedError, match="get a bundle that was signed again"):
        champion_of_ledger(project.controller(), *PAIR)

    assert list(project.lifecycle.keys.sign_again()) == [SignedAgain(MODEL, 1, "")]
    again = read_folder(project.kept)
    assert {name for name in files if files[name] != again[name]} == {SIGNATURE_FILE} and files.keys() == again.keys()
    assert project.lifecycle.open_champion(*PAIR).sha256 == champion_of_ledger(project.controller(), *PAIR).sha256
    assert list(project.lifecycle.keys.sign_again()) == []
    assert project.lifecycle.keys.revoke(project.old, "again").vouched_for == 4, "it is revoked already"
    assert len(project.ledger.verify()) == 5


def test_a_second_revocation_vouches_for_the_first(project: Project, second: Path) -> None:
    revoked(project)
    between = project.current()
    register(project.lifecycle, second)
    project.lifecycle.keys.rotate()
    project.lifecycle.keys.revoke(between, "its machine was sold")
    actions = [entry.move.action for entry in project.ledger.verify()]
    assert actions[4:] == ["revoke_key", "register", "challenger", "rotate_key", "revoke_key"]
    assert [use.state for use in key_uses(project.configuration)[0]] == ["current", "revoked", "revoked"]


ATTACKS: dict[str, Callable[[Project], None]] = {
    "a stop on top": lambda one: append(one, forged(one, "stop_acting")),
    "a rotation to a key of his own on top": lambda one: append(one, forged(one, "rotate_key", **about_key("f" * 64))),
    "a revocation of the current key on top": lambda one: append(
        one, forged(one, "revoke_key", **about_key(one.current()))),
    "the revocation replaced by one of his own": lambda one: append(
        one, forged(one, "revoke_key", below=4, **about_key(one.old)), below=4),
    "the revocation cut away": lambda one: append(one, [], below=4),
    "the revocation cut away, and a stop": lambda one: append(one, forged(one, "stop_acting", below=4), below=4),
    "a ledger of his own": lambda one: append(one, his_first_entry(one), below=0),
    "another bundle below the revocation": lambda one: append(
        one, [*his_first_entry(one), *one.ledger.verify()[1:]], below=0),
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
def test_who_has_the_revoked_key_brings_nothing_into_the_ledger(project: Project, attack: Callable[[Project], None],
                                                                second: Path) -> None:
    revoked(project)
    attack(project)
    written = project.path.read_bytes()
    readers: list[Callable[[], object]] = [
        project.ledger.verify, project.ledger.standings, SeenLedger(project.controller()).standings,
        project.lifecycle.keys.rotate, lambda: list(project.lifecycle.keys.sign_again()),
        lambda: register(project.lifecycle, second), lambda: project.lifecycle.keys.revoke(project.old, "")]
    for read in readers:
        with pytest.raises(RefusedError):
            read()
    assert project.path.read_bytes() == written


def test_the_same_forgery_is_read_while_the_key_is_accepted(project: Project) -> None:
    """So that the attacks above fail for the right reason."""
    project.lifecycle.keys.rotate()
    append(project, forged(project, "stop_acting"))
    assert project.ledger.standing(*PAIR).stopped and len(project.ledger.verify()) == 5


def test_who_has_the_revoked_key_brings_in_no_bundle(project: Project, second: Path) -> None:
    revoked(project)
    list(project.lifecycle.keys.sign_again())
    sign_folder(second, project.stolen)
    with pytest.raises(RefusedError, match="got another key"):
        check_bundle(second, project.public)
    with pytest.raises(RefusedError):
        verify_with_library(second, project.public)
    signature = json.loads((second / SIGNATURE_FILE).read_text())
    signature["verificationMaterial"]["publicKey"]["hint"] = project.current()
    (second / SIGNATURE_FILE).write_text(json.dumps(signature))
    with pytest.raises(RefusedError, match="over its payload, it is not"):
        check_bundle(second, project.public)

    keep_bundle(second, project.kept)  # in the place of the champion's
    (problem,) = project.lifecycle.keys.sign_again()
    assert "as the ledger says" in problem.problem
    with pytest.raises(RefusedError, match="over its payload, it is not"):
        champion_of_ledger(project.controller(), *PAIR)


def test_a_revoked_private_key_writes_nothing_and_leaves_the_ledger_whole(project: Project) -> None:
    revoked(project)
    thief = Ledger(project.path, project.public, project.stolen)
    with pytest.raises(RefusedError, match="was it rotated away and revoked"):
        thief.append([replace(project.ledger.verify()[0].move, version=2, previous_version=1)])
    assert len(project.ledger.verify()) == 5


def test_without_an_entry_that_vouches_a_missing_key_fails_closed(project: Project) -> None:
    """Somebody took the old key out of the file by hand."""
    project.lifecycle.keys.rotate()
    keys = load_public_keys(project.public).by_fingerprint
    write_public_keys(project.public, [keys[project.current()]])
    for read in (project.ledger.verify, project.ledger.standings):
        with pytest.raises(RefusedError, match="must be signed with the project's key"):
            read()


def test_entries_that_the_key_signed_after_it_was_replaced_are_named(project: Project) -> None:
    project.lifecycle.keys.rotate()
    append(project, forged(project, "stop_acting"))
    append(project, forged(project, "rotate_key", **about_key("f" * 64)))  # to look as if all that came before it
    append(project, forged(project, "revoke_key", **about_key(project.old)))  # to look as if all were done
    done = project.lifecycle.keys.revoke(project.old, "stolen")
    assert [entry.move.action for entry in done.late] == ["stop_acting", "rotate_key", "revoke_key"]
    entries, keys = project.ledger.verify(), load_public_keys(project.public)
    assert entries[-1].move.reason == "stolen; signed with it after it was replaced: 4, 5, 6"
    assert len(entries) == 8 and signer_of(entries[-1], keys) == project.current()


def test_what_the_key_registered_after_it_was_replaced_is_never_signed_again(project: Project, second: Path) -> None:
    keys = project.lifecycle.keys
    current = project.configuration.private_key_path
    _, between = keys.rotate()
    own = current.read_bytes()
    current.write_bytes(project.stolen.read_bytes())  # a thief, or a run that read its key before
    register(project.lifecycle, second)
    project.lifecycle.promote(*PAIR)
    current.write_bytes(own)
    done = keys.revoke(project.old, "stolen")
    assert [entry.move.action for entry in done.late] == ["register", "challenger", "approve"]
    assert keys.revoke(project.old, "again").late == done.late, "as often as it is asked"
    keys.rotate()
    keys.revoke(between, "another one")
    first, other = keys.sign_again()
    assert first == SignedAgain(MODEL, 1, "") and "assay retire" in other.problem
    (other,) = keys.sign_again()
    assert other.version == 2 and "never signed again" in other.problem
    with pytest.raises(RefusedError, match="got another key"):
        project.lifecycle.open_champion(*PAIR)
    project.lifecycle.retire(*PAIR, 2)
    assert list(keys.sign_again()) == [] and project.lifecycle.open_champion(*PAIR)


def test_a_thief_does_not_say_which_entries_are_late(project: Project) -> None:
    project.lifecycle.keys.rotate()
    reason = "; signed with it after it was replaced: 0, 99"
    append(project, forged(project, "revoke_key", **about_key(project.old), reason=reason))
    append(project, forged(project, "register", version=2, model="another"))
    project.lifecycle.keys.revoke(project.old, f"stolen{reason}")  # and no person by accident, beside what is true
    assert project.ledger.verify()[-1].move.reason == f"stolen{reason}; signed with it after it was replaced: 4, 5"
    first, other = project.lifecycle.keys.sign_again()
    assert first == SignedAgain(MODEL, 1, "") and (other.version, "never" in other.problem) == (2, True)


def test_gates_that_a_thief_forged_are_not_signed_again(project: Project, bundle_writer: Writer,
                                                        tmp_path: Path) -> None:
    """Registered before anybody noticed, past `let_through`, so that the ledger calls it registered."""
    bad = bundle_writer(tmp_path / "bad", slope=3.0, test_mse=99999.0)
    (bad / "gates.json").write_bytes((project.kept / "gates.json").read_bytes())
    sign_folder(bad, project.stolen)
    append(project, forged(project, "register", version=2, bundle_sha256=open_bundle(bad).sha256))
    kept = kept_bundle(project.configuration.home, *PAIR, 2)
    keep_bundle(bad, kept)
    first, other = revoked(project).lifecycle.keys.sign_again()
    assert first == SignedAgain(MODEL, 1, "") and "must say what the evidence bears" in other.problem
    with pytest.raises(RefusedError, match="got another key"):
        check_bundle(kept, project.public)


def test_a_folder_that_is_exchanged_while_it_is_signed_again_gains_nothing(
    project: Project, second: Path, checker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sha256 = open_bundle(project.kept).sha256

    def read_and_exchange(folder: Path) -> dict[str, bytes]:
        files = read_folder(folder)
        shutil.rmtree(folder)
        shutil.copytree(second, folder)
        return files

    revoked(project)
    monkeypatch.setattr("serving.admission.read_folder", read_and_exchange)
    with pytest.raises(RefusedError, match="expected them as they were signed"):
        sign_again(project.kept, project.configuration, sha256, checker)
    with pytest.raises(RefusedError):
        check_bundle(project.kept, project.public)


def test_a_champion_that_is_not_signed_again_is_not_replaced_unseen(project: Project, second: Path) -> None:
    revoked(project)
    made = register(project.lifecycle, second)
    assert made.alias == "challenger" and "champion version 1 cannot be compared" in made.reason


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_after_a_lost_key_one_made_by_hand_goes_on(project: Project, second: Path) -> None:
    private = project.configuration.private_key_path
    private.unlink()
    subprocess.run(["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", private],
                   check=True, capture_output=True)
    made = subprocess.run(["openssl", "ec", "-in", private, "-pubout"], check=True, capture_output=True).stdout
    project.public.write_bytes(made + project.public.read_bytes())
    assert register(project.lifecycle, second).alias == "challenger"
    assert project.lifecycle.open_champion(*PAIR) and len(project.ledger.verify()) == 5
    assert project.lifecycle.keys.revoke(project.old, "lost").vouched_for == 5


def test_what_may_not_be_revoked(project: Project) -> None:
    keys = project.lifecycle.keys
    with pytest.raises(RefusedError, match="must not be the current one"):
        keys.revoke(project.old, "")
    with pytest.raises(AssayError, match=f"got 'xyz'; the keys are {project.old[:12]}"):
        keys.revoke("xyz", "")
    keys.rotate()
    with pytest.raises(AssayError, match="must be that of one key, got ''"):
        keys.revoke("", "")
    project.configuration.private_key_path.write_bytes(project.stolen.read_bytes())  # as a rotation half-way
    with pytest.raises(RefusedError, match="finishes a rotation that was interrupted"):
        keys.revoke(project.old, "")
    assert len(project.ledger.verify()) == 4


def test_what_is_not_proved_is_not_signed_again_and_the_others_are(
    project: Project, opened: Callable[..., Lifecycle], second: Path
) -> None:
    register(project.lifecycle, second)
    revoked(project)
    seen: list[Path] = []

    def refuse_the_first(proof: Path, *_: Any) -> Verdict:
        seen.append(proof)
        return Verdict(len(seen) > 1, "leaf 3 proves nothing")

    first, other = opened(checker=refuse_the_first).keys.sign_again()
    assert "leaf 3 proves nothing" in first.problem and (other.version, other.problem) == (2, "")
    with pytest.raises(RefusedError):
        check_bundle(project.kept, project.public)


def test_the_bundle_of_a_deleted_version_is_signed_again_where_it_was_left(project: Project) -> None:
    del project.store.versions[MODEL, 1]
    for path in [*project.kept.iterdir()]:
        path.unlink()
    project.kept.rmdir()
    revoked(project)
    assert list(project.lifecycle.keys.sign_again()) == [SignedAgain(MODEL, 1, "")]
    assert project.lifecycle.open_champion(*PAIR).contract.workload == "redis"


def test_a_controller_with_the_old_file_alone_fails_closed_and_says_what_to_copy(
    project: Project, second: Path, tmp_path: Path
) -> None:
    own = tmp_path / "controller.pub"
    own.write_bytes(project.public.read_bytes())
    ledger = SeenLedger(project.controller(own))
    project.lifecycle.keys.rotate()
    assert champion_of_ledger(project.controller(own), *PAIR, ledger), "nothing is signed with the new key yet"
    register(project.lifecycle, second)
    with pytest.raises(RefusedError, match=f"copy the project's file of public keys to {own}"):
        champion_of_ledger(project.controller(own), *PAIR, ledger)
    with pytest.raises(RefusedError, match=f"copy the project's file of public keys to {own}"):
        check_bundle(second, own)
    own.write_bytes(project.public.read_bytes())
    assert champion_of_ledger(project.controller(own), *PAIR, ledger) and check_bundle(second, own)


def test_a_controller_that_acts_falls_back_until_its_champion_is_signed_again(project: Project, tmp_path: Path) -> None:
    away = False

    def looked_at() -> CheckedBundle:
        if away:
            raise AssayError("the state folder is away")
        return champion_of_ledger(project.controller(), *PAIR)

    champion = Champion(LastGood(looked_at, tmp_path / "controller", project.public))
    project.lifecycle.keys.rotate()
    champion.poll()
    assert not champion.current().refused
    project.lifecycle.keys.revoke(project.old, "stolen")
    champion.poll()
    assert "got another key" in champion.current().refused
    list(project.lifecycle.keys.sign_again())
    champion.poll()
    assert not champion.current().refused
    away = True
    assert LastGood(looked_at, tmp_path / "controller", project.public)().sha256 == open_bundle(project.kept).sha256


def test_the_copy_of_a_controller_that_saw_no_refusal_is_signed_again_too(project: Project, tmp_path: Path) -> None:
    kept = LastGood(lambda: champion_of_ledger(project.controller(), *PAIR), tmp_path / "controller", project.public)
    kept()
    revoked(project)
    list(project.lifecycle.keys.sign_again())
    kept()  # between two looks it was revoked and signed again
    assert check_bundle(tmp_path / "controller" / "bundle", project.public)


def test_keys_are_shown_with_their_state_their_time_and_their_bundles(project: Project, second: Path) -> None:
    project.lifecycle.keys.rotate()
    made = register(project.lifecycle, second)
    keep_bundle(second, kept_bundle(project.configuration.home, *PAIR, made.version))
    new, old = key_uses(project.configuration)[0]
    assert (new.fingerprint, new.state, new.since, new.bundles) == (project.current(), "current", NOON, 1)
    assert (old.fingerprint, old.state, old.since, old.bundles) == (project.old, "accepted", NOON, 1)
    assert (new.pem + old.pem).encode() == project.public.read_bytes()
    project.lifecycle.keys.revoke(project.old, "stolen")
    uses, unaccepted = key_uses(project.configuration)
    assert uses[1] == KeyUse(project.old, "revoked", NOON) and unaccepted == 1
