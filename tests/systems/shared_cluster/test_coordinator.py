"""Looks as files: what stands in them, when they are refused, and that each is acted on once."""

import errno
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from feature_store.errors import InputError, SourceError
from feature_store.file_lock import shared_lock
from recording.scaling.generator import python_environment
from serving.actuators.actuator import ActuatorError
from serving.actuators.looked_at_limit import LookedAtLimit, Target, look_lock
from serving.control.coordinator import Coordinator, Shared, read_shared, run
from serving.control.file_part import FilePart
from systems.shared_cluster.coordinator import STATUS, TELLER, main
from systems.shared_cluster.groups import ACTUATOR, NAMED
from systems.shared_cluster.interface import LEAST_CORES
from tests.e2e import tiny
from tests.serving.actuators.control_group.groups import PARENT, plain_files

STANDING = {"rate_rps": 20.0, "served_rps": 20.0, "used_cores": 1.0, "latency_ms": 50.0, "most_latency_ms": 100.0}


class Place:
    """Two functions of two cores each in control groups of plain files, a status of each, a cluster of six cores."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.look = folder, folder / "look.json"
        self.tree = plain_files(folder / "groups", 2)
        self.parent = self.tree.folders["cpu"].parent
        (folder / "status").mkdir()
        for name in ("resize", "hash"):
            shutil.copytree(self.tree.folders["cpu"], self.parent / name)
            (self.parent / name / "cpu.max").write_text("200000 100000\n")
            self.tell(name, **STANDING)
        self.file = folder / "cluster.yaml"
        tiny.write_yaml({"cores": 6, "look": str(self.look), "status": str(folder / "status"), "every_s": 0.5,
                         "groups": {name: f"{PARENT}/{name}" for name in ("resize", "hash")},
                         "root": str(self.tree.root)}, self.file)
        self.coordinator = Coordinator(read_shared(self.file, TELLER), TELLER)

    def tell(self, name: str, **values: Any) -> None:
        (self.folder / "status" / f"{name}.json").write_text(json.dumps(values))

    def seen(self, name: str) -> dict[str, float]:
        self.coordinator.look()
        found: dict[str, float] = json.loads(self.look.read_text())["functions"][name]
        return found

    def rewrite(self, **change: Any) -> None:
        tiny.write_yaml({**yaml.safe_load(self.file.read_text()), **change}, self.file)

    def limit(self, name: str, within_s: float = 5.0) -> LookedAtLimit:
        target = Target(name, f"{PARENT}/{name}", self.look, within_s, self.folder / "run", self.tree.root)
        return LookedAtLimit(target, NAMED)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_free_cores_are_divided_by_what_functions_need(place: Place) -> None:
    place.tell("hash", **(STANDING | {"rate_rps": 60.0, "served_rps": 40.0, "used_cores": 2.0}))
    found = {name: place.seen(name) for name in ("resize", "hash")}
    assert found["hash"]["demand_cores"] == pytest.approx(3.0), "of what arrives, not of what is served"
    assert found["resize"]["allotment_cores"] == pytest.approx(2.0 + 2.0 * 1.0 / 4.0)
    assert found["hash"]["allotment_cores"] == pytest.approx(2.0 + 2.0 * 3.0 / 4.0)
    assert found["hash"]["cluster_limits"] == pytest.approx(4.0 / 6.0) and found["hash"]["fair_cores"] == 3.0
    (place.parent / "resize" / "cpu.max").write_text("250000 100000\n")
    later = place.seen("hash")
    assert later["cluster_change"] == pytest.approx(0.5 / 6.0) and later["others_usage"] == pytest.approx(1.0 / 2.5)


def test_the_mean_of_what_functions_need_begins_with_the_first_and_weighs_an_interval_by_its_length(
        place: Place) -> None:
    """Looks each half second, of which a system's interval has twenty; at first nobody knows what hash needs."""
    place.tell("hash", **(STANDING | {"served_rps": 0.0}))
    place.seen("hash")
    place.tell("hash", **STANDING)
    assert place.seen("resize")["allotment_cores"] == pytest.approx(2.0 + 2.0 * 0.5), "both need a core"
    place.tell("hash", **(STANDING | {"rate_rps": 60.0}))
    mean = 3.0 - 2.0 * (1.0 - TELLER.mean_weight) ** (0.5 / TELLER.every_s)
    assert place.seen("resize")["allotment_cores"] == pytest.approx(2.0 + 2.0 / (1.0 + mean))


