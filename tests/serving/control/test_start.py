"""How a controller starts: whose folder it is, which key is asked for, and what may stop it."""

import json
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from feature_store.errors import AssayError, InputError, RefusedError
from feature_store.file_lock import file_lock
from models.control.training.trajectory_log import TrajectoryLog
from serving.actuators.actuator import ActuatorError
from serving.actuators.cgroup import Cgroup
from serving.bundle import check_bundle
from serving.control.controller_file import read_controller_file
from serving.control.kill_switch import LEDGER_FILE
from serving.control.start import (
    ControlRequest,
    NothingKnownError,
    _ledger_switch,
    champion_for,
    control,
    never_measured,
    own_folder,
    release,
)
from serving.kept_bundles import kept_bundle
from serving.keys import create_key_pair
from serving.ledger import Ledger
from serving.state_folder import state_folder
from systems.autoscaling.observer import AutoscalingObserver
from tests.serving.actuators.control_group.groups import PARENT, plain_files
from tests.serving.control import measuring_actuator
from tests.serving.control.measuring_actuator import MADE
from tests.serving.control.policy_bundle import write_champion, write_policy_bundle
from tests.serving.control.world import World

MEASURING = "tests.serving.control.measuring_actuator"
REQUEST = ControlRequest("nginx", Path("controller.yaml"), "autoscaling")


@pytest.fixture
def configuration(tmp_path):
    return write_champion(tmp_path / "home")


def _stop(configuration):
    ledger = Ledger(configuration.ledger_path, configuration.public_key_path, configuration.private_key_path)
    ledger.append([replace(ledger.history()[-1].move, action="stop_acting", previous_version=1, reason="danger")])


def _why(request, state, place):
    return _ledger_switch(request, state, place)()


def test_a_bundle_of_a_folder_is_stopped_by_the_ledger_too(configuration, tmp_path):
    request = replace(REQUEST, bundle=kept_bundle(configuration.home, "autoscaling", "nginx", 1))
    with own_folder(request, configuration.home) as place:
        assert _why(request, configuration, place) == ""
        _stop(configuration)
        assert "stopped in the ledger by test" in _why(request, configuration, place)
        assert (place / LEDGER_FILE).exists()
        configuration.ledger_path.rename(tmp_path / "away")  # what was known last holds
        assert "stopped in the ledger by test" in _why(request, configuration, place)


def test_a_bundle_of_a_folder_needs_no_ledger(configuration, tmp_path):
    request = replace(REQUEST, bundle=kept_bundle(configuration.home, "autoscaling", "nginx", 1))
    shutil.rmtree(configuration.ledger_path.parent)
    with own_folder(request, configuration.home) as place:
        assert champion_for(request, configuration).current().refused == ""
        assert _why(request, configuration, place) == ""


@pytest.mark.parametrize("install", ["whole", "light"])
def test_one_key_is_asked_for_by_ledger_and_bundles(configuration, tmp_path, install):
    create_key_pair(tmp_path / "other.key", tmp_path / "other.pub")
    state = configuration if install == "whole" else state_folder(configuration.home)
    request = replace(REQUEST, folder=tmp_path / "controller", public_key=tmp_path / "other.pub")
    with own_folder(request, state.home), pytest.raises(RefusedError, match="must be signed with the project's key"):
        champion_for(request, state)
    shutil.copy(configuration.public_key_path, tmp_path / "moved.pub")
    configuration.public_key_path.unlink()
    request = replace(request, public_key=tmp_path / "moved.pub")
    with own_folder(request, state.home):
        assert champion_for(request, state).current().refused == ""


def test_a_folder_is_one_controller_s_before_anything_in_it_is_touched(configuration):
    with own_folder(REQUEST, configuration.home) as place:
        champion_for(REQUEST, configuration)
    known = (place / "champion/known.json").read_bytes()
    with file_lock(place / "lock"), pytest.raises(InputError, match="folder must be of one controller alone"):
        _held_by_another_thread(configuration)
    assert (place / "champion/known.json").read_bytes() == known


