"""The kill switch: a file, a signal, an entry of the signed ledger; what a restart and a ledger that is away change."""

import errno
import os
import shutil
import signal
import threading
import time
from dataclasses import replace

import pytest

from feature_store.errors import AssayError, RefusedError
from models.configuration import load_configuration
from serving.control.kill_switch import LEDGER_FILE, SIGNAL_FILE, KillSwitch, LedgerSwitch, stopped_in_ledger
from serving.ledger import Ledger
from serving.moves import Move
from tests.serving.conftest import ROOT
from tests.serving.control.world import Said, World, keep, loop_of

PAIR = ("autoscaling", "nginx")


def move(action, version=1, before=1, digest="a" * 64, reason="maintenance", actor="ann"):
    return Move(action, "2026-11-23T00:00:00+00:00", *PAIR, "assay.autoscaling.nginx", version, before, digest,
                gates_passed=True, reason=reason, actor=actor)


@pytest.fixture
def configuration(tmp_path, keys):
    """With a ledger in which version 1 is champion."""
    private, public = keys
    made = replace(load_configuration(ROOT / "mlflow.yaml", {"ASSAY_HOME": str(tmp_path / "home")}),
                   public_key_path=public, private_key_path=private)
    made.ledger_path.parent.mkdir(parents=True)
    ledger_of(made).append([move("register", before=None), move("champion", before=None)])
    return made


def ledger_of(configuration):
    return Ledger(configuration.ledger_path, configuration.public_key_path, configuration.private_key_path)


def switch_of(configuration, folder):
    return LedgerSwitch(lambda: stopped_in_ledger(configuration, *PAIR), folder)


@pytest.fixture(autouse=True)
def _signals():
    before = signal.getsignal(signal.SIGUSR1)
    yield
    signal.signal(signal.SIGUSR1, before)


def _signalled():
    os.kill(os.getpid(), signal.SIGUSR1)


def test_a_stop_by_signal_survives_a_restart_and_the_next_signal_lifts_it(tmp_path):
    first = KillSwitch(tmp_path)
    assert first() == ""
    _signalled()
    assert first() == "kill switch: SIGUSR1"
    again = KillSwitch(tmp_path)
    assert again() == "kill switch: SIGUSR1"
    _signalled()
    assert again() == ""
    assert KillSwitch(tmp_path)() == ""


def test_a_stop_by_signal_is_obeyed_where_it_cannot_be_written(tmp_path, monkeypatch):
    switch = KillSwitch(tmp_path)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("serving.control.kill_switch.os.open", full)
    _signalled()
    assert list(tmp_path.iterdir()) == []
    assert switch() == "kill switch: SIGUSR1"
    _signalled()
    assert switch() == ""


@pytest.mark.parametrize("stop", ["SIGUSR1", "STOP", "none"])
@pytest.mark.parametrize("in_its_place", ["nothing", "a file"])
def test_a_folder_that_goes_away_lifts_no_stop(tmp_path, stop, in_its_place):
    folder, away = tmp_path / "controller", tmp_path / "away"
    folder.mkdir()
    switch = KillSwitch(folder)
    if stop == "SIGUSR1":
        _signalled()
    elif stop == "STOP":
        (folder / "STOP").touch()
    before = switch()
    folder.rename(away)
    if in_its_place == "a file":
        folder.touch()
    assert "cannot be read" in switch()
    folder.unlink(missing_ok=True)
    away.rename(folder)
    assert switch() == before


def test_a_signal_while_the_folder_is_away_stops_also_when_it_is_back(tmp_path):
    folder = tmp_path / "controller"
    switch = KillSwitch(folder)
    _signalled()
    folder.mkdir()
    assert switch() == "kill switch: SIGUSR1"
    _signalled()
    assert switch() == ""


def test_a_stop_that_nobody_can_look_for_is_on(tmp_path, monkeypatch):
    switch = KillSwitch(tmp_path)

    def broken(self):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("pathlib.Path.lstat", broken)
    assert "cannot be read (Input/output error)" in switch()


def test_an_entry_of_the_ledger_stops_within_one_look_until_it_is_taken_back(configuration, tmp_path):
    switch, ledger = switch_of(configuration, tmp_path), ledger_of(configuration)
    switch.poll()
    assert switch() == ""
    ledger.append([move("stop_acting")])
    switch.poll()
    assert switch() == "kill switch: stopped in the ledger by ann, 2026-11-23T00:00:00+00:00: maintenance"
    ledger.append([move("resume_acting")])
    switch.poll()
    assert switch() == ""
    assert not (tmp_path / LEDGER_FILE).exists()


def test_a_ledger_that_is_away_changes_nothing_also_across_a_restart(configuration, tmp_path):
    switch, ledger = switch_of(configuration, tmp_path), ledger_of(configuration)
    switch.poll()
    home, away = configuration.home, configuration.home.with_name("away")
    home.rename(away)
    switch.poll()
    assert switch() == ""
    away.rename(home)
    ledger.append([move("stop_acting")])
    switch.poll()
    home.rename(away)
    for one in (switch, switch_of(configuration, tmp_path)):
        one.poll()
        assert "stopped in the ledger by ann" in one()
    away.rename(home)
    ledger.append([move("resume_acting")])
    again = switch_of(configuration, tmp_path)
    assert "stopped in the ledger by ann" in again()
    again.poll()
    assert again() == ""


