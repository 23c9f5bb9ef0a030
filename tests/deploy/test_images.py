"""The images' own steps, carried out without a container: what they copy suffices, what they install works."""

import json
import tomllib
from pathlib import Path

import yaml

from deploy.assay_serving.build import ROOT, build_wheel, description
from pipelines.values_file import REPEATABLE
from tests.deploy.dockerfile import carry_out, environment, instructions, run

STEPS, CONTROLLER = ROOT / "deploy/Dockerfile", ROOT / "deploy/Dockerfile.controller"
LOAD = """
import importlib, json, sys
for name in json.loads(sys.argv[1]):
    importlib.import_module(name)
from models.tasks.task import task_path
print(json.dumps([sys.modules["components"].__path__[0], str(task_path("autoscaling"))]))
"""


def test_the_image_of_the_steps_holds_every_package_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {pattern.removesuffix("*") for pattern in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    copied = {word for name, words in instructions(STEPS) if name == "COPY" for word in words.split()}
    assert packages <= copied


def test_images_values_and_manifests_agree_on_the_user() -> None:
    user = yaml.safe_load((ROOT / "deploy/values.yaml").read_text())["user"]
    for path in (STEPS, CONTROLLER):
        assert dict(instructions(path))["USER"] == f"{user['id']}:{user['group']}"
    state = (ROOT / "deploy/kustomize/pipeline/state.yaml").read_text()
    assert f"fsGroup: {user['group']}" in state and f"runAsUser: {user['id']}" in state


def test_the_controller_s_image_installs_the_version_that_is_built() -> None:
    wheel = f"dist/assay_serving-{description()['project']['version']}-py3-none-any.whl"
    assert wheel in dict(instructions(CONTROLLER))["COPY"].split()


def test_the_steps_load_from_what_their_image_copies_and_installs(tmp_path: Path) -> None:
    app = tmp_path / "app"
    app.mkdir()
    programs = environment(tmp_path / "environment", with_ours=True)
    carry_out(STEPS, app, programs)
    modules = [f"components.{name}" for name in REPEATABLE] + ["psycopg", "kfp.kubernetes"]
    loaded = json.loads(run(["python", "-W", "ignore", "-c", LOAD, json.dumps(modules)], tmp_path, programs))
    assert all(Path(place).is_relative_to(app) for place in loaded), loaded
    values = ROOT / "deploy/values.yaml"
    assert "wrote out.yaml" in run(["assay", "compile", "out.yaml", "--values", str(values)], tmp_path, programs)


def test_the_controller_s_image_acts_and_brings_the_actuator_and_the_checker(tmp_path: Path) -> None:
    app = tmp_path / "app"
    app.mkdir()
    build_wheel(tmp_path / "dist")
    programs = environment(tmp_path / "environment", with_ours=False)
    carry_out(CONTROLLER, app, programs, more=tmp_path)
    run(["python", "-c", "import serving.actuators.deployment.api, models.verification.checker, kubernetes, onnx"],
        tmp_path, programs)
    assert "--actuator" in run(["assay", "control", "--help"], tmp_path, programs)
