"""What is served after a restart while the ledger or a bundle is away, and what is not."""

import os
import shutil
import time
from dataclasses import replace

import pytest
import requests

from feature_store.errors import AssayError, InputError, RefusedError
from feature_store.whole_files import write_file
from serving.keys import create_private_key, load_public_keys, write_public_keys
from serving.ledger import Ledger
from serving.moves import Move
from serving.predictions import champions as champions_module
from serving.predictions.champions import Champions
from tests.serving.predictions.running import Place, running

NAME = "performance.redis"


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "own"
    made.mkdir()
    return made


@pytest.fixture
def started(place, folder):
    """Starts the service's following of the ledger, again and again."""
    return lambda tell=print: Champions(place.state, tell, folder=folder)


def served(champions, name=NAME):
    one = champions()[name]
    return one.version, one.is_last_good


def copy_of(folder, version):
    return folder / "bundles" / "performance" / "redis" / str(version)


def take_away(place):
    """The ledger and all bundles, not the key. Returns what brings them back."""
    away = place.state.home.with_name("away")
    away.mkdir()
    for name in ("ledger", "bundles"):
        (place.state.home / name).rename(away / name)

    def back():
        for name in ("ledger", "bundles"):
            (away / name).rename(place.state.home / name)

    return back


def test_a_start_without_the_ledger_serves_the_last_good_one_until_the_real_one_is_there(place, started):
    sha256 = place.promote(1)
    started()
    back = take_away(place)
    told = []
    champions = started(told.append)
    assert served(champions) == ("1", True) and champions()[NAME].predictor.sha256 == sha256
    assert champions()[NAME].reason.startswith("ledger: ")
    assert told[0].startswith(f"{NAME}: version 1 is served, the last good one, from this service's copy; ledger: ")
    champions.look()
    assert served(champions) == ("1", True)
    back()
    place.promote(2)
    champions.look()
    assert served(champions) == ("2", False) and champions()[NAME].reason == ""


def test_without_a_copy_a_start_without_the_ledger_is_refused_as_before(place, started):
    place.promote(1)
    Champions(place.state, print)
    take_away(place)
    with pytest.raises(AssayError, match="ledger must be there"):
        started()


def test_the_age_of_the_last_look_survives_the_restart(place, started, folder):
    place.promote(1)
    champions = started()
    os.utime(folder / "ledger", (1, 1))
    champions.look()  # nothing new: only the time at which it was seen
    take_away(place)
    time.sleep(0.3)
    assert 0.3 <= started().unseen_s < 60.0


@pytest.mark.parametrize("newer", [False, True])
def test_a_start_without_the_champion_s_bundle_serves_the_copy_until_it_is_there(place, started, newer, folder):
    place.promote(1)
    started()
    away = place.kept(1).with_name("elsewhere")
    place.kept(1).rename(away)
    if newer:
        place.promote(2, keep=False)
        away = place.kept(2).with_name("away-2")
    version = "2" if newer else "1"
    champions = started()
    champions.look()
    assert served(champions) == ("1", True) and f"version {version} cannot be served" in champions()[NAME].reason
    away.rename(place.kept(int(version)))
    champions.look()
    assert served(champions) == (version, False) and champions()[NAME].reason == ""
    assert [path.name for path in copy_of(folder, 1).parent.iterdir()] == [version]