def _held_by_another_thread(configuration):
    """A second start, as another process sees the lock."""
    raised = []

    def start():
        try:
            with own_folder(REQUEST, configuration.home):
                raised.append(None)
        except InputError as error:
            raised.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join(30)
    if raised[0] is not None:
        raise raised[0]


@pytest.mark.parametrize("place", ["file", "file/below", "lock is a folder", "/proc/assay"])
def test_a_folder_that_cannot_be_one_is_said(tmp_path, place):
    (tmp_path / "file").touch()
    (tmp_path / "lock is a folder" / "lock").mkdir(parents=True)
    with (pytest.raises(InputError, match="folder must be one that a controller can write"),
          own_folder(replace(REQUEST, folder=tmp_path / place), tmp_path)):
        pass


def test_a_state_folder_that_is_away_is_not_made(tmp_path):
    with pytest.raises(AssayError, match="got no state folder"), own_folder(REQUEST, tmp_path / "home"):
        pass
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError), own_folder(replace(REQUEST, workload="../.."), tmp_path):
        pass


def test_a_revoked_champion_does_not_act_though_the_one_before_was_not_copied_here(configuration, tmp_path):
    """A light copy holds the champion's bundle alone; `assay retire` makes the one before it champion."""
    state, request = state_folder(configuration.home), replace(REQUEST, folder=tmp_path / "controller")
    bundle = kept_bundle(configuration.home, "autoscaling", "nginx", 2)
    sha256 = check_bundle(write_policy_bundle(bundle, configuration.private_key_path, seed=2),
                          configuration.public_key_path).sha256
    ledger = Ledger(configuration.ledger_path, configuration.public_key_path, configuration.private_key_path)
    move = replace(ledger.history()[-1].move, version=2, previous_version=1, bundle_sha256=sha256)
    ledger.append([replace(move, action="register"), move])
    shutil.rmtree(bundle.with_name("1"))
    with own_folder(request, state.home):
        champion = champion_for(request, state)
        assert (champion.current().version, champion.current().refused) == (sha256[:12], "")
        ledger.append([replace(move, action="retire", previous_version=2)])
        champion.poll()
        assert "bundle of version 1 must be in the state folder" in champion.current().refused
    for _ in range(2):
        with own_folder(request, state.home):
            assert "bundle of version 1 must be in" in champion_for(request, state).current().refused


def test_a_refusal_at_a_start_is_remembered(configuration, tmp_path):
    shutil.copy(configuration.public_key_path, tmp_path / "key.pub")
    request = replace(REQUEST, folder=tmp_path / "controller", public_key=tmp_path / "key.pub")
    ledger = configuration.ledger_path
    with own_folder(request, configuration.home) as place:
        champion_for(request, configuration)
        ledger.write_bytes(ledger.read_bytes().replace(b'"champion"', b'"approve" ', 1))
        assert champion_for(request, configuration).current().refused
        assert json.loads((place / "champion/known.json").read_text())["refused"]
        configuration.home.rename(tmp_path / "away")
        assert "since then" in champion_for(request, configuration).current().refused


def _retire(configuration):
    ledger = Ledger(configuration.ledger_path, configuration.public_key_path, configuration.private_key_path)
    ledger.append([replace(ledger.history()[-1].move, action="retire", previous_version=1, reason="bad")])


def _controller_file(tmp_path, tree):
    path = tmp_path / "controller.yaml"
    path.write_text(json.dumps({
        "prometheus": "http://127.0.0.1:9", "timeout_s": 1, "signals": dict.fromkeys(AutoscalingObserver.measured, "x"),
        "shield": {"hold": ["target_replicas"]},
        "cgroup": {"group": "nginx", "parent": PARENT, "root": str(tree.root), "state": str(tmp_path / "state")}}))
    return path


