"""The operator's file of a controller: what is read, and what is refused in one line."""

from pathlib import Path

import pytest

from feature_store.errors import InputError
from serving.actuators.cgroup import CgroupTarget
from serving.control.checks import Distribution
from serving.control.controller_file import Query, read_controller_file
from serving.control.parts import Share

WHOLE = """
prometheus: http://127.0.0.1:9090
newest: max(timestamp(up))
fresh_s: 45
signals:
  rate_rps: sum(rate(requests_total[30s]))
  p99_ms: {query: p99, scale: 1000, fresh_s: 30}
fixed: {io_utilization: 0}
cgroup: {group: nginx, parent: services}
shield: {hold: [target_replicas], hysteresis: 0.02, cool_down_s: 60, budgets: [{name: cores, of: [a, b], most: 16}]}
out_of_distribution: {margin: 2, ignore: [io_utilization]}
hand_back_after: 3
log: {keep_mb: 100}
dry_run: {replicas: 2}
"""


def _read(folder: Path, text: str):
    path = folder / "controller.yaml"
    path.write_text(text)
    return read_controller_file(path)


def test_a_signal_may_be_another_one_over_what_is_set(tmp_path):
    share = "  cpu_utilization: {of: rate_rps, over: [ready_replicas, cpu_limit_cores]}\n"
    text = WHOLE.replace("signals:\n", "signals:\n" + share)
    found = _read(tmp_path, text)
    assert found.shares == {"cpu_utilization": Share("rate_rps", ("ready_replicas", "cpu_limit_cores"))}
    assert "cpu_utilization" not in found.signals
    found.require_all(("rate_rps", "p99_ms", "cpu_utilization", "io_utilization"))
    for wrong, said in (("of: rate_rpm", "did you mean 'rate_rps'"), ("of: io_utilization", "a signal with a query")):
        with pytest.raises(InputError, match=said):
            _read(tmp_path, text.replace("of: rate_rps", wrong)).require_all(
                ("rate_rps", "p99_ms", "cpu_utilization", "io_utilization"))
    with pytest.raises(InputError, match=r"signals.cpu_utilization.over must be a list of what is set"):
        _read(tmp_path, text.replace("[ready_replicas, cpu_limit_cores]", "[]"))


MEASURES = "tests.serving.control.measuring_actuator"


def test_an_actuator_that_measures_needs_no_server(tmp_path):
    (tmp_path / "controller.yaml").write_text("world: {seed: 5}\nhand_back_after: 2\n")
    found = read_controller_file(tmp_path / "controller.yaml", MEASURES)
    assert (found.actuators, found.signals, found.prometheus) == ({"world": 5}, {}, "")
    (tmp_path / "controller.yaml").write_text("world: {seed: 5}\nprometheus: http://127.0.0.1:9090\n")
    with pytest.raises(InputError, match=f"prometheus must be left out, for {MEASURES} measures by itself"):
        read_controller_file(tmp_path / "controller.yaml", MEASURES)
    for ignored in ("fresh_s: 5", "fixed: {io_utilization: 0}"):
        (tmp_path / "controller.yaml").write_text(f"world: {{seed: 5}}\n{ignored}\n")
        with pytest.raises(InputError, match=f"{ignored.partition(':')[0]} must be left out"):
            read_controller_file(tmp_path / "controller.yaml", MEASURES)
    with pytest.raises(InputError, match=r"key must be one of .*, got 'world'"):
        read_controller_file(tmp_path / "controller.yaml")


@pytest.mark.parametrize(("name", "message"), [
    ("cgruop", "one of dry-run, .*, or the import path of a module, got 'cgruop'; did you mean 'cgroup'"),
    ("no.such.module", "must be a module that holds an ACTUATOR, got 'no.such.module': No module named"),
    ("..x", "must be a module that holds an ACTUATOR, got '..x'"),
    ("x.", "must be a module that holds an ACTUATOR, got 'x.'"),
    ("tests.serving.control.world", "must be a module that holds an ACTUATOR, got .* has no attribute 'ACTUATOR'")])
def test_an_actuator_that_there_is_none_of_is_one_line(tmp_path, name, message):
    (tmp_path / "controller.yaml").write_text("world: {seed: 5}\n")
    with pytest.raises(InputError, match=f"actuator must be .*{message.removeprefix('must be ')}"):
        read_controller_file(tmp_path / "controller.yaml", name)


