"""A third kind of task, made of one folder and one YAML file, goes through `assay run` to a signed bundle.

docs/recipes/add-a-kind-of-task.md is how it was made; nothing outside of tests/kinds knows it.
"""

import inspect
import json
import re
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from feature_store.errors import InputError
from models.tasks.kind import Kind
from models.tasks.kinds import kind_of
from models.tasks.pages import Pages
from models.tasks.task import load_task, parse_task
from serving.bundle import check_bundle
from serving.session import Predictor
from tests.components.steps import IGNORED_WARNING
from tests.e2e import tiny
from tests.e2e.processes import Project
from tests.kinds.operator_table import table

pytestmark = pytest.mark.filterwarnings(IGNORED_WARNING)

TASK = Path(__file__).with_name("table_controller.yaml")
GATES = {"specification": {"verdict": "PROVED"},
         "mean_reward": {"metric": "mean_reward", "better": "larger", "at_least": -80.0, "least_cases": 100},
         "champion": {"metric": "mean_reward", "better": "larger", "relative_to": "champion",
                      "at_least_difference": -1.0},
         "latency": {"metric": "latency_us", "better": "smaller", "at_most": 20_000}}


def project(folder: Path, least_reward: float = -80.0) -> Project:
    """Task, telemetry, and an mlflow.yaml with a threshold on the reward."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = tiny.configuration()
    settings["gates"]["tablecontroller"] = {**GATES, "mean_reward": {**GATES["mean_reward"], "at_least": least_reward}}
    tiny.write_yaml(settings, folder / "mlflow.yaml")
    table().to_csv(folder / "table.csv", index=False)
    return Project(folder)


def run(made: Project, *options: str) -> Any:
    return made.call("run", "--task", str(TASK), "--telemetry", "table.csv", "--json", *options)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Project, dict[str, Any]]]:
    made = project(tmp_path_factory.mktemp("table"))
    done = run(made, "--name", "first")
    assert done.returncode == 0, done.stdout + done.stderr
    yield made, json.loads(done.stdout)


def test_the_kind_has_the_whole_contract() -> None:
    kind = kind_of("tests.kinds.table_controller", "here")
    for protocol, found in ((Kind, kind), (Pages, kind.pages)):
        for method, declared in inspect.getmembers(protocol, inspect.isfunction):
            if not method.startswith("_"):
                assert list(inspect.signature(getattr(type(found), method)).parameters) == list(
                    inspect.signature(declared).parameters), method


@pytest.mark.parametrize(("change", "message"), [
    ({"knot": [1.0]}, "knot: unknown field; did you mean 'knots'"),
    ({"episodes": 0}, "episodes: expected a whole number above 0, got 0"),
    ({"workloads": {}}, "workloads: expected"),
])
def test_mistakes_in_the_task_file_are_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_task({**yaml.safe_load(TASK.read_text()), **change}, "task.yaml")


def test_it_goes_through_the_whole_pipeline_to_a_signed_champion(finished: tuple[Project, dict[str, Any]]) -> None:
    made, summary = finished
    (entry,) = summary["entries"]
    assert (entry["status"], entry["alias"], entry["verdict"]) == ("registered", "champion", "PROVED")
    assert [gate["name"] for gate in entry["gates"]["gates"]] == list(GATES)
    assert entry["figures"][0]["name"] == "reward" and entry["figures"][0]["value"] < 0
    bundle = Path(entry["bundle"])
    assert {path.name for path in bundle.iterdir()} >= {"model.onnx", "specification.yaml", "proof.npz",
                                                        "contract.json", "evidence.json", "gates.json"}
    checked = check_bundle(bundle, made.configuration.public_key_path, deep=True)
    kinds = [(output.name, output.unit, output.kind) for output in checked.contract.outputs]
    assert kinds == [("new_limit_cores", "cores", "target"), ("replica_change", "count", "change")]


def test_a_stranger_gets_the_same_answer_from_the_three_files(
    finished: tuple[Project, dict[str, Any]], tmp_path: Path
) -> None:
    made, summary = finished
    for name in ("model.onnx", "specification.yaml", "proof.npz"):
        shutil.copy(Path(summary["entries"][0]["bundle"]) / name, tmp_path / name)
    proof = made.json("check", tmp_path / "proof.npz", "--model", tmp_path / "model.onnx", "--specification",
                      tmp_path / "specification.yaml")
    assert proof["accepted"] is True
    again = made.json("verify", tmp_path / "model.onnx", "--specification", tmp_path / "specification.yaml")
    assert again["verdict"] == "PROVED"
    contract = json.loads((Path(summary["entries"][0]["bundle"]) / "contract.json").read_text())
    assert again["statement"] == proof["statement"] == contract["specification"]["statement"]


def test_the_operators_words_hold_of_what_a_controller_loads(finished: tuple[Project, dict[str, Any]]) -> None:
    made, summary = finished
    predictor = Predictor.from_folder(Path(summary["entries"][0]["bundle"]), made.configuration.public_key_path,
                                      task="tablecontroller", workload="shop")
    rng = np.random.default_rng(1)
    states = rng.uniform((1.0, 0.0, 0.5), (3.0, 1.0, 8.0), (2000, 3)).astype(np.float32)
    names = ["p99_over_slo", "utilization", "limit_cores"]
    answer = predictor.predict(pd.DataFrame(states, columns=names))
    assert (np.array(answer.columns["new_limit_cores"]) >= states[:, 2] - 1e-5).all()
    idle = states.copy()
    idle[:, 1] *= 0.2
    answer = predictor.predict(pd.DataFrame(idle, columns=names))
    assert (np.array(answer.columns["replica_change"]) <= 1e-5).all()
    assert answer.units == {"new_limit_cores": "cores", "replica_change": "count"}


def test_stages_that_it_does_not_need_say_so(finished: tuple[Project, dict[str, Any]]) -> None:
    made, _ = finished
    notes = {event["step"]: event["message"] for event in made.events("first") if event["event"] == "note"}
    assert notes == {"audit": "a table says what is wanted: there is nothing to audit",
                     "pretrain": "a table is fitted in a moment: there is nothing to pretrain"}


def test_its_report_shows_reward_gates_and_both_outputs(finished: tuple[Project, dict[str, Any]]) -> None:
    _, summary = finished
    index = Path(summary["report"])
    page = (index.parent / "shop.html").read_text()
    for text in ("Mean reward", "new_limit_cores", "replica_change", "where p99_over_slo is 1 to 3", "mean reward"):
        assert text in page, text
    assert "Reward" in index.read_text()


def test_the_same_controller_again_registers_nothing(finished: tuple[Project, dict[str, Any]]) -> None:
    made, _ = finished
    done = run(made, "--name", "second", "--fresh")
    assert done.returncode == 0, done.stdout + done.stderr
    (entry,) = json.loads(done.stdout)["entries"]
    assert entry["status"] == "unchanged"


def test_a_reward_below_its_threshold_is_rejected(tmp_path: Path) -> None:
    made = project(tmp_path, least_reward=-1.0)
    done = run(made)
    (entry,) = json.loads(done.stdout)["entries"]
    assert done.returncode == 1 and entry["status"] == "rejected" and entry["alias"] is None
    assert {gate["name"] for gate in entry["gates"]["gates"] if not gate["passed"]} == {"mean_reward"}


def test_its_task_file_names_where_the_kind_is() -> None:
    assert load_task(TASK).kind == "tests.kinds.table_controller"


def test_the_recipe_shows_this_task_model_and_these_gates() -> None:
    page = (tiny.ROOT / "docs" / "recipes" / "add-a-kind-of-task.md").read_text()
    blocks = [textwrap.dedent(one) for one in re.findall(r"^ *```\w*\n(.*?)^ *```", page, re.MULTILINE | re.DOTALL)]
    (shown,) = (one for one in blocks if one.startswith("class "))
    (gates,) = (one for one in blocks if one.startswith("gates:"))
    assert shown in (Path(__file__).parent / "table_controller" / "task.py").read_text()
    assert yaml.safe_load(gates) == {"gates": {"tablecontroller": GATES}}
