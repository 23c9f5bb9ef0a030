"""`assay monitor` on a champion of the ledger, as a user types it; killed, beside a run, twice, without a champion."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from feature_store.errors import RefusedError
from models.configuration import load_configuration
from models.control.training.trajectory_log import Header, Step, TrajectoryLog
from models.monitoring.findings import Decision, Looked
from models.monitoring.page import page as page_of
from pipelines import monitor as monitoring
from pipelines.command_line import app
from pipelines.local_run import RunOutcome
from pipelines.monitor import REST, SILENCE, MonitorRequest, Seen, monitor
from pipelines.run_lock import LOCK_NAME, acquire_run_lock
from serving.bundle import check_bundle
from serving.kept_bundles import kept_bundle
from serving.ledger import Ledger
from systems.autoscaling.interface import CONTROLS, SIGNALS
from tests.e2e.tiny import ROOT
from tests.feature_store.prometheus_server import faulty_server, reply
from tests.feature_store.sources.recorded import metric_map
from tests.serving.control.policy_bundle import write_champion

TASK = ("monitor", "--task", "autoscaling")
NOW = datetime(2026, 1, 6, tzinfo=UTC)
PROMOTED = datetime(2026, 11, 23, tzinfo=UTC)  # as of policy_bundle.py


def command(home: Path, *options: str) -> Any:
    return CliRunner(env={"ASSAY_HOME": str(home), "ASSAY_CONFIG": str(ROOT / "mlflow.yaml")}).invoke(
        app, [*TASK, *options])


def write_log(home: Path, count: int, actor: str = "policy", first: int = 0) -> None:
    """Steps of the champion's controller."""
    version = check_bundle(kept_bundle(home, "autoscaling", "nginx", 1), home / "keys/assay.pub").sha256[:12]
    seen = tuple(float((one.low * one.high) ** 0.5 or 0.5) for one in SIGNALS)
    log = TrajectoryLog(home / "controllers/autoscaling/nginx/steps", Header(
        "autoscaling", tuple((one.name, one.unit) for one in SIGNALS), tuple((one.name, one.unit) for one in CONTROLS)))
    log.append([Step("nginx", 0, first + k, "policy", seen, tuple(one.low for one in CONTROLS), 1.0, detail={
        "at": (NOW + timedelta(seconds=15 * (first + k))).isoformat(timespec="milliseconds"), "actor": actor,
        "version": version}) for k in range(count)])


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return write_champion(tmp_path / "home").home


def test_a_champion_that_does_as_it_should_is_fine_and_has_a_page(home: Path) -> None:
    write_log(home, 100)
    done = command(home)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0] == "nginx version 1: fine: nothing that was looked at has changed by more than luck explains"
    assert lines[1].startswith("  note: reward was not looked at: the bundle has no profile")
    page = (home / "monitor/autoscaling.html").read_text()
    assert lines[-1] == f"page: {home / 'monitor/autoscaling.html'}" and "No champion needs anything." in page
    again = command(home)
    assert again.exit_code == 0 and "no data: 0 new, and a look needs 20; the last look, " in again.stdout


def test_a_finding_is_exit_code_1_with_its_reason_in_text_json_and_page(home: Path) -> None:
    write_log(home, 400, actor="fallback")
    done = command(home, "--json")
    found = json.loads(done.stdout)
    assert (done.exit_code, found["exit_code"], found["status"]) == (1, 1, "looked")
    (one,) = found["champions"]
    assert (one["decision"], one["rows"], one["look"]) == ("fine-tune", 400, 1)
    assert one["reasons"] == ["100\N{NO-BREAK SPACE}% of the newest 400 steps were not the policy's own"]
    assert "1 champion of 1 needs something." in Path(found["page"]).read_text()


def test_what_a_look_asked_for_stands_until_another_look_says_otherwise(home: Path) -> None:
    write_log(home, 400, actor="fallback")
    assert command(home).exit_code == 1
    kept = {path.name: path.read_bytes() for path in (home / "monitor/autoscaling/nginx").iterdir()}
    done = command(home, "--json")
    (one,) = json.loads(done.stdout)["champions"]
    assert (done.exit_code, one["decision"], one["rows"], one["look"]) == (1, "fine-tune", 0, 0)
    assert one["reasons"][0].endswith("of the newest 400 steps were not the policy's own")
    assert one["reasons"][1].startswith("so said the last look, ") and one["reasons"][1].endswith(
        "; since then 0 new, and a look needs 20")
    assert [finding["what"] for finding in one["findings"] if finding["found"]] == ["fallback"]
    assert "1 champion of 1 needs something." in (home / "monitor/autoscaling.html").read_text()
    assert {path.name: path.read_bytes() for path in (home / "monitor/autoscaling/nginx").iterdir()} == kept
    write_log(home, 6000, first=400)
    assert command(home).exit_code == 0, "and is over"


