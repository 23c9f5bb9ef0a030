"""`assay run` as a user runs it, and everything that a user does with what it made.

One scene for the whole file, since a run takes half a minute: on a fresh state folder two runs start at once, a
scheduled one on good telemetry and one with another seed on telemetry whose nginx rows are in percent; a second
scheduled one comes while the first is at work. After them: a plain run like the first, and a scheduled one.
"""

import base64
import html
import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlflow
import pytest
import yaml

from serving.bundle import check_bundle
from serving.keys import create_key_pair, load_private_key
from serving.ledger import Ledger
from tests.components.steps import IGNORED_WARNING
from tests.e2e import tiny
from tests.e2e.processes import Project, finish, new_project, processes_of, wait_until

pytestmark = [pytest.mark.timeout(1200), pytest.mark.filterwarnings(IGNORED_WARNING)]

RUN = ("run", "--task", "tiny.yaml", "--telemetry", "samples.parquet")
ROW = {"psi_cpu_some": 0.3, "psi_io_some": 0.4, "connections": 4.0}
Done = subprocess.CompletedProcess


@dataclass(frozen=True)
class Scene:
    """The project and how each run of the module docstring ended."""

    project: Project
    first: "Done[str]"
    overlapping: "Done[str]"
    other: "Done[str]"
    second: "Done[str]"
    no_news: "Done[str]"
    temporary: Path
    seconds_without_news: float

    @property
    def client(self) -> mlflow.MlflowClient:
        uri = self.project.configuration.tracking_uri
        return mlflow.MlflowClient(uri, uri)

    @property
    def ledger(self) -> Ledger:
        configuration = self.project.configuration
        return Ledger(configuration.ledger_path, configuration.public_key_path)

    def entry(self, done: "Done[str]", workload: str) -> dict[str, Any]:
        found: dict[str, Any] = {entry["workload"]: entry for entry in json.loads(done.stdout)["entries"]}[workload]
        return found

    def bundle(self, workload: str = "redis") -> Path:
        return Path(self.entry(self.first, workload)["bundle"])


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    project = new_project(tmp_path_factory.mktemp("scene"))
    temporary = project.folder / "tmp"
    temporary.mkdir()
    bad = tiny.telemetry()
    bad.loc[bad["workload"] == "nginx", "psi_io_some"] *= 100
    bad.to_parquet(project.folder / "percent.parquet", index=False)

    first = project.start(*RUN, "--scheduled", "--name", "first", "--json")
    other = project.start("run", "--task", "tiny.yaml", "--telemetry", "percent.parquet", "--seed", "1", "--name",
                          "other", "--json")
    wait_until(lambda: project.run_folder("first").exists() or first.poll() is not None, 120, "the run has begun")
    overlapping = project.call(*RUN, "--scheduled", "--name", "overlapping")
    ended = [finish(process) for process in (first, other)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(temporary))
        second = project.call(*reproducing(ended[0], "redis"), "--name", "second")
    began = time.monotonic()
    no_news = project.call(*RUN, "--scheduled", "--name", "no-news")
    yield Scene(project, ended[0], overlapping, ended[1], second, no_news, temporary, time.monotonic() - began)


def reproducing(done: "Done[str]", workload: str) -> list[str]:
    """The words after `assay` of the command that the report of a version says to type."""
    page = Path(json.loads(done.stdout)["report"]).with_name(f"{workload}.html").read_text()
    (command,) = re.findall(r"<pre[^>]*><code>(assay run .*?)</code>", html.unescape(page))
    return shlex.split(command)[1:]


def test_the_first_run_succeeds_and_says_what_it_made(scene: Scene) -> None:
    assert scene.first.returncode == 0, scene.first.stdout + scene.first.stderr
    document = json.loads(scene.first.stdout)
    assert document["run"] == "first" and document["seconds"] > 0
    assert [entry["workload"] for entry in document["entries"]] == ["nginx", "redis"]
    for entry in document["entries"]:
        assert (entry["status"], entry["verdict"]) == ("registered", "PROVED")
        assert entry["gates"]["passed"] and len(entry["gates"]["gates"]) == 8
        assert entry["metrics"]["counterexample_accuracy"] == 1.0
        assert entry["model"] == f"assay.tiny.{entry['workload']}"
    assert "<!doctype html" in Path(document["report"]).read_text()[:100]


