"""Ways round the gates that lead through the registry: each is found and named, and set right where nothing is lost."""

import copy
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from feature_store.errors import AssayError, RefusedError
from models.configuration import Configuration, load_configuration
from serving.kept_bundles import keep_bundle, kept_bundle
from serving.ledger import Ledger
from serving.lifecycle import Lifecycle
from serving.registry_audit import Healing
from serving.review_tags import WAITS_FOR, WAITS_TAG
from tests.serving.conftest import ROOT, FakeStore
from tests.serving.measured import measured_champion

MODEL = "assay.performance.redis"
PAIR = ("performance", "redis")
Writer = Callable[..., Path]
Way = Callable[[Any], object]


def noon() -> datetime:
    return datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory, checker: Any, bundle_writer: Writer) -> FakeStore:
    """Version 1 was champion, 2 is, 3 failed a gate, 4 was retired, 5 waits; all but 3 and 4 have copies."""
    folder = tmp_path_factory.mktemp("template")
    configuration = load_configuration(ROOT / "mlflow.yaml", {"ASSAY_HOME": str(folder / "home")})
    store = FakeStore(folder / "store")
    made = Lifecycle(configuration, store, "ann", noon, checker)
    for version, champion_mse in ((1, None), (2, 2.0), (3, 1.0), (4, 1.0), (5, 1.0)):
        champion = None if champion_mse is None else measured_champion(min(version - 1, 2), champion_mse)
        status = "REFUTED" if version == 3 else "PROVED"
        bundle = bundle_writer(folder / str(version), slope=10.0 + version, status=status, champion=champion)
        made.register(bundle, champion=champion)
        if version == 4:
            made.retire(*PAIR, 4)
        elif version != 3:
            keep_bundle(bundle, kept_bundle(configuration.home, *PAIR, version))
    standing = made._ledger.standing(*PAIR)
    assert (standing.champions, standing.challenger, standing.rejected) == ((1, 2), 5, {3})
    return store


@pytest.fixture
def fake_store(template: FakeStore, tmp_path: Path) -> FakeStore:
    """A copy of the template, artifacts and state folder with it."""
    store, before = copy.deepcopy(template), str(template.folder)
    store.folder = tmp_path / "store"
    shutil.copytree(template.folder, store.folder)
    shutil.copytree(template.folder.with_name("home"), tmp_path / "home")
    for item in store.versions.values():
        item["source"] = item["source"].replace(before, str(store.folder))
    store.uploads = {name: location.replace(before, str(store.folder)) for name, location in store.uploads.items()}
    return store


@pytest.fixture
def lifecycle(configuration: Configuration, fake_store: FakeStore, checker: Any) -> Lifecycle:
    return Lifecycle(configuration, fake_store, "ann", noon, checker)


def tag(store: Any, version: int, key: str, value: str | None) -> None:
    store.set_tag(MODEL, version, key, value)


def describe(store: Any, version: int, change: Callable[[str], str]) -> None:
    item = store.versions[MODEL, version]
    item["text"] = change(item["text"])


def stage(store: Any, version: int) -> None:
    store.versions[MODEL, version]["stage"] = "Production"


HEALED: dict[str, tuple[Way, int | None, str, str]] = {
    "the champion's alias on an older version":
        (lambda store: store.set_alias(MODEL, "champion", 1), None, "alias champion", "got version 1"),
    "the champion's alias on a version that failed":
        (lambda store: store.set_alias(MODEL, "champion", 3), None, "alias champion", "got version 3"),
    "the champion's alias deleted":
        (lambda store: store.set_alias(MODEL, "champion", None), None, "alias champion", "got unset"),
    "the challenger's alias deleted":
        (lambda store: store.set_alias(MODEL, "challenger", None), None, "alias challenger", "got unset"),
    "an alias of somebody's own on a version that failed":
        (lambda store: store.set_alias(MODEL, "production", 3), 3, "alias production", "one that was rejected"),
    "an alias of somebody's own on a version that was retired":
        (lambda store: store.set_alias(MODEL, "production", 4), 4, "alias production", "one that was retired"),
    "a stage for a version that failed":
        (lambda store: stage(store, 3), 3, "stage Production", "one that was rejected"),
    "a verdict that was edited":
        (lambda store: tag(store, 3, "verdict", "PROVED"), 3, "tag verdict",
         "'REFUTED' as the bundle says, got 'PROVED'"),
    "gates that passed by hand":
        (lambda store: tag(store, 3, "gates_passed", "true"), 3, "tag gates_passed", "'false' as the bundle says"),
    "a count of gates that was edited":
        (lambda store: tag(store, 3, "gates", "8 of 8"), 3, "tag gates", "'7 of 8, failed: specification'"),
    "a decision that was edited":
        (lambda store: tag(store, 3, "decision", "no champion yet"), 3, "tag decision",
         "'gates failed: specification'"),
    "a digest of another bundle":
        (lambda store: tag(store, 2, "bundle_sha256", "0" * 64), 2, "tag bundle_sha256", "got '0000"),
    "a tag that was removed":
        (lambda store: tag(store, 2, "data_version", None), 2, "tag data_version", "got none"),
    "a version that failed as one that waits":
        (lambda store: tag(store, 3, WAITS_TAG, WAITS_FOR), 3, f"tag {WAITS_TAG}", "unset as the ledger says"),
    "a version that waits, hidden from its reviewer":
        (lambda store: tag(store, 5, WAITS_TAG, None), 5, f"tag {WAITS_TAG}", "got none"),
    "a gate table that says yes":
        (lambda store: describe(store, 3, lambda text: text.replace("| NO |", "| yes |")), 3, "description",
         "the gate table of its bundle"),
    "a head tag that was removed":
        (lambda store: store.heads_by_model.pop(MODEL), None, "tag assay.ledger_head", "got None"),
}