@pytest.fixture
def killed(tmp_path):
    """A group whose controller was killed: limits that it set, and what it found on disk."""
    tree = plain_files(tmp_path / "groups", 2)
    tree.set(cpu="400000 100000")
    actuator = Cgroup("nginx", tmp_path / "state", parent=PARENT, root=tree.root)
    actuator.acquire("controller")
    actuator.present()
    actuator.apply({"target_cpu_limit_cores": 0.5})
    actuator.release("controller")  # as the kernel does
    assert tree.limit("cpu") == "50000 100000"
    return tree


def _started(request, state):
    """Its records."""
    records = []
    control(request, state, records.append, lambda line: None)
    return records


@pytest.mark.parametrize("task", ["autoscaling", None])
@pytest.mark.parametrize("trouble", ["retired", "ledger cut", "no room for the log"])
def test_a_start_that_is_refused_gives_back_what_a_killed_controller_left(configuration, tmp_path, killed, trouble,
                                                                         monkeypatch, task):
    request = replace(REQUEST, task=task, controller=_controller_file(tmp_path, killed), actuator="cgroup", steps=1)
    if trouble == "retired":
        _retire(configuration)
    elif trouble == "ledger cut":
        configuration.ledger_path.write_bytes(configuration.ledger_path.read_bytes()[:-20])
    else:
        monkeypatch.setattr(TrajectoryLog, "__init__", _full)
    with pytest.raises(AssayError, match="is set as it was found: cpu_limit_cores 4, "):
        _started(request, configuration)
    assert killed.limit("cpu") == "400000 100000"


def test_a_start_that_is_refused_takes_nothing_away_that_a_killed_controller_gave(configuration, tmp_path, killed,
                                                                                 monkeypatch):
    """0.5 cores were found, 4 are set; what its last moment saw may be a peak."""
    release("cgroup", read_controller_file(_controller_file(tmp_path, killed)))
    killed.set(cpu="50000 100000")
    actuator = Cgroup("nginx", tmp_path / "state", parent=PARENT, root=killed.root)
    actuator.acquire("controller")
    actuator.apply({"target_cpu_limit_cores": 4.0})
    actuator.release("controller")
    request = replace(REQUEST, controller=_controller_file(tmp_path, killed), actuator="cgroup", steps=1)
    monkeypatch.setattr(TrajectoryLog, "__init__", _full)
    for _ in range(2):
        with pytest.raises(AssayError, match=(
                r"No space left.*stays at 400000 100000, more than the 50000 100000 that was found; `assay release` "
                "gives it back")):
            _started(request, configuration)
        assert killed.limit("cpu") == "400000 100000"
    assert "cpu_limit_cores 0.5" in release("cgroup", read_controller_file(request.controller))
    assert killed.limit("cpu") == "50000 100000"


def _full(*_, **__):
    raise InputError("log must be writable, got No space left on device")


def test_a_start_that_is_refused_leaves_limits_while_acting_is_stopped(configuration, tmp_path, killed):
    request = replace(REQUEST, controller=_controller_file(tmp_path, killed), actuator="cgroup", steps=1)
    _retire(configuration)
    with own_folder(request, configuration.home) as place:
        (place / "STOP").touch()
    for task in ("autoscaling", None):
        with pytest.raises(AssayError, match=r"limits stay as they are set \(kill switch: STOP"):
            _started(replace(request, task=task), configuration)
    configuration.ledger_path.rename(tmp_path / "away")  # then nobody can say which task it is of
    with pytest.raises(AssayError, match=r"ledger must hold .*; limits stay as they are set \(kill switch: STOP"):
        _started(replace(request, task=None), configuration)
    (tmp_path / "away").rename(configuration.ledger_path)
    assert killed.limit("cpu") == "50000 100000"
    (place / "STOP").unlink()
    with pytest.raises(AssayError, match="got none for autoscaling, nginx"):
        _started(replace(request, give_back=False), configuration)
    assert killed.limit("cpu") == "50000 100000"


