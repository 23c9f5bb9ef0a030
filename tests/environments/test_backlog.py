"""A second environment, made of one file and one task file, goes through `assay run` to a signed champion.

docs/recipes/add-a-control-task.md is how it was made; nothing outside of tests/environments knows it.
"""

import json
import os
import re
import shutil
import textwrap
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
import torch
import yaml

from feature_store.errors import InputError
from models.control.contract.systems import environment_names, environment_of, own_files
from models.control.simulation.rollout import acting_of
from models.tasks.control.checking import check_task
from models.tasks.control.judging import play
from models.tasks.task import load_task, parse_task
from serving.bundle import check_bundle
from serving.control.controller_file import read_controller_file
from serving.session import Predictor
from tests.components.steps import IGNORED_WARNING
from tests.e2e import tiny
from tests.e2e.processes import END_S, RUN_TIMEOUT_S, Project, finish, kill_command, processes_of, wait_until
from tests.environments.backlog_acting import BacklogObserver
from tests.environments.traces import trace
from tests.feature_store.prometheus_server import faulty_server, reply

# half a minute on two idle cores; on a busy machine many times as long
pytestmark = [pytest.mark.filterwarnings(IGNORED_WARNING), pytest.mark.timeout(900)]

TASK = Path(__file__).with_name("backlog.yaml")
RECIPE = Path(__file__).parents[2] / "docs" / "recipes" / "add-a-control-task.md"
GATES = {"specification": {"verdict": "PROVED"},
         "violations": {"metric": "violating_share", "better": "smaller", "at_most": 0.3, "least_cases": 24},
         "saves": {"metric": "cost_saved", "better": "larger", "at_least": -0.5, "least_cases": 24},
         "capacity": {"metric": "mean_capacity_rps", "unit": "1/s", "better": "smaller", "at_most": 150.0},
         "champion": {"metric": "mean_reward", "better": "larger", "relative_to": "champion",
                      "at_least_difference": -0.05},
         "parity": {"metric": "parity_max_abs", "better": "smaller", "at_most": 0.0001},
         "latency": {"metric": "latency_us", "better": "smaller", "at_most": 20_000}}  # a busy machine must not decide


def project(folder: Path) -> Project:
    """Task, telemetry and gates."""
    settings = tiny.configuration()
    settings["gates"]["backlog"] = GATES
    tiny.write_yaml(settings, folder / "mlflow.yaml")
    trace().to_csv(folder / "load.csv", index=False)
    return Project(folder)


def run(made: Project, *options: str) -> Any:
    return made.call("run", "--task", str(TASK), "--telemetry", "load.csv", "--json", *options)


def has_checkpoint(made: Project) -> bool:
    """Folders may come and go meanwhile."""
    return any("policy.npz" in files for _, _, files in os.walk(made.home))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Project, dict[str, Any]]]:
    made = project(tmp_path_factory.mktemp("backlog"))
    done = run(made, "--name", "first")
    assert done.returncode == 0, done.stdout + done.stderr
    yield made, json.loads(done.stdout)


def test_an_environment_is_found_by_its_import_path_with_the_file_that_the_code_version_counts() -> None:
    assert environment_of("tests.environments.backlog").columns.keys() == {"rate_rps"}
    assert own_files("tests.environments.backlog") == tuple(
        Path(__file__).with_name(name) for name in ("backlog.py", "backlog_acting.py"))
    assert "autoscaling" in environment_names() and own_files("autoscaling") == ()


