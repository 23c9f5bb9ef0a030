"""Whoever runs the project is told: moves of the ledger, failed runs, incidents; through kills and dead receivers."""

import base64
import hashlib
import hmac
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from models.configuration import EVENTS, Configuration, load_configuration
from pipelines import notification
from pipelines.command_line import app
from pipelines.local_run import RunOutcome
from pipelines.monitor import Seen
from pipelines.notification import SECRET_VARIABLE, Notice, tell
from serving.keys import create_key_pair
from serving.ledger import Ledger
from serving.ledger_entry import Entry
from serving.moves import Move
from tests.pipelines.webhook_receiver import Receiver, receiver
from tests.serving.conftest import ROOT

TOLD = "told.jsonl"


@pytest.fixture(name="receiver")
def _receiver() -> Iterator[Receiver]:
    with receiver() as made:
        yield made


def configured(folder: Path, notify: dict[str, Any] | None = None) -> Configuration:
    """A state folder with keys whose notices are appended to a file, a line each."""
    append = {"command": ["sh", "-c", f"cat >> '{folder / TOLD}'; echo >> '{folder / TOLD}'"]}
    text = f"notify: {json.dumps(notify or append)}\n{(ROOT / 'mlflow.yaml').read_text()}"
    (folder / "mlflow.yaml").write_text(text)
    made = load_configuration(folder / "mlflow.yaml", {"ASSAY_HOME": str(folder / "home")})
    if not made.private_key_path.exists():
        for path in (made.private_key_path, Path(made.ledger_path)):
            path.parent.mkdir(parents=True)
        create_key_pair(made.private_key_path, made.public_key_path)
    return made


def moved(made: Configuration, *actions: str, version: int = 1, before: int | None = None) -> tuple[Entry, ...]:
    moves = [Move(action, "2026-11-23T00:00:00+00:00", "performance", "redis", "assay.performance.redis", version,  # type: ignore[arg-type]
                  before, "0" * 64, action != "reject", f"why {action}", "ann") for action in actions]
    return Ledger(made.ledger_path, made.public_key_path, made.private_key_path).append(moves)


def told(folder: Path) -> list[dict[str, Any]]:
    path = folder / TOLD
    return [json.loads(line) for line in path.read_text().splitlines() if line] if path.exists() else []


def command(folder: Path, *arguments: str) -> Any:
    return CliRunner(env={"ASSAY_HOME": str(folder / "home"), "ASSAY_CONFIG": str(folder / "mlflow.yaml")}).invoke(
        app, arguments)


def test_every_move_that_matters_is_told_once_with_its_hash_as_id(tmp_path: Path) -> None:
    made = configured(tmp_path)
    tell(made, "assay run", only_begin=True)
    first = moved(made, "register", "challenger", "champion")
    second = moved(made, "register", "challenger", version=2, before=1) + moved(made, "reject", version=3, before=1)
    tell(made, "assay run", page="report.html")
    tell(made, "assay run")
    found = told(tmp_path)
    assert [(one["event"], one["version"], one["id"]) for one in found] == [
        ("promoted", 1, first[2].hash), ("waits_for_approval", 2, second[1].hash), ("refused", 3, second[2].hash)]
    assert found[2] == {"format": "assay-notification/1", "id": second[2].hash, "event": "refused",
                        "task": "performance", "workload": "redis", "model": "assay.performance.redis", "version": 3,
                        "previous_version": 1, "gates_passed": False, "reason": "why reject", "actor": "ann",
                        "at": "2026-11-23T00:00:00+00:00", "page": "report.html"}
    moved(made, "approve", version=2, before=1)
    moved(made, "rollback", version=1, before=2)
    tell(made, "assay rollback")
    assert [one["event"] for one in told(tmp_path)[3:]] == ["promoted", "rolled_back"]


def test_what_was_in_the_ledger_before_the_first_use_is_not_told(tmp_path: Path) -> None:
    made = configured(tmp_path)
    moved(made, "register", "champion")
    tell(made, "assay promote", only_begin=True)
    moved(made, "register", "challenger", version=2, before=1)
    tell(made, "assay promote")
    assert [one["event"] for one in told(tmp_path)] == ["waits_for_approval"]


