"""`assay clean`: what goes by age and number, what never goes, and that nothing is torn by a kill or beside a run."""

import errno
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from feature_store.errors import AssayError
from feature_store.file_lock import file_lock
from models.configuration import Configuration, load_configuration
from pipelines import cleaning
from pipelines.cleaning import clean, leftovers
from pipelines.command_line import app
from pipelines.run_lock import BY_HAND_NAME, LOCK_NAME, BusyError, acquire_run_lock
from serving.bundle import check_bundle
from serving.kept_bundles import kept_bundle
from serving.keys import create_key_pair
from serving.ledger import Ledger
from serving.moves import Move
from tests.pipelines.test_control_command import needs_prometheus, place  # noqa: F401  (a fixture)
from tests.serving.control.policy_bundle import write_policy_bundle

ROOT = Path(__file__).parents[2]
NOW, DAY = 1_800_000_000.0, 86_400.0
STAYS = ("controllers/t/w/steps/part", "controllers/t/w/memory.json", "shadow/t/w/memory.json", "mlflow.db",
         "bundles/t/w/1/model.onnx", "monitor/t/w/memory.json", "notifications/outbox.json", "freshness.json",
         "mlruns/1/artifact", "demo.html")
STEP, HASH = f"cache/{'a' * 64}.json", "0123456789abcdef" * 2  # named as kfp and Assay name them
GOES = (STEP, f"pretrained/{HASH}", f"learners/{HASH}/w/net", f"checkpoints/{HASH}/net", f"optuna/{HASH[:16]}.log",
        "logs/ui.log", "shadow/t/w/steps/part", "monitor/.look-x/a", "runs/a/request.json", "reports/a/index.html",
        f"trash/{HASH[:16]}/x")
REQUEST = '{"pipeline_root": "outputs"}'


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.fixture
def state(empty_state: Configuration) -> Configuration:
    """A state folder with keys, an empty ledger, and nothing else."""
    empty_state.public_key_path.parent.mkdir(parents=True)
    create_key_pair(empty_state.private_key_path, empty_state.public_key_path)
    return empty_state