@pytest.mark.parametrize("said", [
    "", "[]", "{", "null", '{"rate_rps": "x"}', f'{{"latency_ms": {"9" * 401}}}', "[" * 100_000,
    *(json.dumps(dict.fromkeys(STATUS, value)) for value in (-1.0, math.inf, math.nan))])
def test_a_function_that_says_nothing_keeps_its_place(place: Place, said: str) -> None:
    (place.folder / "status" / "hash.json").write_text(said)
    assert "latency_ms" not in place.seen("hash") and place.seen("hash")["allotment_cores"] > 2.0
    allotted = [place.seen(name)["allotment_cores"] for name in ("resize", "hash")]
    assert sum(allotted) == pytest.approx(6.0)
    assert all(math.isfinite(value) for value in place.seen("resize").values())


def test_an_objective_of_nothing_ends_no_look(place: Place) -> None:
    place.tell("hash", **(STANDING | {"most_latency_ms": 0, "used_cores": -1.0}))
    assert "usage" not in place.seen("hash") and place.seen("resize")["others_preserved"] == 1.0


@pytest.mark.timeout(30)
@pytest.mark.parametrize("make", [
    os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero"),
    lambda path: (path.touch(), os.truncate(path, 2**40))], ids=["pipe", "folder", "device", "terabyte"])
def test_a_status_that_cannot_be_read_to_its_end_ends_no_look_and_keeps_nobody_waiting(
        place: Place, make: Callable[[Path], Any]) -> None:
    status = place.folder / "status" / "hash.json"
    status.unlink()
    make(status)
    opened = len(os.listdir("/proc/self/fd"))
    assert "latency_ms" not in place.seen("hash") and "latency_ms" in place.seen("resize")
    assert len(os.listdir("/proc/self/fd")) == opened, "look by look"


@pytest.mark.timeout(30)
def test_a_look_that_is_a_pipe_is_none(place: Place) -> None:
    os.mkfifo(place.look)
    with pytest.raises(SourceError, match=r"must be a coordinator's look, got .*no regular file"):
        place.limit("resize").read()
    assert Coordinator(read_shared(place.file, TELLER), TELLER).look() == [] and place.limit("resize").read()


def test_an_old_status_is_none(place: Place) -> None:
    os.utime(place.folder / "status" / "hash.json", (time.time() - 60.0,) * 2)
    assert "latency_ms" not in place.seen("hash") and "latency_ms" in place.seen("resize")
    os.utime(place.folder / "status" / "hash.json", (time.time() + 60.0,) * 2)  # the clock was set back, its front died
    assert "latency_ms" not in place.seen("hash")


def test_a_status_in_other_cores_is_none(place: Place) -> None:
    place.tell("hash", **STANDING, host_cores=0.5)
    place.tell("resize", **STANDING, host_cores=1.0)
    assert "usage" not in place.seen("hash") and place.seen("resize")["usage"] == 0.5


def test_a_look_is_acted_on_once_and_not_after_the_next(place: Place) -> None:
    place.coordinator.look()
    mine = place.limit("resize")
    assert mine.acquire("test") == ""
    assert mine.present() == {"cores": 2.0}
    with pytest.raises(ActuatorError, match="last look"):
        mine.apply({"target_cores": 2.5})  # nothing was read yet
    readings = mine.read()
    assert readings.values["rate_rps"] == 20.0 and readings.ages_s["rate_rps"] < 5.0
    assert 0.1 <= (mine.interval_s or 0.0) <= 0.55, "soon after the next look"
    mine.present()
    assert mine.apply({"target_cores": 2.5}).values == {"target_cores": 2.5}
    assert (place.parent / "resize" / "cpu.max").read_text().strip() == "250000 100000"
    with pytest.raises(ActuatorError, match="last look"):
        mine.apply({"target_cores": 2.6})
    mine.read()
    place.coordinator.look()
    with pytest.raises(ActuatorError, match="last look"):
        mine.apply({"target_cores": 2.6})
    mine.read()
    mine.present()
    mine.apply({"target_cores": 2.6})
    with pytest.raises(ActuatorError, match="set alone"):
        mine.apply({"target_cpu_limit_cores": 1.0})
    mine.restore()
    assert (place.parent / "resize" / "cpu.max").read_text().strip() == "200000 100000"


