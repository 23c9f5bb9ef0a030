"""A release has one version: in pyproject.toml, CHANGELOG, the command, the light wheel and the images."""

import re
import tomllib

import pytest
from packaging.version import Version
from typer.testing import CliRunner

from pipelines.command_line import app
from tests.e2e.tiny import ROOT

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
RELEASES = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
# where the version of an image or a wheel is written down
PLACES = ("deploy/assay_serving/pyproject.toml", "deploy/Dockerfile", "deploy/Dockerfile.controller",
          "deploy/values.yaml", "deploy/kustomize/pipeline/kustomization.yaml",
          "deploy/kustomize/controller/kustomization.yaml",
          "components/definitions.py", "pipelines/values_file.py")
NAMED = re.compile(r'(?:\nversion = "|assay(?:-controller)?:|assay_serving-|newTag: )(\d+\.\d+\.\d+)')


def test_the_changelog_begins_with_the_version_and_goes_down_release_by_release() -> None:
    assert RELEASES[0] == VERSION
    versions = [Version(release) for release in RELEASES]
    assert versions == sorted(set(versions), reverse=True)


def test_the_command_says_the_version() -> None:
    assert CliRunner().invoke(app, ["--version"]).stdout == f"assay {VERSION}\n"


@pytest.mark.parametrize("place", PLACES)
def test_wheels_and_images_have_the_version(place: str) -> None:
    assert set(NAMED.findall((ROOT / place).read_text())) == {VERSION}