def test_the_report_needs_no_other_file(scene: Scene) -> None:
    folder = Path(json.loads(scene.first.stdout)["report"]).parent
    for page in ("index.html", "redis.html"):
        text = (folder / page).read_text()
        assert "redis" in text and "PROVED" in text
        assert 'src="http' not in text and "<script src=" not in text and "<link" not in text


def test_the_second_run_makes_the_same_models_registers_nothing_and_says_so(scene: Scene) -> None:
    assert scene.second.returncode == 0, scene.second.stdout + scene.second.stderr
    lines = scene.second.stdout.splitlines()
    notes = [line for line in lines if line.startswith(("nginx: ", "redis: "))]
    assert len(notes) == 2 and all("byte for byte; nothing is registered" in line for line in notes)
    assert "is that of version 1, the champion" in notes[0]
    assert max(map(len, scene.second.stdout.partition("columns: ")[0].splitlines())) <= 80
    (row,) = [line.split() for line in lines if line.strip().startswith("nginx ")]
    assert row[4] == "PROVED" and "8 of 8" in " ".join(row) and row[-2:] == ["1", "champion"]
    assert "…" not in "".join(lines)
    bundles = [line.removeprefix("bundle: ") for line in lines if line.startswith("bundle: ")]
    assert Path(bundles[0]) == scene.bundle("nginx") and all(Path(bundle).is_dir() for bundle in bundles)
    (report,) = [line.removeprefix("report: ") for line in lines if line.startswith("report: /")]
    assert "byte for byte; nothing is registered" in Path(report).read_text()


def test_the_second_run_takes_what_is_done_from_the_cache(scene: Scene) -> None:
    assert scene.project.started("first") == {"ingest", "validate", "featurize", "audit", "pretrain", "finetune",
                                              "verify", "export", "gate", "register", "pages", "report"}
    assert reproducing(scene.first, "nginx") == [*RUN, "--seed", "0"]  # the second run was given so
    assert scene.project.started("second") == {"verify", "export", "gate", "register", "pages", "report"}


def test_a_workload_with_bad_data_does_not_sink_the_other(scene: Scene) -> None:
    assert scene.other.returncode == 1, scene.other.stdout + scene.other.stderr
    nginx, redis = (scene.entry(scene.other, workload) for workload in ("nginx", "redis"))
    values = tiny.telemetry(("nginx",))["psi_io_some"] * 100
    bad = values[values > 1]
    assert nginx["status"] == "failed" and nginx["version"] is None
    assert f"column 'psi_io_some' must be between 0 and 1 share, got {bad.iloc[0]:g}" in nginx["message"]
    assert f"{len(bad)} of 300 rows, first at record {bad.index[0] + 1}" in nginx["message"]
    assert (redis["status"], redis["verdict"]) == ("registered", "PROVED")


def test_two_runs_at_once_leave_one_champion_and_a_consistent_ledger(scene: Scene) -> None:
    versions = {scene.entry(done, "redis")["version"] for done in (scene.first, scene.other)}
    assert versions == {1, 2}
    for workload, count in (("redis", 2), ("nginx", 1)):
        standing = scene.ledger.standing("tiny", workload)
        model = scene.client.get_registered_model(f"assay.tiny.{workload}")
        assert int(model.aliases["champion"]) == standing.champion
        found = scene.client.search_model_versions(f"name = 'assay.tiny.{workload}'")
        assert sorted(int(version.version) for version in found) == sorted(standing.registered)
        assert len(standing.registered) == count
    assert scene.project.unfinished() == []