def test_a_core_that_is_shared_may_be_a_part_of_one_of_this_host(place: Place) -> None:
    """Two cores of this host are eight of the cluster: limits are told, allotted and set in the cluster's."""
    tiny.write_yaml({**yaml.safe_load(place.file.read_text()), "cores": 24, "host_cores": 0.25}, place.file)
    place.coordinator = Coordinator(read_shared(place.file, TELLER), TELLER)
    assert place.seen("resize")["allotment_cores"] == pytest.approx(8.0 + 4.0)
    assert place.seen("hash")["fair_cores"] == 12.0
    target = Target("resize", f"{PARENT}/resize", place.look, 5.0, place.folder / "run", place.tree.root, 0.25)
    mine = LookedAtLimit(target, NAMED)
    mine.acquire("test")
    mine.read()
    assert mine.present() == {"cores": 8.0} and mine.apply({"target_cores": 10.0}).values == {"target_cores": 10.0}
    assert (place.parent / "resize" / "cpu.max").read_text().strip() == "250000 100000"


def test_a_look_in_other_cores_than_the_agents_is_refused(place: Place) -> None:
    """An allotment in cores of the coordinator's would be another number of the agent's: together above the cluster."""
    tiny.write_yaml({**yaml.safe_load(place.file.read_text()), "cores": 24, "host_cores": 0.25}, place.file)
    place.coordinator = Coordinator(read_shared(place.file, TELLER), TELLER)
    place.coordinator.look()
    mine = place.limit("resize")
    assert mine.acquire("test") == ""
    with pytest.raises(SourceError, match=r"host_cores of .* must be 1 as in the file of resize, got 0.25: write"):
        mine.read()
    mine.present()
    with pytest.raises(ActuatorError, match="last look"):
        mine.apply({"target_cores": 2.5})
    assert (place.parent / "resize" / "cpu.max").read_text().strip() == "200000 100000"
    older = json.loads(place.look.read_text())
    place.look.write_text(json.dumps({name: value for name, value in older.items() if name != "host_cores"}))
    assert mine.read().values["rate_rps"] == 20.0, "a look that does not say counts cores of this host"


def test_a_look_that_is_old_or_of_others_is_none(place: Place) -> None:
    place.coordinator.look()
    late = place.limit("resize", within_s=0.05)
    time.sleep(0.1)
    with pytest.raises(SourceError, match="is the coordinator running"):
        late.read()
    assert late.acquire("test") == ""
    with pytest.raises(ActuatorError, match="last look"):
        late.apply({"target_cores": 2.5})
    late.release("test")
    ahead = json.loads(place.look.read_text())
    place.look.write_text(json.dumps({**ahead, "look": str(time.time_ns() + 600 * 10**9)}))
    with pytest.raises(SourceError, match="got -600 s: is the coordinator running, and this host's clock right"):
        place.limit("resize").read()
    with pytest.raises(SourceError, match="a look at graph"):
        place.limit("graph").read()
    for content in ("", "[]", "{}", '{"look": "x", "functions": {}}'):
        place.look.write_text(content)
        with pytest.raises(SourceError, match="look"):
            place.limit("resize").read()
    read = place.limit("resize")
    place.coordinator.look()
    read.read()
    place.look.write_text("[]")
    with pytest.raises(ActuatorError, match="last look"):
        read.apply({"target_cores": 2.5})
    place.look.unlink()
    with pytest.raises(SourceError, match="coordinator's look"):
        place.limit("resize").read()


@pytest.mark.parametrize(("change", "reason"), [
    ({"cores": 0}, "number > 0"), ({"every_s": 1e300}, "every_s must be 0.01 to 86400 seconds"),
    ({"groups": {}}, "control group of each"),
    ({"groups": {"../x": "a"}}, "control group"), ({"core": 3}, "must be one of"),
    ({"groups": {"a": "../b"}}, "names of control groups"),
    ({"groups": {"a": "functions/x", "b": "functions/y", "c": "functions/x"}}, "once, got functions/x for a and for c"),
    ({"groups": {"a\0": "functions/x"}}, "control group of each"),
    *(({name: text}, f"coordinator.{name} must be a text without NUL")
      for name in ("root", "look", "status") for text in ("/run\0/x", "\0", "/run/\ud800")),
    ({"look": "/"}, "look must be a file"), ({"root": "/" + 5000 * "x"}, "where control groups are mounted")])
