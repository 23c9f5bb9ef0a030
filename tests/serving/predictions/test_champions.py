"""What is served while the ledger moves."""

import os
import shutil
import subprocess
import sys
import threading
import time

import pytest
import requests

from feature_store.errors import InputError, RefusedError
from pipelines.controller_command_line import run
from serving.polling import poll_in_thread
from serving.predictions.champions import Champions, models_of_folders
from tests.serving.conftest import ROOT
from tests.serving.predictions.running import INSIDE, LIGHT, WHOLE, Place, running, signed_bundle

NAME = "performance.redis"
QUESTION = {"inputs": [{"name": name, "datatype": "FP64", "shape": [1], "data": [value]}
                       for name, value in INSIDE.items()]}


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


@pytest.fixture
def told():
    return []


@pytest.fixture
def champions(place, told):
    """Of a ledger with version 1 of redis."""
    place.promote(1)
    return Champions(place.state, told.append)


def served(champions, name=NAME):
    one = champions()[name]
    return one.version, one.predictor is not None, one.reason


def test_a_new_champion_takes_its_place_once_it_was_checked(place, champions, told):
    assert served(champions) == ("1", True, "")
    sha256 = place.promote(2)
    place.promote(1, "nginx")
    champions.look()
    assert champions()[NAME].predictor.sha256 == sha256
    assert served(champions, "performance.nginx") == ("1", True, "")
    assert told == [f"{NAME}: version 1 is served", "performance.nginx: version 1 is served",
                    f"{NAME}: version 2 is served"]
    champions.look()
    assert len(told) == 3


def test_one_that_does_not_check_leaves_the_one_before_and_says_so(place, champions, told):
    first = champions()[NAME].predictor
    place.promote(2)
    model = place.kept(2) / "model.onnx"
    content = model.read_bytes()
    model.write_bytes(content + b" ")
    champions.look()
    assert champions()[NAME].predictor is first
    assert served(champions)[0] == "1" and "version 2 cannot be served: " in served(champions)[2]
    assert "version 1 is served; version 2 cannot be served" in told[-1]
    model.write_bytes(content)
    champions.look()
    assert served(champions) == ("2", True, "")


def test_another_signed_bundle_in_its_place_is_not_served(place, champions):
    place.promote(1, "nginx")
    place.promote(2)
    shutil.rmtree(place.kept(2))
    shutil.copytree(place.kept(1, "nginx"), place.kept(2))
    champions.look()
    assert served(champions)[0] == "1" and "as the ledger says" in served(champions)[2]


def test_a_bundle_that_is_away_leaves_the_one_before_until_it_is_retired(place, champions):
    place.promote(2, keep=False)
    champions.look()
    assert served(champions)[:2] == ("1", True) and "version 2 must be in the state folder" in served(champions)[2]
    place.move("retire", 1)
    champions.look()
    assert served(champions)[:2] == ("", False) and "version 2 cannot be served" in served(champions)[2]


def test_a_rolled_back_or_retired_one_is_served_no_more(place, champions):
    place.promote(2)
    champions.look()
    place.move("rollback", 1)
    champions.look()
    assert served(champions) == ("1", True, "")
    place.move("retire", 1)
    champions.look()
    assert served(champions)[:2] == ("", False) and "must have a champion, got none" in served(champions)[2]


def test_nothing_is_served_while_acting_is_stopped(place, champions):
    place.move("stop_acting", 1)
    champions.look()
    assert served(champions)[1] is False and "acting is stopped (test" in served(champions)[2]
    place.move("resume_acting", 1)
    champions.look()
    assert served(champions) == ("1", True, "")


def test_a_ledger_that_is_away_or_an_older_one_changes_nothing(place, champions):
    older = place.state.ledger_path.read_bytes()
    place.promote(2)
    champions.look()
    newer = place.state.ledger_path.read_bytes()
    for content in (None, older, newer[:-50]):
        place.state.ledger_path.unlink(missing_ok=True)
        if content is not None:
            place.state.ledger_path.write_bytes(content)
        champions.look()
        assert served(champions)[:2] == ("2", True) and served(champions)[2].startswith("ledger: "), content
    place.state.ledger_path.write_bytes(newer)
    champions.look()
    assert served(champions) == ("2", True, "")


def test_an_older_ledger_is_refused_after_a_restart_by_whoever_remembers(place, tmp_path):
    place.promote(1)
    older = place.state.ledger_path.read_bytes()
    place.promote(2)
    (tmp_path / "seen").mkdir()
    Champions(place.state, print, folder=tmp_path / "seen")
    place.state.ledger_path.write_bytes(older)
    with pytest.raises(RefusedError):
        Champions(place.state, print, folder=tmp_path / "seen")


def test_without_a_champion_that_can_be_served_it_does_not_start(place):
    place.promote(1)
    (place.kept(1) / "model.onnx").write_bytes(b"")
    with pytest.raises(RefusedError, match="version 1 cannot be served"):
        Champions(place.state, print)


def test_only_what_was_asked_for_is_served(place):
    place.promote(1)
    place.promote(1, "nginx")
    assert list(Champions(place.state, print)()) == ["performance.nginx", NAME]
    assert list(Champions(place.state, print, workloads=["redis"])()) == [NAME]
    with pytest.raises(RefusedError):
        Champions(place.state, print, task="autoscaling")