def test_an_open_incident_stays_one_and_what_is_asked_for_can_still_be_done(home: Path,
                                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    from models.monitoring.live_pairs import LivePairs

    write_log(home, 40)
    monkeypatch.setattr("models.monitoring.live_pairs.live_pairs", lambda *_: LivePairs(40, 3, ("it fell: by 2",)))
    assert command(home).exit_code == 3
    assert command(home).exit_code == 3, "nothing new has come, and nothing is mended"
    trained: list[tuple[str, ...]] = []
    one = checked(home, datetime.now(UTC), train=lambda names: trained.append(names) or "trained")
    assert trained == [()] and one.done == "trained", "retrain: all of the task"
    memory = json.loads((home / "monitor/autoscaling/nginx/memory.json").read_text())
    assert memory["acted"] and memory["choice"] == "retrain" and memory["looks"] == 1


def test_an_incident_is_exit_code_3_and_first_on_the_page(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from models.monitoring.live_pairs import LivePairs

    write_log(home, 40)
    monkeypatch.setattr("models.monitoring.live_pairs.live_pairs", lambda *_: LivePairs(40, 3, ("it fell: by 2",)))
    done = command(home)
    assert done.exit_code == 3 and "breaks what was proved of it" in done.stdout and "\nincident: " in done.stdout
    assert "Incident: nginx: a model that was proved" in (home / "monitor/autoscaling.html").read_text()


def test_without_a_champion_there_is_no_data(home: Path, tmp_path: Path) -> None:
    done = command(home, "--workload", "redis")
    assert done.exit_code == 0 and "redis: no data: there is no champion: run the train pipeline" in done.stdout
    done = command(tmp_path / "empty")
    assert done.exit_code == 1 and "no workload of this task is in the ledger yet: run the train" in done.stdout


@pytest.mark.parametrize("steps", [None, 0, 19], ids=["no log", "an empty log", "too few steps"])
def test_a_champion_of_which_nothing_arrives_is_no_data_and_after_a_day_to_be_seen_to(home: Path,
                                                                                  steps: int | None) -> None:
    if steps is not None:
        write_log(home, steps)
    first = checked(home, PROMOTED + SILENCE)
    assert (first.decision.choice, first.exit_code) == ("no data", 0) and not (home / "monitor/autoscaling").exists()
    later = checked(home, PROMOTED + SILENCE + timedelta(seconds=1))
    assert (later.decision.choice, later.exit_code) == ("no data", 1)
    assert later.decision.reasons == (
        f"{steps or 0} new, and a look needs 20", f"no look since {PROMOTED.isoformat()}",
        "that is more than a day ago: see to what measures it")
    write_log(home, 40, first=steps or 0)
    assert checked(home, NOW).decision.choice == "fine"
    assert [checked(home, NOW + wait).exit_code for wait in (SILENCE, 2 * SILENCE)] == [0, 1]


def test_the_page_of_a_champion_that_is_not_seen_does_not_say_that_it_needs_nothing(home: Path) -> None:
    done = command(home)
    page = (home / "monitor/autoscaling.html").read_text()
    assert done.exit_code == 1 and "there is no log of a controller" in done.stdout
    assert "Nothing was looked at." in page and "No data of nginx." in page and "needs anything" not in page


def test_the_page_of_a_task_without_any_workload_does_not_say_that_nothing_needs_anything() -> None:
    found = page_of("performance", "2026-01-01", [])
    assert "Nothing was looked at." in found and "needs anything" not in found


def test_an_object_store_that_is_away_is_something_to_be_done(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ACCESS_KEY_ID": "a",
                        "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    ledger = Ledger(home / "ledger/promotions.jsonl", home / "keys/assay.pub", home / "keys/assay.key")
    ledger.append([replace(entry.move, task="performance", model="assay.performance.nginx")
                   for entry in ledger.verify()])
    done = command(home, "--task", "performance", "--telemetry", "s3://assay/telemetry.parquet", "--json")
    (one,) = json.loads(done.stdout)["champions"]
    assert (done.exit_code, one["decision"], one["exit_code"]) == (1, "no data", 1), done.output
    assert one["reasons"][0].startswith("its telemetry could not be read: telemetry must be an object")


@pytest.mark.parametrize(("is_there", "said"), [(True, "metric psi_"), (False, "server must answer, got ")],
                         ids=["has nothing", "is away"])
def test_a_server_that_has_nothing_or_is_away_is_something_to_be_done(
        home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool, said: str) -> None:
    monkeypatch.setattr("feature_store.sources.prometheus_api._FIRST_BACKOFF_S", 0.01)
    ledger = Ledger(home / "ledger/promotions.jsonl", home / "keys/assay.pub", home / "keys/assay.key")
    ledger.append([replace(entry.move, task="performance", model="assay.performance.nginx")
                   for entry in ledger.verify()])
    mapping = tmp_path / "map.yaml"
    mapping.write_text(yaml.safe_dump(metric_map(0.0)))
    with faulty_server(reply({"status": "success", "data": {"resultType": "matrix", "result": []}})) as (url, _):
        done = command(home, "--task", "performance", "--telemetry", url if is_there else "http://127.0.0.1:1",
                       "--mapping", str(mapping), "--json")
    (one,) = json.loads(done.stdout)["champions"]
    assert (done.exit_code, one["decision"], one["exit_code"]) == (1, "no data", 1), done.output
    assert one["reasons"][0].startswith(f"its telemetry could not be read: {said}")
    assert "Nothing was looked at." in (home / "monitor/performance.html").read_text()


def test_a_bundle_that_is_gone_costs_its_workload_alone_and_is_no_success(home: Path) -> None:
    write_log(home, 40)
    (kept_bundle(home, "autoscaling", "nginx", 1) / "model.onnx").write_bytes(b"another")
    done = command(home)
    assert done.exit_code == 1 and "nginx version 1: no data: it could not be looked at: " in done.stdout


@pytest.mark.parametrize(("options", "message"), [
    (("--task", str(ROOT / "tests/kinds/table_controller.yaml")), "task must be of a kind that is monitored, got"),
    (("--task", "performance", "--telemetry", "nowhere.parquet"), "telemetry must be an existing file"),
    (("--output", "/proc/page.html"), "page must be writable"),
])
def test_bad_usage_is_one_line_and_code_2(home: Path, options: tuple[str, ...], message: str) -> None:
    done = command(home, *options)
    assert done.exit_code == 2 and message in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_beside_a_run_nothing_is_looked_at(home: Path) -> None:
    write_log(home, 40)
    with acquire_run_lock(home / LOCK_NAME):
        done = command(home, "--json")
    assert done.exit_code == 0 and json.loads(done.stdout)["status"] == "busy"
    assert not (home / "monitor").exists()


def test_a_monitor_that_is_killed_in_the_middle_has_read_nothing(home: Path) -> None:
    """It is killed where it has looked, and not yet written."""
    write_log(home, 60)
    program = ("import os, time, pipelines.monitor as m; m._acted = lambda *_: (print('looked', flush=True), "
               "time.sleep(60)); from pipelines.command_line import main; main()")
    environment = {**os.environ, "ASSAY_HOME": str(home), "ASSAY_CONFIG": str(ROOT / "mlflow.yaml")}
    with subprocess.Popen([sys.executable, "-c", program, *TASK, "--act"], cwd=ROOT, text=True, env=environment,
                          stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == "looked\n"
        process.kill()
    assert not (home / "monitor/autoscaling").exists()
    (one,) = json.loads(command(home, "--json").stdout)["champions"]
    assert (one["rows"], one["look"]) == (60, 1)
    write_log(home, 30, first=60)
    (one,) = json.loads(command(home, "--json").stdout)["champions"]
    assert (one["rows"], one["look"]) == (30, 2)


def checked(home: Path, now: datetime, train: Any = None) -> Seen:
    configuration = load_configuration(ROOT / "mlflow.yaml", {"ASSAY_HOME": str(home)})
    name, (one,) = monitor(MonitorRequest("autoscaling", act=train is not None), configuration, now, train)
    assert name == "autoscaling"
    return one


def test_act_trains_once_a_day_whatever_way_the_clock_goes(home: Path) -> None:
    trained: list[tuple[str, ...]] = []

    def train(names: tuple[str, ...]) -> str:
        trained.append(names)
        return "trained"

    for day, (now, due) in enumerate([(NOW, True), (NOW + REST / 2, False), (NOW - REST / 2, False),
                                      (NOW + REST, True)]):
        write_log(home, 400, actor="fallback", first=400 * day)
        one = checked(home, now, train)
        assert (one.decision.choice, one.exit_code) == ("fine-tune", 0 if due else 1)
        assert one.done == "trained" if due else one.done.startswith("nothing was done: ")
    assert trained == [("nginx",), ("nginx",)]
    ahead = {"acted": (NOW + 2 * REST).isoformat()}  # as of a clock that has been set right since
    assert monitoring._is_due(ahead, NOW) and not monitoring._is_due(ahead, NOW + 1.5 * REST)


def test_an_act_that_fails_is_exit_code_1_and_not_tried_again_at_once(home: Path) -> None:
    from feature_store.errors import InputError

    def train(names: tuple[str, ...]) -> str:
        raise InputError("no telemetry")

    write_log(home, 400, actor="fallback")
    one = checked(home, NOW, train)
    assert (one.done, one.exit_code) == ("failed: no telemetry", 1)
    write_log(home, 400, actor="fallback", first=400)
    assert checked(home, NOW + REST / 2, train).done.startswith("nothing was done: ")


@pytest.mark.parametrize(("status", "exit_code"), [("registered", 0), ("unchanged", 0), ("rejected", 1), ("failed", 1)])
def test_an_act_whose_run_comes_to_nothing_has_failed(home: Path, monkeypatch: pytest.MonkeyPatch, status: str,
                                                      exit_code: int) -> None:
    summary = {"entries": [{"workload": "nginx", "status": status, "alias": None}]}
    monkeypatch.setattr("pipelines.local_run.run_local", lambda *_: RunOutcome(home, summary, 1.0))
    write_log(home, 400, actor="fallback")
    done = command(home, "--act", "--json")
    (one,) = json.loads(done.stdout)["champions"]
    assert (done.exit_code, one["exit_code"]) == (exit_code, exit_code)
    assert one["done"].startswith(f"{'failed: ' if exit_code else ''}trained in run monitor-")
    assert one["done"].endswith(f"(nginx: {status})")


def test_a_champion_that_nobody_looked_at_is_not_rolled_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person promoted version 4 while the monitor looked at version 3."""

    class Registry:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        def rollback(self, task: str, workload: str, reason: str = "", expected: int | None = None) -> Any:
            if expected not in (None, 4):
                raise RefusedError(f"rollback: expected version {expected} to be the champion still, got version 4")
            return SimpleNamespace(version=3)

    monkeypatch.setitem(sys.modules, "serving.registry", SimpleNamespace(Registry=Registry))
    seen = [Seen("nginx", version, Decision("roll back", ("so",)), Looked(20, True), 1, memory={"acted": None})
            for version in (3, 4)]
    other, same = [monitoring._acted([one], None, "t", NOW, str)[0] for one in seen]  # type: ignore[arg-type]
    assert other.done == "failed: rollback: expected version 3 to be the champion still, got version 4"
    assert (other.exit_code, same.done) == (1, "rolled back: version 3 is champion again")


def test_one_that_asks_for_retraining_trains_all() -> None:
    memory = {"acted": None}
    seen = [Seen(name, 1, Decision(choice, ("so",)), Looked(20, True), 1, memory=memory)  # type: ignore[arg-type]
            for name, choice in (("a", "fine-tune"), ("b", "retrain"), ("c", "fine"))]
    asked: list[Any] = []
    done = monitoring._acted(seen, None, "t", NOW, lambda names: str(asked.append(names)))  # type: ignore[arg-type]
    assert asked == [()] and [bool(one.done) for one in done] == [True, True, False]
    assert [one.exit_code for one in done] == [0, 0, 0]


@pytest.mark.parametrize("spoil", [lambda text: text[:30], lambda text: text.replace('"champion": "', '"champion": "0'),
                                   lambda text: text.replace("assay-monitor/1", "assay-monitor/0")],
                         ids=["torn", "of another champion", "of another form"])
def test_memory_that_is_not_of_this_champion_begins_anew(home: Path, spoil: Any) -> None:
    write_log(home, 40)
    assert command(home).exit_code == 0
    memory = home / "monitor/autoscaling/nginx/memory.json"
    memory.write_text(spoil(memory.read_text()))
    (one,) = json.loads(command(home, "--json").stdout)["champions"]
    assert (one["rows"], one["look"]) == (40, 1)