@pytest.mark.parametrize("spoil", [lambda text: "broken\n" + text, lambda text: text[:-5]], ids=["broken", "torn"])
def test_a_ledger_that_cannot_be_read_at_the_first_use_is_not_told_later(
        tmp_path: Path, capsys: pytest.CaptureFixture[str], spoil: Any) -> None:
    made = configured(tmp_path)
    moved(made, "register", "champion")
    ledger = Path(made.ledger_path)
    whole = ledger.read_text()
    ledger.write_text(spoil(whole))
    for _ in range(2):
        tell(made, "assay run", only_begin=True)
        tell(made, "assay run", [Notice("run_failed", "no ledger", once="no ledger")])
    assert "nobody could be notified" in capsys.readouterr().err
    assert [one["event"] for one in told(tmp_path)] == ["run_failed"]
    ledger.write_text(whole)
    tell(made, "assay promote", only_begin=True)
    moved(made, "register", "challenger", version=2, before=1)
    tell(made, "assay promote")
    assert [one["event"] for one in told(tmp_path)] == ["run_failed", "waits_for_approval"]


def test_an_outbox_from_before_it_said_whether_it_has_begun_goes_on(tmp_path: Path) -> None:
    made = configured(tmp_path)
    head = moved(made, "register", "champion")[-1].head
    (made.home / "notifications").mkdir()
    (made.home / "notifications/outbox.json").write_text(json.dumps({"head": head, "waiting": [], "said": {}}))
    moved(made, "reject", version=2, before=1)
    tell(made, "assay run", only_begin=True)
    tell(made, "assay run")
    assert [one["event"] for one in told(tmp_path)] == ["refused"]


def test_only_the_events_that_are_asked_for_are_told(tmp_path: Path) -> None:
    made = configured(tmp_path)
    assert made.notify is not None and made.notify.events == set(EVENTS)
    made = replace(made, notify=replace(made.notify, events=frozenset({"refused"})))
    tell(made, "assay run", only_begin=True)
    moved(made, "register", "champion")
    moved(made, "reject", version=2, before=1)
    tell(made, "assay run", [Notice("run_failed", "a disk was full")])
    assert [one["event"] for one in told(tmp_path)] == ["refused"]


def test_a_run_that_ends_with_an_error_is_told_and_keeps_its_exit_code(tmp_path: Path) -> None:
    configured(tmp_path)
    done = command(tmp_path, "run", "--telemetry", str(tmp_path / "none.parquet"))
    assert done.exit_code == 2
    (one,) = told(tmp_path)
    assert (one["event"], one["task"], one["actor"]) == ("run_failed", "performance", "assay run")
    assert f"error: {one['reason']}" in done.stderr and "none.parquet" in one["reason"]


def test_a_program_that_fails_is_said_and_gets_the_same_notice_with_the_next_command(tmp_path: Path) -> None:
    configured(tmp_path, {"command": ["sh", "-c", "echo no such channel; exit 3"]})
    done = command(tmp_path, "run", "--telemetry", str(tmp_path / "none.parquet"))
    assert done.exit_code == 2 and done.stderr.count("note: nobody could be notified") == 1
    assert "must end with 0, got 3 (sh; its output: " in done.stderr
    assert "no such channel" in (tmp_path / "home/logs/notifications.log").read_text()
    (waiting,) = json.loads((tmp_path / "home/notifications/outbox.json").read_bytes())["waiting"]
    made = configured(tmp_path)
    moved(made, "register", "champion")
    tell(made, "assay promote")
    assert [one["event"] for one in told(tmp_path)] == ["run_failed", "promoted"] and told(tmp_path)[0] == waiting


@pytest.mark.parametrize(("run", "said"), [(["sleep", "60"], "must end within 0.2 s"),
                                            (["/no/such/program"], "No such file")])
def test_a_program_that_hangs_or_is_not_there_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                                      monkeypatch: pytest.MonkeyPatch, run: list[str],
                                                      said: str) -> None:
    monkeypatch.setattr(notification, "PATIENCE_S", 0.2)
    tell(configured(tmp_path, {"command": run}), "assay run", [Notice("run_failed", "x")])
    assert said in capsys.readouterr().err


