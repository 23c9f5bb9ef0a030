"""`assay control --shadow` and then `assay shadow-report`, as a user types them."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.command_line import app
from serving.kept_bundles import kept_bundle
from tests.deploy.light_place import VALUES
from tests.feature_store.prometheus_server import faulty_server
from tests.serving.actuators.test_shadow import answers
from tests.serving.control.policy_bundle import write_champion

WATCH = {"signals": {"replicas": "replicas", "ready_replicas": 2, "cpu_limit_cores": 1.5, "memory_limit_mib": 256}}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A state folder whose champion watched for three steps."""
    folder = tmp_path_factory.mktemp("shadow")
    state = write_champion(folder / "home")
    with faulty_server(answers({**VALUES, "replicas": 2})) as (url, _):
        (folder / "controller.yaml").write_text(json.dumps({
            "prometheus": url, "hand_back_after": 1, "signals": {name: name for name in VALUES}, "watch": WATCH}))
        done = CliRunner(env={"ASSAY_HOME": str(state.home)}).invoke(app, [
            "control", "--shadow", "--workload", "nginx", "--controller", str(folder / "controller.yaml"), "--actuator",
            "watch", "--steps", "3", "--every", "0.3"])
    assert done.exit_code == 0, done.output
    assert f"watches what {url} knows, in shadow, every 0.3 s, sets nothing" in done.stdout.splitlines()[0]
    assert "would set cpu_limit_cores 1.5" in done.stdout.splitlines()[-1]
    return state.home


def report(home: Path, *options: str):
    return CliRunner(env={"ASSAY_HOME": str(home)}).invoke(app, ["shadow-report", *options])


OPTIONS = ("--workload", "nginx", "--task", "autoscaling")


def test_a_page_is_written_beside_the_log_and_its_verdict_said(home):
    done = report(home, *OPTIONS)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    # on a busy machine steps are irregular, and then no outcome counts
    said = lines[0].replace("\N{NO-BREAK SPACE}", " ")
    assert "the service missed its objective in 0.0" in said or "nobody could measure how often" in said
    assert "What the policy would have come to is not known: the shadow's steps are " in lines[0]
    assert lines[1].startswith("next: Let the shadow run on")
    page = home / "shadow/autoscaling/nginx/report.html"
    assert lines[-1] == f"page: {page}" and "autoscaling / nginx" in page.read_text()


def test_json_has_the_numbers_and_a_bundle_folder_does_as_well(home, tmp_path):
    done = report(home, *OPTIONS, "--bundle", str(kept_bundle(home, "autoscaling", "nginx", 1)), "--output",
                  str(tmp_path / "page.html"), "--json")
    found = json.loads(done.stdout)
    assert (found["steps"], found["decided"]["actors"]) == (3, {"policy": 3})
    assert found["page"] == str(tmp_path / "page.html")
    assert found["measured"]["violated"][0] in (0.0, None) and found["next"][0].startswith("Let the shadow run on")
    assert found["versions"] == [found["policy"]] and (tmp_path / "page.html").is_file()


@pytest.mark.parametrize(("options", "message"), [
    (("--workload", "nginx", "--task", "performance"), "got one of the kind prediction (--task)"),
    (("--workload", "mysql", "--task", "autoscaling"), "folder must be of a shadow, got none with a log"),
    ((*OPTIONS, "--folder", "nowhere"), "run `assay control --shadow` first"),
    ((*OPTIONS, "--output", "/proc/page.html"), "page must be writable"),
])
def test_bad_usage_is_one_line_and_code_2(home, options, message):
    done = report(home, *options)
    assert done.exit_code == 2 and message in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_a_shadow_needs_something_to_look_at(home):
    done = CliRunner(env={"ASSAY_HOME": str(home)}).invoke(app, [
        "control", "--shadow", "--workload", "nginx", "--controller", "controller.yaml"])
    assert done.exit_code == 2
    assert "such as cgroup, kubernetes, watch, got dry-run, which has nothing to look at (--actuator)" in done.stderr
