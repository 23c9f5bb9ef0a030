"""The wheel in an empty environment: it checks, predicts, follows and acts, and brings nothing heavy."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import requests

from deploy.assay_serving.build import ROOT, build_wheel, description, light_closure
from tests.deploy.light_place import HEAVY, make_place, metrics_for

BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs/controllers.md").read_text(), re.DOTALL)
MOST_MEMORY_MIB, STEPS = 150, 20  # of a controller that acts; steps until it is looked at
INSPECTION = """
import importlib.util, json, pkgutil, sys
from importlib.metadata import distributions
import serving
for name in {modules!r}:
    importlib.import_module(name)
print(json.dumps({{"from": serving.__path__[0], "loaded": sorted(sys.modules), "there": [
    name for name in {heavy!r} if importlib.util.find_spec(name)], "installed": sorted(
    one.metadata["Name"].lower() for one in distributions())}}))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return make_place(tmp_path_factory.mktemp("light") / "place")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Folder of the programs of an environment with the wheel, as the page says, and nothing else."""
    folder = tmp_path_factory.mktemp("wheel")
    wheel = build_wheel(folder / "dist")
    _checked([sys.executable, "-m", "venv", str(folder / "controller")], folder)
    programs = folder / "controller" / "bin"
    _checked([str(programs / "pip"), "install", "--quiet", "--disable-pip-version-check", "-c",
              str(ROOT / "constraints.txt"), str(wheel)], folder)
    return programs


def _environment():
    """Nothing that leads to the sources."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ASSAY"))}


def _run(command, folder):
    return subprocess.run(command, cwd=folder, env=_environment(), capture_output=True, text=True, timeout=250)


def _checked(command, folder):
    done = _run(command, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _is_what_the_page_says(answers):
    assert re.fullmatch(r"[\d.]+ ms\n", answers[0])
    assert re.match(r"[0-9a-f]{12} \d.*target_replicas", answers[1])


def test_the_page_says_five_lines_for_a_first_prediction():
    assert len(BLOCKS[0].splitlines()) == 5
    assert len(BLOCKS) == 2


def test_the_page_s_code_runs_as_it_stands(place):
    """On the sources; in the light install, it does so below."""
    from_sources = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
    _is_what_the_page_says([_checked([sys.executable, "-c", from_sources + block], place) for block in BLOCKS])


# What needs an extra: `proofs` for the checker and the law of a guarantee, `serve` for files and HTTP, `postgresql`.
EXTRAS = ("models.verification.", "systems.autoscaling.guarantee.", "feature_store.written.",
          "models.configuration_file", "serving.predictions.", "serving.ledger_table")


def test_the_page_s_code_runs_in_the_light_install(installed, place):
    _is_what_the_page_says([_checked([str(installed / "python"), "-c", block], place) for block in BLOCKS])


def test_nothing_heavy_is_installed_and_all_modules_but_those_of_extras_load_without(installed, tmp_path):
    modules = [name for name in light_closure().modules if not name.startswith(EXTRAS)]
    found = json.loads(_checked([str(installed / "python"), "-c", INSPECTION.format(modules=modules, heavy=HEAVY)],
                                tmp_path))
    assert Path(found["from"]).is_relative_to(installed.parent)
    assert found["there"] == []
    assert not set(HEAVY) & set(found["loaded"])
    assert "assay-serving" in found["installed"]
    assert "assay" not in found["installed"]


def test_it_predicts_checks_and_says_what_a_deep_check_needs(installed, place):
    row = json.dumps({"psi_cpu_some": 0.3, "psi_io_full": 0.2, "connections": 8})
    assay = str(installed / "assay")
    told = _checked([assay, "predict", "--bundle", "bundle", "--public-key", "assay.pub", "--row", row], place)
    assert re.fullmatch(r"redis: latency_ms = [\d.]+ ms\n", told)
    assert "accepted: performance, redis" in _checked(
        [assay, "check", "bundle", "--public-key", "assay.pub", "--signed-only"], place)
    deep = _run([assay, "check", "bundle", "--public-key", "assay.pub"], place)
    assert (deep.returncode, deep.stdout) == (2, "")
    assert "pip install 'assay-serving[proofs]'" in deep.stderr
    tampered = place / "bundle" / "model.onnx"
    content = tampered.read_bytes()
    tampered.write_bytes(content + b" ")
    try:
        refused = _run([assay, "check", "bundle", "--public-key", "assay.pub", "--signed-only"], place)
    finally:
        tampered.write_bytes(content)
    assert refused.returncode == 1


def test_it_acts(installed, place):
    """And stays below MOST_MEMORY_MIB while it does."""
    command = [str(installed / "assay"), "control", "--home", "state", "-w", "nginx", "--controller", "controller.yaml",
               "--every", "0.1", "--json"]
    with metrics_for(place), subprocess.Popen(command, cwd=place, env=_environment(), text=True,
                                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            records = [json.loads(process.stdout.readline()) for _ in range(STEPS)]
            status = Path(f"/proc/{process.pid}/status").read_text()
        finally:
            process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=60)[1].splitlines()
    assert len(said) == 2, said
    assert "acts on dry-run every 0.1 s, objective: slo_ms 15 ms" in said[0]
    assert said[1].startswith("no step will have a reward in the log")
    assert process.returncode == 0
    assert [one["actor"] for one in records] == ["fallback", *["policy"] * (STEPS - 1)]
    assert [one["failure"] for one in records] == [""] * STEPS
    assert records[-1]["done"] == records[-1]["targets"]
    assert int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024 < MOST_MEMORY_MIB


def test_with_the_extra_every_leaf_of_a_proof_is_proved_again(installed, place):
    """Last: it adds onnx to the environment."""
    _checked([str(installed / "pip"), "install", "--quiet", "--disable-pip-version-check", "-c",
              str(ROOT / "constraints.txt"), "onnx"], place)
    assert "leaf boxes proved again: " in _checked(
        [str(installed / "assay"), "check", "bundle", "--public-key", "assay.pub"], place)
    refused = _run([str(installed / "assay"), "check", "other", "--public-key", "assay.pub"], place)
    assert refused.returncode == 1
    assert "proof must prove the specification" in refused.stderr


def test_with_the_extra_it_serves(installed, place):
    """Last too: it adds the extra's packages."""
    command = [str(installed / "assay"), "serve", "--bundle", "bundle", "--public-key", "assay.pub", "--port", "0"]
    without = _run(command, place)
    assert (without.returncode, without.stdout) == (2, "")
    assert "pip install 'assay-serving[serve]'" in without.stderr
    _checked([str(installed / "pip"), "install", "--quiet", "--disable-pip-version-check", "-c",
              str(ROOT / "constraints.txt"), *description()["project"]["optional-dependencies"]["serve"]], place)
    (place / "extender.yaml").write_text(json.dumps({"pod_label": "app", "workloads": {"redis": {
        "model": "performance.redis", "best": 1.0, "worst": 9.0, "features": {
            name: {"node_label": name} for name in ("psi_cpu_some", "psi_io_full", "connections")}}}}))
    with subprocess.Popen([*command, "--extender", "extender.yaml"], cwd=place, env=_environment(), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            url = process.stdout.readline().split()[-1]
            ready = requests.get(f"{url}/v2/models/performance.redis/ready", timeout=20)
        finally:
            process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=60)[1]
    assert (process.returncode, said, ready.json()["ready"]) == (0, "", True)