def write(path: Path, days: float = 400.0, text: str = "x") -> Path:
    """A file, and its folders, last written so many days before NOW."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(REQUEST if path.name == "request.json" else text)
    below_home = takewhile(lambda one: one.name not in ("home", "elsewhere"), path.parents)
    for one in (path, *below_home):
        os.utime(one, (NOW - days * DAY,) * 2)
    return path


def write_run(home: Path, name: str, days: float, *registered: tuple[str, int], status: str = "registered") -> Path:
    """A run with its report; registered: model and version of what it registered."""
    entries = [{"workload": "redis", "status": status, "model": model, "version": version}
               for model, version in registered]
    write(home / "reports" / name / "index.html", days)
    write(home / "runs" / name / "request.json", days)
    event = {"event": "result", "summary": {"entries": entries}}
    return write(home / "runs" / name / "events.jsonl", days, json.dumps(event) + "\n").parent


def move(action: Any, version: int, previous: int | None = None) -> Move:
    return Move(action, "2026-01-31T12:00:00+00:00", "performance", "redis", "assay.performance.redis", version,
                previous, str(version) * 64, True, "", "test")


def files(home: Path) -> set[str]:
    return {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()}


def names(state: Configuration, kind: str, days: float, keep: int) -> set[str]:
    return {one.path.name for one in leftovers(state, days, keep, NOW) if one.kind == kind}


def test_the_most_aggressive_cleaning_takes_every_leftover_and_nothing_else(state: Configuration) -> None:
    for name in (*STAYS, *GOES):
        write(state.home / name)
    before = files(state.home)
    removed = clean(state, days=0, keep=0, now=NOW)
    assert len(removed) == len(GOES) and sum(one.size for one in removed) >= 4096 * len(GOES)
    assert before - files(state.home) == set(GOES)
    assert not (state.home / cleaning.TRASH).exists()
    assert clean(state, days=0, keep=0, now=NOW) == []


def test_runs_and_reports_go_by_age_beyond_the_newest_the_rest_by_age_alone(state: Configuration) -> None:
    for days in range(1, 8):
        write_run(state.home, f"run-{days}", days)
        write(state.home / "cache" / f"{days:064d}.json", days)
    assert names(state, "runs", 3, 0) == names(state, "reports", 3, 0) == {"run-3", "run-4", "run-5", "run-6", "run-7"}
    assert names(state, "runs", 3, 5) == {"run-6", "run-7"}
    assert names(state, "runs", 0, 7) == set()
    assert names(state, "cached steps", 6, 20) == {f"{days:064d}.json" for days in (6, 7)}


def test_a_folder_is_as_young_as_the_youngest_file_deep_in_it(state: Configuration) -> None:
    write(state.home / "runs/a/request.json")
    deep = write(state.home / "runs/a/outputs/step/model")
    os.utime(deep, (NOW - DAY, NOW - DAY))
    assert names(state, "runs", 2, 0) == set() and names(state, "runs", 1, 0) == {"a"}


def test_runs_and_reports_of_standing_versions_stay(state: Configuration) -> None:
    model = "assay.performance.redis"
    ledger = Ledger(state.ledger_path, state.public_key_path, state.private_key_path)
    moves = [move("register", 1), move("challenger", 1), move("champion", 1), move("register", 2, 1),
             move("challenger", 2, 1), move("approve", 2, 1), move("register", 3, 2), move("challenger", 3, 2),
             move("approve", 3, 2), move("register", 4, 3), move("challenger", 4, 3)]
    ledger.append(moves)
    for version in range(1, 5):
        write_run(state.home, f"v{version}", 400, (model, version))
    write_run(state.home, "again", 400, (model, 3), status="unchanged")
    write_run(state.home, "other", 400, ("assay.performance.nginx", 3))
    clean(state, days=0, keep=0, now=NOW)
    stays = {"v2", "v3", "v4"}  # the champion before, the champion, what waits
    assert {path.name for path in (state.home / "runs").iterdir()} == stays
    assert {path.name for path in (state.home / "reports").iterdir()} == stays
    assert ledger.champion_of("performance", "redis") == 3


def test_nothing_goes_where_the_ledger_does_not_hold(state: Configuration) -> None:
    ledger = Ledger(state.ledger_path, state.public_key_path, state.private_key_path)
    ledger.append([move("register", 1), move("challenger", 1)])
    write(state.home / STEP)
    state.ledger_path.write_bytes(state.ledger_path.read_bytes().replace(b"redis", b"nginx", 1))
    with pytest.raises(AssayError):
        clean(state, days=0, keep=0, now=NOW)
    assert (state.home / STEP).exists()


def test_a_folder_into_which_the_configuration_puts_the_keys_is_left_alone(state: Configuration) -> None:
    write(state.home / "logs/ui.log")
    write(state.home / STEP)
    inside = replace(state, private_key_path=state.home / "logs/assay.key")
    assert [one.path.name for one in leftovers(inside, 0, 0, NOW)] == [Path(STEP).name]


def test_a_kill_while_it_moves_or_deletes_leaves_whole_things_and_the_next_goes_on(
    state: Configuration, monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in GOES:
        write(state.home / name)
    rename, calls = Path.rename, []

    def killed(path: Path, target: Path) -> Path:
        calls.append(path)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", killed)
    with pytest.raises(KeyboardInterrupt):
        clean(state, days=0, keep=0, now=NOW)
    monkeypatch.undo()
    assert len(files(state.home / cleaning.TRASH)) == 4  # the three, and what lay there
    assert sum((state.home / name).exists() for name in GOES[:-1]) == len(GOES) - 4
    left = leftovers(state, 0, 0, NOW)
    assert sum(one.kind == "an earlier cleaning" for one in left) == 4 and len(left) == len(GOES)
    removed = clean(state, days=400_000, keep=20, now=NOW)  # what was moved goes at whatever age
    assert [one.kind for one in removed] == ["an earlier cleaning"] * 4
    assert not (state.home / cleaning.TRASH).exists()


HOLD = """
import sys
from pathlib import Path
from feature_store.file_lock import file_lock
with file_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held_elsewhere(path: Path) -> Iterator[None]:
    """By another process for the length of the block."""
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], cwd=ROOT, text=True, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield
        process.kill()


@pytest.mark.parametrize("lock", [LOCK_NAME, BY_HAND_NAME, "runs/b/lock"])
def test_nothing_goes_beside_a_run(state: Configuration, lock: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning, "PATIENCE_S", 0.1)
    write(state.home / "runs/a/request.json")
    write(state.home / lock)
    with held_elsewhere(state.home / lock):
        refused = call("clean", "--yes")
        assert (refused.exit_code, refused.stderr.count("\n")) == (BusyError.exit_code, 1), refused.output
        assert "another run has not ended" in refused.stderr
        assert (state.home / "runs/a/request.json").exists()
    assert call("clean", "--yes", "--keep", "0").exit_code == 0
    assert not (state.home / "runs/a").exists()