def test_what_is_written_is_read(tmp_path):
    found = _read(tmp_path, WHOLE)
    assert found.signals == {"rate_rps": Query("sum(rate(requests_total[30s]))", 1.0, "max(timestamp(up))", 45.0),
                             "p99_ms": Query("p99", 1000.0, "max(timestamp(up))", 30.0)}
    assert found.fixed == {"io_utilization": 0.0}
    assert (found.hysteresis, found.cool_down_s, found.hand_back_after, found.deadline_s) == (0.02, 60.0, 3, 5.0)
    assert found.keep_mb == 100.0
    assert found.distribution == Distribution(2.0, ("io_utilization",))
    assert found.hold == ("target_replicas",)
    assert found.actuators == {"dry_run": {"replicas": 2.0},
                               "cgroup": CgroupTarget("nginx", "services", "/run/assay", "/sys/fs/cgroup", 1)}
    assert [(one.name, one.controls, one.most) for one in found.budgets] == [("cores", ("a", "b"), 16.0)]


@pytest.mark.parametrize(("change", "message"), [
    (("prometheus: http://127.0.0.1:9090", ""), "prometheus must be given"),
    (("hand_back_after: 3", "hand_back_after: 0"), "hand_back_after must be a whole number >= 1, got 0"),
    (("hand_back_after: 3", "hand_back_afer: 3"), "key must be one of .*did you mean|nearest|hand_back_after"),
    (("scale: 1000", "scale: 0"), r"signals.p99_ms.scale must be a number > 0, got 0"),
    (("scale: 1000", "scale: 1" + 400 * "0"), r"signals.p99_ms.scale must be a number > 0"),
    (("scale: 1000", "scal: 1"), "signals.p99_ms must be one of query"),
    (("{query: p99, scale", "{scale"), "signals.p99_ms.query must be given"),
    (("rate_rps: sum(rate(requests_total[30s]))", "rate_rps: 7"), "signals.rate_rps must be a text"),
    (("hand_back_after: 3", "timeout_s: 1.0e+300"), "timeout_s must be a number >= 0.01, at most 86400"),
    (("hysteresis: 0.02", "hysteresis: .nan"), "shield.hysteresis must be a number >= 0"),
    (("most: 16", "most: 0"), "shield.budgets.most must be a number > 0"),
    (("hold: [target_replicas]", "hold: [1]"), "shield.hold must be a list of names"),
    (("{group: nginx, parent: services}", "{parent: services}"), "cgroup.group must be given"),
    (("{group: nginx, parent: services}", "{group: nginx, replicas: 0}"), "cgroup.replicas must be a whole number"),
    *[(("{group: nginx, parent: services}", f"{{group: nginx, state: {state}}}"),
       "cgroup.state must be an absolute path of a folder, such as /run/assay, got ") for state in (
           '""', "assay", "./run", "~/assay", "$HOME/assay")],
    (("keep_mb: 100", "keep_mb: 0"), "log.keep_mb must be a number > 0"),
    (("keep_mb: 100", "keep: 9"), "log must be one of keep_mb"),
    (("margin: 2", "margin: 0.5"), "out_of_distribution.margin must be a number >= 1, got 0.5"),
    (("margin: 2", "margn: 2"), "out_of_distribution must be one of margin, ignore"),
    (("of: [a, b]", "of: a"), "shield.budgets.of must be a list"),
    (("{replicas: 2}", "{replicas: two}"), "dry_run.replicas must be a finite number"),
    (("fixed: {io_utilization: 0}", "fixed: [1]"), "fixed must be a mapping"),
])
def test_anything_else_is_one_line_that_names_its_place(tmp_path, change, message):
    assert change[0] in WHOLE
    with pytest.raises(InputError, match=message) as refused:
        _read(tmp_path, WHOLE.replace(*change))
    assert "\n" not in str(refused.value)
    assert "controller.yaml" in str(refused.value)


def test_every_input_that_has_to_be_measured_needs_a_query_or_a_fixed_value(tmp_path):
    found = _read(tmp_path, WHOLE)
    found.require_all(("rate_rps", "p99_ms", "io_utilization"))
    with pytest.raises(InputError, match=r"got none for cpu_utilization.*`fixed`"):
        found.require_all(("rate_rps", "p99_ms", "io_utilization", "cpu_utilization"))
    with pytest.raises(InputError, match="got 'rate_rps'"):
        found.require_all(("p99_ms", "io_utilization"))


def test_a_file_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(InputError, match="controller file"):
        read_controller_file(tmp_path / "nothing.yaml")


def test_one_state_folder_is_one_however_it_is_spelled(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    read = {_read(tmp_path, WHOLE.replace("parent: services", f"state: {state}")).actuators["cgroup"].state
            for state in (tmp_path / "run", f"{tmp_path}/link/x/.././run/", tmp_path / "link" / "run")}
    assert read == {str(tmp_path / "run")}