@pytest.mark.parametrize("way", HEALED)
def test_what_was_changed_by_hand_is_found_named_and_set_right(
    lifecycle: Lifecycle, fake_store: Any, way: str
) -> None:
    change, version, what, said = HEALED[way]
    assert lifecycle.registry_audit.audit() == ()
    before = fake_store.models()
    change(fake_store)
    found = lifecycle.registry_audit.audit()
    assert [(one.version, one.what) for one in found] == [(version, what)]
    assert said in str(found[0]) and str(found[0]).endswith("; assay audit-registry --heal sets it right")
    assert fake_store.models() != before, "an audit changes nothing"
    healing = lifecycle.registry_audit.heal()
    assert (healing.healed, healing.left) == (found, ())
    assert fake_store.models() == before
    assert lifecycle.registry_audit.heal() == lifecycle.registry_audit.heal(), "safe to repeat"


def test_the_head_tag_of_an_older_ledger_is_set_right(lifecycle: Lifecycle, fake_store: Any) -> None:
    now, fake_store.heads_by_model[MODEL] = fake_store.heads_by_model[MODEL], lifecycle.history()[0].head
    (found,) = lifecycle.registry_audit.audit()
    assert found.what == "tag assay.ledger_head"
    assert lifecycle.registry_audit.heal().left == () and fake_store.heads_by_model[MODEL] == now


def put_by_hand(store: Any, model: str, version: int) -> None:
    store.versions[model, version] = {"source": store.versions[MODEL, 2]["source"], "tags": {}, "text": ""}


def lose_artifacts(store: Any, version: int) -> None:
    location = store.versions[MODEL, version]["source"]
    shutil.rmtree(location)
    store.uploads = {ticket: other for ticket, other in store.uploads.items() if other != location}


LOST: dict[str, tuple[Way, int, str, str]] = {
    "the champion's version deleted":
        (lambda store: (store.versions.pop((MODEL, 2)), store.aliases.pop((MODEL, "champion"))), 2, "version",
         "got none; controllers use a copy of its bundle; to take the version out, `assay retire --task performance "
         "--workload redis --version 2`"),
    "another signed bundle in the champion's place":
        (lambda store: store.versions[MODEL, 2].update(source=store.versions[MODEL, 1]["source"]), 2, "bundle",
         "its artifacts were exchanged"),
    "a model that was exchanged in a version that failed":
        (lambda store: (Path(store.versions[MODEL, 3]["source"]) / "evidence.json").write_text('{"metrics": {}}'), 3,
         "bundle", "nothing is served of a rejected version"),
    "artifacts deleted":
        (lambda store: lose_artifacts(store, 1), 1, "bundle", "controllers use a copy"),
    "a version that was put in by hand":
        (lambda store: put_by_hand(store, MODEL, 9), 9, "version", "got one that no entry names; nobody checked it"),
}


@pytest.mark.parametrize("way", LOST)
def test_what_no_pointer_brings_back_is_found_and_left(lifecycle: Lifecycle, fake_store: Any, way: str) -> None:
    change, version, what, said = LOST[way]
    change(fake_store)
    before = fake_store.models()
    found = lifecycle.registry_audit.audit()
    assert (version, what) in [(one.version, one.what) for one in found]
    assert said in next(str(one) for one in found if (one.version, one.what) == (version, what))
    assert not [one for one in found if "\n" in str(one)]
    healing = lifecycle.registry_audit.heal()
    assert healing == Healing((), found)
    assert fake_store.models() == before, "no version was made, and none removed"


def test_a_version_of_a_model_that_no_entry_names_is_found(lifecycle: Lifecycle, fake_store: Any) -> None:
    put_by_hand(fake_store, "assay.performance.nginx", 1)
    (found,) = lifecycle.registry_audit.audit()
    assert (found.model, found.version) == ("assay.performance.nginx", 1) and "nobody checked it" in str(found)


