"""Faults of the world around a controller, each with the end that docs/reference/control-faults.md states."""

import json
import math
import os
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_args

import pytest

from feature_store.errors import SourceError
from models.control.training.trajectory_log import read_log
from recording.loopback import free_port
from serving.actuators.actuator import ActuatorError, Kind
from serving.control.champion import Champion, champion_of_ledger
from serving.control.controller_file import Query
from serving.control.parts import Readings
from serving.control.prometheus_reader import PrometheusReader
from serving.ledger import Ledger
from serving.moves import Move
from tests.e2e.tiny import ROOT
from tests.feature_store.prometheus_server import await_ready, faulty_server, prometheus_with, reply
from tests.serving.control.policy_bundle import write_champion
from tests.serving.control.test_prometheus_reader import needs_prometheus
from tests.serving.control.world import STEP_S, OneModel, Said, World, keep, loop_of

HOUR_S, DAY_S = 3600.0, 86400.0
VALUES = {"cpu_utilization": 0.4, "memory_utilization": 0.5, "cpu_used_cores": 0.8, "memory_used_mib": 128.0,
          "p99_ms": 9.0, "served_share": 1.0, "rate_rps": 300.0}
FIXED = {"io_utilization": 0.0, "network_utilization": 0.0}


# Prometheus gone

def test_prometheus_gone_for_an_hour_is_the_fallback_s_hour(tmp_path):
    world = World()
    loop = loop_of(world, tmp_path, Said(keep), hand_back_after=3)
    before = [loop.step() for _ in range(4)]
    world.broken = "reader"
    gone = [loop.step() for _ in range(round(HOUR_S / STEP_S))]
    world.broken = ""
    after = [loop.step() for _ in range(4)]
    loop.close()
    assert [one.actor for one in before] == ["fallback"] * 2 + ["policy"] * 2
    assert {one.actor for one in gone} == {"fallback"}
    assert all(one.reason.startswith("no measurements: Prometheus must answer") for one in gone)
    assert all(one.failure == "" and one.done == one.targets for one in gone)
    assert [one.actor for one in after] == ["fallback"] * 2 + ["policy"] * 2
    logged = read_log(tmp_path / "steps")
    assert (len(logged.steps), logged.lost) == (248, ())
    assert {one.mark for one in logged.steps[4:243]} == {"missing"}


@contextmanager
def _serving(folder: Path, port: int):
    """A Prometheus server on data that is there already."""
    command = ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
               f"--web.listen-address=127.0.0.1:{port}"]
    with (folder / "log").open("ab") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        await_ready(f"http://127.0.0.1:{port}")
        yield
    finally:
        server.kill()
        server.wait()


@needs_prometheus
def test_a_server_that_is_stopped_and_started_again_over_http(tmp_path):
    folder, port = tmp_path / "server", free_port()
    folder.mkdir()
    samples = [(name, time.time() - 5, value) for name, value in VALUES.items()]
    with prometheus_with(samples, folder):
        pass  # its data stay
    queries = {name: Query(f"max({name})", 1.0, "max(timestamp(rate_rps))", 3000.0) for name in VALUES}
    reader = PrometheusReader(f"http://127.0.0.1:{port}", queries, FIXED, timeout_s=5.0)
    world = World()
    world.read = reader.read
    loop = loop_of(world, tmp_path / "controller", Said(keep), hand_back_after=2, fresh_s=reader.fresh_s)
    with _serving(folder, port):
        assert [loop.step().actor for _ in range(3)] == ["fallback", "policy", "policy"]
    gone = [loop.step() for _ in range(20)]
    assert {one.actor for one in gone} == {"fallback"}
    assert all(one.reason.startswith("no measurements:") for one in gone)
    with _serving(folder, port):
        assert [loop.step().actor for _ in range(3)] == ["fallback", "policy", "policy"]
    reader.close()


# registry and ledger gone

