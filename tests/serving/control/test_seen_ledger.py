"""What a controller saw of its ledger: an older one that is put back undoes no stop and brings nobody back."""

import os
import shutil
import threading
from dataclasses import replace

import pytest

from feature_store.errors import AssayError, RefusedError
from serving.control.champion import Champion, champion_of_ledger
from serving.control.kill_switch import LedgerSwitch, stopped_in_ledger
from serving.control.seen_ledger import SeenLedger
from serving.control.start import ControlRequest, _ledger_switch, champion_for
from serving.ledger import Ledger
from serving.state_folder import state_folder
from tests.serving.control.policy_bundle import write_champion

PAIR = ("autoscaling", "nginx")


@pytest.fixture
def configuration(tmp_path):
    (tmp_path / "controller").mkdir()
    return write_champion(tmp_path / "home")


def _append(configuration, *actions):
    ledger = Ledger(configuration.ledger_path, configuration.public_key_path, configuration.private_key_path)
    for action in actions:
        ledger.append([replace(ledger.history()[1].move, action=action, previous_version=1, reason="danger")])


def _followers(configuration, folder):
    ledger = SeenLedger(configuration, folder)
    champion = Champion(lambda: champion_of_ledger(configuration, *PAIR, ledger))
    switch = LedgerSwitch(lambda: stopped_in_ledger(configuration, *PAIR, SeenLedger(configuration, folder)), folder)
    switch.poll()
    return champion, switch


def _put_back(configuration, how, older):
    path = configuration.ledger_path
    if how == "with its head":
        shutil.rmtree(path.parent)
        shutil.copytree(older, path.parent)
    else:
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:2]) if how == "cut" else b"")
        path.with_name(f"{path.name}.head").unlink()


@pytest.mark.parametrize("how", ["with its head", "cut", "emptied"])
def test_an_older_ledger_lifts_no_stop_and_brings_nobody_back_also_after_a_restart(configuration, tmp_path, how):
    folder, older = tmp_path / "controller", tmp_path / "older"
    champion, switch = _followers(configuration, folder)
    shutil.copytree(configuration.ledger_path.parent, older)
    _append(configuration, "stop_acting", "retire")
    champion.poll()
    switch.poll()
    assert "must have a champion" in champion.current().refused
    newer = shutil.copytree(configuration.ledger_path.parent, tmp_path / "newer")
    _put_back(configuration, how, older)
    for _ in range(2):
        champion.poll()
        switch.poll()
        assert "it was replaced" in champion.current().refused
        assert "stopped in the ledger by test" in switch()
    with pytest.raises(RefusedError, match=r"'3:[0-9a-f]+' that ledger.head remembers.* delete .*ledger.head"):
        _followers(configuration, folder)
    assert "stopped in the ledger by test" in LedgerSwitch(
        lambda: stopped_in_ledger(configuration, *PAIR, SeenLedger(configuration, folder)), folder)()
    shutil.rmtree(configuration.ledger_path.parent)
    shutil.copytree(newer, configuration.ledger_path.parent)
    ledger = Ledger(configuration.ledger_path, configuration.public_key_path, configuration.private_key_path)
    ledger.append([replace(ledger.history()[-1].move, action="resume_acting", version=0, previous_version=None,
                           bundle_sha256="")])
    switch.poll()
    assert switch() == ""


def test_without_a_place_to_keep_it_what_was_seen_is_required_while_the_process_lives(configuration, tmp_path):
    older = shutil.copytree(configuration.ledger_path.parent, tmp_path / "older")
    ledger = SeenLedger(configuration, tmp_path / "not there")
    _append(configuration, "stop_acting")
    assert ledger.standings()[PAIR].stopped
    _put_back(configuration, "with its head", older)
    with pytest.raises(RefusedError, match="that this controller saw"):
        ledger.standings()
    assert not SeenLedger(configuration, tmp_path / "not there").standings()[PAIR].stopped


def test_a_ledger_that_is_away_or_cannot_be_looked_at_is_not_cut(configuration, tmp_path, monkeypatch):
    ledger = SeenLedger(configuration, tmp_path / "controller")
    ledger.standings()
    configuration.home.rename(tmp_path / "away")
    with pytest.raises(AssayError, match="ledger must be there") as away:
        ledger.standings()
    (tmp_path / "away").rename(configuration.home)

    def denied(self):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr("pathlib.Path.exists", denied)
        with pytest.raises(AssayError, match="ledger must be readable, got Permission denied") as unreadable:
            ledger.standings()
    assert not isinstance(away.value, RefusedError) and not isinstance(unreadable.value, RefusedError)
    assert ledger.standings()[PAIR].champion == 1


def test_a_ledger_that_hangs_for_a_while_hides_no_stop_afterwards(configuration, tmp_path, monkeypatch):
    """A file system that gives no answer: whoever waits for it holds up no later look, nor that of anybody else."""
    folder, answers, waits = tmp_path / "controller", threading.Event(), threading.Event()
    honest = Ledger.chain

    def hangs(ledger, heads=()):
        waits.set()
        answers.wait(30.0)
        return honest(ledger, heads)

    state = state_folder(configuration.home)
    request = ControlRequest("nginx", tmp_path / "x", "autoscaling", folder=folder)
    monkeypatch.setattr("serving.control.start.WITHIN_S", 0.3)
    champion, switch = champion_for(request, state), _ledger_switch(request, state, folder)
    monkeypatch.setattr(Ledger, "chain", hangs)
    champion.poll()
    switch.poll()
    assert waits.is_set()
    assert "must answer within 0.3 s, got nothing" in champion.unreachable
    assert (champion.current().refused, switch()) == ("", "")
    monkeypatch.setattr(Ledger, "chain", honest)  # it is back; the earlier looks still hang
    _append(configuration, "stop_acting", "retire")
    champion.poll()
    switch.poll()
    assert "must have a champion" in champion.current().refused
    assert "stopped in the ledger by test" in switch()
    assert switch.unseen_s < 0.3
    answers.set()


def test_a_pipe_in_the_ledger_s_place_is_no_ledger(configuration, tmp_path):
    champion, switch = _followers(configuration, tmp_path / "controller")
    path, aside = configuration.ledger_path, tmp_path / "aside"
    for beside in (path, path.with_name(f"{path.name}.head")):
        beside.rename(aside)
        os.mkfifo(beside)
        champion.poll()
        switch.poll()
        assert "no regular file" in champion.unreachable
        beside.unlink()
        aside.rename(beside)
    _append(configuration, "stop_acting")
    switch.poll()
    assert "stopped in the ledger by test" in switch()


def test_who_read_before_somebody_saw_more_reads_again(configuration, tmp_path, monkeypatch):
    """Champion and kill switch look at one file side by side: the slower one saw no older ledger that was put back."""
    honest, slower = Ledger.chain, SeenLedger(configuration, tmp_path / "controller")
    slower.standings()

    def slow(ledger, heads=()):
        found = honest(ledger, heads)
        monkeypatch.setattr(Ledger, "chain", honest)
        _append(configuration, "stop_acting")
        SeenLedger(configuration, tmp_path / "controller").standings()
        return found

    monkeypatch.setattr(Ledger, "chain", slow)
    assert slower.standings()[PAIR].stopped
