"""`assay control` as an operator starts it, beside a real Prometheus server."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from models.control.training.trajectory_log import read_log
from serving.bundle import check_bundle
from serving.kept_bundles import kept_bundle
from serving.keys import create_key_pair
from serving.ledger import Ledger
from serving.moves import Move
from systems.autoscaling.observer import AutoscalingObserver
from tests.feature_store.prometheus_server import prometheus_with
from tests.serving.actuators.control_group.groups import MIB, PARENT, plain_files
from tests.serving.control.policy_bundle import write_policy_bundle

VALUES = {"cpu_utilization": 0.4, "memory_utilization": 0.5, "cpu_used_cores": 0.8, "memory_used_mib": 128.0,
          "p99_ms": 9.0, "served_share": 1.0, "rate_rps": 300.0}
FIXED = {"io_utilization": 0.0, "network_utilization": 0.0}
FILE = {"hand_back_after": 2, "fixed": FIXED, "fresh_s": 3000, "timeout_s": 5,
        "dry_run": {"cpu_limit_cores": 1.0, "memory_limit_mib": 256.0, "replicas": 2, "ready_replicas": 2},
        "shield": {"budgets": [{"name": "cores", "of": ["target_replicas", "target_cpu_limit_cores"], "most": 16}]}}
needs_prometheus = pytest.mark.skipif(shutil.which("promtool") is None,
                                      reason="needs the Debian package prometheus (make debian)")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Keys, a bundle, a server with the metrics of a service, and the controller's file."""
    folder = tmp_path_factory.mktemp("control")
    create_key_pair(folder / "key", folder / "pub")
    write_policy_bundle(folder / "bundle", folder / "key")
    assert set(VALUES) | set(FIXED) == set(AutoscalingObserver.measured)
    samples = [(f'{name}{{app="shop"}}', time.time() - 5, value) for name, value in VALUES.items()]
    (folder / "server").mkdir()
    with prometheus_with(samples, folder / "server") as url:
        queries = {name: f'max({name}{{app="shop"}})' for name in VALUES}
        (folder / "controller.yaml").write_text(json.dumps(
            {**FILE, "prometheus": url, "signals": queries, "newest": "max(timestamp(rate_rps))"}))
        yield folder


def _start(place: Path, state: str, *options: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", "from pipelines.command_line import main; main()", "control", "--workload",
               "nginx", "--controller", str(place / "controller.yaml"), "--bundle", str(place / "bundle"),
               "--public-key", str(place / "pub"), "--folder", str(place / state), "--every", "0.2", *options]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env={**os.environ, "ASSAY_HOME": str(place / "home")})


@needs_prometheus
def test_it_observes_decides_acts_and_logs(place):
    out, error = _start(place, "a", "--steps", "4", "--json").communicate(timeout=120)
    records = [json.loads(line) for line in out.splitlines()]
    assert [one["actor"] for one in records] == ["fallback", "policy", "policy", "policy"], (out, error)
    assert records[0]["reason"] == "1 more good step until the policy acts"
    assert records[1]["said"] is not None
    assert records[1]["done"] == records[1]["targets"]
    assert records[1]["seen"]["rate_rps"] == 300.0
    assert records[1]["seen"]["slo_ms"] == 15.0
    read = read_log(place / "a" / "steps")
    assert (len(read.steps), read.lost) == (4, ())
    assert "the policy of bundle" in error.splitlines()[0]
    assert "acts on dry-run every 0.2 s, objective: slo_ms 15 ms; log: " in error.splitlines()[0]
    fixed, late = error.splitlines()[1:]
    assert fixed.startswith("fixed in the controller file, and so never measured: io_utilization 0, ")
    assert "more than 4 steps of 0.2 s" in late