def test_a_registry_and_ledger_that_are_gone_for_days_change_nothing_but_the_age(tmp_path):
    configuration, now = write_champion(tmp_path / "home"), [0.0]
    champion = Champion(lambda: champion_of_ledger(configuration, "autoscaling", "nginx"), lambda: now[0])
    world = World()
    loop = loop_of(world, tmp_path / "controller", None, models=champion)
    assert loop.step().actor == "policy"
    (tmp_path / "home").rename(tmp_path / "away")
    for _ in range(5):
        now[0] += DAY_S
        champion.poll()
        assert loop.step().actor == "policy"
    assert champion.current().age_s == 5 * DAY_S
    assert "ledger must be there" in champion.unreachable
    (tmp_path / "away").rename(tmp_path / "home")
    champion.poll()
    assert (champion.current().age_s, loop.step().actor) == (0.0, "policy")


def test_a_champion_that_is_retired_in_the_ledger_while_it_acts_acts_no_more(tmp_path):
    configuration = write_champion(tmp_path / "home")
    champion = Champion(lambda: champion_of_ledger(configuration, "autoscaling", "nginx"))
    loop = loop_of(World(), tmp_path / "controller", None, models=champion)
    assert loop.step().actor == "policy"
    ledger = Ledger(configuration.ledger_path, configuration.public_key_path, configuration.private_key_path)
    move = ledger.history()[-1].move
    ledger.append([Move(**{**vars(move), "action": "retire", "previous_version": 1})])
    champion.poll()
    record = loop.step()
    assert record.actor == "fallback"
    assert record.reason.startswith("champion: workload must have a champion, got none")
    assert record.done == record.targets != {}


# clocks

