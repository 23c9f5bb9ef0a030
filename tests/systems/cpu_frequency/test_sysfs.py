"""The clock through files: set, read, given back, whoever else writes there."""

import errno
import json
import math
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from feature_store.errors import InputError, SourceError
from models.control.contract.acting import code_sha256
from models.control.contract.signals import Ceiling
from serving.actuators.actuator import ActuatorError
from serving.actuators.control_group.file_lease import FileLease
from serving.contract import Contract
from serving.control.controller_file import read_controller_file
from serving.control.file_part import FilePart
from serving.control.loop import ControlLoop
from serving.control.parts import Parts, Reader, Settings
from serving.control.shield import Limit, Shield
from serving.control.start import NothingKnownError, release
from serving.fallback_spec import SafeRange
from systems.cpu_frequency import acting, sysfs
from systems.cpu_frequency.interface import CONTROLS, SIGNALS
from systems.cpu_frequency.sysfs import ACTUATOR, Clock
from tests.serving.control.world import OneModel, Said
from tests.systems.cpu_frequency.kernel_files import STATUS, kernel_files

TARGET, ACTUATOR_PATH = "target_frequency_ghz", "systems.cpu_frequency.sysfs"


def made(part: dict[str, object]) -> Clock:
    return Clock(ACTUATOR.read(FilePart(part, "clock", "a file")))


@pytest.fixture
def part(tmp_path: Path) -> dict[str, object]:
    return kernel_files(tmp_path)


@pytest.fixture
def clock(part: dict[str, object]) -> Iterator[Clock]:
    one = made(part)
    assert one.acquire("one") == ""
    yield one
    one.release("one")


def held(root: Path, name: str = "scaling_max_freq") -> list[str]:
    return [(root / "cpufreq" / policy / name).read_text().strip() for policy in ("policy0", "policy1")]


def contents(root: Path) -> dict[str, str]:
    return {str(path): path.read_text() for path in root.rglob("*") if path.is_file() and "state" not in path.parts}


def test_it_sets_the_limit_of_every_policy_and_nothing_else(clock: Clock, tmp_path: Path) -> None:
    before = contents(tmp_path)
    assert clock.present() == {"frequency_ghz": 3.0}
    assert clock.apply({TARGET: 2.1000000001}).values == {TARGET: 2.1}
    after = contents(tmp_path)
    assert {name for name in after if after[name] != before[name]} == {
        str(tmp_path / "cpufreq" / policy / "scaling_max_freq") for policy in ("policy0", "policy1")}
    assert held(tmp_path) == ["2100000"] * 2 and clock.present() == {"frequency_ghz": 2.1}
    clock.apply({TARGET: 2.3})
    clock.restore()
    assert held(tmp_path) == ["3000000"] * 2 and not list((tmp_path / "state").glob("*.json"))
    clock.restore()
    assert held(tmp_path) == ["3000000"] * 2, "giving back twice does no harm"


def test_under_the_userspace_governor_it_sets_the_speed(tmp_path: Path) -> None:
    one = made(kernel_files(tmp_path, governor="userspace"))
    one.acquire("one")
    assert one.present() == {"frequency_ghz": 2.0}
    one.apply({TARGET: 2.6})
    assert held(tmp_path, "scaling_setspeed") == ["2600000"] * 2 and held(tmp_path) == ["3000000"] * 2
    one.restore()
    assert held(tmp_path, "scaling_setspeed") == ["2000000"] * 2
    one.release("one")


def test_what_somebody_else_set_since_stays_and_is_said(clock: Clock, tmp_path: Path) -> None:
    clock.present()
    clock.apply({TARGET: 2.0})
    (tmp_path / "cpufreq" / "policy1" / "scaling_max_freq").write_text("1500000\n")
    with pytest.raises(ActuatorError, match="changed by somebody else") as found:
        clock.apply({TARGET: 2.2})
    assert found.value.kind == "conflict" and held(tmp_path) == ["2000000", "1500000"]
    message = r"policy1/scaling_max_freq was set to 1500000 by somebody else and stays so; it had been 3000000"
    with pytest.raises(ActuatorError, match=message) as found:
        clock.restore()
    assert found.value.kind == "conflict" and held(tmp_path) == ["3000000", "1500000"]


