"""What the light install holds follows from imports, and nothing in it needs a package that it does not bring."""

import ast
import tomllib

import pytest

from deploy.assay_serving.build import ROOT, description, light_closure, name_of
from deploy.assay_serving.closure import ClosureError, Sources
from tests.contracts.test_imports import imported

ENTRY = "pipelines.controller_command_line"
# Imported in functions, and not there: asking MLflow, the statistics of gates, signing by the library.
LEFT_OUT = {
    ("models.paired_comparison", "scipy"), ("serving.control.champion", "serving.registry"),
    ("serving.session", "serving.registry"), ("serving.signature", "model_signing"),
}


def sources(folder, packages=("numpy",), **modules):
    """Sources of modules below serving/: name -> text."""
    (folder / "serving").mkdir()
    (folder / "serving" / "__init__.py").write_text('"""Docs."""\n')
    for name, text in modules.items():
        (folder / "serving" / f"{name}.py").write_text(text)
    return Sources(folder, frozenset(packages))


def test_what_a_module_imports_is_in_it_and_nothing_else(tmp_path):
    found = sources(tmp_path, one="import numpy, os\nfrom serving import two", two="from serving.three import x",
                    three="x = 1", four="").closure("serving.one")
    assert set(found.modules) == {"serving", "serving.one", "serving.two", "serving.three"}
    assert found.left_out == frozenset()
    assert found.modules["serving"] == tmp_path / "serving" / "__init__.py"


@pytest.mark.parametrize("statement", ["import torch", "from torch import nn", "import torch.nn",
                                       "try:\n    import torch\nexcept ImportError:\n    pass",
                                       "try:\n    pass\nexcept ImportError:\n    import torch",
                                       "class A:\n    import torch", "if True:\n    pass\nelse:\n    import torch",
                                       "with open('x'):\n    import torch",
                                       "match 1:\n    case 1:\n        import torch"])
def test_a_heavy_package_at_the_top_of_a_module_is_refused_with_the_way_to_it(tmp_path, statement):
    made = sources(tmp_path, one="import serving.two", two="from serving.three import x", three=f"{statement}\nx = 1")
    with pytest.raises(ClosureError, match=r"torch, got serving.one -> serving.two -> serving.three -> torch"):
        made.closure("serving.one")


def test_what_is_imported_in_a_function_is_followed_unless_it_needs_a_heavy_package(tmp_path):
    found = sources(
        tmp_path,
        one="def f():\n    import serving.two\n    if f:\n        from serving.heavy import x\n    import torch",
        two="def g():\n    from numpy import array", heavy="import serving.heavier\nx = 1", heavier="import torch",
    ).closure("serving.one")
    assert set(found.modules) == {"serving", "serving.one", "serving.two"}
    assert found.left_out == {("serving.one", "serving.heavy"), ("serving.one", "torch")}


def test_what_is_for_type_checkers_alone_is_not_followed(tmp_path):
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\nelse:\n    import serving.two"
    found = sources(tmp_path, one=text, two="").closure("serving.one")
    assert set(found.modules) == {"serving", "serving.one", "serving.two"}


@pytest.fixture(scope="module")
def closure():
    return light_closure()


def test_it_holds_what_a_controller_needs(closure):
    assert {ENTRY, "serving.session", "serving.bundle", "serving.control.champion", "serving.control.loop",
            "serving.actuators.kubernetes", "systems.autoscaling.acting",
            "models.verification.proof_file"} <= set(closure.modules)


def test_what_is_left_out_of_it_is_known(closure):
    assert closure.left_out == LEFT_OUT


def test_no_module_of_it_reads_a_file_beside_itself(closure):
    """The wheel holds modules alone."""
    names = {(module, node.id) for module, path in closure.modules.items()
             for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
    assert [module for module, name in names if name == "__file__"] == []


def test_its_requirements_are_those_of_the_project():
    light, project = description(), tomllib.loads((ROOT / "pyproject.toml").read_text())
    known = {name_of(one): one for one in project["project"]["dependencies"]}
    known |= {name_of(one): one for extra in ("kubernetes", "cluster")
              for one in project["project"]["optional-dependencies"][extra]}
    extras = [one for extra in light["project"]["optional-dependencies"].values() for one in extra]
    for one in (*light["project"]["dependencies"], *extras):
        assert one in (known.get(name_of(one)), "urllib3", "pydantic-core"), one  # of requests and pydantic
    assert light["build-system"] == project["build-system"]
    for key in ("version", "requires-python", "license", "license-files"):
        assert light["project"][key] == project["project"][key]


def test_each_package_that_it_brings_is_imported_at_the_top_of_a_module(closure):
    """What a function alone imports would be an extra."""
    read = Sources(ROOT, frozenset())
    tops = {one.name.split(".")[0] for module in closure.modules for one in read.imports(module) if not one.lazy}
    imported_as = {"pyyaml": "yaml"}
    brought = map(name_of, description()["project"]["dependencies"])
    assert {imported_as.get(name, name.replace("-", "_")) for name in brought} <= tops


def test_its_command_loads_nothing_heavy():
    assert imported(ENTRY) == []
    assert imported(f"{ENTRY}, serving.control.start, systems.autoscaling.acting") == []