def test_a_start_that_is_refused_leaves_limits_while_the_ledger_says_stopped(configuration, tmp_path, killed):
    """Stopped after the controller was killed: no file in its folder knows of it."""
    request = replace(REQUEST, controller=_controller_file(tmp_path, killed), actuator="cgroup", steps=1)
    _stop(configuration)
    _retire(configuration)
    for task in ("autoscaling", None):
        with pytest.raises(AssayError, match=r"limits stay as they are set \(kill switch: stopped in the ledger"):
            _started(replace(request, task=task), configuration)
    assert killed.limit("cpu") == "50000 100000"


def test_a_start_under_a_mistyped_name_gives_back_nothing_that_another_ones_stop_holds(configuration, tmp_path, killed):
    request = replace(REQUEST, controller=_controller_file(tmp_path, killed), actuator="cgroup", steps=1)
    with own_folder(request, configuration.home) as place:
        (place / "STOP").touch()
    mistyped = replace(request, workload="nginxx", bundle=kept_bundle(configuration.home, "autoscaling", "nginx", 1))
    with pytest.raises(InputError, match=r"bundle must be for .*limits stay as they are set \(kill switch: STOP"):
        _started(mistyped, configuration)
    assert killed.limit("cpu") == "50000 100000"
    (place / "STOP").unlink()
    with pytest.raises(InputError, match=r"bundle must be for .*is set as it was found"):
        _started(replace(mistyped, workload="nginxy"), configuration)
    assert killed.limit("cpu") == "400000 100000"


def test_what_nobody_expected_at_the_start_gives_back_too(configuration, tmp_path, killed, monkeypatch):
    def fails(*_, **__):
        raise KeyError("nobody thought of it")

    monkeypatch.setattr("serving.control.start.make_loop", fails)
    request, told = replace(REQUEST, controller=_controller_file(tmp_path, killed), actuator="cgroup", steps=1), []
    with pytest.raises(KeyError):
        control(request, configuration, lambda record: None, told.append)
    assert killed.limit("cpu") == "400000 100000" and "is set as it was found" in told[0]


def test_inputs_that_are_fixed_are_named_at_the_start(tmp_path, killed):
    file = _controller_file(tmp_path, killed)
    written = read_controller_file(file, "cgroup")
    assert never_measured(replace(written, fixed={})) == ""
    said = never_measured(replace(written, fixed={"p99_ms": 5.0, "served_share": 1.0}))
    assert said == "fixed in the controller file, and so never measured: p99_ms 5, served_share 1"


@pytest.mark.parametrize("trouble", ["two tasks", "a folder that cannot be written", "a full disk"])
def test_a_start_that_is_refused_asks_the_ledger_for_a_stop_wherever_it_ends(configuration, tmp_path, killed, trouble,
                                                                             monkeypatch):
    request = replace(REQUEST, controller=_controller_file(tmp_path, killed), actuator="cgroup", steps=1)
    _stop(configuration)
    if trouble == "two tasks":
        monkeypatch.setattr("serving.control.start.task_of_workload", _full)
        request = replace(request, task=None)
    elif trouble == "a folder that cannot be written":
        (tmp_path / "own" / "lock").mkdir(parents=True)  # no file to be locked
        request = replace(request, folder=tmp_path / "own")
    else:
        monkeypatch.setattr("serving.control.kill_switch.write_file", _no_room)
        monkeypatch.setattr(TrajectoryLog, "__init__", _full)
    with pytest.raises(AssayError, match=r"limits stay as they are set \(kill switch: stopped in the ledger by test"):
        _started(request, configuration)
    assert killed.limit("cpu") == "50000 100000"


def _no_room(*_):
    raise OSError(28, "No space left on device")


def test_a_shadow_that_is_refused_leaves_the_stop_of_the_controller_whose_folder_it_was_given(configuration, tmp_path,
                                                                                              killed):
    request = replace(REQUEST, controller=_controller_file(tmp_path, killed), actuator="cgroup", steps=1, every=0.05)
    _started(request, configuration)
    place = configuration.home / "controllers/autoscaling/nginx"
    (place / LEDGER_FILE).write_text("somebody")
    with pytest.raises(InputError, match="folder must be of a shadow alone"):
        _started(replace(request, shadow=True, folder=place), configuration)
    assert (place / LEDGER_FILE).read_text() == "somebody"