def test_a_program_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path,
                                                                monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notification, "PATIENCE_S", 2.0)
    pipe = tmp_path / "pipe"  # what the program started holds it open for as long as it lives
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    run = ["sh", "-c", f"(echo begun; sleep 30) > '{pipe}' & sleep 30"]
    tell(configured(tmp_path, {"command": run}), "assay run", [Notice("run_failed", "x")])
    with open(reader, "rb", buffering=0) as held:
        assert held.read(6) == b"begun\n"
        assert select.select([held], [], [], 10)[0] and held.read(1) == b""


def test_a_program_gets_no_secret_and_its_log_is_the_owners_alone(tmp_path: Path,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET_VARIABLE, "s3cret")
    monkeypatch.setenv("ASSAY_OTHER", "other")
    made = configured(tmp_path, {"command": ["env"]})
    tell(made, "assay run", [Notice("run_failed", "x")])
    log = made.home / "logs/notifications.log"
    assert "ASSAY_OTHER=other" in log.read_text() and "s3cret" not in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [
    "", "[]", "{}", "[" * 100_000,
    '{"head": "", "waiting": null, "said": {}}', '{"head": 5, "waiting": [], "said": {}}',
    '{"head": "", "waiting": [], "said": []}', '{"head": "", "waiting": [], "said": {"a": 5}}',
    '{"head": "", "waiting": [], "said": {}, "begun": 5}', '{"head": "", "waiting": [5], "said": {}}',
    '{"head": "", "waiting": [{}], "said": {}}'])
def test_an_outbox_that_cannot_be_read_is_set_aside_and_begun_anew(tmp_path: Path, content: str,
                                                                   capsys: pytest.CaptureFixture[str]) -> None:
    made = configured(tmp_path)
    moved(made, "register", "champion")
    outbox = made.home / "notifications/outbox.json"
    outbox.parent.mkdir()
    outbox.write_text(content)
    tell(made, "assay run", [Notice("run_failed", "broken")])
    (aside,) = outbox.parent.glob("outbox-unreadable-*.json")
    said = capsys.readouterr().err
    assert str(outbox) in said and aside.name in said and aside.read_text() == content
    moved(made, "register", "challenger", version=2, before=1)
    tell(made, "assay run")
    assert [one["event"] for one in told(tmp_path)] == ["run_failed", "waits_for_approval"]


def test_an_outbox_that_cannot_be_read_keeps_no_command_from_telling_what_it_moves(tmp_path: Path) -> None:
    made = configured(tmp_path)
    moved(made, "register", "champion")
    (made.home / "notifications").mkdir()
    (made.home / "notifications/outbox.json").touch()
    tell(made, "assay run", only_begin=True)
    moved(made, "register", "challenger", version=2, before=1)
    tell(made, "assay run")
    assert [one["event"] for one in told(tmp_path)] == ["waits_for_approval"]


def test_an_outbox_with_a_head_of_no_ledger_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = configured(tmp_path)
    (made.home / "notifications").mkdir()
    (made.home / "notifications/outbox.json").write_text('{"head": "x:y", "waiting": [], "said": {}}')
    tell(made, "assay run", [Notice("run_failed", "broken")])
    assert [one["event"] for one in told(tmp_path)] == ["run_failed"]
    assert "ledger must hold the entry that was taken up last, x:y, got none" in capsys.readouterr().err