def test_mlflow_shows_a_reviewer_what_a_version_is(scene: Scene) -> None:
    version = scene.client.get_model_version("assay.tiny.nginx", "1")
    contract = json.loads((scene.bundle("nginx") / "contract.json").read_text())
    assert version.tags["verdict"] == "PROVED" and version.tags["gates_passed"] == "true"
    assert version.tags["data_version"] == contract["data_version"]
    assert version.tags["code_version"] == contract["code_version"]
    assert version.tags["model_sha256"] == contract["model"]["sha256"]
    assert "| specification | yes |" in version.description
    run = scene.client.get_run(version.run_id)
    assert run.data.metrics["test_mse"] == pytest.approx(scene.entry(scene.first, "nginx")["metrics"]["test_mse"])
    (dataset,) = run.inputs.dataset_inputs
    assert str(scene.project.folder / "samples.parquet") in dataset.dataset.source
    assert "nginx.html" in {item.path for item in scene.client.list_artifacts(version.run_id)}


def test_the_ledger_verifies_and_tells_the_story(scene: Scene) -> None:
    rows = scene.project.json("history", "--workload", "nginx")
    assert [(row["action"], row["version"]) for row in rows][:3] == [
        ("register", 1), ("challenger", 1), ("champion", 1)]
    assert {row["task"] for row in rows} == {"tiny"} and {row["gates_passed"] for row in rows} == {True}
    shown = scene.project.call("history")
    assert shown.returncode == 0 and "chain, signatures and end hold" in shown.stdout


@pytest.mark.parametrize("workload", tiny.WORKLOADS)
def test_check_accepts_a_bundle(scene: Scene, workload: str) -> None:
    document = scene.project.json("check", scene.bundle(workload))
    assert document["accepted"] is True and document["workload"] == workload and document["leaves"] >= 1


