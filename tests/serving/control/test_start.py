"""How a controller starts: whose folder it is, which key is asked for, and what may stop it."""

import json
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from feature_store.errors import AssayError, InputError, RefusedError
from feature_store.file_lock import file_lock
from serving.bundle import check_bundle
from serving.control.kill_switch import LEDGER_FILE
from serving.control.start import ControlRequest, _stops, champion_for, own_folder
from serving.kept_bundles import kept_bundle
from serving.keys import create_key_pair
from serving.ledger import Ledger
from serving.state_folder import state_folder
from tests.serving.control.policy_bundle import write_champion, write_policy_bundle

REQUEST = ControlRequest("nginx", Path("controller.yaml"))


@pytest.fixture
def configuration(tmp_path):
    return write_champion(tmp_path / "home")


def _stop(configuration):
    ledger = Ledger(configuration.ledger_path, configuration.public_key_path, configuration.private_key_path)
    ledger.append([replace(ledger.history()[-1].move, action="stop_acting", previous_version=1, reason="danger")])


def _why(request, state, place):
    return _stops(request, state, place, threading.Event())()


def test_a_bundle_of_a_folder_is_stopped_by_the_ledger_too(configuration, tmp_path):
    request = replace(REQUEST, bundle=kept_bundle(configuration.home, "autoscaling", "nginx", 1))
    with own_folder(request, configuration.home) as place:
        assert _why(request, configuration, place) == ""
        _stop(configuration)
        assert "stopped in the ledger by test" in _why(request, configuration, place)
        assert (place / LEDGER_FILE).exists()
        configuration.ledger_path.rename(tmp_path / "away")  # what was known last holds
        assert "stopped in the ledger by test" in _why(request, configuration, place)


def test_a_bundle_of_a_folder_needs_no_ledger(configuration, tmp_path):
    request = replace(REQUEST, bundle=kept_bundle(configuration.home, "autoscaling", "nginx", 1))
    shutil.rmtree(configuration.ledger_path.parent)
    with own_folder(request, configuration.home) as place:
        assert champion_for(request, configuration).current().refused == ""
        assert _why(request, configuration, place) == ""


@pytest.mark.parametrize("install", ["whole", "light"])
def test_one_key_is_asked_for_by_ledger_and_bundles(configuration, tmp_path, install):
    create_key_pair(tmp_path / "other.key", tmp_path / "other.pub")
    state = configuration if install == "whole" else state_folder(configuration.home)
    request = replace(REQUEST, folder=tmp_path / "controller", public_key=tmp_path / "other.pub")
    with own_folder(request, state.home), pytest.raises(RefusedError, match="must be signed with the project's key"):
        champion_for(request, state)
    shutil.copy(configuration.public_key_path, tmp_path / "moved.pub")
    configuration.public_key_path.unlink()
    request = replace(request, public_key=tmp_path / "moved.pub")
    with own_folder(request, state.home):
        assert champion_for(request, state).current().refused == ""


def test_a_folder_is_one_controller_s_before_anything_in_it_is_touched(configuration):
    with own_folder(REQUEST, configuration.home) as place:
        champion_for(REQUEST, configuration)
    known = (place / "champion/known.json").read_bytes()
    with file_lock(place / "lock"), pytest.raises(InputError, match="folder must be of one controller alone"):
        _held_by_another_thread(configuration)
    assert (place / "champion/known.json").read_bytes() == known


def _held_by_another_thread(configuration):
    """A second start, as another process sees the lock."""
    raised = []

    def start():
        try:
            with own_folder(REQUEST, configuration.home):
                raised.append(None)
        except InputError as error:
            raised.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join(30)
    if raised[0] is not None:
        raise raised[0]


@pytest.mark.parametrize("place", ["file", "file/below", "lock is a folder", "/proc/assay"])
def test_a_folder_that_cannot_be_one_is_said(tmp_path, place):
    (tmp_path / "file").touch()
    (tmp_path / "lock is a folder" / "lock").mkdir(parents=True)
    with (pytest.raises(InputError, match="folder must be one that a controller can write"),
          own_folder(replace(REQUEST, folder=tmp_path / place), tmp_path)):
        pass


def test_a_state_folder_that_is_away_is_not_made(tmp_path):
    with pytest.raises(AssayError, match="got no state folder"), own_folder(REQUEST, tmp_path / "home"):
        pass
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError), own_folder(replace(REQUEST, workload="../.."), tmp_path):
        pass


def test_a_revoked_champion_does_not_act_though_the_one_before_was_not_copied_here(configuration, tmp_path):
    """A light copy holds the champion's bundle alone; `assay retire` makes the one before it champion."""
    state, request = state_folder(configuration.home), replace(REQUEST, folder=tmp_path / "controller")
    bundle = kept_bundle(configuration.home, "autoscaling", "nginx", 2)
    sha256 = check_bundle(write_policy_bundle(bundle, configuration.private_key_path, seed=2),
                          configuration.public_key_path).sha256
    ledger = Ledger(configuration.ledger_path, configuration.public_key_path, configuration.private_key_path)
    move = replace(ledger.history()[-1].move, version=2, previous_version=1, bundle_sha256=sha256)
    ledger.append([replace(move, action="register"), move])
    shutil.rmtree(bundle.with_name("1"))
    with own_folder(request, state.home):
        champion = champion_for(request, state)
        assert (champion.current().version, champion.current().refused) == (sha256[:12], "")
        ledger.append([replace(move, action="retire", previous_version=2)])
        champion.poll()
        assert "bundle of version 1 must be in the state folder" in champion.current().refused
    for _ in range(2):
        with own_folder(request, state.home), pytest.raises(RefusedError, match="bundle of version 1 must be in"):
            champion_for(request, state)


def test_a_refusal_at_a_start_is_remembered(configuration, tmp_path):
    shutil.copy(configuration.public_key_path, tmp_path / "key.pub")
    request = replace(REQUEST, folder=tmp_path / "controller", public_key=tmp_path / "key.pub")
    ledger = configuration.ledger_path
    with own_folder(request, configuration.home) as place:
        champion_for(request, configuration)
        ledger.write_bytes(ledger.read_bytes().replace(b'"champion"', b'"approve" ', 1))
        with pytest.raises(RefusedError):
            champion_for(request, configuration)
        assert json.loads((place / "champion/known.json").read_text())["refused"]
        configuration.home.rename(tmp_path / "away")
        with pytest.raises(RefusedError, match="since then"):
            champion_for(request, configuration)