def test_the_successor_of_a_killed_one_gives_back_what_was_found_first(part: dict[str, object], tmp_path: Path) -> None:
    killed = made(part)
    killed.acquire("killed")
    killed.apply({TARGET: 1.4})
    killed.release("killed")  # as the kernel does of a process that ends
    other = made(part)
    assert other.acquire("other") == "" and other.present() == {"frequency_ghz": 1.4}
    other.apply({TARGET: 1.8})
    other.release("other")
    made(part).restore()  # as `assay release` does, without a controller
    assert held(tmp_path) == ["3000000"] * 2


def test_what_was_found_before_a_restart_of_the_host_is_nobodys(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.apply({TARGET: 1.4})
    (tmp_path / "boot").write_text("another\n")
    monkeypatch.setattr(sysfs, "_BOOT", tmp_path / "boot")
    clock.restore()
    assert held(tmp_path) == ["1400000"] * 2


def test_giving_back_without_lowering_keeps_a_higher_clock_for_later(part: dict[str, object], tmp_path: Path) -> None:
    for policy in ("policy0", "policy1"):
        (tmp_path / "cpufreq" / policy / "scaling_max_freq").write_text("1600000\n")
    one = made(part)
    one.acquire("one")
    one.apply({TARGET: 2.4})
    with pytest.raises(ActuatorError, match="stays at 2400000, more than the 1600000 that was found") as found:
        one.restore(lowering=False)
    assert found.value.kind == "refused" and held(tmp_path) == ["2400000"] * 2
    one.restore()
    assert held(tmp_path) == ["1600000"] * 2
    one.release("one")


TABLE_KHZ = tuple(range(1_200_000, 3_000_001, 300_000))


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel takes the next lower clock of its table for what is set."""
    plain = sysfs._write
    monkeypatch.setattr(sysfs, "_write", lambda path, text: plain(
        path, str(max(khz for khz in TABLE_KHZ if khz <= int(text)))))


@pytest.mark.usefixtures("rounds")
def test_a_clock_that_the_kernel_rounds_is_ours(part: dict[str, object], tmp_path: Path) -> None:
    killed = made(part)
    killed.acquire("killed")
    for ghz, stands in ((2.0, 1.8), (2.2, 2.1), (2.2, 2.1), (1.9, 1.8)):
        killed.present()
        done = killed.apply({TARGET: ghz})
        assert done.values == {TARGET: pytest.approx(stands)} and done.notes == ()
    killed.release("killed")
    made(part).restore()
    assert held(tmp_path) == ["3000000"] * 2 and not list((tmp_path / "state").glob("*.json"))


@pytest.mark.usefixtures("rounds")
def test_a_rounded_clock_is_remembered_where_the_next_policy_fails(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounding = sysfs._write

    def fails(path: Path, text: str) -> None:
        if path.parent.name == "policy1":
            raise ActuatorError("forbidden", f"{path} must be a file that can be set")
        rounding(path, text)

    with monkeypatch.context() as patched:
        patched.setattr(sysfs, "_write", fails)
        with pytest.raises(ActuatorError, match="must be a file that can be set"):
            clock.apply({TARGET: 2.0})
    assert held(tmp_path) == ["1800000", "3000000"]
    clock.restore()
    assert held(tmp_path) == ["3000000"] * 2


@pytest.mark.usefixtures("rounds")
def test_a_rounded_clock_that_cannot_be_remembered_is_said(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    write = sysfs.write_found

    def once(path: Path, found: object) -> None:
        monkeypatch.setattr(sysfs, "write_found", full)
        write(path, found)  # type: ignore[arg-type]

    def full(path: Path, found: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sysfs, "write_found", once)
    done = clock.apply({TARGET: 2.0})
    assert done.values == {TARGET: 1.8} and "taken for somebody else's" in done.notes[0]


def test_without_the_lease_nothing_is_set_or_given_back(part: dict[str, object], clock: Clock, tmp_path: Path) -> None:
    clock.apply({TARGET: 2.0})
    other = made(part)
    assert "one" in other.acquire("other")
    with pytest.raises(ActuatorError, match="must hold the lease"):
        other.apply({TARGET: 1.5})
    with pytest.raises(ActuatorError, match="has the lease on clock of policy0, policy1"):
        other.restore()
    assert held(tmp_path) == ["2000000"] * 2


@pytest.mark.parametrize(("targets", "message"), [
    ({}, "must be a clock in GHz"), ({TARGET: math.nan}, "must be a clock in GHz"),
    ({TARGET: 2.0, "other": 1.0}, "must be a clock in GHz"), ({TARGET: 1.1}, "must be 1200000 to 3000000 kHz"),
    ({TARGET: 3.1}, "must be 1200000 to 3000000 kHz")])
def test_what_is_no_clock_of_it_is_refused(
    clock: Clock, tmp_path: Path, targets: dict[str, float], message: str
) -> None:
    with pytest.raises(ActuatorError, match=message) as found:
        clock.apply(targets)
    assert found.value.kind == "refused" and held(tmp_path) == ["3000000"] * 2


def test_a_lost_permission_is_forbidden_and_what_was_set_is_still_given_back(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second policy's file is lost between two decisions (the tests may run as root, whom no mode stops)."""
    clock.apply({TARGET: 2.0})
    opened = Path.open

    def forbidden(path: Path, mode: str = "r", **others: object) -> object:
        if mode == "r+" and path.parent.name == "policy1":
            raise PermissionError(13, "Permission denied")
        return opened(path, mode, **others)  # type: ignore[call-overload]

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", forbidden)
        with pytest.raises(ActuatorError, match=r"policy1/scaling_max_freq must be a file that can be set") as found:
            clock.apply({TARGET: 2.5})
    assert found.value.kind == "forbidden" and held(tmp_path) == ["2500000", "2000000"]
    assert clock.present() == {"frequency_ghz": 2.5}
    clock.restore()
    assert held(tmp_path) == ["3000000"] * 2


def test_what_cannot_be_remembered_is_not_set(clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, found: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sysfs, "write_found", full)
    with pytest.raises(ActuatorError, match="must be on disk before it is changed"):
        clock.apply({TARGET: 2.0})
    assert held(tmp_path) == ["3000000"] * 2


def test_a_damaged_memory_is_said_and_nothing_is_set(clock: Clock, tmp_path: Path) -> None:
    clock.apply({TARGET: 2.0})
    (memory,) = (tmp_path / "state").glob("*.json")
    memory.write_text("{")
    for act in (clock.restore, lambda: clock.apply({TARGET: 2.2})):
        with pytest.raises(ActuatorError, match="must be what a controller wrote"):
            act()
    assert held(tmp_path) == ["2000000"] * 2


def test_it_reads_clock_room_and_mean_power(clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Power is energy over the time between two readings, other than a second, also where the counter began anew."""
    assert isinstance(clock, Reader)
    now = {"s": 100.0}
    monkeypatch.setattr(sysfs.time, "monotonic", lambda: now["s"])
    first = clock.read()
    assert math.isnan(first.values["power_share"])
    assert {name: first.values[name] for name in STATUS} == STATUS and first.ages_s["latency_ms"] < 60.0
    assert first.values["delivered_ghz"] == pytest.approx(2.0) and first.values["room_c"] == pytest.approx(23.5)
    energy = tmp_path / "rapl" / "energy_uj"
    for seconds, joules, watts in ((1.3, 1.0 + 78.0, 60.0), (0.7, 262_143.32885 - 12.0, None), (2.5, 18.0, 12.0)):
        now["s"] += seconds
        energy.write_text(f"{round(joules * 1e6)}\n")
        found = clock.read().values["power_share"]
        assert watts is None or found == pytest.approx(watts / 120.0, rel=1e-6)


@pytest.mark.parametrize(("celsius", "room"), [(91.0, 0.25), (84.5, 0.25), (70.25, 14.25), (3.0, 64.0)])
def test_beyond_its_limit_a_processor_has_the_least_room_that_can_be_observed(
    clock: Clock, tmp_path: Path, celsius: float, room: float
) -> None:
    """Less would be no observation, and a policy would be blind where it is hot."""
    (tmp_path / "temp1_input").write_text(f"{round(1000 * celsius)}\n")
    assert clock.read().values["room_c"] == pytest.approx(room)


def test_a_number_that_the_status_lacks_is_not_known(clock: Clock, tmp_path: Path) -> None:
    (tmp_path / "status.json").write_text(json.dumps({"usage": 0.5}))
    found = clock.read().values
    assert found["usage"] == 0.5 and math.isnan(found["latency_ms"]) and found["room_c"] == pytest.approx(23.5)


@pytest.mark.parametrize("text", [None, "", '{"usage": 0.5, "latency', "nonsense", "[0.5]", '{"usage": null}',
                                  '{"usage": "x"}', '{"usage": 1' + 400 * "0" + "}", 100_000 * "["])
def test_of_a_status_that_is_missing_or_half_written_nothing_is_known_but_heat_is(
    clock: Clock, tmp_path: Path, text: str | None
) -> None:
    status = tmp_path / "status.json"
    if text is None:
        status.unlink()
    else:
        status.write_text(text)
    found = clock.read()
    assert all(math.isnan(found.values[name]) for name in STATUS) and not found.ages_s
    assert found.values["room_c"] == pytest.approx(23.5) and found.values["delivered_ghz"] == pytest.approx(2.0)
    status.write_text(json.dumps(STATUS))
    found = clock.read()
    assert found.values["usage"] == 0.5 and set(found.ages_s) == {*STATUS}


@pytest.mark.parametrize("file", ["temp1_input", "rapl/energy_uj", "rapl/constraint_0_power_limit_uw",
                                  "cpufreq/policy1/scaling_cur_freq"])
@pytest.mark.parametrize("text", [None, "nonsense"])
def test_a_file_that_is_missing_or_damaged_is_one_error_and_comes_back(
    clock: Clock, tmp_path: Path, file: str, text: str | None
) -> None:
    kept = (tmp_path / file).read_text()
    if text is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_text(text)
    with pytest.raises(SourceError, match="clock of policy0, policy1 must have all of its files, got ") as found:
        clock.read()
    assert "\n" not in str(found.value)
    (tmp_path / file).write_text(kept)
    assert clock.read().values["usage"] == 0.5


def test_a_policy_that_is_gone_is_said(clock: Clock, tmp_path: Path) -> None:
    clock.present()
    (tmp_path / "cpufreq" / "policy1" / "scaling_max_freq").unlink()
    for act in (clock.present, lambda: clock.apply({TARGET: 2.0})):
        with pytest.raises(ActuatorError, match=r"policy1/scaling_max_freq must be a file that can be read") as found:
            act()
        assert found.value.kind == "gone"
    assert not (tmp_path / "cpufreq" / "policy1" / "scaling_max_freq").exists(), "nor is it made"
    (tmp_path / "cpufreq" / "policy1" / "scaling_max_freq").write_text("<unsupported>")
    with pytest.raises(ActuatorError, match="must hold a clock in kHz, got '<unsupported>'"):
        clock.present()


@contextmanager
def switched_off(policy: Path, how: str) -> Iterator[None]:
    """All cores of a policy are off. A newer kernel keeps its folder and answers EBUSY, an older one takes it away."""
    if how == "gone":
        aside = policy.with_name("aside")
        policy.rename(aside)
        yield
        aside.rename(policy)
        return
    opened = Path.open

    def busy(path: Path, *arguments: Any, **named: Any) -> Any:
        if path.parent == policy:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(path))
        return opened(path, *arguments, **named)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Path, "open", busy)
        yield


@pytest.mark.parametrize("how", ["busy", "gone"])
def test_while_all_cores_of_a_policy_are_off_the_others_are_set(part: dict[str, object], tmp_path: Path, how: str,
                                                                ) -> None:
    folder, one, two = tmp_path / "cpufreq" / "policy0", made(part), made(part)
    assert one.acquire("one") == ""
    one.apply({TARGET: 2.1})
    one.present()
    with switched_off(folder, how):
        with pytest.raises(ActuatorError, match="lost or got a policy"):
            one.apply({TARGET: 2.0})
        assert one.present() == {"frequency_ghz": 2.1}
        assert one.apply({TARGET: 1.8}).values == {TARGET: 1.8}
        assert one.read().values["delivered_ghz"] == 2.1, "of policy1 alone"
        one.release("one")  # killed
        assert two.acquire("two") == "" and two.present() == {"frequency_ghz": 1.8}, "it knows what was there"
    (folder / "scaling_max_freq").write_text("3000000\n")
    assert two.present() == {"frequency_ghz": 3.0}
    two.apply({TARGET: 1.7})
    assert held(tmp_path) == ["1700000"] * 2
    two.restore()
    assert held(tmp_path) == ["3000000"] * 2


def test_a_policy_that_may_not_be_read_is_not_off(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    clock.present()

    def denied(path: Path, *arguments: Any, **named: Any) -> Any:
        raise PermissionError(errno.EACCES, "denied", str(path))

    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(ActuatorError, match="denied") as found:
        clock.present()
    assert found.value.kind == "forbidden"


def test_a_policy_that_never_was_is_gone(part: dict[str, object]) -> None:
    one = made({**part, "policies": ["policy0", "polciy1"]})
    for _ in range(2):
        with pytest.raises(ActuatorError, match=r"polciy1/scaling_governor must be a file that can be read") as found:
            one.present()
        assert found.value.kind == "gone"


def test_without_any_policy_it_is_gone(clock: Clock, tmp_path: Path) -> None:
    (tmp_path / "cpufreq").rename(tmp_path / "aside")
    with pytest.raises(ActuatorError, match=r"policy0/scaling_governor must be a file that can be read") as found:
        clock.present()
    assert found.value.kind == "gone"


def test_a_limit_that_no_file_says_is_the_operators(part: dict[str, object], tmp_path: Path) -> None:
    (tmp_path / "rapl" / "constraint_0_power_limit_uw").unlink()
    one = made({**part, "power_limit_w": 155.0})
    assert math.isnan(one.read().values["power_share"])
    (tmp_path / "rapl" / "energy_uj").write_text("200000000\n")
    assert one.read().values["power_share"] > 0


@pytest.mark.parametrize(("part", "message"), [
    ({}, "clock.policies must name a policy"), ({"policies": ["policy0"]}, "clock.temperature must be given"),
    ({"policies": ["policy0"], "temperature": "a", "status": "b", "limit_c": 0}, "clock.limit_c must be a number > 0"),
    ({"policy": 1}, "clock must be one of")])
def test_its_part_of_the_controller_file_is_read_strictly(part: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ACTUATOR.read(FilePart(part, "clock", "a file"))


def test_the_page_s_controller_file_is_read(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "cpu-frequency.md").read_text()
    (block,) = (one for one in page.split("```") if one.startswith("\n# clock.yaml"))
    (tmp_path / "clock.yaml").write_text(block)
    read = read_controller_file(tmp_path / "clock.yaml", "systems.cpu_frequency.sysfs")
    assert read.actuators["clock"].limit_c == 84.5 and not read.prometheus


@pytest.mark.parametrize("rubbish", ["0", "-1", "-128000", "60", "900000"])
def test_what_is_no_reading_of_a_sensor_is_no_room(clock: Clock, tmp_path: Path, rubbish: str) -> None:
    (tmp_path / "temp1_input").write_text(f"{rubbish}\n")
    assert math.isnan(clock.read().values["room_c"])


def test_a_policy_has_one_controller_in_whatever_order_and_company_it_is_named(part: dict[str, object],
                                                                               tmp_path: Path) -> None:
    first, other = made(part), made({**part, "policies": ["policy1", "policy0"]})
    single = made({**part, "policies": ["policy1"]})
    assert first.acquire("first") == ""
    assert "first" in other.acquire("other") and "first" in single.acquire("single")
    first.release("first")
    assert single.acquire("single") == "" and "single" in first.acquire("first")
    single.release("single")
    assert first.acquire("first") == "", "what was taken before it was refused was given back"


def test_no_power_limit_is_one_clear_line(clock: Clock, tmp_path: Path) -> None:
    (tmp_path / "rapl" / "constraint_0_power_limit_uw").write_text("0\n")
    with pytest.raises(SourceError, match="a power limit of 0 W"):
        clock.read()


def governed(one: Clock, folder: Path, ceilings: Mapping[str, Ceiling] = MappingProxyType({})) -> ControlLoop:
    """A controller of the clock; the policy asks for 2 GHz, and the fallback is `leading-loads`."""
    digest = {"sha256": "0" * 64}
    (control,), module = CONTROLS, acting.__name__
    contract = Contract.from_json({
        "format": "assay-bundle/2", "task": "cpu_frequency", "workload": "shop",
        "inputs": [{"name": signal.name, "unit": signal.unit, "description": "", "minimum": signal.low,
                    "maximum": signal.high, "physical_minimum": signal.low, "physical_maximum": signal.high}
                   for signal in SIGNALS],
        "outputs": [{"name": control.name, "unit": control.unit, "kind": "target", "minimum": control.low,
                     "maximum": control.high, "physical_minimum": control.low, "physical_maximum": control.high}],
        "specification": {"file": "specification.yaml", "statement": "nothing", **digest},
        "model": {"file": "model.onnx", "opset": 17, "input": "x", "output": "y", **digest},
        "code_version": "c", "data_version": "d", "seed": 0,
        "driving": {"acting": {"module": module, "sha256": code_sha256(module)}, "step_s": 1.0,
                    "current": {control.name: control.current}, "whole": [], "settings": {"most_latency_ms": 40.0},
                    "levels": {control.name: list(control.levels)}, "seen": {"margin": 1.0, "ranges": []}}})
    safe = SafeRange(control.low, control.high, control.most_down, control.most_up, ceilings=ceilings)
    shield = Shield([Limit(control.name, control.current, safe, levels=control.levels)])
    parts = Parts(one, OneModel(Said({control.name: 2.0})), one, shield,
                  acting.RULES["leading-loads"].make({}), acting.OBSERVER(), lambda: "", "me")
    return ControlLoop(contract, parts, Settings(hand_back_after=1), folder)


def aged(status: Path, seconds: float) -> None:
    os.utime(status, (time.time() - seconds,) * 2)


def test_where_who_writes_the_status_has_died_the_fallback_acts(part: dict[str, object], tmp_path: Path) -> None:
    """At the last status before it died it was idle; nobody may go on by that, and heat is seen nevertheless."""
    status, energy = tmp_path / "status.json", tmp_path / "rapl" / "energy_uj"
    loop = governed(made({**part, "within_s": 3.0}), tmp_path / "loop")

    def step(age_s: float) -> tuple[str, str]:
        aged(status, age_s)
        energy.write_text(f"{int(energy.read_text()) + 1000}\n")
        record = loop.step()
        assert record.seen["room_c"] == pytest.approx(23.5)
        assert math.isnan(record.seen["usage"]) == bool(record.reason)
        assert record.done == {TARGET: 2.0} and not record.failure, "it stays"
        return record.actor, record.reason

    loop.step()  # power is not known yet
    assert step(1.0) == ("policy", "")
    for age_s, said in ((86400.0, "usage is 86400 s old, more than 3 s"), (4.0, "usage is 4 s old, more than 3 s"),
                        (-600.0, "usage is from 600 s in the future")):
        actor, reason = step(age_s)
        assert actor == "fallback" and said in reason
        assert step(0.5) == ("policy", "")
    loop.close(give_back=True)


@pytest.mark.parametrize("text", [None, '{"usage": 0.5, "latency'])
def test_a_hot_clock_comes_down_where_there_is_no_status(part: dict[str, object], tmp_path: Path,
                                                         text: str | None) -> None:
    """It stands at 3 GHz, half a degree below its limit, of which the task allows 2 GHz."""
    (tmp_path / "temp1_input").write_text("84000\n")
    if text is None:
        (tmp_path / "status.json").unlink()
    else:
        (tmp_path / "status.json").write_text(text)
    loop = governed(made(part), tmp_path / "loop", {"room_c": Ceiling(3.0, 1.0, 2.0)})
    record = loop.step()
    assert record.actor == "fallback" and "usage is missing" in record.reason and not record.failure
    assert record.seen["room_c"] == pytest.approx(0.5) and record.done == {TARGET: 2.0}
    assert held(tmp_path) == ["2000000"] * 2
    loop.close(give_back=True)


def test_a_status_is_of_some_seconds_where_nobody_says_more(clock: Clock) -> None:
    assert dict(clock.read().fresh_s) == dict.fromkeys(STATUS, 5.0)


def test_cores_that_are_taken_off_keep_no_other_clock_lowered(clock: Clock, tmp_path: Path) -> None:
    clock.apply({TARGET: 2.1})
    aside = tmp_path / "aside"
    (tmp_path / "cpufreq" / "policy0").rename(aside)
    with pytest.raises(ActuatorError, match=r"policy0.* was not given back, 3000000") as raised:
        clock.restore()
    assert raised.value.kind == "refused"
    assert (tmp_path / "cpufreq" / "policy1" / "scaling_max_freq").read_text().strip() == "3000000"
    aside.rename(tmp_path / "cpufreq" / "policy0")
    clock.restore()
    assert held(tmp_path) == ["3000000"] * 2


def test_where_a_second_lease_cannot_be_asked_for_the_first_is_not_kept(
        part: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, acquire = [], FileLease.acquire

    def second_fails(lease: FileLease, holder: str) -> str:
        asked.append(lease)
        if len(asked) == 2:
            raise ActuatorError("forbidden", "no lock")
        return acquire(lease, holder)

    monkeypatch.setattr(FileLease, "acquire", second_fails)
    with pytest.raises(ActuatorError, match="no lock"):
        made(part).acquire("one")
    assert made(part).acquire("two") == ""


def test_what_was_set_before_a_policy_failed_is_told(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    write = sysfs._write

    def fails(path: Path, text: str) -> None:
        if failing in str(path):
            raise ActuatorError("forbidden", "read only")
        write(path, text)

    monkeypatch.setattr(sysfs, "_write", fails)
    failing = "policy0"
    with pytest.raises(ActuatorError, match="read only") as raised:
        clock.apply({TARGET: 2.1})
    assert raised.value.partly == {}, "nothing was"
    failing = "policy1"
    clock.present()
    with pytest.raises(ActuatorError, match="read only") as raised:
        clock.apply({TARGET: 2.1})
    assert raised.value.partly == {"target_frequency_ghz": 3.0}, "the highest of the two"


@pytest.mark.parametrize("goes_on", [False, True])
def test_what_was_found_is_known_where_the_state_folder_is_removed(goes_on: bool, clock: Clock, tmp_path: Path) -> None:
    clock.apply({TARGET: 2.1})
    shutil.rmtree(tmp_path / "state")
    if goes_on:
        assert clock.acquire("one") == ""
        clock.present()
        clock.apply({TARGET: 1.9})
    clock.restore()
    assert held(tmp_path) == ["3000000"] * 2


def test_it_gives_back_where_one_of_its_locks_was_removed(clock: Clock, tmp_path: Path) -> None:
    clock.apply({TARGET: 2.1})
    sorted((tmp_path / "state").glob("*.lock"))[0].unlink()
    clock.restore()
    assert held(tmp_path) == ["3000000"] * 2
    assert [lease.is_held() for lease in clock._leases].count(True) == 1, "the other lock stayed with it"


@pytest.mark.parametrize("then", ["gives back", "goes on", "is killed"])
def test_a_file_of_what_was_found_that_vanishes_loses_nothing(
        then: str, part: dict[str, object], tmp_path: Path) -> None:
    """Of a state folder whose locks stay, as where a cleaner of old files came by."""
    one = made(part)
    assert one.acquire("one") == ""
    one.apply({TARGET: 1.5})
    (memory,) = (tmp_path / "state").glob("*.json")
    memory.unlink()
    if then == "gives back":
        assert one.restore() is True
    elif then == "goes on":
        one.present()
        one.apply({TARGET: 1.4})
        assert memory.exists()
        one.restore()
    else:
        assert one.acquire("one") == "" and memory.exists(), "written again in the next step"
        one.release("one")
        assert made(part).restore() is True
    assert held(tmp_path) == ["3000000"] * 2


def test_a_successor_knows_what_it_read_at_its_start(part: dict[str, object], clock: Clock, tmp_path: Path) -> None:
    clock.apply({TARGET: 1.5})
    clock.release("one")
    other = made(part)
    assert other.acquire("other") == ""
    (memory,) = (tmp_path / "state").glob("*.json")
    memory.unlink()
    other.present()
    other.apply({TARGET: 1.4})
    other.restore()
    assert held(tmp_path) == ["3000000"] * 2


def test_what_is_known_is_no_longer_so_once_another_may_have_given_back(
        part: dict[str, object], clock: Clock, tmp_path: Path) -> None:
    clock.apply({TARGET: 1.5})
    clock.release("one")
    assert made(part).restore() is True
    for policy in ("policy0", "policy1"):
        (tmp_path / "cpufreq" / policy / "scaling_max_freq").write_text("1500000\n")  # by chance the same
    assert clock.acquire("one") == "" and clock.restore() is False
    assert held(tmp_path) == ["1500000"] * 2


def test_it_says_where_nothing_is_known_of_what_was_found(
        part: dict[str, object], clock: Clock, tmp_path: Path) -> None:
    clock.apply({TARGET: 1.5})
    clock.release("one")
    (tmp_path / "clock.json").write_text(json.dumps({"clock": {**part, "state": str(tmp_path / "sate")}}))
    with pytest.raises(NothingKnownError, match=rf"nothing is known in the state folder {tmp_path}/sate of what was "
                                                r"found of clock of policy0, policy1, .* set: frequency_ghz 1\.5"):
        release(ACTUATOR_PATH, read_controller_file(tmp_path / "clock.json", ACTUATOR_PATH))
    assert held(tmp_path) == ["1500000"] * 2


def test_a_pipe_in_the_place_of_the_status_keeps_nobody_waiting(clock: Clock, tmp_path: Path) -> None:
    status = tmp_path / "status.json"
    status.unlink()
    os.mkfifo(status)
    found = clock.read()
    assert all(math.isnan(found.values[name]) for name in STATUS) and not found.ages_s
    assert found.values["room_c"] == pytest.approx(23.5)


@pytest.mark.parametrize("policies", [["policy0", "policy0"], ["policy0", "policy1", "../cpufreq/./policy0"],
                                      ["policy0", "link"]])
def test_a_policy_that_is_named_twice_is_refused(part: dict[str, object], tmp_path: Path, policies: list[str]) -> None:
    """Its second lease would be waited for for ever, as the first one's."""
    (tmp_path / "cpufreq" / "link").symlink_to("policy0")
    with pytest.raises(InputError, match=r"clock\.policies must name each policy once, got .*policy0"):
        made({**part, "policies": policies})


def test_a_policy_has_one_lease_however_it_is_spelled(part: dict[str, object], clock: Clock, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("cpufreq")
    for cpufreq in (f"{tmp_path}/cpufreq/../cpufreq", f"{tmp_path}/link"):
        other = made({**part, "cpufreq": cpufreq, "policies": ["./policy1"]})
        assert other.acquire("other").startswith("one ") and other.name == "clock of policy1"


@pytest.mark.parametrize("state", ["", "state", "./state", "~/state"])
def test_its_state_folder_is_an_absolute_path(part: dict[str, object], state: str) -> None:
    with pytest.raises(InputError, match=r"clock\.state must be an absolute path of a folder, such as /run/assay"):
        made({**part, "state": state})


def test_a_policy_that_can_be_no_path_is_one_error(part: dict[str, object], tmp_path: Path) -> None:
    (tmp_path / "cpufreq" / "ring").symlink_to("ring")
    with pytest.raises(InputError, match=r"clock\.policies must be names of folders, got \['ring'\]: "):
        made({**part, "policies": ["ring"]})


def test_a_full_disk_at_the_end_is_said_and_what_can_be_is_given_back(
        clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "cpufreq" / "policy0" / "scaling_max_freq").write_text("1300000\n")
    clock.apply({TARGET: 2.0})
    monkeypatch.setattr(sysfs, "write_found", full)
    with pytest.raises(ActuatorError, match=r"stays at 2000000, more than the 1300000 .*No space left") as raised:
        clock.restore(lowering=False)
    assert raised.value.kind == "refused" and held(tmp_path) == ["2000000", "3000000"]
    clock.restore()
    assert held(tmp_path) == ["1300000", "3000000"]