def test_anyone_can_check_the_signature_without_us(scene: Scene) -> None:
    command = [str(Path(sys.executable).with_name("model_signing")), "verify", "key", str(scene.bundle()),
               "--signature", str(scene.bundle() / "model.sig"),
               "--public_key", str(scene.project.configuration.public_key_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_bundle_with_one_other_byte_is_refused(scene: Scene, tmp_path: Path) -> None:
    copy = shutil.copytree(scene.bundle(), tmp_path / "bundle")
    model = bytearray((copy / "model.onnx").read_bytes())
    model[len(model) // 2] ^= 1
    (copy / "model.onnx").write_bytes(model)
    done = scene.project.call("check", copy)
    assert done.returncode == 1 and "model.onnx" in done.stderr
    document = json.loads(scene.project.call("check", copy, "--json").stdout)
    assert document["accepted"] is False and "model.onnx" in document["reason"]


def test_a_bundle_signed_by_somebody_else_is_refused(scene: Scene, tmp_path: Path) -> None:
    create_key_pair(tmp_path / "other.key", tmp_path / "other.pub")
    done = scene.project.call("check", scene.bundle(), "--public-key", tmp_path / "other.pub")
    assert done.returncode == 1 and "sign" in done.stderr


def test_predict_from_a_row_of_the_champion_and_of_a_bundle(scene: Scene) -> None:
    low = scene.project.json("predict", "--task", "tiny", "--workload", "redis", "--row", json.dumps(ROW))
    high = scene.project.json("predict", "--bundle", scene.bundle(), "--row", json.dumps({**ROW, "psi_cpu_some": 0.8}))
    expected = 0.5 * (1 + 4 * 0.3**2 + 3 * 0.4 + 0.05 * 4)  # tests/e2e/tiny.py, ms
    assert low["latency_ms"] == pytest.approx(expected, rel=0.2) and low["unit"] == "ms"
    assert high["latency_ms"] > low["latency_ms"] and high["outside_box"] == []


def test_a_scheduled_run_without_new_data_registers_nothing(scene: Scene) -> None:
    assert scene.no_news.returncode == 0
    assert "no new data" in scene.no_news.stdout and "nothing was registered" in scene.no_news.stdout
    assert not scene.project.run_folder("no-news").exists()
    assert scene.seconds_without_news < 60


def test_a_scheduled_run_does_not_overlap_with_another(scene: Scene) -> None:
    assert scene.overlapping.returncode == 75
    assert "another run has not ended: process" in scene.overlapping.stderr
    assert not scene.project.run_folder("overlapping").exists()


def test_a_run_leaves_neither_processes_nor_temporary_files_behind(scene: Scene) -> None:
    assert processes_of(scene.project.home) == []
    assert {path.name for path in scene.project.run_folder("second").iterdir()} == {
        "request.json", "train.yaml", "kfp.log", "events.jsonl", "outputs", "lock"}
    assert list(scene.temporary.iterdir()) == []


class TestMoves:
    """What a reviewer does, in this order; none of it is undone by the tests above."""

    def test_rollback_goes_to_the_champion_before_and_says_so(self, scene: Scene) -> None:
        project, standing = scene.project, scene.ledger.standing("tiny", "redis")
        if standing.previous_champion is None:  # the better seed came first
            project.json("promote", "--task", "tiny", "--workload", "redis", "--reason", "reviewed")
            standing = scene.ledger.standing("tiny", "redis")
        done = project.call("rollback", "--task", "tiny", "--workload", "redis", "--reason", "alarms")
        assert done.returncode == 0 and f"version {standing.previous_champion} is champion" in done.stdout
        model = scene.client.get_registered_model("assay.tiny.redis")
        assert int(model.aliases["champion"]) == standing.previous_champion
        last = scene.ledger.history("tiny", "redis")[-1].move
        assert (last.action, last.reason) == ("rollback", "alarms")

    def test_rollback_without_a_champion_before_is_refused(self, scene: Scene) -> None:
        while scene.ledger.standing("tiny", "redis").previous_champion is not None:
            assert scene.project.call("rollback", "--task", "tiny", "-w", "redis").returncode == 0
        before = scene.ledger.verify()
        done = scene.project.call("rollback", "--task", "tiny", "--workload", "redis")
        assert done.returncode == 1
        assert "expected a champion before the present one" in done.stderr
        assert scene.ledger.verify() == before

    def test_promoting_what_is_champion_already_is_refused(self, scene: Scene) -> None:
        champion = scene.ledger.champion_of("tiny", "redis")
        done = scene.project.call("promote", "--task", "tiny", "-w", "redis", "--version", str(champion), "--json")
        assert done.returncode == 1
        assert json.loads(done.stdout) == {"error": json.loads(done.stdout)["error"], "exit_code": 1}

    def test_a_tampered_ledger_stops_every_move(self, scene: Scene) -> None:
        """Somebody gives an old version a better story: nobody promotes, rolls back or predicts on top of it.

        That no run registers either: tests/components/test_steps.py, without a run that takes a minute to be refused.
        """
        path = scene.project.configuration.ledger_path
        original = path.read_bytes()
        versions = len(scene.client.search_model_versions("name = 'assay.tiny.redis'"))
        try:
            path.write_bytes(original.replace(b'"gates_passed":true', b'"gates_passed":"yes"', 1).replace(
                b'"actor":"assay run"', b'"actor":"assay ran"', 1))
            for command in (("history",), ("promote", "--task", "tiny", "-w", "redis"),
                            ("rollback", "--task", "tiny", "-w", "redis"),
                            ("predict", "--task", "tiny", "-w", "redis", "--row", json.dumps(ROW))):
                done = scene.project.call(*command)
                assert done.returncode == 1, (command, done.stdout, done.stderr)
                assert "ledger" in done.stderr or "entry" in done.stderr, (command, done.stderr)
            assert len(scene.client.search_model_versions("name = 'assay.tiny.redis'")) == versions
        finally:
            path.write_bytes(original)
        assert scene.project.call("history").returncode == 0

    def test_a_bundle_outlives_the_registry(self, scene: Scene, tmp_path: Path) -> None:
        """A controller has the folder and the key, no MLflow and no state folder."""
        copy = shutil.copytree(scene.bundle(), tmp_path / "bundle")
        key = shutil.copy(scene.project.configuration.public_key_path, tmp_path / "assay.pub")
        checked = check_bundle(copy, Path(key), deep=True)
        assert yaml.safe_dump(checked.contract.to_json())


class TestKeys:
    """The project's key is replaced and then revoked, after all that was done above; in this order."""

    def test_after_a_rotation_all_goes_on_and_strangers_check_with_the_key_that_signed(
        self, scene: Scene, tmp_path: Path
    ) -> None:
        made = scene.project.json("keys", "rotate")
        assert [entry.move.bundle_sha256 for entry in scene.ledger.verify()[-1:]] == [made["new"]]
        scene.project.json("check", scene.bundle())
        scene.project.json("predict", "--task", "tiny", "-w", "redis", "--row", json.dumps(ROW))
        shown = scene.project.json("keys", "show")
        assert [(one["fingerprint"], one["state"]) for one in shown["keys"]] == [
            (made["new"], "current"), (made["old"], "accepted")]
        assert [one["bundles"] > 0 for one in shown["keys"]] == [False, True]
        assert verified_by_a_stranger(scene, made["old"], tmp_path / "old.pub")
        assert not verified_by_a_stranger(scene, made["new"], tmp_path / "new.pub")

    def test_what_a_revoked_key_signed_is_refused_until_it_is_signed_again(self, scene: Scene, tmp_path: Path) -> None:
        new, old = (one["fingerprint"] for one in scene.project.json("keys", "show")["keys"])
        before = check_bundle(scene.bundle(), scene.project.configuration.public_key_path).sha256
        revoke = ("keys", "revoke", old[:12], "--reason", "its machine was sold")
        assert scene.project.json(*revoke)["signed_again"] == []
        predict = ("predict", "--task", "tiny", "-w", "redis", "--row", json.dumps(ROW))
        for command in (("check", scene.bundle()), predict):
            done = scene.project.call(*command)
            assert done.returncode == 1 and "got another key" in done.stderr, command
        assert scene.project.call("history", "--task", "tiny").returncode == 0

        again = scene.project.json(*revoke, "--sign-again")["signed_again"]
        assert {one["model"] for one in again} == {"assay.tiny.nginx", "assay.tiny.redis"}
        assert {one["problem"] for one in again} == {""}
        scene.project.json(*predict)
        assert scene.project.json("check", scene.bundle())["sha256"] == before
        assert verified_by_a_stranger(scene, new, tmp_path / "new.pub")

    def test_no_private_key_is_in_anything_that_was_written(self, scene: Scene) -> None:
        """Neither in artifacts, bundles, logs, pages and databases, nor in what was printed."""
        configuration = scene.project.configuration
        folder = configuration.private_key_path.parent
        secrets = {form for path in folder.glob("assay.key*") for form in forms_of(path)}
        assert len(list(folder.glob("assay.key*"))) == 2
        written = [path for path in scene.project.folder.rglob("*") if path.is_file() and path.parent != folder]
        assert len(written) > 100 and any(path.suffix == ".html" for path in written)
        printed = [(done.stdout + done.stderr).encode() for done in (scene.first, scene.other, scene.second)]
        for content in [*(path.read_bytes() for path in written), *printed]:
            assert not any(form in content for form in secrets)
        assert any(form in path.read_bytes() for path in folder.glob("assay.key*") for form in secrets)


def verified_by_a_stranger(scene: Scene, fingerprint: str, file: Path) -> bool:
    """Whether the OpenSSF tool accepts the bundle with one key of the project in a file of its own."""
    file.write_text(scene.project.call("keys", "show", "--pem", fingerprint).stdout)
    command = [str(Path(sys.executable).with_name("model_signing")), "verify", "key", str(scene.bundle()),
               "--signature", str(scene.bundle() / "model.sig"), "--public_key", str(file)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def forms_of(private_key: Path) -> set[bytes]:
    """What a private key may look like in a file: its number raw, in decimal, hex and base64, and its PEM."""
    number = load_private_key(private_key).private_numbers().private_value
    raw = number.to_bytes(32, "big")
    body = private_key.read_bytes().splitlines()[1:-1]
    return {raw, raw.hex().encode(), raw.hex().upper().encode(), base64.b64encode(raw)[:-4], str(number).encode(),
            b"PRIVATE KEY-----", *body[:1]}