def test_what_could_not_be_kept_is_kept_at_a_later_look(place, started, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    place.promote(1)
    told = []
    with monkeypatch.context() as patched:
        patched.setattr("serving.predictions.last_good.whole_folder", full)
        champions = started(told.append)
        champions.look()
    assert served(champions) == ("1", False) and sum("cannot be kept" in line for line in told) == 1
    champions.look()
    take_away(place)
    assert served(started()) == ("1", True)


@pytest.mark.parametrize("action", ["retire", "stop_acting"])
@pytest.mark.parametrize("seen", [False, True])
def test_a_retired_or_stopped_one_does_not_come_back(place, started, action, seen):
    place.promote(1)
    champions = started()
    place.move(action, 1)
    if seen:
        champions.look()
        take_away(place)
    else:
        place.kept(1).rename(place.kept(1).with_name("elsewhere"))
    with pytest.raises(RefusedError, match="a champion must be there to be served"):
        started()


def test_one_that_was_rolled_back_while_nobody_served_is_not_served(place, started):
    place.promote(1)
    place.promote(2)
    started()
    place.move("rollback", 1)
    place.kept(1).rename(place.kept(1).with_name("elsewhere"))
    with pytest.raises(RefusedError, match="not be retired or rolled back"):
        started()


@pytest.mark.parametrize("trouble", ["stopped for a while", "a start that fails"])
def test_the_last_good_copy_outlasts_what_passes(place, started, monkeypatch, trouble):
    place.promote(1)
    champions = started()
    if trouble == "stopped for a while":
        for action in ("stop_acting", "resume_acting"):
            place.move(action, 1)
            place.kept(1).rename(place.kept(1).with_name("elsewhere"))
            champions.look()
            place.kept(1).with_name("elsewhere").rename(place.kept(1))
    else:
        with monkeypatch.context() as patched:
            patched.setattr(champions_module, "open_version", lambda *_: place.state.home.joinpath("no").read_bytes())
            with pytest.raises(RefusedError, match="a champion must be there to be served"):
                started()
    take_away(place)
    assert served(started()) == ("1", True)


@pytest.mark.parametrize("point", ["control.seen_ledger.write_head_file", "predictions.champions.Champions._each",
                                   "predictions.last_good.LastGood.keep_bundle"])
def test_a_kill_while_it_is_kept_leaves_what_a_start_without_the_ledger_can_serve(place, started, monkeypatch, point):
    place.promote(1)
    champions = started()
    place.promote(2)

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(f"serving.{point}", killed)
        champions.look()
    take_away(place)
    assert served(started()) == ("1", True)


def old_bundle(folder, old):
    shutil.rmtree(copy_of(folder, 2))
    shutil.copytree(old / "bundles/performance/redis/1", copy_of(folder, 2))


def old_version_beside(folder, old):
    shutil.rmtree(copy_of(folder, 2).parent)
    shutil.copytree(old / "bundles/performance/redis/1", copy_of(folder, 1))


def old_ledger_and_bundle(folder, old):
    old_version_beside(folder, old)
    shutil.copy(old / "ledger", folder / "ledger")


def edited_model(folder, _):
    model = copy_of(folder, 2) / "model.onnx"
    model.write_bytes(model.read_bytes()[:-1] + b" ")


def edited_ledger(folder, _):
    ledger = folder / "ledger"
    ledger.write_bytes(ledger.read_bytes().replace(b'"actor":"test"', b'"actor":"tess"'))


@pytest.mark.parametrize(("attack", "message"), [
    (old_bundle, "as the ledger says"), (old_version_beside, "not be retired or rolled back"),
    (old_ledger_and_bundle, "its end was cut off or it was replaced"), (edited_model, "model.onnx"),
    (edited_ledger, "hash")])
def test_what_was_put_back_or_edited_is_refused(place, started, folder, tmp_path, attack, message):
    place.promote(1)
    champions = started()
    shutil.copytree(folder, tmp_path / "old")
    place.promote(2)
    place.move("retire", 1)
    champions.look()
    assert [path.name for path in copy_of(folder, 2).parent.iterdir()] == ["2"]
    take_away(place)
    assert served(started()) == ("2", True)
    attack(folder, tmp_path / "old")
    with pytest.raises(RefusedError, match=message):
        started()


def test_a_copy_whose_key_was_revoked_is_refused(place, started, tmp_path):
    place.promote(1)
    champions = started()
    old = load_public_keys(place.state.public_key_path).by_fingerprint.values()
    new = create_private_key(tmp_path / "new.key").public_key()
    write_public_keys(place.state.public_key_path, [new, *old])
    Ledger(place.state.ledger_path, place.state.public_key_path, tmp_path / "new.key").append([Move(
        "register", "2026-11-23T00:00:00+00:00", "performance", "redis", "assay.performance.redis", 2, 1, "0" * 64,
        gates_passed=True, reason="", actor="test")])
    champions.look()
    take_away(place)
    assert served(started()) == ("1", True)
    write_public_keys(place.state.public_key_path, [new])  # the ledger's last entry is signed with it, the copy is not
    with pytest.raises(RefusedError, match="sign"):
        started()


def test_a_ledger_that_hangs_counts_as_away(place, started, monkeypatch):
    place.promote(1)
    started()
    monkeypatch.setattr(champions_module, "WITHIN_S", 0.2)
    monkeypatch.setattr(champions_module.SeenLedger, "chain", lambda _: time.sleep(1.0))
    champions = started()
    assert served(champions) == ("1", True) and "must answer within 0.2 s" in champions()[NAME].reason


def test_a_ledger_that_cannot_be_kept_is_said_and_leaves_no_older_one(place, started, folder, monkeypatch):
    place.promote(1)
    told = []
    champions = started(told.append)

    def full(path, content):
        raise OSError(28, "No space left on device")

    place.move("retire", 1)
    monkeypatch.setattr("serving.predictions.last_good.write_file", full)
    for _ in range(2):
        champions.look()
    assert copy_of(folder, 1).is_dir(), "nothing is deleted for a ledger that is not kept"
    assert sum("ledger cannot be kept: No space left on device" in line for line in told) == 1
    assert not (folder / "ledger").exists()
    monkeypatch.setattr("serving.predictions.last_good.write_file", write_file)
    champions.look()
    assert (folder / "ledger").read_bytes() == place.state.ledger_path.read_bytes()
    assert not copy_of(folder, 1).exists()


def versions(place):
    return sorted(int(path.name) for path in place.kept(1).parent.iterdir())


@pytest.mark.parametrize("where", ["state", "state/new", "state/controllers/redis", ".", "link", "link/new"])
def test_a_folder_that_is_holds_or_lies_in_the_state_folder_is_refused_and_nothing_deleted(place, tmp_path, where):
    for version in (1, 2, 3):
        place.promote(version)
    (tmp_path / "link").symlink_to("state")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match="--folder must lie outside of the state folder and hold neither"):
        Champions(place.state, print, folder=tmp_path / where)
    assert sorted(tmp_path.rglob("*")) == before and versions(place) == [1, 2, 3]