def test_scheduled_runs_are_kept_out_meanwhile(state: Configuration, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def look(*_: Any) -> list[Any]:
        with pytest.raises(BusyError) as caught, acquire_run_lock(state.home / LOCK_NAME):
            pytest.fail("two holders")
        seen.append(str(caught.value))
        return []

    monkeypatch.setattr(cleaning, "leftovers", look)
    clean(state, days=0, keep=0, now=NOW)
    assert len(seen) == 1 and "(assay clean)" in seen[0]


def test_the_log_of_a_controller_in_shadow_that_is_at_work_stays(state: Configuration) -> None:
    for name in ("one", "two"):
        write(state.home / "shadow/t" / name / "steps/part")
    with held_elsewhere(state.home / "shadow/t/one/lock"):
        (removed,) = clean(state, days=0, keep=0, now=NOW)
    assert removed.path == state.home / "shadow/t/two/steps"
    assert (state.home / "shadow/t/one/steps/part").exists()


def test_a_run_holds_its_lock_while_it_is_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipelines import local_run

    class Request:
        run_name, parallelism = "a", 1

        def arguments(self) -> dict[str, Any]:
            return {}

    taken: list[bool] = []

    def follow(*_: Any) -> None:
        try:
            with file_lock(tmp_path / "runs/a/lock").acquire(blocking=False):
                taken.append(True)
        except TimeoutError:
            taken.append(False)

    monkeypatch.setattr(local_run, "_follow", follow)
    monkeypatch.setattr(local_run, "start_group", lambda *_, **__: None)
    monkeypatch.setattr(local_run, "stop_group", lambda _: None)
    with pytest.raises(AttributeError):  # there is no child
        local_run.run_local(Request(), tmp_path, lambda _: None)  # type: ignore[arg-type]
    assert taken == [False]
    file_lock(tmp_path / "runs/a/lock").acquire(blocking=False).lock.release()


def test_the_command_only_shows_until_it_is_told(state: Configuration) -> None:
    for name in GOES:
        write(state.home / name)
    before = files(state.home)
    shown = call("clean", "--keep", "0")
    assert shown.exit_code == 0 and files(state.home) == before
    assert "\nlogs: 1, 4.1 kB\n" in shown.stdout
    assert shown.stdout.splitlines()[-1].endswith(" can be freed; --yes removes it")
    planned = json.loads(call("clean", "--keep", "0", "--json").stdout)
    done = json.loads(call("clean", "--keep", "0", "--json", "--yes").stdout)
    assert (planned.pop("removed"), done.pop("removed")) == (False, True)
    assert planned.pop("left_alone") == done.pop("left_alone") == []
    assert planned == done and sum(kind["entries"] for kind in done["kinds"]) == len(GOES)
    assert sum(kind["bytes"] for kind in done["kinds"]) == done["bytes"]
    assert call("clean", "--yes").stdout == "there is nothing to remove\n"
    for bad in (("--older-than", "-1"), ("--keep", "-1"), ("--older-than", "30d")):
        assert call("clean", *bad).exit_code == 2


def test_what_runs_left_that_never_came_to_a_ledger_goes_too(state: Configuration) -> None:
    shutil.rmtree(state.public_key_path.parent)
    write(state.home / "runs/a/request.json")
    assert call("clean", "--keep", "0").stdout.startswith("runs: 1, ")
    assert not state.public_key_path.parent.exists() and (state.home / "runs/a").exists()


def test_without_a_state_folder_none_is_made(state: Configuration) -> None:
    shutil.rmtree(state.home)
    assert call("clean", "--yes").stdout == "there is nothing to remove\n"
    assert not state.home.exists()


def written_configuration(tmp_path: Path, **changed: str) -> Configuration:
    """Of a state folder `home` whose mlflow.yaml has other values for these keys."""
    text = (ROOT / "mlflow.yaml").read_text()
    for key, value in changed.items():
        text, times = re.subn(rf"(?m)^( *{key}): .*$", lambda found, value=value: f"{found[1]}: {value}", text)
        assert times == 1
    (tmp_path / "mlflow.yaml").write_text(text)
    return load_configuration(tmp_path / "mlflow.yaml", {"ASSAY_HOME": str(tmp_path / "home")})


@pytest.mark.parametrize("changed", [
    {"ledger": "optuna/../runs/a/ledger.jsonl"}, {"ledger": "../home/runs/a/ledger.jsonl"},
    {"ledger": "link/ledger.jsonl"},
    {"private": "nowhere/../runs/a/key", "public": "keys/../runs/a/pub"}, {"private": "REAL/runs/a/key"},
    {"uri": "sqlite:///nowhere/../runs/a/mlflow.db"}, {"artifacts": "file://HOME/runs/a"},
    {"artifacts": "file:///nowhere/..HOME/runs/a/ml%20flow"},
], ids=lambda changed: " ".join(changed.values()))
@pytest.mark.parametrize("linked_home", [False, True])
def test_what_must_stay_stays_by_whatever_name_the_configuration_has_for_it(
    state: Configuration, tmp_path: Path, changed: dict[str, str], linked_home: bool,
) -> None:
    if linked_home:
        state.home.symlink_to(state.home.rename(tmp_path / "real"))
    home, real = str(state.home), str(state.home.resolve())
    changed = {key: value.replace("HOME", home).replace("REAL", real) for key, value in changed.items()}
    for name in ("runs/a/request.json", "runs/b/request.json", "runs/a/ml flow/model", "logs/ui.log", STEP):
        write(state.home / name)
    (state.home / "link").symlink_to(state.home / "runs/a")
    removed = clean(written_configuration(tmp_path, **changed), days=0, keep=0, now=NOW)
    assert {one.path.name for one in removed} == {"ui.log", Path(STEP).name}
    assert (state.home / "runs/a/ml flow/model").exists() and (state.home / "runs/b").exists()


def test_what_must_stay_is_looked_for_again_when_it_is_moved(
    state: Configuration, monkeypatch: pytest.MonkeyPatch,
) -> None:
    write(state.home / "runs/a/request.json")
    found = leftovers(state, 0, 0, NOW)

    def moved_meanwhile(*_: Any) -> list[cleaning.Leftover]:
        ledger = write(state.home / "runs/a/ledger.jsonl")
        state.ledger_path.parent.mkdir()
        state.ledger_path.symlink_to(ledger)
        return found

    monkeypatch.setattr(cleaning, "leftovers", moved_meanwhile)
    assert len(found) == 1 and clean(state, days=0, keep=0, now=NOW) == []
    assert state.ledger_path.exists()


def test_another_projects_folder_is_refused_and_nothing_is_made_in_it(state: Configuration) -> None:
    shutil.rmtree(state.home)
    for name in ("runs/a/events.jsonl", "reports/thesis.tex", "logs/ui.log", STEP, f"trash/{HASH[:16]}/x"):
        write(state.home / name)
    before = set(state.home.rglob("*"))
    for options in ((), ("--yes",)):
        refused = call("clean", "--keep", "0", "--older-than", "0", *options)
        assert refused.exit_code == 2 and "check ASSAY_HOME" in refused.stderr and refused.stderr.count("\n") == 1
    assert set(state.home.rglob("*")) == before


def test_what_others_keep_in_the_state_folder_stays(state: Configuration) -> None:
    theirs = ("runs/theirs/events.jsonl", "runs/theirs/lock", "runs/other/request.json", "runs/file",
              "reports/thesis/thesis.html", "reports/thesis/thesis.tex", "reports/a.html", "logs/database.log",
              "cache/a.json", f"cache/{HASH}.bin", "pretrained/resnet.pt", "learners/a/net", "checkpoints/last.pt",
              "optuna/study.log", "trash/precious")
    for name in (*theirs, *GOES):
        write(state.home / name)
    (state.home / "runs/other/request.json").write_text('{"theirs": 1}')
    assert len(clean(state, days=0, keep=0, now=NOW)) == len(GOES)
    assert files(state.home) >= set(theirs) and not files(state.home) & set(GOES)


@pytest.mark.parametrize("events", [
    "{}", "[]", "1", "{", '{"event": "result", "summary": {}}', '{"event": "result", "summary": {"entries": [{}]}}',
    '{"event": "result", "summary": {"entries": [{"status": "registered"}]}}', "[" * 100_000,
    '{"event": "result", "summary": {"entries": [{"status": "registered", "model": [], "version": 1}]}}',
])
def test_a_run_whose_events_cannot_be_read_stays_with_its_report(state: Configuration, events: str) -> None:
    write_run(state.home, "whole", 400)
    write_run(state.home, "broken", 400)
    (state.home / "runs/broken/events.jsonl").write_text(events + "\n")
    removed = clean(state, days=0, keep=0, now=time.time() + DAY)
    assert [one.path.name for one in removed] == ["whole", "whole"]
    assert (state.home / "reports/broken").exists()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("elsewhere")])
