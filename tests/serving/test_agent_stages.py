"""Transitions of the lifecycle are in the signed ledger, and only those that Algorithm 5.1 has."""

from pathlib import Path

import pytest

from feature_store.errors import RefusedError
from models.control.training.lifecycle import EpisodeEnded, Profile, Stage, Started, State, Withdrawn, advance
from serving.agent_stages import Agent, record_stages
from serving.ledger import Ledger
from serving.moves import Move

AT = "2026-01-31T12:00:00+00:00"
AGENT = Agent("autoscaling", "shop", "assay.autoscaling.shop", 1, "a" * 64)
PROFILE = Profile(t_serving=1.0, t_var=1.0, largest_reward=3.0, bootstrap=False, episodes=2)


@pytest.fixture
def ledger(tmp_path: Path, keys: tuple[Path, Path]) -> Ledger:
    private, public = keys
    ledger = Ledger(tmp_path / "ledger.jsonl", public, private)
    ledger.append([Move("register", AT, AGENT.task, AGENT.workload, AGENT.model, 1, None, AGENT.bundle_sha256,
                        gates_passed=True, reason="", actor="test")])
    return ledger


def test_every_transition_is_an_entry_with_its_figures(ledger: Ledger) -> None:
    state, transitions = State(), []
    for happening in (Started(), EpisodeEnded(0, 2.0, "policy"), EpisodeEnded(1, 2.0, "policy"), Withdrawn("no proof")):
        state, transition = advance(state, happening, PROFILE)
        transitions += [transition] if transition else []
    record_stages(ledger, transitions, AGENT, AT, "controller")
    entries = ledger.verify()[1:]
    assert [entry.move.action for entry in entries] == ["stage_online", "stage_serving", "stage_initialized"]
    assert entries[1].move.reason == ("online -> serving after episode 1: mean reward 2, standard deviation 0 over 2 "
                                      "episodes; T_serving 1, T_var 1")
    standing = ledger.standing(AGENT.task, AGENT.workload)
    assert standing.stages == {1: Stage.INITIALIZED} and standing.champion is None


def test_a_stage_that_was_skipped_is_refused(ledger: Ledger) -> None:
    state, _ = advance(State(), Started(), PROFILE)
    state, _ = advance(state, EpisodeEnded(0, 2.0, "policy"), PROFILE)
    _, serving = advance(state, EpisodeEnded(1, 2.0, "policy"), PROFILE)
    assert serving is not None
    with pytest.raises(RefusedError, match=r"stage must follow initialized \(Algorithm 5.1\), got serving"):
        record_stages(ledger, [serving], AGENT, AT, "controller")


def test_a_version_that_is_not_registered_has_no_stage(ledger: Ledger) -> None:
    _, started = advance(State(), Started(), PROFILE)
    assert started is not None
    unknown = Agent(AGENT.task, AGENT.workload, AGENT.model, 2, AGENT.bundle_sha256)
    with pytest.raises(RefusedError, match="version must be registered with its gates passed"):
        record_stages(ledger, [started], unknown, AT, "controller")