def test_two_folders_of_one_workload_are_refused(tmp_path, keys):
    folders = [signed_bundle(tmp_path / name, keys[0]) for name in ("one", "two")]
    with pytest.raises(InputError, match=r"different workloads, got two of performance\.redis"):
        models_of_folders(folders, keys[1])


def test_every_answer_during_a_change_is_of_one_version_and_a_retired_one_is_503(place):
    place.promote(1)
    answers, ended = [], threading.Event()
    with running("--home", place.state.home, "-w", "redis", "--poll", "0.05") as service:
        def asks():
            with requests.Session() as session:
                while not ended.is_set():
                    found = session.post(f"{service.url}/v2/models/{NAME}/infer", json=QUESTION, timeout=20)
                    answers.append((found.status_code, found.json()))

        threads = [threading.Thread(target=asks) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for version in (2, 3):
                place.promote(version)
                service.wait_for(lambda version=version: answers and any(
                    said.get("model_version") == str(version) for _, said in answers[-10:]))
        finally:
            ended.set()
            for thread in threads:
                thread.join()
        assert {status for status, _ in answers} == {200}
        one = next(said["outputs"][0]["data"][0] for _, said in answers if said["model_version"] == "1")
        for _, said in answers:
            assert said["outputs"][0]["data"][0] == pytest.approx(one * int(said["model_version"]), rel=1e-5)
        assert {said["model_version"] for _, said in answers} == {"1", "2", "3"}
        ready = f"{service.url}/v2/models/{NAME}/ready"
        for version in (3, 2, 1):
            place.move("retire", version)
        service.wait_for(lambda: requests.get(ready, timeout=20).status_code == 503)
        said = requests.post(f"{service.url}/v2/models/{NAME}/infer", json=QUESTION, timeout=20)
        assert said.status_code == 503 and "must have a champion, got none" in said.json()["error"]
        assert requests.get(f"{service.url}/v2/health/ready", timeout=20).status_code == 503
        samples = requests.get(f"{service.url}/metrics", timeout=20).text
        assert f'assay_serve_model_ready{{model="{NAME}"}} 0.0' in samples
    assert any("is not served" in line for line in service.lines)


def test_a_failed_check_is_told_where_the_model_s_readiness_is_asked(place):
    place.promote(1)
    with running("--home", place.state.home, "--poll", "0.05") as service:
        place.promote(2, keep=False)
        ready = f"{service.url}/v2/models/{NAME}/ready"
        service.wait_for(lambda: "parameters" in requests.get(ready, timeout=20).json())
        said = requests.get(ready, timeout=20).json()
        assert (said["ready"], said["version"]) == (True, "1")
        assert "version 2 cannot be served" in said["parameters"]["trouble"]
        assert f'trouble{{model="{NAME}"}} 1.0' in requests.get(f"{service.url}/metrics", timeout=20).text
        service.wait_for(lambda: any("version 2 cannot be served" in line for line in service.lines))


@pytest.mark.parametrize("command", [LIGHT, WHOLE], ids=["light", "whole"])
def test_a_service_whose_output_nobody_reads_any_more_goes_on_following_the_ledger(place, command):
    place.promote(1)
    with subprocess.Popen([sys.executable, "-c", command, "serve", "--port", "0", "--poll", "0.05"], cwd=ROOT,
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          env=os.environ | {"ASSAY_HOME": str(place.state.home)}) as process:
        try:
            url = next(line for line in process.stdout if " at http" in line).split()[-1]
            process.stdout.close()
            for version in (2, 3):  # the first change is one too many to tell, the next one must be seen all the same
                place.promote(version)
                deadline = time.monotonic() + 20.0
                while requests.get(f"{url}/v2/models/{NAME}", timeout=20).json()["versions"] != [str(version)]:
                    assert time.monotonic() < deadline, version
                    time.sleep(0.05)
        finally:
            process.kill()


@pytest.mark.parametrize("error", [OSError(32, "Broken pipe"), SystemExit(1), ValueError("any")])
def test_a_look_that_fails_ends_no_following(error, capsys):
    looks, stopped = [], threading.Event()

    def look():
        looks.append(1)
        if len(looks) == 1:
            raise error
        stopped.set()

    poll_in_thread(look, 0.01, stopped, "looks").join(20.0)
    assert len(looks) == 2 and type(error).__name__ in capsys.readouterr().err


@pytest.mark.parametrize(("options", "code", "message"), [
    (["-w", "rediss"], 2, "did you mean 'redis'?"), (["--task", "autoscaling"], 1, "a champion must be there"),
    (["--bundle", "x", "--task", "performance"], 2, "--bundle must be given without"),
    (["--max-rate", "1e-320"], 2, "--max-rate must be a number above 0"), (["--poll", "nan"], 2, "--poll must be"),
    (["--bundle", "nowhere"], 2, "nowhere"), (["--folder", "/dev/null/x"], 2, "--folder must be a folder"),
    (["--extender", "no.yaml"], 2, "no.yaml"),
    (["--host", "203.0.113.1"], 2, "host and port must be an address of this machine that is free")])
def test_what_cannot_be_served_is_one_line(place, options, code, message, capsys):
    place.promote(1)
    assert run(["serve", "--home", str(place.state.home), "--port", "0", *options]) == code
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