def test_after_a_refusal_the_fallback_of_the_last_good_champion_acts_across_restarts(configuration, tmp_path, killed):
    request = replace(REQUEST, controller=_controller_file(tmp_path, killed), actuator="cgroup", steps=1, every=0.05)
    _started(request, configuration)  # keeps it
    _retire(configuration)
    for _ in range(2):
        (record,) = _started(request, configuration)
        assert (record.actor, "got none for autoscaling, nginx" in record.reason) == ("fallback", True)
    configuration.home.rename(tmp_path / "away")
    (record,) = _started(replace(request, folder=tmp_path / "away/controllers/autoscaling/nginx",
                                 public_key=tmp_path / "away/keys/assay.pub"), configuration)
    assert (record.actor, "since then" in record.reason) == ("fallback", True)


def test_release_gives_limits_back_without_a_controller(tmp_path, killed):
    written = read_controller_file(_controller_file(tmp_path, killed))
    acting = Cgroup("nginx", tmp_path / "state", parent=PARENT, root=killed.root)
    assert acting.acquire("another") == ""  # which gives back itself
    with pytest.raises(ActuatorError, match="lease of another"):
        release("cgroup", written)
    acting.present()
    acting.apply({"target_cpu_limit_cores": 0.5})
    acting.release("another")
    assert "is set as it was found: cpu_limit_cores 4, " in release("cgroup", written)
    assert killed.limit("cpu") == "400000 100000"
    with pytest.raises(NothingKnownError, match="nothing is known"):
        release("cgroup", written)
    assert killed.limit("cpu") == "400000 100000"
    with pytest.raises(InputError, match="got dry-run, which sets nothing"):
        release("dry-run", written)


def test_release_says_where_nothing_is_known_of_what_was_found(tmp_path, killed):
    """A state folder that is mistyped: limits of a killed controller stand, and nobody may take them for what was."""
    file = _controller_file(tmp_path, killed)
    group = json.loads(file.read_text())["cgroup"]
    _changed(file, cgroup={**group, "state": str(tmp_path / "sate")})
    with pytest.raises(NothingKnownError, match=(
            rf"nothing is known in the state folder {tmp_path}/sate of what was found of cgroup /{PARENT}/nginx, which "
            "stays as it is set: cpu_limit_cores 0.5, ")) as raised:
        release("cgroup", read_controller_file(file))
    assert raised.value.exit_code == RefusedError.exit_code and killed.limit("cpu") == "50000 100000"
    _changed(file, cgroup=group)
    assert "is set as it was found: cpu_limit_cores 4, " in release("cgroup", read_controller_file(file))


@pytest.mark.parametrize(("said", "known"), [(None, True), (True, True), (False, False)])
def test_an_actuator_that_does_not_tell_whether_anything_was_known_has_restored(tmp_path, monkeypatch, said, known):
    (tmp_path / "controller.json").write_text('{"world": {"seed": 3}}')
    written = read_controller_file(tmp_path / "controller.json", MEASURING)
    monkeypatch.setattr(measuring_actuator, "ACTUATOR", replace(measuring_actuator.ACTUATOR, keeps=True))
    monkeypatch.setattr(World, "restore", lambda world, *, lowering: said)
    if known:
        assert "is set as it was found: cpu_limit_cores " in release(MEASURING, written)
    else:
        with pytest.raises(NothingKnownError, match="nothing is known of what was found of a simulated application"):
            release(MEASURING, written)


def test_a_start_that_is_refused_does_not_say_that_it_gave_back_what_nobody_knows(configuration, tmp_path, killed):
    request = replace(REQUEST, controller=_controller_file(tmp_path, killed), actuator="cgroup", steps=1)
    shutil.rmtree(tmp_path / "state")
    _retire(configuration)
    with pytest.raises(AssayError, match=f"; nothing is known in the state folder {tmp_path}/state of what was found"):
        _started(request, configuration)
    assert killed.limit("cpu") == "50000 100000"


