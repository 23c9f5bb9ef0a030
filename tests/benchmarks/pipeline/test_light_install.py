"""What the benchmark of the light install measures from inside, and what its page says of it."""

import json
import shutil
import subprocess
import sys
from importlib.metadata import distribution, version

import pytest

from benchmarks.__main__ import main as run_benchmark
from benchmarks.pipeline.light_install import CHILD, conditions_line, install_table
from benchmarks.pipeline.light_install_child import installed_bytes, sizes
from tests.deploy.light_place import make_place
from tests.e2e.tiny import ROOT


def child(*arguments, root=ROOT):
    done = subprocess.run([sys.executable, str(CHILD), *map(str, arguments)], check=True, text=True,
                          capture_output=True, env={"PYTHONPATH": str(root)})
    return json.loads(done.stdout)


def test_sizes_are_of_all_that_a_package_needs_and_of_nothing_else():
    found = sizes("requests")
    assert set(found) == {"requests", "charset-normalizer", "idna", "urllib3", "certifi"}
    assert all(size > 10_000 for size in found.values())


def test_the_size_of_a_package_is_that_of_its_files_each_once(tmp_path, monkeypatch):
    (tmp_path / "one-1.dist-info").mkdir()
    (tmp_path / "one-1.dist-info" / "METADATA").write_text("Name: one\nVersion: 1\n")
    (tmp_path / "one.py").write_text("x" * 70)
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "one.cpython-311.pyc").write_text("y" * 9)
    (tmp_path / "one-1.dist-info" / "RECORD").write_text("one.py,,\n__pycache__/one.cpython-311.pyc,,\ngone.py,,\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert version("one") == "1"
    assert installed_bytes(distribution("one")) == 79


def test_an_extra_adds_what_it_names(tmp_path, monkeypatch):
    info = tmp_path / "two-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: two\nVersion: 1\nRequires-Dist: idna\nRequires-Dist: absent; "
                                   "python_version < '3'\nRequires-Dist: certifi; extra == 'more'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert set(sizes("two")) == {"two", "idna"}
    assert set(sizes("two", "more")) == {"two", "idna", "certifi"}


def test_a_predictor_is_loaded_and_asked_in_a_process_that_imports_nothing_else(tmp_path):
    place = make_place(tmp_path / "place")
    folder = tmp_path / "performance" / "redis" / "1"
    shutil.copytree(place / "bundle", folder)
    found = child("predictor", folder, place / "assay.pub")
    assert set(found) == {"import_s", "load_s", "memory_mib"}
    assert 20 < found["memory_mib"] < 500
    nothing = child("module", "json")
    assert nothing["memory_mib"] < found["memory_mib"]


def results():
    def entry(name, packages, scale):
        keys = ("command_s", "import_s", "load_s", "memory_mib", "control_import_s", "control_memory_mib")
        return {"install": name, "bytes": packages, "values": {key: [scale, 3 * scale, 2 * scale] for key in keys}}

    whole = entry("whole", {"assay": 1_000_000, "torch": 750_000_000}, 1.0)
    whole["values"]["registry_import_s"] = [2.0]
    return {"entries": [entry("light", {"assay-serving": 500_000, "numpy": 70_000_000}, 0.25),
                        entry("light, proofs", {"assay-serving": 500_000, "onnx": 30_000_000}, 0.25), whole],
            "wheel_bytes": 288_419, "wheel_modules": 138, "bundle": "a short run", "load_average_before": 0.5,
            "machine": {"cpu_model": "CPU", "cores": 2, "python": "3.11.7", "date": "2026-11-23T00:00:00+00:00"}}


def test_the_table_has_a_column_for_each_installation_and_medians():
    lines = install_table(results()).splitlines()
    assert lines[0] == "|  | light | light with `[proofs]` | whole |"
    assert lines[2] == "| packages | 2 | 2 | 2 |"
    assert lines[3] == "| installed | 70.5 MB | 30.5 MB | 751 MB |"
    assert lines[5] == "| `import serving.session` | 0.500 s | 0.500 s | 2.00 s |"
    assert lines[-2] == "| import of MLflow's registry, where a bundle was not copied |  |  | 2.00 s |"
    assert "numpy 70.0 MB, assay-serving 0.500 MB" in conditions_line(results()).replace("\n", " ")


@pytest.mark.parametrize("home", ["nothing", "."])
def test_a_state_folder_without_bundles_is_bad_usage(home, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run_benchmark(["light-install", "--home", home, "--output", "out.json"]) == 2
    assert "--home: expected a state folder with signed bundles" in capsys.readouterr().err