def in_a_process(folder: Path, body: str) -> "subprocess.Popen[str]":
    """A command named `run` with this body, in a process of its own."""
    script = f"""
import os, time
from pathlib import Path
from pipelines.notification import notified

@notified("run_failed")
def run(config=None, task="performance"):
    print("begun", flush=True)
    {body}

run(config=Path({str(folder / 'mlflow.yaml')!r}), task="performance")
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=ROOT,
                               env={**os.environ, "ASSAY_HOME": str(folder / "home")})
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    return process


def test_a_run_that_is_ended_by_sigterm_is_told(tmp_path: Path) -> None:
    configured(tmp_path)
    with in_a_process(tmp_path, "time.sleep(60)") as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 143
    assert [(one["event"], one["reason"]) for one in told(tmp_path)] == [("run_failed", "ended by SIGTERM")]


def test_a_kill_while_telling_repeats_the_notice_with_its_id(tmp_path: Path) -> None:
    path = tmp_path / TOLD
    configured(tmp_path, {"command": ["sh", "-c", f"cat >> '{path}'; echo >> '{path}'; kill -9 $PPID"]})
    with in_a_process(tmp_path, "raise ValueError('broken')") as process:
        assert process.wait(30) == -signal.SIGKILL
    tell(configured(tmp_path), "assay promote")
    tell(configured(tmp_path), "assay promote")
    first, again = told(tmp_path)
    assert first == again and first["reason"] == "broken"


def test_an_incident_is_told_once_a_day_and_a_version(tmp_path: Path) -> None:
    made = configured(tmp_path)
    incident = Notice("incident", "it fell", "performance", "redis", 1, once="specification")
    for one in (incident, replace(incident, reason="it fell again"), replace(incident, version=2)):
        tell(made, "assay monitor", [one])
    assert [(one["version"], one["reason"]) for one in told(tmp_path)] == [(1, "it fell"), (2, "it fell")]


def test_another_ledger_is_said_and_withholds_no_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = configured(tmp_path)
    moved(made, "register", "champion")
    tell(made, "assay run", only_begin=True)
    other = replace(made, ledger_path=made.home / "other.jsonl")
    tell(other, "assay run", [Notice("run_failed", "broken")])
    assert [one["event"] for one in told(tmp_path)] == ["run_failed"]
    assert "ledger must hold the entry that was taken up last" in capsys.readouterr().err


def test_a_webhook_gets_a_signed_post(tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET_VARIABLE, "s3cret")
    tell(configured(tmp_path, {"webhook": receiver.url}), "assay run", [Notice("run_failed", "broken")])
    ((headers, body),) = receiver.posts
    assert json.loads(body)["reason"] == "broken" and headers["X-Assay-Delivery-Id"] == json.loads(body)["id"]
    signed = f"{headers['X-Assay-Delivery-Id']}.{headers['X-Assay-Timestamp']}.".encode() + body
    expected = "v1," + base64.b64encode(hmac.new(b"s3cret", signed, hashlib.sha256).digest()).decode()
    assert headers["X-Assay-Signature"] == expected


@pytest.mark.parametrize("status", [302, 404, 500])
def test_a_webhook_that_does_not_take_it_gets_it_again(tmp_path: Path, receiver: Receiver, status: int,
                                                       capsys: pytest.CaptureFixture[str]) -> None:
    made = configured(tmp_path, {"webhook": receiver.url})
    receiver.status = status
    tell(made, "assay run", [Notice("run_failed", "broken")])
    assert f"notify.webhook must answer with 2xx, got {status}" in capsys.readouterr().err
    receiver.status = 204
    tell(made, "assay run")
    tell(made, "assay run")
    (first, body), (second, again) = receiver.posts
    assert body == again and first["X-Assay-Delivery-Id"] == second["X-Assay-Delivery-Id"]
    assert "X-Assay-Signature" not in first, "there is no secret"


@pytest.mark.parametrize("drip", [(b"HTTP/1.1 200 OK\r\nX-Slow: ", b"a"), (b"", b"HTTP/1.1 100 Continue\r\n\r\n")])
def test_a_webhook_that_drips_its_answer_keeps_nobody_waiting(tmp_path: Path, receiver: Receiver,
                                                              drip: tuple[bytes, bytes],
                                                              capsys: pytest.CaptureFixture[str],
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    made = configured(tmp_path, {"webhook": receiver.url})
    receiver.drip = drip
    with monkeypatch.context() as patch:
        patch.setattr(notification, "PATIENCE_S", 0.5)
        tell(made, "assay run", [Notice("run_failed", "broken")])
    assert "notify.webhook must answer within 0.5 s, got no whole answer" in capsys.readouterr().err
    receiver.drip = None
    tell(made, "assay run")
    (first, body), (second, again) = receiver.posts
    assert body == again and first["X-Assay-Delivery-Id"] == second["X-Assay-Delivery-Id"]


def test_a_webhook_that_is_away_repeats_nothing_to_the_program_beside_it(tmp_path: Path, receiver: Receiver) -> None:
    append = ["sh", "-c", f"cat >> '{tmp_path / TOLD}'; echo >> '{tmp_path / TOLD}'"]
    made = configured(tmp_path, {"command": append, "webhook": receiver.url})
    receiver.status = 500
    tell(made, "assay run", [Notice("run_failed", "broken")])
    tell(made, "assay run", [Notice("run_failed", "broken again")])
    assert [one["reason"] for one in told(tmp_path)] == ["broken"], "the second waits behind the first"
    receiver.status = 204
    tell(made, "assay run")
    assert [one["reason"] for one in told(tmp_path)] == ["broken", "broken again"]
    assert [json.loads(body)["reason"] for _, body in receiver.posts] == ["broken"] * 3 + ["broken again"]


def test_a_webhook_that_is_away_is_said_without_its_address(tmp_path: Path,
                                                            capsys: pytest.CaptureFixture[str]) -> None:
    with receiver() as gone:
        pass
    tell(configured(tmp_path, {"webhook": gone.url}), "assay run", [Notice("run_failed", "broken")])
    said = capsys.readouterr().err
    assert "notify.webhook must answer, got ConnectionError" in said and gone.url not in said


def test_the_monitor_tells_an_incident_with_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from models.monitoring.findings import Decision, Finding, Looked

    made = configured(tmp_path)
    finding = Finding("specification", True, "it fell by 2 ms")
    seen = Seen("redis", 3, Decision("roll back", ("it fell by 2 ms",)), Looked(40, True, (finding,)), look=1)
    (made.home / "monitor").mkdir()
    monkeypatch.setattr("pipelines.monitor.monitor", lambda *_: ("performance", (seen,)))
    for _ in range(2):
        done = command(tmp_path, "monitor")
        assert done.exit_code == 3, done.output
    (one,) = told(tmp_path)
    assert (one["event"], one["task"], one["workload"], one["version"], one["reason"], one["actor"]) == (
        "incident", "performance", "redis", 3, "it fell by 2 ms", "assay monitor")
    assert one["page"] == str(made.home / "monitor/performance.html") and Path(one["page"]).is_file()


def test_workloads_of_a_run_that_failed_are_told_with_its_report(tmp_path: Path,
                                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    made = configured(tmp_path)
    entries = [{"workload": "redis", "status": "failed", "message": "no rows", "figures": [], "gates": None},
               {"workload": "nginx", "status": "unchanged", "message": "as before", "figures": [], "gates": None}]
    entries = [{"alias": None, "version": None, **one} for one in entries]

    def run_local(*_: Any, **__: Any) -> RunOutcome:
        moved(made, "register", "champion")
        return RunOutcome(tmp_path, {"entries": entries, "report": "report.html"}, 1.0)

    monkeypatch.setattr("pipelines.local_run.run_local", run_local)
    assert command(tmp_path, "run", "--json").exit_code == 1
    assert [(one["event"], one["workload"], one["reason"], one["page"]) for one in told(tmp_path)] == [
        ("run_failed", "redis", "no rows", "report.html"), ("promoted", "redis", "why champion", "report.html")]


def test_a_failed_run_is_told_under_the_name_of_its_task(tmp_path: Path) -> None:
    mappings = {"inside": "task: {name: mine}", "beside": "columns: {}", "no mapping": "- 1"}
    for name, text in mappings.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    task = notification._task_of
    assert task({"task": "performance", "mapping": tmp_path / "inside.yaml"}) == "mine"
    assert task({"task": str(ROOT / "models/tasks/prediction/performance.yaml"), "mapping": None}) == "performance"
    assert task({"task": "performance", "mapping": tmp_path / "beside.yaml"}) == "performance"
    assert task({"task": "no such", "mapping": tmp_path / "no mapping.yaml"}) == "no such"