def test_a_folder_that_holds_the_ledger_is_refused(place, folder):
    place.promote(1)
    elsewhere = replace(place.state, ledger_path=place.state.ledger_path.rename(folder / "moves.jsonl"))
    with pytest.raises(InputError, match="nor the ledger"):
        Champions(elsewhere, print, folder=folder)


def test_bundles_that_others_put_into_a_folder_are_not_deleted(place, folder):
    place.promote(2)
    shutil.copytree(place.kept(2), copy_of(folder, 1))
    with pytest.raises(InputError, match="got one with bundles that it has not put there"):
        Champions(place.state, print, folder=folder)
    assert [path.name for path in folder.iterdir()] == ["bundles"] and copy_of(folder, 1).is_dir()


def test_what_is_no_folder_is_refused_in_a_line(place, tmp_path):
    place.promote(1)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="--folder must be a folder that can be written, got") as error:
        Champions(place.state, print, folder=tmp_path / "file")
    assert "\n" not in str(error.value)


def test_a_new_folder_beside_foreign_files_is_taken_and_kept_to_the_served_version(place, tmp_path):
    folder = tmp_path / "disk" / "own"
    (folder / "lost+found").mkdir(parents=True)
    for version in (1, 2):
        place.promote(version)
        Champions(place.state, print, folder=folder)
    assert [path.name for path in copy_of(folder, 1).parent.iterdir()] == ["2"] and versions(place) == [1, 2]
    assert (folder / "lost+found").is_dir()


def test_the_service_says_that_it_serves_a_copy(place, folder):
    place.promote(1)
    options = ("--home", place.state.home, "-w", "redis", "--folder", folder, "--poll", "0.05")
    with running(*options) as service:
        assert requests.get(f"{service.url}/v2/health/ready", timeout=20).json() == {"ready": True}
    back = take_away(place)
    metric = f'assay_serve_model_last_good{{model="{NAME}"}}'
    with running(*options) as service:
        ready = requests.get(f"{service.url}/v2/health/ready", timeout=20)
        assert ready.status_code == 200
        assert ready.json() == {"ready": True, "parameters": {"last_good": f'["{NAME}"]'}}
        assert f"{metric} 1.0" in requests.get(f"{service.url}/metrics", timeout=20).text
        assert any("the last good one, from this service's copy; ledger: " in line for line in service.lines)
        back()
        service.wait_for(lambda: f"{metric} 0.0" in requests.get(f"{service.url}/metrics", timeout=20).text)
        assert requests.get(f"{service.url}/v2/health/ready", timeout=20).json() == {"ready": True}
