"""The policy that ships for services of all kinds: it checks in full, is tried in shadow alone, says what it lacks."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from feature_store.errors import InputError, RefusedError
from pipelines.command_line import app
from pipelines.console import GENERIC
from serving.bundle import check_bundle
from serving.control.generic import generic_bundle, generic_task
from tests.deploy.light_place import VALUES
from tests.feature_store.prometheus_server import faulty_server
from tests.serving.actuators.test_shadow import answers

PRESENT = {"replicas": "replicas", "ready_replicas": 2, "cpu_limit_cores": 1.5, "memory_limit_mib": 256}
OPTIONS = ("--workload", "shop", "--actuator", "watch", "--steps", "3", "--every", "0.3")


def written(folder: Path, url: str, **more: object) -> str:
    path = folder / "controller.yaml"
    path.write_text(json.dumps({"prometheus": url, "hand_back_after": 1, "signals": {name: name for name in VALUES},
                                "watch": {"signals": PRESENT}, **more}))
    return str(path)


def call(folder: Path, *options: str) -> Result:
    return CliRunner(env={"ASSAY_HOME": str(folder / "home")}).invoke(app, list(options))


def test_what_ships_checks_with_every_leaf_of_its_proof() -> None:
    task = generic_task(GENERIC)
    bundle = check_bundle(GENERIC / task / "bundle", GENERIC / task / "assay.pub", deep=True)
    assert bundle.gates.passed and bundle.contract.task == task
    named = generic_bundle(GENERIC, task, "shop")
    assert (named.contract.workload, named.sha256) == ("shop", bundle.sha256)


def test_it_decides_in_shadow_without_any_ledger_and_its_page_is_written(tmp_path: Path) -> None:
    with faulty_server(answers({**VALUES, "replicas": 2})) as (url, _):
        done = call(tmp_path, "control", "--generic", "--shadow", *OPTIONS, "--controller",
                    written(tmp_path, url, settings={"slo_ms": 40}))
    assert done.exit_code == 0, done.output
    first, *lines = done.stdout.splitlines()
    assert "(autoscaling, shop) watches" in first and "objective: slo_ms 40 ms" in first
    assert len(lines) == 3 and all("policy" in line and "would set" in line for line in lines), done.stdout
    log = tmp_path / "home/shadow/autoscaling/shop/steps"
    assert log.is_dir() and not (tmp_path / "home/ledger.jsonl").exists()
    task = tmp_path / "task.yaml"
    shipped = (Path("systems/autoscaling/autoscaling.yaml")).read_text().partition("workloads:\n")[0]
    task.write_text(f"{shipped}workloads:\n  shop: {{settings: {{slo_ms: 40}}}}\n")
    page = call(tmp_path, "shadow-report", "--generic", "--workload", "shop", "--task", str(task))
    assert page.exit_code == 0, page.output
    assert (log.parent / "report.html").is_file()


@pytest.mark.parametrize(("options", "more", "message"), [
    ((), {"settings": {"slo_ms": 40}}, "generic policy must be tried in shadow (--shadow)"),
    (("--shadow", "--bundle", str(GENERIC / "autoscaling" / "bundle")), {"settings": {"slo_ms": 40}},
     "without --bundle and --public-key"),
    (("--shadow",), {}, "settings must say slo_ms of this service in the controller file"),
    (("--shadow", "--task", "performance"), {}, "must be of a task that one is shipped of, got 'performance'"),
])
def test_it_is_refused_where_it_could_act_or_knows_no_promise(tmp_path: Path, options: tuple[str, ...],
                                                              more: dict[str, object], message: str) -> None:
    done = call(tmp_path, "control", "--generic", *options, *OPTIONS, "--controller",
                written(tmp_path, "http://127.0.0.1:9", **more))
    assert done.exit_code == 2 and message in done.stderr and not list(tmp_path.glob("home/**/steps/*"))


def test_an_edited_one_is_refused(tmp_path: Path) -> None:
    shutil.copytree(GENERIC, tmp_path / "generic")
    contract = tmp_path / "generic/autoscaling/bundle/contract.json"
    contract.write_text(contract.read_text().replace('"seed": 0', '"seed": 1'))
    with pytest.raises(RefusedError, match="contract"):
        generic_bundle(tmp_path / "generic", "autoscaling", "shop")
    with pytest.raises(InputError, match="generic policies are shipped of none"):
        generic_task(tmp_path)


def test_a_task_leads_nowhere_else(tmp_path: Path) -> None:
    shutil.copytree(GENERIC / "autoscaling", tmp_path / "elsewhere")
    (tmp_path / "generic").mkdir()
    with pytest.raises(InputError, match="--task"):
        generic_bundle(tmp_path / "generic", "../elsewhere", "shop")