@pytest.mark.parametrize(("name", "message"), [
    ("autoscalin", "environment: expected .*autoscaling.* got 'autoscalin'; did you mean 'autoscaling'"),
    ("no.such.module", "environment: expected a module that can be imported, got 'no.such.module'"),
    ("tests.environments.traces", "whose import fails with AttributeError"),
])
def test_an_unknown_environment_is_one_line(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        environment_of(name)
    assert "\n" not in str(refused.value)


def test_equal_draws_are_equal_episodes_and_the_rule_keeps_the_objective() -> None:
    environment = environment_of("tests.environments.backlog")
    rule = environment.rules["headroom"].make({"factor": 2.0})
    first, again = (play(environment, environment.draw("train", 32, 40, 3), 40, acting_of(environment, rule))
                    for _ in range(2))
    np.testing.assert_array_equal(first.observations, again.observations)
    assert first.violating_share.mean() < 0.02


def test_capacity_below_the_load_misses_the_objective_and_the_gradient_says_so() -> None:
    environment = environment_of("tests.environments.backlog")
    state = environment.reset(environment.draw("train", 8, 40, 0))
    targets = torch.full((8, 1), 1.0, requires_grad=True)
    for _ in range(20):
        state, outcome = environment.step(state, targets)
    (gradient,) = torch.autograd.grad(outcome.violation.sum(), targets)
    assert outcome.violated.all() and (gradient <= 0).all() and (gradient < 0).any()


@pytest.mark.parametrize(("change", "message"), [
    ({"hiden": [4]}, "hiden: unknown field; did you mean 'hidden'"),
    ({"objective": {"violating_share": 1.0}}, "objective.violating_share: expected a number from 0 to below 1"),
    ({"workloads": {"shop": {"limits": {"target_capacity_rps": [9, 3]}}}},
     r"workloads.shop.limits.target_capacity_rps: expected lower <= upper, got \[9, 3\]"),
    ({"specification": {}}, "specification: expected properties, got none"),
    ({"by_construction": {"metric": "wait_s"}},
     "by_construction.objective: expected a signal, as metric is given, got none"),
    ({"by_construction": {"retreat": {"target_capacity_rps": 0.1}}},
     "by_construction.retreat.target_capacity_rps: expected metric and objective, or `hold` of this control"),
    ({"by_construction": {"advance": {"target_capacity_rps": 0.1}}},
     "by_construction.advance.target_capacity_rps: expected `idle` or `enough` of this control"),
    ({"by_construction": {"metric": "wait_s", "objective": "slo_s", "idle": {"target_capacity_rps": {"rate_rps": 9}},
                          "advance": {"target_capacity_rps": 0.1}}},
     "by_construction.calm: expected less than near, 0.95, from where on `target_capacity_rps` is held back, got 1"),
    ({"by_construction": {"retreat": {"target_capacity_rps": 1.5}}}, "retreat.target_capacity_rps: expected a number "),
    ({"training": {"rounds": 0}}, "training.rounds: expected a whole number above 0, got 0"),
])
def test_mistakes_in_the_task_file_are_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_task({**yaml.safe_load(TASK.read_text()), **change}, "task.yaml")


@pytest.mark.parametrize(("change", "message"), [
    ({"environment": "nowhere"}, "environment: expected .*autoscaling.* or the import path"),
    ({"fallback": "headrom"}, "fallback: expected a rule of the environment, got 'headrom'; did you mean 'headroom'"),
    ({"workloads": {"shop": {"settings": {"slo_ms": 3}}}}, "workloads.shop.settings.slo_ms: expected a setting"),
    ({"workloads": {"shop": {"settings": {"slo_s": 0.001}}}}, "settings.slo_s: expected a number from 0.25 to 16 s"),
    ({"workloads": {"shop": {"limits": {"target_capacity_rps": [0.5, 8]}}}}, "expected limits inside of 1 to 256 1/s"),
    ({"specification": {"properties": [{"range": {"output": "capacity", "minimum": 1}}]}}, "capacity"),
    ({"by_construction": {"metric": "wait", "objective": "slo_s"}}, "by_construction.metric: expected a signal of the"),
    ({"by_construction": {"metric": "wait_s", "objective": "slo_s", "idle": {"capacity": {"wait_s": 1}}}},
     "idle.capacity: expected a control of the environment, got 'capacity'"),
    ({"by_construction": {"metric": "wait_s", "objective": "slo_s", "hold": {"target_capacity_rps": {"wait_s": 60}}}},
     "hold.target_capacity_rps.wait_s: expected 0.0625 to 51.2 s, so that it ends inside"),
    ({"by_construction": {"enough": {"target_capacity_rps": {"wait_s": 0.07}}}},
     "enough.target_capacity_rps.wait_s: expected 0.078125 to 64 s, so that it begins inside"),
    ({"by_construction": {"enough": {"capacity": {"wait_s": 1}}}}, "enough.capacity: expected a control of the"),
    ({"by_construction": {"metric": "wait_s", "objective": "slo_s", "retreat": {"capacity": 0.1}}},
     "retreat.capacity: expected a control of the environment, got 'capacity'"),
    ({"by_construction": {"enough": {"target_capacity_rps": {"wait_s": 1}}, "advance": {"target_capacity_rps": 0.3}}},
     "advance.target_capacity_rps: expected at most 0.25, by which it may change in a step, got 0.3"),
    ({"by_construction": {"ceilings": {"target_capacity": {"wait_s": {"start": 2, "end": 4, "at_most": 200}}}}},
     "ceilings.target_capacity: expected a control of the environment, got 'target_capacity'"),
    ({"by_construction": {"ceilings": {"target_capacity_rps": {"wait_s": {"start": 4, "end": 4, "at_most": 200}}}}},
     "ceilings.target_capacity_rps.wait_s: expected start and end, not equal, inside of 0.0625 to 64 s, got 4 and 4"),
    ({"by_construction": {"ceilings": {"target_capacity_rps": {"wait_s": {"start": 2, "end": 4, "at_most": 149}}}}},
     "expected an `at_most`, of all ceilings together, from 150, which one step reaches .* to 256 1/s, got 149"),
    ({"by_construction": {"ceilings": {"target_capacity_rps": {
        "wait_s": {"start": 2, "end": 4, "at_most": 200}, "rate_rps": {"start": 2, "end": 4, "at_most": 200}}}}},
     "from 150, which one step reaches .* got 144"),
    ({"specification": {"box": {"slo_s": ["0.5 slo", 2]}, "properties": [
        {"range": {"output": "target_capacity_rps", "minimum": 1}}]}}, "a multiple of a setting.*'0.5 slo'; did you"),
    ({"specification": {"box": {"slo_s": [3, 4]}, "properties": [
        {"range": {"output": "target_capacity_rps", "minimum": 1}}]}},
     "workloads.shop.settings.slo_s: expected 3 to 4, the specification's box of slo_s, got 2"),
])
def test_what_does_not_fit_the_environment_is_refused_before_any_work(change: dict[str, Any], message: str) -> None:
    task = parse_task({**yaml.safe_load(TASK.read_text()), **change}, "task.yaml")
    with pytest.raises(InputError, match=message) as refused:
        check_task(task, "shop", "task.yaml", None)
    assert "task.yaml" in str(refused.value)


def test_it_goes_through_the_whole_pipeline_to_a_signed_champion(finished: tuple[Project, dict[str, Any]]) -> None:
    made, summary = finished
    (entry,) = summary["entries"]
    assert (entry["status"], entry["alias"], entry["verdict"]) == ("registered", "champion", "PROVED")
    assert [gate["name"] for gate in entry["gates"]["gates"]] == list(GATES)
    bundle = Path(entry["bundle"])
    checked = check_bundle(bundle, made.configuration.public_key_path, deep=True)
    (output,) = checked.contract.outputs
    assert (output.name, output.unit, output.kind) == ("target_capacity_rps", "1/s", "target")
    fallback = checked.contract.fallback
    assert fallback is not None and fallback.rule == "headroom" and set(fallback.settings) <= {"factor"}
    assert fallback.safe_ranges["target_capacity_rps"].maximum == 200


def test_a_run_killed_in_training_goes_on_to_the_same_policy(finished: tuple[Project, dict[str, Any]],
                                                             tmp_path: Path) -> None:
    made = project(tmp_path)
    process = made.start("run", "--task", str(TASK), "--telemetry", "load.csv", "--name", "killed")
    try:
        wait_until(lambda: has_checkpoint(made) or process.poll() is not None, RUN_TIMEOUT_S,
                   "a checkpoint of the training")
        assert process.poll() is None, process.communicate()
        kill_command(process)
        finish(process, END_S)
    finally:
        process.kill()
    wait_until(lambda: not processes_of(made.run_folder("killed")), END_S, "no process is left")
    assert has_checkpoint(made)
    done = run(made, "--name", "again")
    assert done.returncode == 0, done.stdout + done.stderr
    whole, resumed = (Path(summary["entries"][0]["bundle"]) / "model.onnx" for summary in
                      (finished[1], json.loads(done.stdout)))
    assert resumed.read_bytes() == whole.read_bytes()


def test_a_controller_gets_targets_inside_of_the_limits(finished: tuple[Project, dict[str, Any]]) -> None:
    made, summary = finished
    predictor = Predictor.from_folder(Path(summary["entries"][0]["bundle"]), made.configuration.public_key_path,
                                      task="backlog", workload="shop")
    environment = environment_of("tests.environments.backlog")
    seen = environment.observe(environment.reset(environment.draw("held_out", 16, 10, 0))).numpy()
    answer = predictor.predict([dict(zip((one.name for one in environment.signals), map(float, row), strict=True))
                                for row in seen])
    targets = np.array(answer.columns["target_capacity_rps"])
    assert targets.min() >= 2 and targets.max() <= 200 and answer.units == {"target_capacity_rps": "1/s"}


def test_its_champion_acts_by_its_own_observer_and_rule(finished: tuple[Project, dict[str, Any]]) -> None:
    """A first step is the fallback's; the policy's keep within the rates of its control."""
    made, _ = finished

    def respond(handler: Any) -> None:
        name, now = parse_qs(urlsplit(handler.path).query)["query"][0], time.time()
        values = {"rate_rps": 20.0, "wait_s": 0.5, "newest": now - 1.0}
        sample = {"metric": {}, "value": [now, str(values[name])]}
        reply({"status": "success", "data": {"resultType": "vector", "result": [sample]}})(handler)

    with faulty_server(respond) as (url, _):
        (made.folder / "controller.yaml").write_text(json.dumps({
            "prometheus": url, "newest": "newest", "signals": {"rate_rps": "rate_rps", "wait_s": "wait_s"},
            "hand_back_after": 2, "dry_run": {"capacity_rps": 30.0}}))
        done = made.call("control", "--task", "backlog", "--workload", "shop", "--controller", "controller.yaml",
                         "--steps", "4", "--every", "1", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    steps = [json.loads(line) for line in done.stdout.splitlines()]
    assert [step["actor"] for step in steps] == ["fallback", *["policy"] * 3], steps
    assert steps[-1]["seen"]["mean_rate_rps"] == pytest.approx(20.0)
    present = [30.0, *(step["done"]["target_capacity_rps"] for step in steps)]
    assert all(0.75 * now - 1e-3 <= later <= 2.0 * now + 1e-3 for now, later in pairwise(present))


def test_a_stranger_gets_the_same_verdict_from_the_three_files(finished: tuple[Project, dict[str, Any]],
                                                               tmp_path: Path) -> None:
    made, summary = finished
    for name in ("model.onnx", "specification.yaml", "proof.npz"):
        shutil.copy(Path(summary["entries"][0]["bundle"]) / name, tmp_path / name)
    proof = made.json("check", tmp_path / "proof.npz", "--model", tmp_path / "model.onnx", "--specification",
                      tmp_path / "specification.yaml")
    assert proof["accepted"] is True


def test_the_same_policy_again_registers_nothing(finished: tuple[Project, dict[str, Any]]) -> None:
    made, _ = finished
    done = run(made, "--name", "second", "--fresh")
    assert done.returncode == 0, done.stdout + done.stderr
    (entry,) = json.loads(done.stdout)["entries"]
    assert entry["status"] == "unchanged"


def test_its_task_file_names_kind_and_environment() -> None:
    task = load_task(TASK)
    assert (task.kind, task.environment, task.hidden) == (
        "control", "tests.environments.backlog", (16, 16))


def on_the_page(start: str) -> str:
    """The recipe's one block that begins so."""
    blocks = re.findall(r"^ *```\w*\n(.*?)^ *```", RECIPE.read_text(), re.MULTILINE | re.DOTALL)
    (found,) = (text for block in blocks if (text := textwrap.dedent(block)).startswith(start))
    return str(found)


def test_the_recipe_shows_this_task_file_and_these_gates() -> None:
    assert on_the_page("# Capacity") == TASK.read_text()
    assert yaml.safe_load(on_the_page("gates:")) == {"gates": {"backlog": GATES}}


def test_the_recipes_controller_file_is_one_of_this_task(tmp_path: Path) -> None:
    (tmp_path / "controller.yaml").write_text(on_the_page("# controller.yaml"))
    written = read_controller_file(tmp_path / "controller.yaml")
    written.require_all(BacklogObserver.measured)
    assert written.actuators == {"dry_run": {"capacity_rps": 30.0}}
