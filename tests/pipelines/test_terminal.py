"""Nothing out of a file reaches the terminal as a command to it: the whole program is run, with what it loads."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

EVIL = "\x1b[2J\x1b[HPROVED\x1b[8m\x9b1m\u202e"
CONTROLS = ("\x1b", "\x9b", "\u202e", "\x07")
ASSAY = (sys.executable, "-c", "from pipelines.command_line import main; main()")
LIGHT = (sys.executable, "-c", "from pipelines.controller_command_line import main; main()")


def said(folder: Path, *arguments: str, program: tuple[str, ...] = ASSAY) -> str:
    """All that the command writes."""
    done = subprocess.run([*program, *arguments], cwd=folder, capture_output=True, check=False, timeout=120,
                          env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "COLUMNS": "100"})
    return (done.stdout + done.stderr).decode(errors="backslashreplace")


def network(path: Path, unused: str = "unused", operator: str = "Relu", node: str = "relu") -> None:
    nodes = [helper.make_node("Gemm", ["x", "w"], ["z"]), helper.make_node(operator, ["z"], ["y"], name=node)]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, [1, 1])],
                              [helper.make_tensor_value_info("y", 1, [1, 1])],
                              [numpy_helper.from_array(np.array([[1.0]], np.float32), name) for name in ("w", unused)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    network(tmp_path / "unused.onnx", unused=EVIL)
    network(tmp_path / "node.onnx", node=EVIL, operator="Erf")
    network(tmp_path / f"{EVIL}.onnx")
    (tmp_path / "s.yaml").write_text("box: {x0: [0, 1]}\nproperties:\n  - range: {maximum: 0.5}\n")
    quoted = EVIL.encode("unicode_escape").decode()
    (tmp_path / "key.yaml").write_text(f'box: {{x0: [0, 1]}}\n"{quoted}": 1\nproperties: []\n')
    (tmp_path / "raw.yaml").write_text(f"box: {{{EVIL}: [0, 1]}}\n", encoding="utf-8")
    (tmp_path / "rows.csv").write_text(f"workload,{EVIL}\n{EVIL},{EVIL}\n", encoding="utf-8")
    (tmp_path / "map.yaml").write_text(f'kind: measurements\n"{quoted}": 3\n')
    (tmp_path / "task.yaml").write_text(f'kind: "{quoted}"\nname: "{quoted}"\n')
    (tmp_path / "instances.csv").write_text(f"{EVIL}.onnx,s.yaml\nnode.onnx,s.yaml\n{EVIL},{EVIL}\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(("arguments", "program"), [
    (("verify", "unused.onnx", "-s", "s.yaml"), ASSAY), (("verify", "node.onnx", "-s", "s.yaml"), ASSAY),
    (("verify", f"{EVIL}.onnx", "-s", "s.yaml", "--witness", f"{EVIL}.json"), ASSAY),
    (("verify", "unused.onnx", "-s", "key.yaml"), ASSAY), (("verify", "unused.onnx", "-s", "raw.yaml"), ASSAY),
    (("verify", "unused.onnx", "-s", "s.yaml", "--points", "rows.csv"), ASSAY),
    (("verify", "--instances", "instances.csv"), ASSAY), (("verify", "--instances", "instances.csv", "--json"), ASSAY),
    (("check", "rows.csv", "--model", "unused.onnx", "-s", "s.yaml"), ASSAY), (("check", f"{EVIL}.onnx"), ASSAY),
    (("validate", "--telemetry", "rows.csv"), ASSAY), (("validate", "--telemetry", "rows.csv", "--mapping", "map.yaml"),
                                                       ASSAY),
    (("validate", "--task", "task.yaml"), ASSAY),
    (("audit", "rows.csv", "--mapping", "map.yaml", "--decreasing", "x"), ASSAY),
    (("control", "--workload", "w", "--controller", "raw.yaml"), ASSAY),
    (("check", f"{EVIL}.onnx"), LIGHT), (("control", "--workload", "w", "--controller", "raw.yaml"), LIGHT)],
    ids=lambda value: ascii(" ".join(value[:4]))[:50])
def test_no_text_of_a_file_steers_the_terminal(folder: Path, arguments: tuple[str, ...],
                                               program: tuple[str, ...]) -> None:
    text = said(folder, *arguments, program=program)
    assert text.strip() and not [control for control in CONTROLS if control in text]


def test_what_python_itself_says_is_escaped() -> None:
    """Warnings, log lines that nobody takes, and errors that nobody catches, of threads too."""
    script = ("import logging, sys, threading, warnings; from feature_store.terminal import *; "
              "escape_what_python_says(); "
              f"warnings.warn({EVIL!r}); logging.getLogger('x').warning({EVIL!r}); \n"
              f"for todo in ({f'raise ValueError({EVIL!r})'!r}, 'sys.exit()'):\n"
              "    thread = threading.Thread(target=exec, args=(todo, globals())); thread.start(); thread.join()\n"
              f"try: raise ValueError({EVIL!r})\nexcept ValueError: print_trace()\nraise ValueError({EVIL!r})")
    text = said(Path.cwd(), program=(sys.executable, "-c", script))
    assert text.count("PROVED") >= 5 and "SystemExit" not in text
    assert not [control for control in CONTROLS if control in text]