@pytest.mark.parametrize("name", ["runs/odd/events.jsonl", "runs/odd/lock", "shadow/t/odd/lock"])
def test_what_is_no_file_where_one_is_expected_neither_stops_it_nor_goes(
    state: Configuration, make: Any, name: str,
) -> None:
    write(state.home / "runs/odd/request.json")
    write(state.home / "shadow/t/odd/steps/part")
    write(state.home / STEP)
    make(state.home / name)
    removed = clean(state, days=0, keep=0, now=time.time() + DAY)
    assert state.home / STEP in {one.path for one in removed}
    assert (state.home / name).parent not in {one.path for one in removed}
    assert os.path.lexists(state.home / name) and not (state.home / name).with_name("elsewhere").exists()
    assert (state.home / "shadow/t/odd/steps/part").exists() == name.startswith("shadow")


def test_links_are_not_followed_and_those_of_whole_kinds_are_named(state: Configuration, tmp_path: Path) -> None:
    write(state.home / "runs/a/request.json")
    for name in ("cache", "learners"):
        write(tmp_path / "elsewhere" / GOES[0 if name == "cache" else 2])
        (state.home / name).symlink_to(tmp_path / "elsewhere" / name)
    write(tmp_path / "elsewhere/run/request.json", text="x" * 100_000)
    (state.home / "runs/linked").symlink_to(tmp_path / "elsewhere/run")
    write(tmp_path / "elsewhere/w/steps/part")
    (state.home / "shadow/t").mkdir(parents=True)
    (state.home / "shadow/t/w").symlink_to(tmp_path / "elsewhere/w")
    outside = files(tmp_path / "elsewhere")
    said = json.loads(call("clean", "--keep", "0", "--json").stdout)
    assert said["left_alone"] == [str(state.home / "cache"), str(state.home / "learners")] and said["bytes"] < 50_000
    assert f"left alone, as it is a link: {state.home / 'cache'}\n" in call("clean", "--keep", "0").stdout
    assert [one.path.name for one in clean(state, days=0, keep=0, now=NOW)] == ["a"]
    assert files(tmp_path / "elsewhere") == outside and (state.home / "runs/linked").is_symlink()


