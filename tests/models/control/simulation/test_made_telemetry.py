"""The loads that are shipped are what the command on their card makes, and each system's task reads its own."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from models.control.contract.systems import environment_names, environment_of
from models.control.simulation.made_telemetry import made_telemetry
from models.tasks.task import load_task

ROOT = Path(__file__).parents[4]
FOLDER = ROOT / "data" / "loads"
LINES = re.findall(r"^ +python -m (\S+) data/loads/(\S+)\.parquet (.*)$", (FOLDER / "README.md").read_text(),
                   re.MULTILINE)


@pytest.mark.parametrize(("module", "system", "options"), LINES, ids=[system for _, system, _ in LINES])
def test_a_load_is_what_its_command_makes(module: str, system: str, options: str, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", module, str(tmp_path / "load.parquet"), *options.split()], check=True,
                   cwd=ROOT)
    made, shipped = pd.read_parquet(tmp_path / "load.parquet"), pd.read_parquet(FOLDER / f"{system}.parquet")
    pd.testing.assert_frame_equal(made, shipped, rtol=1e-4)


@pytest.mark.parametrize("system", environment_names())
def test_every_system_has_a_load_of_its_workloads(system: str) -> None:
    path, columns = environment_of(system).telemetry, environment_of(system).columns
    assert path is not None
    shipped = pd.read_parquet(path)
    assert set(shipped["workload"]) == set(load_task(system).workloads) and {*columns} < {*shipped.columns}
    assert path.parent != FOLDER or path.stem in [name for _, name, _ in LINES]


def test_it_has_the_mean_that_was_asked_for_and_another_shape_with_another_seed() -> None:
    one, two = (made_telemetry("w", "rate_rps", 30.0, seed)["rate_rps"].to_numpy() for seed in (0, 1))
    assert one.mean() == pytest.approx(30.0, rel=1e-4) == two.mean()
    assert one.min() > 3.0 and one.max() < 150.0 and abs(np.corrcoef(one, two)[0, 1]) < 0.9