def test_an_exchanged_copy_in_the_state_folder_is_found(lifecycle: Lifecycle, configuration: Configuration) -> None:
    """It would stand for version 2 as soon as that is gone from the registry."""
    kept = kept_bundle(configuration.home, *PAIR, 2)
    shutil.rmtree(kept)
    shutil.copytree(kept_bundle(configuration.home, *PAIR, 1), kept)
    (found,) = lifecycle.registry_audit.audit()
    assert (found.version, found.what) == (2, "copy in the state folder") and "exchanged" in found.found


@pytest.mark.parametrize("served", ["another", "rubbish"])
def test_another_model_beside_the_bundle_is_found(
    lifecycle: Lifecycle, fake_store: Any, model_bytes: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch,
    served: str,
) -> None:
    """Nothing of ours reads it, but MLflow's tools do."""
    content = model_bytes(slope=99.0) if served == "another" else b"rubbish"
    monkeypatch.setattr(fake_store, "served_model", lambda location: content)
    found = lifecycle.registry_audit.audit()
    assert {(one.version, one.what) for one in found} == {
        (version, "model that MLflow serves") for version in (1, 2, 3, 5)}


def test_a_deleted_version_that_is_lost_everywhere_is_told_so(
    lifecycle: Lifecycle, fake_store: Any, configuration: Configuration
) -> None:
    lose_artifacts(fake_store, 1)
    fake_store.versions.pop((MODEL, 1))
    shutil.rmtree(kept_bundle(configuration.home, *PAIR, 1))
    (found,) = lifecycle.registry_audit.audit()
    assert found.version == 1 and "put it back from a backup, or take the version out" in found.remedy
    lifecycle.retire(*PAIR, 1)
    assert lifecycle.registry_audit.audit() == ()


def test_tags_that_the_ledger_bears_out_are_audited_though_the_bundle_is_lost(
    lifecycle: Lifecycle, fake_store: Any
) -> None:
    lose_artifacts(fake_store, 3)
    tag(fake_store, 3, "gates_passed", "true")
    assert [one.what for one in lifecycle.registry_audit.audit()] == ["bundle", "tag gates_passed"]


def test_a_ledger_that_does_not_verify_is_held_against_nothing(
    lifecycle: Lifecycle, configuration: Configuration
) -> None:
    configuration.ledger_path.write_bytes(configuration.ledger_path.read_bytes()[:-200])
    with pytest.raises(RefusedError, match="its last line was cut off"):
        lifecycle.registry_audit.audit()


def test_of_a_model_that_moved_meanwhile_tags_are_left_to_the_next_time(
    lifecycle: Lifecycle, fake_store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a tag would be set back to what the ledger said before the move."""
    tag(fake_store, 5, WAITS_TAG, None)
    reconcile = lifecycle._promotions.reconcile

    def promoted_first() -> Any:
        monkeypatch.undo()
        lifecycle.promote(*PAIR, 5)
        return reconcile()

    monkeypatch.setattr(lifecycle._promotions, "reconcile", promoted_first)
    assert lifecycle.registry_audit.heal().left == ()
    assert WAITS_TAG not in fake_store.versions[MODEL, 5]["tags"] and lifecycle.champion(*PAIR) == 5


def test_the_registry_is_listed_with_the_ledger_held_and_bundles_are_opened_without_it(
    lifecycle: Lifecycle, fake_store: Any, configuration: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A registration beside it is seen whole or not at all, and does not wait for downloads."""
    is_free: dict[str, bool] = {}

    def look(what: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any) -> Any:
            with ThreadPoolExecutor(1) as pool:
                is_free[what] = pool.submit(free).result()
            return call(*arguments)
        return called

    def free() -> bool:
        try:
            with Ledger(configuration.ledger_path, configuration.public_key_path).locked(timeout_s=0.05):
                return True
        except AssayError:
            return False

    for what in ("models", "fetched"):
        monkeypatch.setattr(fake_store, what, look(what, getattr(fake_store, what)))
    assert lifecycle.registry_audit.audit() == ()
    assert is_free == {"models": False, "fetched": True}


def test_what_the_registry_does_not_take_is_left(
    lifecycle: Lifecycle, fake_store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tag(fake_store, 3, "verdict", "PROVED")
    fake_store.versions[MODEL, 3]["stage"] = "Production"

    def refuse(*_: Any) -> None:
        raise AssayError("registry must take a tag, got no answer")

    monkeypatch.setattr(fake_store, "set_tag", refuse)
    healing = lifecycle.registry_audit.heal()
    assert [one.what for one in healing.healed] == ["stage Production"]
    assert [one.what for one in healing.left] == ["tag verdict"]


def test_an_empty_registry_has_nothing_wrong(configuration: Configuration, checker: Any, tmp_path: Path) -> None:
    empty = Lifecycle(configuration, FakeStore(tmp_path / "empty"), "ann", noon, checker)
    assert empty.registry_audit.audit() == ()