def test_what_is_on_another_disk_stays_and_keeps_nothing_else(
    state: Configuration, monkeypatch: pytest.MonkeyPatch,
) -> None:
    write(state.home / STEP)
    write(state.home / "runs/a/request.json")
    rename = Path.rename

    def across(path: Path, target: Path) -> Path:
        if path.parent.name == "cache":
            raise OSError(errno.EXDEV, "Invalid cross-device link", str(path))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", across)
    assert [one.path.name for one in clean(state, days=0, keep=0, now=NOW)] == ["a"]
    assert (state.home / STEP).exists() and not (state.home / cleaning.TRASH).exists()


@pytest.mark.parametrize("options", [(), ("--yes",)])
def test_a_trash_that_is_a_link_is_refused(state: Configuration, tmp_path: Path, options: tuple[str, ...]) -> None:
    write(state.home / "runs/a/request.json")
    precious = write(tmp_path / "elsewhere" / HASH[:16])
    (state.home / cleaning.TRASH).symlink_to(precious.parent)
    refused = call("clean", "--keep", "0", *options)
    assert refused.exit_code == 2 and "trash: expected a folder" in refused.stderr
    assert precious.exists() and (state.home / "runs/a").exists()


@needs_prometheus
def test_a_controller_goes_on_after_it(place: Path, state: Configuration) -> None:  # noqa: F811
    shutil.copy(place / "key", state.private_key_path)
    shutil.copy(place / "pub", state.public_key_path)
    bundle = write_policy_bundle(kept_bundle(state.home, "autoscaling", "nginx", 1), place / "key")
    ledger = Ledger(state.ledger_path, place / "pub", place / "key")
    ledger.append([replace(move(action, 1), task="autoscaling", workload="nginx", model="assay.autoscaling.nginx",
                           bundle_sha256=check_bundle(bundle, place / "pub").sha256)
                   for action in ("register", "challenger", "champion")])

    def control() -> list[dict[str, Any]]:
        done = subprocess.run(
            [sys.executable, "-c", "from pipelines.command_line import main; main()", "control", "--workload", "nginx",
             "--task", "autoscaling", "--controller", str(place / "controller.yaml"), "--every", "0.2", "--steps", "3",
             "--json"], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    first = control()
    write(state.home / STEP)
    clean(state, days=0, keep=0, now=time.time() + DAY)
    assert not (state.home / STEP).exists()
    second = control()
    assert [one["actor"] for one in first] == [one["actor"] for one in second] == ["fallback", "policy", "policy"]