@pytest.mark.parametrize("hours", [-30, -1, 1, 30])
def test_a_wall_clock_that_jumps_changes_no_decision(tmp_path, monkeypatch, hours):
    jumping, calm = World(), World()
    one, other = loop_of(jumping, tmp_path / "a", Said(keep)), loop_of(calm, tmp_path / "b", Said(keep))
    expected = [other.step() for _ in range(8)]
    found = [one.step() for _ in range(4)]

    class Jumped(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(UTC) + timedelta(hours=hours)

    wall = time.time
    monkeypatch.setattr("serving.control.loop.datetime", Jumped)
    monkeypatch.setattr(time, "time", lambda: wall() + 3600.0 * hours)
    found += [one.step() for _ in range(4)]
    assert [(step.actor, step.seen, step.targets) for step in found] == [
        (step.actor, step.seen, step.targets) for step in expected]
    assert abs(datetime.fromisoformat(found[4].at) - datetime.fromisoformat(expected[4].at)
               - timedelta(hours=hours)) < timedelta(minutes=5)
    one.close()
    assert len(read_log(tmp_path / "a" / "steps").steps) == 8


def _instants(values, ahead_s=0.0, newest_s=5.0):
    """A server that answers queries by name; its clock is ahead, and its newest sample so many seconds old by it."""
    written = {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}  # as Prometheus does

    def respond(handler):
        asked = next((name for name in values if f"={name}" in handler.path.replace("query=", "=")), "newest")
        now = time.time() + ahead_s
        value = values.get(asked, now - newest_s)
        reply({"status": "success", "data": {"resultType": "vector", "result": [
            {"metric": {}, "value": [now, written.get(str(value), str(value))]}]}})(handler)

    return respond


def _reader(url, fresh_s=60.0, timeout_s=2.0):
    return PrometheusReader(url, {name: Query(name, 1.0, "newest", fresh_s) for name in VALUES}, FIXED, timeout_s)


@pytest.mark.parametrize(("newest_s", "actor", "reason"), [
    (5.0, "policy", ""), (120.0, "fallback", "cpu_utilization is 120 s old"), (-600.0, "fallback", "in the future")])
@pytest.mark.parametrize("ahead_s", [-7200.0, 0.0, 7200.0])
def test_a_prometheus_whose_clock_is_ahead_makes_nothing_fresh_or_stale(tmp_path, ahead_s, newest_s, actor, reason):
    with faulty_server(_instants(VALUES, ahead_s, newest_s)) as (url, _):
        reader, world = _reader(url), World()
        world.read = reader.read
        record = loop_of(world, tmp_path, Said(keep), fresh_s=reader.fresh_s).step()
        reader.close()
    assert record.actor == actor
    assert reason in record.reason


# a full disk

@contextmanager
def _small_disk(path: Path, kib: int):
    """A file system of its own, in memory; skips where it may not be mounted."""
    path.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(path)], capture_output=True,
                          text=True)
    if made.returncode:
        pytest.skip(f"needs root, to mount a file system: {made.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def test_a_real_full_file_system_takes_the_policy_out_until_there_is_room(tmp_path):
    world = World()
    with _small_disk(tmp_path / "disk", 256) as disk:
        loop = loop_of(world, disk / "controller", Said(keep))
        assert [loop.step().actor for _ in range(3)] == ["policy"] * 3
        with suppress(OSError), (disk / "ballast").open("wb", buffering=0) as ballast:
            while True:
                ballast.write(b"0" * 4096)
        full = [loop.step() for _ in range(5)]
        assert {one.actor for one in full} == {"fallback"}
        assert all("No space left on device" in one.failure and one.done == one.targets for one in full)
        (disk / "ballast").unlink()
        assert [loop.step().actor for _ in range(3)] == ["fallback", "policy", "policy"]
        loop.close()
        logged = read_log(disk / "controller" / "steps")
        keys = [(one.episode, one.step) for one in logged.steps]
        assert keys == sorted(set(keys))
        assert {(0, 0), (0, 1), (0, 9), (0, 10)} <= set(keys)


# an actuator that refuses

@pytest.mark.parametrize("kind", get_args(Kind))
@pytest.mark.parametrize("place", ["present", "acquire", "apply"])
def test_each_kind_of_refusal_ends_the_step_and_the_next_begins_anew(tmp_path, kind, place):
    world = World()
    loop = loop_of(world, tmp_path, Said(keep))
    assert loop.step().actor == "policy"
    honest, before = getattr(world, place), world.state

    def refuses(*_):
        raise ActuatorError(kind, f"target must be mine, got {kind}")

    setattr(world, place, refuses)
    record = loop.step()
    assert world.state is before
    assert record.done is None
    if place == "apply":
        assert (record.actor, record.failure) == ("policy", f"actuator: target must be mine, got {kind}")
    else:
        assert (record.actor, record.reason) == ("nobody", f"actuator: target must be mine, got {kind}")
        assert record.targets == {}
    setattr(world, place, honest)
    world.pass_by()
    record = loop.step()
    assert (record.actor, record.failure, record.done) == ("policy", "", record.targets)


# SIGKILL

def test_sigkill_at_every_point_of_a_step(tmp_path):
    """Of a real process, before every file is opened, renamed or removed, and around every write, sync and part."""
    done = subprocess.run([sys.executable, "-m", "tests.serving.control.kill_at_each_point", str(tmp_path)], cwd=ROOT,
                          capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["wrong"] == []
    assert found["exit"] == 0
    assert found["points"] > 100, "it was killed while it acted"
    assert found["differed"] > 20
    assert {"read", "present", "acquire", "predict", "apply", "write", "fsync", "open", "os.rename"} <= set(
        found["places"])


# a Prometheus that lies

@pytest.mark.parametrize(("lie", "reason"), [
    ({"cpu_utilization": 1e9}, "cpu_utilization is 1e+09 share, outside of"),
    ({"cpu_utilization": 40.0}, "cpu_utilization is 40 share, outside of"),  # in percent
    ({"memory_used_mib": 128.0 * 2**20}, "memory_used_mib is"),  # in bytes
    ({"rate_rps": 300e3}, "rate_rps is 300000 1/s, outside of"),  # a thousand times
    ({"p99_ms": -9.0}, "p99_ms is -9 ms, outside of"),
    ({"p99_ms": math.nan}, "p99_ms is missing"),
    ({"p99_ms": math.inf}, "p99_ms is inf ms, outside of"),
    ({"served_share": -math.inf}, "served_share is -inf share, outside of"),
    (dict.fromkeys(VALUES, math.nan), "memory_utilization is missing"),
])
def test_what_cannot_be_is_not_measured_over_http(tmp_path, lie, reason):
    with faulty_server(_instants({**VALUES, **lie})) as (url, _):
        reader, world = _reader(url), World()
        world.read = reader.read
        record = loop_of(world, tmp_path, Said(keep), fresh_s=reader.fresh_s).step()
        reader.close()
    assert record.actor == "fallback"
    assert reason in record.reason
    assert all(math.isfinite(value) for value in record.targets.values())


def test_a_wrong_unit_within_the_range_is_believed_and_the_shield_bounds_what_comes_of_it(tmp_path):
    """9 s of latency is possible: where training saw it too, nobody can see that it is 9 ms. A step is bounded then."""
    world = World()
    grabs = Said(lambda row: keep(row) | {"target_cpu_limit_cores": row["cpu_limit_cores"] * row["p99_ms"]})
    loop = loop_of(world, tmp_path, grabs)
    honest, before = world.read, world.shown
    world.read = lambda: Readings({**honest().values, "p99_ms": 9000.0}, honest().ages_s)
    record = loop.step()
    assert record.actor == "policy"
    assert record.targets["target_cpu_limit_cores"] <= 2.0 * before["cpu_limit_cores"] + 1e-6
    assert {change.reason for change in record.changes} == {"range", "rate"}


@pytest.mark.parametrize("answer", [
    "not JSON", "", "[]", "null", '{"status": "success"}', {"status": "error", "error": "storage is broken"},
    {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "value": ["x", "y"]}]}},
    {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "value": [1]}]}},
    {"status": "success", "data": {"resultType": "vector", "result": [
        {"metric": {"pod": "a"}, "value": [1.0, "1"]}, {"metric": {"pod": "b"}, "value": [1.0, "1"]}]}},
    {"status": "success", "data": {"resultType": "vector", "result": [
        {"metric": {}, "value": [1.0, "1"]}, {"metric": {}, "value": [1.0, "2"]}]}},
])
def test_an_answer_that_is_none_is_the_fallback_s_step(tmp_path, answer):
    with faulty_server(reply(answer)) as (url, _):
        reader, world = _reader(url), World()
        world.read = reader.read
        with pytest.raises(SourceError):
            reader.read()
        record = loop_of(world, tmp_path, Said(keep)).step()
        reader.close()
    assert record.actor == "fallback"
    assert record.reason.startswith("no measurements:")
    assert "\n" not in record.reason
    assert record.done == record.targets != {}


@pytest.mark.parametrize("part", ["headers", "body"])
def test_an_answer_that_drips_for_ten_seconds_is_waited_for_no_longer_than_said(tmp_path, part):
    def drip(handler):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n" + (b"" if part == "headers" else b"Content-Length: 900\r\n\r\n"))
        for _ in range(100):
            handler.wfile.write(b"x")
            handler.wfile.flush()
            time.sleep(0.1)

    with faulty_server(drip) as (url, _):
        reader, world = _reader(url, timeout_s=0.5), World()
        world.read = reader.read
        began = time.monotonic()
        record = loop_of(world, tmp_path, Said(keep)).step()
        took_s = time.monotonic() - began
        reader.close()
    assert record.actor == "fallback"
    assert record.reason.startswith("no measurements:")
    assert took_s < 5.0


def test_no_champion_and_no_measurements_at_once_is_still_cared_for(tmp_path):
    world = World()
    loop = loop_of(world, tmp_path, None, models=OneModel(None, "no champion"))
    world.broken = "reader"
    record = loop.step()
    assert (record.actor, record.reason, record.done) == ("fallback", "no champion", record.targets)
