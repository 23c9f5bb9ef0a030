"""The command of the light install: control, check and predict without mlflow.yaml."""

import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import typing
from dataclasses import replace
from pathlib import Path

import pytest
import typer

from feature_store.strict_yaml import read_yaml
from pipelines.commands import control_command, serve_command
from pipelines.commands.known_names import require_in_ledger
from pipelines.controller_command_line import make_parser, run
from serving.control.start import ControlRequest
from serving.ledger import Ledger
from serving.predictions.start import ServeRequest
from serving.state_folder import LEDGER, PUBLIC_KEY, state_folder
from tests.deploy.light_place import VALUES, make_place, metrics_for
from tests.serving.control.policy_bundle import write_champion

ROOT = Path(__file__).parents[2]
ROW = json.dumps({"psi_cpu_some": 0.3, "psi_io_full": 0.2, "connections": 8})
SIGNED = ("--public-key", "assay.pub")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    made = make_place(tmp_path_factory.mktemp("light") / "place")
    with metrics_for(made):  # writes the controller's file, too
        return made


@pytest.fixture(autouse=True)
def here(place, monkeypatch):
    monkeypatch.chdir(place)
    monkeypatch.delenv("ASSAY_HOME", raising=False)


def test_control_acts_as_the_champion_of_the_ledger_says_in_a_process_of_its_own(place):
    command = [sys.executable, "-c", "from pipelines.controller_command_line import main; main()", "control", "--home",
               "state", "-w", "nginx", "--controller", "controller.yaml", "--every", "0.1", "--steps", "4", "--json"]
    with metrics_for(place):
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=120,
                              env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"})
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["actor"] for one in records] == ["fallback", "policy", "policy", "policy"], done.stderr
    assert records[-1]["done"] == records[-1]["targets"]
    assert (place / "state" / "controllers" / "autoscaling" / "nginx" / "steps").is_dir()
    first, *more = done.stderr.splitlines()
    assert "acts on dry-run every 0.1 s, objective: slo_ms 15 ms; log: " in first
    assert first.endswith("state/controllers/autoscaling/nginx/steps")
    assert ["take longer steps" in line for line in more] == [True]