def test_a_cluster_file_that_cannot_be_is_refused(place: Place, capsys: pytest.CaptureFixture[str],
                                                  change: dict[str, Any], reason: str) -> None:
    place.rewrite(**change)
    assert main([str(place.file), "--looks", "1"]) == 2
    said = capsys.readouterr().err
    assert reason in said and said.count("\n") == 1
    with pytest.raises(InputError):
        Coordinator(read_shared(place.file, TELLER), TELLER)


def test_where_a_group_was_never_seen_there_is_no_look(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(place.parent / "hash")
    assert main([str(place.file), "--looks", "2"]) == 1 and capsys.readouterr().err.count("no look") == 1, "said once"
    assert not place.look.exists() and set(STATUS) == set(STANDING)


def test_looks_that_cannot_be_written_are_no_success_and_one_that_can_is(
        place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.rewrite(look=str(place.folder / (240 * "x")))  # there is room for a lock's name, none for that of a new look
    assert main([str(place.file), "--looks", "1"]) == 2 and "no look: " in capsys.readouterr().err
    place.rewrite(look=str(place.look), every_s=0.01)
    calls = list[None]()

    def second(*arguments: Any) -> Any:
        calls.append(None)
        if len(calls) != 2:
            raise OSError(errno.ENOSPC, "no space left")
        return TELLER.looked_at(*arguments)

    assert run(replace(TELLER, looked_at=second), "test", None, [str(place.file), "--looks", "3"]) == 0
    assert "no look: " in capsys.readouterr().err and place.look.exists() and len(calls) == 3


@pytest.mark.parametrize("looks", ["0", "-3"])
def test_looks_are_at_least_one(place: Place, capsys: pytest.CaptureFixture[str], looks: str) -> None:
    assert main([str(place.file), "--looks", looks]) == 2
    assert f"--looks must be at least 1, got {looks}; leave it out" in capsys.readouterr().err
    assert not place.look.exists()


def test_looks_that_were_missed_are_not_made_up_for(place: Place) -> None:
    """The first look takes as long as ten."""
    place.rewrite(every_s=0.05)
    began = list[float]()

    def slow(*arguments: Any) -> Any:
        if not began:
            time.sleep(0.5)
        began.append(time.monotonic())
        return TELLER.looked_at(*arguments)

    assert run(replace(TELLER, looked_at=slow), "test", None, [str(place.file), "--looks", "6"]) == 0
    assert len(began) == 6 and began[-1] - began[0] > 4 * 0.05


@pytest.mark.timeout(60)
def test_one_coordinator_alone_writes_a_look_and_a_killed_one_keeps_nobody_away(
        place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    first = subprocess.Popen([sys.executable, "-m", "systems.shared_cluster.coordinator", place.file],
                             env=python_environment())
    try:
        deadline = time.monotonic() + 30.0
        while not place.look.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        first.send_signal(signal.SIGSTOP)
        stood = place.look.read_text()
        assert main([str(place.file), "--looks", "1"]) == 2
        said = capsys.readouterr().err
        assert said == (f"look must be written by one coordinator alone, got one that coordinator of {place.file} "
                        f"(process {first.pid}) writes ({place.look}); end that one, or name another look\n")
        assert place.look.read_text() == stood
    finally:
        first.kill()
        first.wait()
    assert main([str(place.file), "--looks", "1"]) == 0 and place.look.read_text() != stood


def test_nobody_acts_while_the_coordinator_looks(place: Place) -> None:
    """Limits are read, what follows is not written: who acted now would take what another one is just allotted."""
    place.coordinator.look()
    mine = place.limit("resize")
    mine.acquire("test")
    mine.read()
    mine.present()

    def acts(*arguments: Any) -> Any:
        with pytest.raises(ActuatorError, match="between two looks, got the coordinator while it looks") as caught:
            mine.apply({"target_cores": 3.0})
        assert caught.value.kind == "conflict"
        return TELLER.looked_at(*arguments)

    assert Coordinator(read_shared(place.file, TELLER), replace(TELLER, looked_at=acts)).look() == []
    assert (place.parent / "resize" / "cpu.max").read_text().strip() == "200000 100000"
    mine.read()
    mine.present()
    assert mine.apply({"target_cores": 3.0}).values == {"target_cores": 3.0}


def test_a_coordinator_waits_for_who_acts_and_not_for_who_was_stopped(place: Place) -> None:
    place.rewrite(every_s=5)
    place.coordinator = Coordinator(read_shared(place.file, TELLER), TELLER)
    assert place.coordinator.look() == []
    acting, lock = threading.Event(), look_lock(place.look)

    def act() -> None:
        with shared_lock(lock, alone=False) as held:
            assert held
            acting.set()
            time.sleep(0.05)
            (place.parent / "resize" / "cpu.max").write_text("300000 100000\n")

    agent = threading.Thread(target=act)
    agent.start()
    acting.wait()
    assert place.seen("hash")["cluster_limits"] == pytest.approx(5.0 / 6.0), "what it set is counted"
    agent.join()
    before = json.loads(place.look.read_text())["look"]
    with shared_lock(lock, alone=False):
        (note,) = place.coordinator.look()
    assert "acting for more than 0.5 s" in note and json.loads(place.look.read_text())["look"] != before


def test_a_lock_that_an_agent_may_not_open_is_said_and_none_is_needed(place: Place) -> None:
    """Of a coordinator that was started before there were such locks."""
    place.coordinator.look()
    mine, lock = place.limit("resize"), look_lock(place.look)
    mine.acquire("test")
    mine.read()
    mine.present()
    lock.unlink()
    lock.symlink_to("elsewhere")
    with pytest.raises(ActuatorError, match="must be a lock that agents can read") as caught:
        mine.apply({"target_cores": 2.5})
    assert caught.value.kind == "forbidden"
    lock.unlink()
    assert mine.apply({"target_cores": 2.5}).values == {"target_cores": 2.5}


def test_whoever_looks_next_knows_what_was_allotted(place: Place) -> None:
    """One limit is lifted and one group gone while no coordinator runs; then both at once, from the very first look."""
    place.coordinator.look()
    (place.parent / "resize" / "cpu.max").write_text("900000 100000\n")
    shutil.rmtree(place.parent / "hash")
    for _ in range(2):
        place.coordinator = Coordinator(read_shared(place.file, TELLER), TELLER)
        assert len(place.coordinator.look()) == 1
        told = json.loads(place.look.read_text())
        assert told["functions"]["resize"]["allotment_cores"] == pytest.approx(3.0) and told["kept"] == {"hash": 3.0}
    for useless in ({"functions": []}, {"kept": 3}, {"look": str(time.time_ns() - 600 * 10**9)}, {"host_cores": 0.5}):
        place.look.write_text(json.dumps({**told, **useless}))
        with pytest.raises(ActuatorError):
            Coordinator(read_shared(place.file, TELLER), TELLER).look()


def test_who_has_no_limit_at_the_very_first_look_takes_no_cores_either(place: Place) -> None:
    (place.parent / "resize" / "cpu.max").write_text("6400000 100000\n")
    assert place.seen("hash")["allotment_cores"] >= 2.0 and place.seen("resize")["allotment_cores"] <= 4.0


def test_who_goes_away_above_the_whole_starves_nobody(place: Place) -> None:
    """It was to come down from five cores to 4.3, and is gone; the others have what they were allotted, for ever."""
    (place.parent / "resize" / "cpu.max").write_text("500000 100000\n")
    assert place.seen("hash")["allotment_cores"] == pytest.approx(12.0 / 7.0)
    shutil.rmtree(place.parent / "resize")
    for _ in range(60):
        cores = place.seen("hash")["allotment_cores"]
        (place.parent / "hash" / "cpu.max").write_text(f"{100_000 * cores:.0f} 100000\n")
    assert place.seen("hash")["allotment_cores"] == pytest.approx(12.0 / 7.0, rel=1e-3)


def test_who_raised_itself_and_cannot_be_read_since_keeps_what_it_was_allotted(place: Place) -> None:
    place.coordinator.look()
    (place.parent / "resize" / "cpu.max").write_text("300000 100000\n")
    shutil.move(place.parent / "resize", place.folder / "aside")
    for _ in range(5):
        assert place.seen("hash")["allotment_cores"] == pytest.approx(3.0)


def test_who_keeps_the_least_cores_counts_them() -> None:
    """One function at twelve cores of six, 79 at the least that an agent keeps: limits come down to the whole."""
    names = [f"f{number}" for number in range(80)]
    limits = dict.fromkeys(names, LEAST_CORES) | {"f0": 12.0}
    shared = Shared(6.0, Path("look.json"), Path("status"), {name: name for name in names}, 10.0, Path("/"), 1.0)
    coordinator = Coordinator(shared, TELLER)
    unknown = dict.fromkeys(STATUS, math.nan)
    for _ in range(60):
        counted = {name: coordinator._counted(name, cores) for name, cores in limits.items()}
        found = TELLER.looked_at(6.0, counted, dict.fromkeys(names, unknown), coordinator._limits, counted)
        coordinator._limits = counted
        coordinator._allotted = {name: of["allotment_cores"] for name, of in found.items()}
        limits = {name: max(LEAST_CORES, coordinator._allotted[name]) for name in names}
    assert sum(limits.values()) == pytest.approx(6.0, rel=1e-3)


def test_a_full_log_ends_no_coordinator(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(place.parent / "hash")
    full = Path("/dev/full").open("w", buffering=1)  # noqa: SIM115
    monkeypatch.setattr("sys.stderr", full)
    assert main([str(place.file), "--looks", "2"]) == 1
    with pytest.raises(OSError):
        full.close()


@pytest.mark.parametrize("lifted", ["max 100000\n", "900000 100000\n"])
def test_a_limit_that_somebody_lifted_takes_no_cores_of_the_others(place: Place, lifted: str) -> None:
    """As systemd does, which makes cpu.max anew."""
    assert place.seen("resize")["allotment_cores"] == pytest.approx(3.0)
    (place.parent / "resize" / "cpu.max").write_text(lifted)
    for _ in range(20):
        place.coordinator.look()
        found = json.loads(place.look.read_text())["functions"]
        assert found["hash"]["allotment_cores"] >= 2.0, "what it has"
        assert sum(one["allotment_cores"] for one in found.values()) == pytest.approx(6.0)
        assert found["hash"]["cluster_limits"] == pytest.approx(4.0 / 6.0), "nor what is free"
    (place.parent / "hash" / "cpu.max").write_text("299999 100000\n")  # rounded by the kernel
    assert place.seen("hash")["cluster_limits"] == pytest.approx(5.0 / 6.0, rel=1e-4)


def test_where_a_group_is_gone_the_others_are_told_of_and_its_cores_stay_its(place: Place) -> None:
    place.coordinator.look()
    aside = place.folder / "aside"
    shutil.move(place.parent / "hash", aside)
    notes = [place.coordinator.look() for _ in range(3)]
    told = json.loads(place.look.read_text())["functions"]
    assert list(told) == ["resize"] and told["resize"]["allotment_cores"] == pytest.approx(3.0)
    assert all(len(of) == 1 and "hash is not told of" in of[0] for of in notes)
    shutil.move(place.parent / "resize", place.folder / "aside too")
    with pytest.raises(ActuatorError):
        place.coordinator.look()
    shutil.move(place.folder / "aside too", place.parent / "resize")
    shutil.move(aside, place.parent / "hash")
    (place.parent / "hash" / "cpu.max").write_text("max 100000\n")  # made anew
    assert place.coordinator.look() == []
    told = json.loads(place.look.read_text())["functions"]
    assert told["hash"]["allotment_cores"] == pytest.approx(3.0) and told["resize"]["allotment_cores"] >= 2.0


def test_one_that_hangs_needs_no_more_than_all_there_is(place: Place) -> None:
    """Two hundred arrive for one that is served in a thousand seconds."""
    for _ in range(40):
        place.tell("hash", **(STANDING | {"rate_rps": 200.0, "served_rps": 0.001}))
        assert place.seen("hash")["demand_cores"] == 6.0
    assert place.seen("resize")["allotment_cores"] >= 2.0 + 2.0 / 7.0 - 1e-9, "a seventh of what is free: one of seven"


def test_its_state_folder_is_an_absolute_path(tmp_path: Path) -> None:
    given = {"name": "resize", "group": "functions/resize", "look": str(tmp_path / "look.json")}
    for state in ("", "run", "~/run"):
        with pytest.raises(InputError, match=r"function\.state must be an absolute path of a folder"):
            ACTUATOR.read(FilePart({**given, "state": state}, "function", "a file"))
    target = ACTUATOR.read(FilePart({**given, "state": f"{tmp_path}/x/../run"}, "function", "a file"))
    assert ACTUATOR.kept is not None and ACTUATOR.kept(target) == f"the state folder {tmp_path / 'run'}"
