"""approval: manual. A version that passes waits for a person's word; one that fails cannot be promoted at all.

The tests of the class run in order, on one state folder: register, promote, replace, roll back, reject.
"""

import getpass
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from models.configuration import Configuration
from pipelines.command_line import app
from pipelines.run_summary import run_exit_code
from serving.registry import Registry
from tests.components.steps import IGNORED_WARNING, Steps, prepare, project
from tests.e2e import tiny

pytestmark = pytest.mark.filterwarnings(IGNORED_WARNING)

ROW = json.dumps({"psi_cpu_some": 0.3, "psi_io_some": 0.4, "connections": 4.0})
REDIS = ("--task", "tiny", "--workload", "redis")


@dataclass(frozen=True)
class Reviewed:
    """A trained first run; nothing is registered yet."""

    configuration: Configuration
    first: Steps

    def aliases(self) -> tuple[int | None, int | None]:
        """Champion and challenger as the registry has them; the ledger must agree."""
        registry = Registry(self.configuration)
        assert registry.reconcile() == ()
        standing = registry._ledger.standing("tiny", "redis")
        return standing.champion, standing.challenger


@pytest.fixture(scope="module")
def reviewed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reviewed]:
    folder = tmp_path_factory.mktemp("manual")
    with project(folder, approval="manual") as configuration:
        first = prepare(folder, tiny.telemetry(), tiny.task(("redis",)))
        first.train()
        yield Reviewed(configuration, first)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@contextmanager
def stricter(reviewed: Reviewed) -> Iterator[None]:
    """Meanwhile no model is fast enough."""
    data = tiny.configuration("manual")
    data["gates"]["tiny"]["latency"]["at_most"] = 1e-6
    path = reviewed.first.folder.parent / "mlflow.yaml"
    before = path.read_text()
    tiny.write_yaml(data, path)
    try:
        yield
    finally:
        path.write_text(before)


class TestManualApproval:
    def test_a_version_that_passes_waits_as_challenger(self, reviewed: Reviewed) -> None:
        assert reviewed.first.gate() is True
        entry = reviewed.first.register()["redis"]
        assert (entry["status"], entry["version"], entry["alias"]) == ("registered", 1, "challenger")
        assert "waits for assay promote" in entry["message"]
        assert run_exit_code(reviewed.first.report()) == 0
        assert reviewed.aliases() == (None, 1)

    def test_nobody_is_served_before_the_word(self) -> None:
        done = call("predict", *REDIS, "--row", ROW)
        assert done.exit_code == 1 and "must have a champion" in done.stderr

    def test_rollback_has_nothing_to_go_back_to(self, reviewed: Reviewed) -> None:
        done = call("rollback", *REDIS)
        assert done.exit_code == 1 and "expected a champion before the present one" in done.stderr
        assert reviewed.aliases() == (None, 1)

    def test_promote_makes_it_champion_and_records_who_and_why(self, reviewed: Reviewed) -> None:
        done = call("promote", *REDIS, "--reason", "reviewed")
        assert done.exit_code == 0 and "promoted: assay.tiny.redis version 1 is champion" in done.stdout
        last = json.loads(call("history", "--workload", "redis", "--json").stdout)[-1]
        assert (last["action"], last["reason"], last["actor"]) == ("approve", "reviewed", getpass.getuser())
        assert reviewed.aliases() == (1, None)
        assert call("predict", *REDIS, "--row", ROW).exit_code == 0

    def test_without_a_challenger_there_is_nothing_to_promote(self) -> None:
        done = call("promote", *REDIS)
        assert done.exit_code == 1 and "must have a challenger to promote, got none" in done.stderr

    def test_a_better_version_does_not_replace_the_champion_by_itself(self, reviewed: Reviewed) -> None:
        rows = tiny.telemetry()  # of calmer hours: another box
        calm = reviewed.first.folder.with_name("calm.parquet")
        rows[rows["psi_cpu_some"] < rows["psi_cpu_some"].quantile(0.9)].to_parquet(calm)
        second = replace(reviewed.first, folder=reviewed.first.folder.with_name("second"), telemetry=str(calm), seed=1)
        second.train()
        assert second.gate() is True
        assert second.register()["redis"]["alias"] == "challenger"
        assert reviewed.aliases() == (1, 2)

    def test_promote_refuses_what_fails_a_gate_of_today(self, reviewed: Reviewed) -> None:
        with stricter(reviewed):
            done = call("promote", *REDIS)
        assert done.exit_code == 1 and "gates of mlflow.yaml as they are now, got latency: latency_us" in done.stderr
        assert "--override-gates promotes it all the same" in done.stderr
        assert reviewed.aliases() == (1, 2)

    def test_a_gate_is_overridden_by_a_word_that_the_ledger_keeps(self, reviewed: Reviewed) -> None:
        with stricter(reviewed):
            done = call("promote", *REDIS, "--override-gates", "--reason", "only this machine is slow")
        assert done.exit_code == 0 and "version 2 is champion" in done.stdout
        lines = done.stdout.splitlines()
        assert [line for line in lines if line.startswith("gate overridden: latency: latency_us")]
        weaker = [line for line in lines if line.startswith("weaker than version 1: ")]
        reasons = ("box of ", "may violate the order", "execution may add")
        assert weaker and all(any(reason in line for reason in reasons) for line in weaker)
        last = json.loads(call("history", "--workload", "redis", "--json").stdout)[-1]
        assert last["reason"] == "; ".join(["only this machine is slow", *lines[:-1]])
        assert call("rollback", *REDIS).exit_code == 0

    def test_promote_and_roll_back_by_command(self, reviewed: Reviewed) -> None:
        made = json.loads(call("promote", *REDIS, "--version", "2", "--json").stdout)
        assert (made["version"], made["previous_version"], made["drifts"]) == (2, 1, [])
        done = call("rollback", *REDIS, "--reason", "alarms")
        assert done.exit_code == 0 and "version 1 is champion (before: 2)" in done.stdout
        assert reviewed.aliases()[0] == 1

    def test_a_version_that_fails_a_gate_is_kept_as_rejected_and_unsigned(self, reviewed: Reviewed) -> None:
        with stricter(reviewed):
            assert reviewed.first.gate() is False
            entry = reviewed.first.register()["redis"]
            summary = reviewed.first.report("rejected")
        assert (entry["status"], entry["version"], entry["alias"]) == ("rejected", 3, None)
        assert "gates failed: latency" in entry["message"] and run_exit_code(summary) == 1
        gated = reviewed.first.folder / "gated" / "redis"
        assert not (gated / "model.sig").exists()
        assert call("check", str(gated)).exit_code == 1

    def test_a_rejected_or_unknown_version_cannot_be_promoted(self, reviewed: Reviewed) -> None:
        before = reviewed.aliases()
        for version, reason in (("3", "it was rejected"), ("9", "the ledger does not know it")):
            done = call("promote", *REDIS, "--version", version)
            assert done.exit_code == 1 and reason in done.stderr
        assert reviewed.aliases() == before

    def test_a_lost_key_is_an_input_error(self, reviewed: Reviewed, tmp_path: Path) -> None:
        key = reviewed.configuration.public_key_path
        key.rename(tmp_path / "assay.pub")
        try:
            done = call("history")
        finally:
            (tmp_path / "assay.pub").rename(key)
        assert done.exit_code == 2 and "assay.pub" in done.stderr