def test_check_proves_every_leaf_again_and_refuses_a_proof_that_is_none(capsys):
    assert run(["check", "bundle", *SIGNED]) == 0
    out = capsys.readouterr().out
    assert "accepted: performance, redis; signature, digests and gates hold, leaf boxes proved again: " in out
    assert run(["check", "other", *SIGNED]) == 1
    assert capsys.readouterr().err.startswith("error: ")
    assert run(["check", "other", *SIGNED, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["accepted"] is False
    assert run(["check", "other", *SIGNED, "--signed-only"]) == 0
    assert "its proof not looked at" in capsys.readouterr().out
    assert run(["check", "bundle", *SIGNED, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["leaves"] >= 1


def test_the_checker_s_package_is_named_where_it_is_missing(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "models.verification.proof_file", raising=False)
    monkeypatch.delitem(sys.modules, "models.verification.network.onnx_reader", raising=False)
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert run(["check", "bundle", *SIGNED]) == 2
    error = capsys.readouterr().err
    assert "`onnx`, which is not installed; install it with `pip install 'assay-serving[proofs]'`" in error


def test_predict_answers_from_a_bundle_or_from_the_ledger_s_champion(capsys):
    assert run(["predict", "--bundle", "bundle", *SIGNED, "--row", ROW]) == 0
    assert re.match(r"redis: latency_ms = [\d.]+ ms\n$", capsys.readouterr().out)
    row = {item["name"]: item["minimum"] for item in
           json.loads(Path("state/bundles/autoscaling/nginx/1/contract.json").read_text())["inputs"]}
    assert run(["predict", "--home", "state", "--task", "autoscaling", "-w", "nginx", "--row", json.dumps(row),
                "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["target_replicas"] > 0
    assert answer["workload"] == "nginx"


def test_an_input_outside_of_the_proved_box_is_told(capsys):
    row = json.dumps({**json.loads(ROW), "connections": 500})
    assert run(["predict", "--bundle", "bundle", *SIGNED, "--row", row]) == 0
    assert "connections was outside the proved box" in capsys.readouterr().out


@pytest.mark.parametrize(("arguments", "code", "message"), [
    (["check", "nowhere", *SIGNED], 2, "bundle must be a folder, got nowhere"),
    (["check", "bundle", "--public-key", "nothing.pub"], 2, "nothing.pub"),
    (["predict", "--bundle", "bundle", *SIGNED, "--row", '{"connections": 1, "connections": 2}'], 2,
     "key 'connections' is given twice (--row)"),
    (["predict", "--bundle", "bundle", *SIGNED, "--row", "{\udcff}"], 2, "row must be a JSON object"),
    (["check", "", *SIGNED], 2, "check must have a value, got an empty one"),
    (["control", "-w", "nginx", "--controller", ""], 2, "--controller must have a value, got an empty one"),
    (["serve", "--bundle", "bundle", "--folder="], 2, "--folder must have a value, got an empty one"),
    (["serve", "--host", "", "--bundle", "bundle"], 2, "--host must have a value, got an empty one"),
    (["predict", *SIGNED, "--row", ROW], 2, "either --workload or --bundle must be given"),
    (["predict", "--bundle", "bundle", *SIGNED, "--row", "[1]"], 2, "row must be a JSON object, got list"),
    (["predict", "--bundle", "bundle", *SIGNED, "--row", "{"], 2, "row must be a JSON object"),
    (["predict", "--bundle", "bundle", *SIGNED, "--row", "[" * 100_000], 2, "row must be a JSON object"),
    (["predict", "--home", "state", "--task", "autoscaling", "-w", "redis", "--row", ROW], 1, "must have a champion"),
    (["predict", "--home", "none", "-w", "redis", "--row", ROW], 2, "ledger must be there"),
    (["predict", "--ledger", "postgresql://127.0.0.1:1/mlflow", "-w", "redis", "--row", ROW], 2,
     "ledger must be readable, got"),
    (["predict", "--ledger", "postgresql://a:secret@host/mlflow", "-w", "redis", "--row", ROW], 2,
     "ledger: expected an address without a password"),
    (["control", "--home", "state", "-w", "ngingx", "--controller", "c.yaml"], 2, "did you mean 'nginx'?"),
    (["control", "--home", "state", "-w", "nginx", "--controller", "c.yaml"], 2, "c.yaml"),
])
def test_an_error_is_one_line_and_an_exit_code(arguments, code, message, capsys):
    assert run(arguments) == code
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert run([*arguments, "--json"]) == code
    assert message in json.loads(capsys.readouterr().out)["error"]


def test_a_champion_whose_bundle_was_not_copied_is_said_and_mlflow_is_not_asked(place, capsys):
    kept = place / "state" / "bundles" / "autoscaling" / "nginx"
    kept.rename(place / "away")
    try:
        assert run(["predict", "--home", "state", "--task", "autoscaling", "-w", "nginx", "--row", "{}"]) == 2
    finally:
        (place / "away").rename(kept)
    assert "bundle of version 1 must be in the state folder, got none" in capsys.readouterr().err


CONTROL = ["control", "--home", "state", "-w", "nginx", "--controller", "controller.yaml"]


@pytest.mark.parametrize("arguments", [
    [], ["fly"], ["control"], ["check"], ["control", "-w", "x", "--steps", "0"], [*CONTROL, "--metrics-port", "70000"],
    [*CONTROL, "--controller", "a\0b"], ["control", "--home", "state", "--work", "nginx", "--cont", "c"],
])
def test_bad_usage_is_code_2(arguments):
    with pytest.raises(SystemExit) as stopped:
        run(arguments)
    assert stopped.value.code == 2


@pytest.mark.parametrize(("options", "message"), [
    (["--folder", "assay.pub"], "folder must be one that a controller can write"),
    (["--folder", "assay.pub/below"], "folder must be one that a controller can write"),
    (["--folder", "/proc/assay"], "folder must be one that a controller can write"),
    *((["--every", every], "every must be 0.01 to 86400 seconds, got") for every in ("1e-320", "1e10", "nan", "0")),
])
def test_an_odd_folder_or_interval_is_one_line(options, message, capsys):
    assert run([*CONTROL, *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("told", [True, False], ids=["task", "no task"])
@pytest.mark.parametrize("harm", ["changed", "a folder", "cannot be looked at"])
def test_a_ledger_that_is_none_at_a_start_is_one_line_and_a_refusal_is_remembered(place, capsys, tmp_path, harm,
                                                                                  monkeypatch, told):
    home = shutil.copytree(place / "state", tmp_path / "state")
    ledger, folder = home / LEDGER, tmp_path / "controller"
    if harm == "changed":
        ledger.write_bytes(ledger.read_bytes().replace(b'"champion"', b'"approve" ', 1))
    elif harm == "a folder":
        ledger.unlink()
        ledger.mkdir()
    else:
        exists = Path.exists

        def denied(self):
            if self == ledger:
                raise PermissionError(13, "Permission denied")
            return exists(self)

        monkeypatch.setattr("pathlib.Path.exists", denied)
    code = run(["control", "--home", str(home), "-w", "nginx", "--controller", "controller.yaml", "--steps", "1",
                "--folder", str(folder), *(["--task", "autoscaling"] if told else [])])
    error = capsys.readouterr().err
    assert (code, error.count("\n")) == (1 if harm == "changed" else 2, 1)
    assert ("ledger" in error) and ((folder / "champion/known.json").exists() is (told and harm == "changed"))


@pytest.mark.parametrize("told", [True, False], ids=["task", "no task"])
def test_where_a_controller_ran_a_ledger_that_does_not_know_its_workload_ends_no_start(capsys, tmp_path, told):
    """An older one, say, from before its first entry: its fallback acts. A wrong name is still a wrong name."""
    made = write_champion(tmp_path / "home")
    file = tmp_path / "controller.yaml"
    file.write_text(json.dumps({"prometheus": "http://127.0.0.1:9", "signals": dict.fromkeys(VALUES, "x"), "dry_run": {
        "cpu_limit_cores": 1.0, "memory_limit_mib": 256.0, "replicas": 2, "ready_replicas": 2}}))
    command = ["control", "--home", str(made.home), "--controller", str(file), "--every", "0.05", "--steps", "1",
               *(["--task", "autoscaling"] if told else [])]
    assert run([*command, "-w", "nginx"]) == 0
    ledger = Ledger(made.ledger_path, made.public_key_path, made.private_key_path)
    moves = [replace(entry.move, workload="redis") for entry in ledger.history()]
    shutil.rmtree(made.ledger_path.parent)
    made.ledger_path.parent.mkdir()
    ledger.append(moves)
    capsys.readouterr()
    assert run([*command, "-w", "nginx"]) == 0
    assert "  fallback  " in capsys.readouterr().out
    assert run([*command, "-w", "redsi"]) == 2
    assert "did you mean 'redis'?" in capsys.readouterr().err
    assert not list(made.home.glob("controllers/*/redsi"))


def test_a_ledger_that_hangs_knows_no_name_and_is_not_waited_for(place, monkeypatch):
    monkeypatch.setattr("serving.control.start.WITHIN_S", 0.2)
    monkeypatch.setattr(Ledger, "chain", lambda *_, **__: time.sleep(5.0))
    began = time.monotonic()
    require_in_ledger(state_folder(place / "state"), None, "ngingx")
    assert time.monotonic() - began < 4.0


@pytest.mark.parametrize("install", ["whole", "light"])
def test_many_workloads_to_serve_cost_one_look_at_the_ledger(tmp_path, monkeypatch, install):
    looks = []
    monkeypatch.setattr(Ledger, "standings", lambda _: looks.append(1) or {})
    monkeypatch.setattr("serving.predictions.start.serve", lambda *_: None)
    monkeypatch.setattr("pipelines.controller_command_line.serve", lambda *_: None)
    monkeypatch.setenv("ASSAY_HOME", str(tmp_path))
    monkeypatch.setenv("ASSAY_CONFIG", str(ROOT / "mlflow.yaml"))
    if install == "light":
        assert run(["serve", "-w", "redis", "-w", "nginx"]) == 0
    else:
        serve_command.serve(["redis", "nginx"])
    assert len(looks) == 1


def test_a_file_that_nobody_thought_of_is_one_line(monkeypatch, capsys):
    def stale(*_, **__):
        raise OSError(116, "Stale file handle", "somewhere")

    monkeypatch.setattr("pipelines.controller_command_line.check_bundle", stale)
    assert run(["check", "bundle", *SIGNED]) == 2
    assert "Stale file handle: 'somewhere'" in capsys.readouterr().err


def test_nobody_reading_any_more_is_no_traceback(place):
    code = "from pipelines.controller_command_line import main; main()"
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-c", code, "check", "bundle", *SIGNED, "--json"], cwd=place, stdout=writer,
                          stderr=subprocess.PIPE, text=True, timeout=120, check=False,
                          env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"})
    os.close(writer)
    assert done.stderr == ""


def test_control_has_the_options_of_the_whole_project_s_command():
    hints = typing.get_type_hints(control_command.control, include_extras=True)
    whole = {name: next((one for one in hints[name].__metadata__ if isinstance(one, typer.models.OptionInfo)), None)
             for name in inspect.signature(control_command.control).parameters}
    defaults = {name: parameter.default for name, parameter in inspect.signature(
        control_command.control).parameters.items() if parameter.default is not inspect.Parameter.empty}
    given = vars(make_parser().parse_args(["control", "--workload", "w", "--controller", "c"]))
    names = set(ControlRequest.__dataclass_fields__) - {"generic"}  # a policy that the light install does not hold
    assert set(whole) - {"config", "json_output", "generic"} == names
    assert {name: given[name] for name in names - {"workload", "controller"}} == {
        name: defaults[name] for name in names - {"workload", "controller"}}
    for name in names:  # and is written the same
        option = f"--{name.replace('_', '-')}"
        assert make_parser().parse_args(["control", "-w", "w", "--controller", "c", *(
            [option] if name in ("give_back", "shadow") else [option, "1"])])


def test_serve_has_the_options_of_the_whole_project_s_command():
    parameters = inspect.signature(serve_command.serve).parameters
    given = vars(make_parser().parse_args(["serve"]))
    alike = {"workload": "workloads", "bundle": "bundles"}
    defaults = {alike.get(name, name): one.default for name, one in parameters.items() if name != "config"}
    assert set(defaults) == {*ServeRequest.__dataclass_fields__, "public_key"}
    assert {name: given[name] or None for name in defaults} == defaults
    for name in parameters.keys() - {"config"}:  # and is written the same
        assert make_parser().parse_args(["serve", f"--{name.replace('_', '-')}", "1"])


def test_every_command_on_the_page_is_one():
    lines = re.findall(r"^    assay (.*)$", (ROOT / "docs/controllers.md").read_text(), re.MULTILINE)
    given = [make_parser().parse_args(shlex.split(line, comments=True)) for line in lines]
    assert {one.command.__name__ for one in given} == {"_control", "_predict", "_check"}


def test_ledger_and_key_lie_where_the_project_keeps_them():
    written = read_yaml(ROOT / "mlflow.yaml", "configuration")
    assert (written["ledger"], written["keys"]["public"]) == (LEDGER, PUBLIC_KEY)