def test_release_says_what_somebody_else_has_set_since(tmp_path, killed):
    killed.set(cpu="70000 100000")
    with pytest.raises(ActuatorError, match="was set to 70000 100000 by somebody else and stays so"):
        release("cgroup", read_controller_file(_controller_file(tmp_path, killed)))
    assert killed.limit("cpu") == "70000 100000"


def test_a_bundle_that_is_away_is_not_refused_where_mlflow_answers_that_it_has_none(configuration, monkeypatch):
    """With the whole install: who has the very one that the ledger names goes on with it."""
    request = REQUEST
    with own_folder(request, configuration.home) as place:
        assert champion_for(request, configuration).current().refused == ""
        shutil.rmtree(kept_bundle(configuration.home, "autoscaling", "nginx", 1))
        monkeypatch.setattr("serving.registry.Registry", lambda state: NoArtifacts())
        for _ in range(2):
            champion = champion_for(request, configuration)
            champion.poll()
            assert champion.current().refused == ""
        assert (place / "champion/bundle").is_dir()


class NoArtifacts:
    """A registry that answers, and has no such bundle."""

    def open(self, task, workload, version):
        raise RefusedError(f"version {version} of {task}, {workload} must have a bundle, got none")


def _lines(request, state):
    told = []
    control(request, state, lambda record: None, told.append)
    return told


def test_the_first_line_says_what_acts_on_what_towards_what_and_where_the_log_is(configuration, tmp_path, killed):
    request = replace(REQUEST, controller=_controller_file(tmp_path, killed), actuator="cgroup", steps=1, every=0.05)
    sha256 = check_bundle(kept_bundle(configuration.home, "autoscaling", "nginx", 1),
                          configuration.public_key_path).sha256[:12]
    log = configuration.home / "controllers/autoscaling/nginx/steps"
    rest = (f"of bundle {sha256} (autoscaling, nginx) acts on cgroup /{PARENT}/nginx every 0.05 s, objective: "
            f"slo_ms 15 ms; log: {log}")
    assert _lines(request, configuration) == [f"the policy {rest}"]
    _retire(configuration)
    (line,) = _lines(request, configuration)
    assert line.startswith("the fallback alone (hpa-cpu-p99-vpa-memory; champion: workload must have a champion")
    assert line.endswith(rest)


def test_an_actuator_that_measures_is_read_in_place_of_a_server(configuration, tmp_path):
    file = tmp_path / "controller.json"
    file.write_text(json.dumps({"world": {"seed": 3}, "hand_back_after": 1}))
    records, told = [], []
    control(replace(REQUEST, controller=file, actuator=MEASURING, steps=3, every=3600.0), configuration,
            records.append, told.append)
    assert "acts on a simulated application every 0.01 s" in told[0]
    assert [record.number for record in records] == [0, 1, 2] and not any(record.failure for record in records)
    assert records[0].seen["p99_ms"] > 0 and not records[0].troubles
    assert len(MADE[-1].costs) == 3 and MADE[-1].holder == ""


@pytest.mark.parametrize("error", [BrokenPipeError(32, "Broken pipe"), SystemExit(1),
                                   UnicodeEncodeError("ascii", "é", 0, 1, "no letter of it")],
                         ids=["pipe", "rich's exit", "letter"])
def test_output_that_nobody_reads_ends_no_controller(configuration, tmp_path, killed, error):
    shown = []

    def fails(said):
        shown.append(said)
        raise error

    control(replace(REQUEST, controller=_controller_file(tmp_path, killed), actuator="cgroup", steps=2, every=0.05),
            configuration, fails, fails)
    assert len(shown) == 3, "a line at the start, two steps"