@needs_prometheus
def test_a_kill_switch_and_signals_are_obeyed(place):
    (place / "b").mkdir()
    (place / "b" / "STOP").touch()
    process = _start(place, "b")
    try:
        start = process.stdout.readline()
        assert "acts on dry-run" in start, process.stderr.read()
        assert "never measured" in process.stdout.readline()
        assert "take longer steps" in process.stdout.readline()
        first = process.stdout.readline()
        assert "nobody" in first
        assert "kill switch: STOP in its folder" in first
        (place / "b" / "STOP").unlink()
        seen = [process.stdout.readline() for _ in range(6)]
        assert any("policy " in line for line in seen)
        process.send_signal(signal.SIGUSR1)
        later = [process.stdout.readline() for _ in range(4)]
        assert "kill switch: SIGUSR1" in later[-1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 0
    steps = read_log(place / "b" / "steps").steps
    assert len(steps) >= 11
    assert steps[0].detail["actor"] == "nobody"


@pytest.mark.parametrize(("options", "message"), [
    (["--actuator", "dry-rum"], "actuator must be one of dry-run, cgroup, kubernetes"),
    (["--every", "0"], "every must be 0.01 to 86400 seconds"),
    (["--every", "inf"], "every must be 0.01 to 86400 seconds"),
    (["--task", "performance"], "bundle must be for performance, nginx"),
    (["--public-key", "nothing.pub"], "nothing.pub"),
    (["--controller", "nothing.yaml"], "nothing.yaml"),
])
@needs_prometheus
def test_bad_usage_is_one_line_and_code_2(place, options, message):
    process = _start(place, "c", *options)
    out, error = process.communicate(timeout=120)
    assert process.returncode == 2, out
    assert message in error
    assert len(error.strip().splitlines()) == 1


@needs_prometheus
def test_it_starts_with_the_last_good_champion_while_the_state_folder_is_away(place, tmp_path):
    home, away, folder = tmp_path / "home", tmp_path / "away", tmp_path / "controller"
    (home / "keys").mkdir(parents=True)
    for name, own in (("key", "assay.key"), ("pub", "assay.pub")):
        shutil.copy(place / name, home / "keys" / own)
    bundle = write_policy_bundle(kept_bundle(home, "autoscaling", "nginx", 1), place / "key")
    sha256 = check_bundle(bundle, place / "pub").sha256
    ledger = Ledger(home / "ledger/promotions.jsonl", place / "pub", place / "key")
    move = partial(Move, at="2026-11-23T00:00:00+00:00", task="autoscaling", workload="nginx",
                   model="assay.autoscaling.nginx", version=1, previous_version=None, bundle_sha256=sha256,
                   gates_passed=True, reason="", actor="test")
    ledger.append([move("register"), move("champion")])

    def steps():
        command = [sys.executable, "-c", "from pipelines.command_line import main; main()", "control", "--workload",
                   "nginx", "--controller", str(place / "controller.yaml"), "--public-key", str(place / "pub"),
                   "--folder", str(folder), "--every", "0.2", "--steps", "3", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False,
                              env={**os.environ, "ASSAY_HOME": str(home)})
        assert done.returncode == 0, done.stderr + done.stdout
        records = [json.loads(line) for line in done.stdout.splitlines()]
        assert {one["version"] for one in records} == {sha256[:12]}
        return [one["actor"] for one in records], records[-1]["reason"]

    expected = (["fallback", "policy", "policy"], "")
    assert steps() == expected
    home.rename(away)
    assert steps() == expected
    away.rename(home)
    ledger.append([move("retire", previous_version=1, reason="it is not good")])
    actors, why = steps()
    assert (actors, "workload must have a champion" in why) == (["fallback"] * 3, True)
    home.rename(away)
    actors, why = steps()
    assert (actors, "since then: ledger must be there" in why) == (["fallback"] * 3, True)


@needs_prometheus
def test_it_sets_the_limits_of_a_group_and_gives_back_what_it_found(place, tmp_path):
    """Of version 2, as plain files: real ones are in tests/serving/actuators."""
    tree = plain_files(tmp_path / "cgroup", 2)
    tree.set(cpu="100000 100000", memory=str(256 * MIB))
    found = tree.limits()
    written = json.loads((place / "controller.yaml").read_text())
    written["cgroup"] = {"group": "nginx", "parent": PARENT, "root": str(tree.root), "state": str(tmp_path / "state")}
    written["shield"]["hold"] = ["target_replicas"]
    (tmp_path / "controller.yaml").write_text(json.dumps(written))
    options = ("--controller", str(tmp_path / "controller.yaml"), "--actuator", "cgroup", "--steps", "4", "--json")
    out, error = _start(place, "e", *options).communicate(timeout=120)
    records = [json.loads(line) for line in out.splitlines()]
    assert [one["failure"] for one in records] == [""] * 4, (out, error)
    set_to = {one["done"]["target_cpu_limit_cores"] for one in records}
    assert len(set_to) > 1
    assert {one["done"]["target_replicas"] for one in records} == {1.0}
    assert tree.limits() == found