@pytest.mark.parametrize("spoil", ["cut", "changed", "emptied"])
def test_a_ledger_that_was_tampered_with_lifts_no_stop(configuration, tmp_path, spoil):
    switch, path = switch_of(configuration, tmp_path), configuration.ledger_path
    ledger_of(configuration).append([move("stop_acting")])
    switch.poll()
    lines = path.read_bytes().splitlines(keepends=True)
    if spoil == "emptied":
        shutil.rmtree(path.parent)
        path.parent.mkdir()
        path.write_bytes(b"")
    else:
        path.write_bytes(b"".join(lines[:-1]) if spoil == "cut" else path.read_bytes().replace(b"stop_a", b"resume_a"))
    with pytest.raises(AssayError):
        stopped_in_ledger(configuration, *PAIR)
    switch.poll()
    assert "stopped in the ledger by ann" in switch()


def test_what_was_known_and_cannot_be_read_is_a_stop_until_the_ledger_is_asked(configuration, tmp_path):
    (tmp_path / LEDGER_FILE).mkdir()
    switch = switch_of(configuration, tmp_path)
    assert "cannot be read" in switch()
    (tmp_path / LEDGER_FILE).rmdir()
    switch.poll()
    assert switch() == ""


def test_a_stop_keeps_policy_and_fallback_from_acting(configuration, tmp_path):
    world, switch = World(), switch_of(configuration, tmp_path)
    loop = loop_of(world, tmp_path / "loop", Said(keep), stops=switch)
    assert loop.step().actor == "policy"
    ledger_of(configuration).append([move("stop_acting")])
    switch.poll()
    before, record = world.state, loop.step()
    assert (record.actor, record.done) == ("nobody", None)
    assert record.reason == switch()
    assert world.state is before
    ledger_of(configuration).append([move("resume_acting")])
    switch.poll()
    world.pass_by()
    assert loop.step().actor == "policy"


def test_it_is_followed_in_a_thread_that_ends(configuration, tmp_path):
    switch, stopped = switch_of(configuration, tmp_path), threading.Event()
    thread = switch.follow(0.01, stopped)
    ledger_of(configuration).append([move("stop_acting")])
    deadline = time.monotonic() + 20
    while not switch() and time.monotonic() < deadline:
        time.sleep(0.01)
    stopped.set()
    thread.join(10)
    assert "ann" in switch()
    assert not thread.is_alive()


@pytest.mark.parametrize("reason", ["caf\udce9", "bell \x07\n\u202e", "caf\u00e9"])
def test_a_reason_in_any_letters_stops_and_is_known_after_a_restart(configuration, tmp_path, reason):
    switch, ledger, stopped = switch_of(configuration, tmp_path), ledger_of(configuration), threading.Event()
    thread = switch.follow(0.01, stopped)
    ledger.append([move("stop_acting", reason=reason)])
    assert ledger.history()[-1].move.reason.encode()
    deadline = time.monotonic() + 20
    while not (tmp_path / LEDGER_FILE).exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert thread.is_alive()
    stopped.set()
    thread.join(10)
    assert switch().isprintable()
    configuration.home.rename(tmp_path / "away")
    assert switch_of(configuration, tmp_path)() == switch()


def test_a_switch_s_thread_outlives_any_error(tmp_path, monkeypatch):
    switch, stopped, asked = LedgerSwitch(lambda: "ann", tmp_path), threading.Event(), []

    def broken(path, content):
        asked.append(content)
        raise ValueError("nobody expected this")

    monkeypatch.setattr("serving.control.kill_switch.write_file", broken)
    thread = switch.follow(0.01, stopped)
    deadline = time.monotonic() + 20
    while len(asked) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert thread.is_alive()
    stopped.set()
    thread.join(10)
    assert "ann" in switch()


@pytest.mark.parametrize(("moves", "message"), [
    ([move("resume_acting")], "acting must be stopped to be resumed"),
    ([move("stop_acting"), move("stop_acting", actor="bob")], "must not be stopped already, got stopped by ann"),
    ([move("stop_acting", digest="b" * 64)], "bundle must be the champion's"),
    ([move("stop_acting", version=0, digest="")], "version must be the champion's, 1"),
])
def test_a_switch_that_contradicts_the_ledger_is_refused(configuration, moves, message):
    with pytest.raises(RefusedError, match=message):
        ledger_of(configuration).append(moves)


def test_a_workload_without_a_champion_can_be_stopped_and_a_new_champion_lifts_nothing(configuration):
    ledger = ledger_of(configuration)
    ledger.append([move("retire"), move("stop_acting", 0, None, "")])
    assert "ann" in ledger.standing(*PAIR).stopped
    ledger.append([move("register", 2, None, "c" * 64), move("champion", 2, None, "c" * 64)])
    assert "ann" in stopped_in_ledger(configuration, *PAIR)
    assert [entry.move.action for entry in ledger.history(*PAIR)][-3:] == ["stop_acting", "register", "champion"]


def test_the_file_of_a_signal_may_be_removed_by_hand(tmp_path):
    switch = KillSwitch(tmp_path)
    _signalled()
    (tmp_path / SIGNAL_FILE).unlink()
    assert switch() == ""