def test_nothing_looks_at_champion_or_ledger_any_more_once_a_controller_has_ended(configuration, tmp_path, killed):
    alive = []

    def looking():
        return {thread.name for thread in threading.enumerate()} & {"champion", "ledger switch"}

    control(replace(REQUEST, controller=_controller_file(tmp_path, killed), actuator="cgroup", steps=1, every=0.05),
            configuration, lambda record: alive.extend(looking()), lambda line: None)
    assert sorted(alive) == ["champion", "ledger switch"] and not looking()


def _changed(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return path


@pytest.mark.parametrize("step_s", [1e308, 1e-300])
def test_a_bundle_that_says_no_usable_time_between_two_steps_does_not_start(tmp_path, keys, killed, step_s):
    private, public = keys
    bundle = write_policy_bundle(tmp_path / "bundle", private, lambda agreed: agreed["driving"].update(step_s=step_s))
    request = replace(REQUEST, controller=_controller_file(tmp_path, killed), actuator="cgroup", steps=1,
                      bundle=bundle, public_key=public, folder=tmp_path / "controller")
    with pytest.raises(InputError, match=r"bundle must say 0\.01 to 86400 seconds between two decisions"):
        _lines(request, state_folder(tmp_path / "home", None, public))
    assert _lines(replace(request, every=0.05), state_folder(tmp_path / "home", None, public))


def test_a_margin_that_switches_a_check_off_is_said_at_the_start(tmp_path, keys, killed):
    private, public = keys
    ranges = [{"name": "load", "scale": "log", "terms": {"rate_rps": 1}, "minimum": 1.0, "maximum": 100.0},
              {"name": "served", "scale": "linear", "terms": {"served_share": 1}, "minimum": 0.0, "maximum": 1.0}]
    bundle = write_policy_bundle(tmp_path / "bundle", private, lambda agreed: agreed["driving"].update(
        seen={"margin": 1.5, "ranges": ranges}))
    request = replace(REQUEST, actuator="cgroup", steps=1, every=0.05, bundle=bundle, public_key=public,
                      folder=tmp_path / "controller")
    file = _controller_file(tmp_path, killed)
    for margin, off in ((2.0, False), (1e12, True)):
        request = replace(request, controller=_changed(file, out_of_distribution={"margin": margin}))
        told = _lines(request, state_folder(tmp_path / "home", None, public))
        assert [line for line in told if line.startswith("out_of")] == [
            "out_of_distribution.margin 1e+12 switches the check off of load: no observation counts as beyond what "
            "training saw"] * off


@pytest.mark.parametrize(("changes", "message"), [
    ({"fixed": {"served_share": 1.5}},
     "fixed must be values that a policy may act on, got served_share is 1.5 share, outside of 0 to 1"),
    ({"deadline_s": 0.001}, "deadline_s must be a number >= 0.01, at most 86400, got 0.001"),
    ({"timeout_s": 0.001}, "timeout_s must be a number >= 0.01, at most 86400, got 0.001"),
    ({"shield": {"hysteresis": 0.5}},
     r"shield\.hysteresis must be below 0\.25, the most that target_cpu_limit_cores changes by in a step, got 0.5"),
    ({"dry_run": {"cpu_limit_cores": -1, "memory_limit_mib": 64, "replicas": 1}},
     "dry_run.cpu_limit_cores must be a number > 0, got -1"),
    ({"dry_run": {"cpu_limit_cores": 1, "memory_limit_mib": 64, "replicas": 1, "replica": 1}},
     "dry_run must be of .*, got 'replica'; did you mean 'replicas'")])
def test_a_file_with_which_nobody_could_ever_act_is_refused(configuration, tmp_path, killed, changes, message):
    file = _controller_file(tmp_path, killed)
    given = {"dry_run": {"cpu_limit_cores": 1, "memory_limit_mib": 64, "replicas": 1}, **changes}
    left = {name: query for name, query in json.loads(file.read_text())["signals"].items()
            if name not in given.get("fixed", {})}
    with pytest.raises(InputError, match=message):
        _started(replace(REQUEST, controller=_changed(file, signals=left, **given), steps=1), configuration)


def test_a_dry_run_may_begin_where_a_control_group_without_a_limit_does(configuration, tmp_path, killed):
    host = {"cpu_limit_cores": 1, "memory_limit_mib": 65536, "replicas": 1}
    for held in ([], ["target_memory_limit_mib"]):
        file = _changed(_controller_file(tmp_path, killed), dry_run=host, shield={"hold": held})
        (record,) = _started(replace(REQUEST, controller=file, actuator="dry-run", steps=1, every=0.05,
                                     folder=tmp_path / f"controller-{len(held)}"), configuration)
        assert record.actor == "fallback" and record.seen["memory_limit_mib"] == 65536


@pytest.mark.parametrize("over", ["p99_ms", "slo_ms", "raised_s_ago", "target_replicas", "ready_replica"])
def test_a_share_is_of_what_is_set_and_of_nothing_else(configuration, tmp_path, killed, over):
    file = _controller_file(tmp_path, killed)
    signals = {**json.loads(file.read_text())["signals"],
               "cpu_utilization": {"of": "cpu_used_cores", "over": [over, "cpu_limit_cores"]}}
    request = replace(REQUEST, actuator="cgroup", steps=1, every=0.05, controller=_changed(file, signals=signals))
    with pytest.raises(InputError, match=rf"signals\.cpu_utilization\.over must be of what is set, .*, got '{over}'"):
        _started(request, configuration)


def test_another_objective_is_a_setting_that_the_proof_has_to_cover(configuration, tmp_path, killed):
    file = _controller_file(tmp_path, killed)
    request = replace(REQUEST, actuator="cgroup", steps=1, every=0.05)
    own = _lines(replace(request, controller=file), configuration)[0]
    told = _lines(replace(request, controller=_changed(file, settings={"slo_ms": 77})), configuration)[0]
    assert "objective: slo_ms 77 ms" in told and "slo_ms 77 ms" not in own
    for settings, message in (
            ({"slo_ms": 1e6}, r"settings\.slo_ms must be .*, for which the bundle is proved, got 1e\+06"),
            ({"slo": 50}, "settings must be of slo_ms, got 'slo'; did you mean 'slo_ms'")):
        with pytest.raises(InputError, match=message):
            _started(replace(request, controller=_changed(file, settings=settings)), configuration)


def test_fixed_values_that_are_out_of_distribution_for_ever_are_refused(tmp_path, keys, killed):
    """The policy would wait for good; out_of_distribution.ignore is how an operator says that it does not count."""
    private, public = keys
    ranges = [{"name": "errors", "scale": "linear", "terms": {"served_share": 1}, "minimum": 0.9, "maximum": 1.0}]
    bundle = write_policy_bundle(tmp_path / "bundle", private, lambda agreed: agreed["driving"].update(
        seen={"margin": 1.5, "ranges": ranges}))
    file = _controller_file(tmp_path, killed)
    left = {name: query for name, query in json.loads(file.read_text())["signals"].items() if name != "served_share"}
    request = replace(REQUEST, actuator="cgroup", steps=1, every=0.05, bundle=bundle, public_key=public,
                      folder=tmp_path / "controller", controller=_changed(file, signals=left,
                                                                          fixed={"served_share": 0.5}))
    state = state_folder(tmp_path / "home", None, public)
    with pytest.raises(InputError, match=r"fixed must be values that a policy may act on, got out of distribution: "
                                         r"errors is 0.5, training saw 0.9 to 1: none would ever act"):
        _started(request, state)
    _changed(file, out_of_distribution={"ignore": ["served_share"]})
    assert len(_started(request, state)) == 1


def test_what_an_actuator_cannot_set_must_be_held(configuration, tmp_path, killed):
    file = _changed(_controller_file(tmp_path, killed), shield={})
    request = replace(REQUEST, controller=file, actuator="cgroup", steps=1, every=0.05)
    with pytest.raises(InputError, match=r"shield\.hold must have target_replicas, which cgroup does not set, got"):
        _started(request, configuration)
