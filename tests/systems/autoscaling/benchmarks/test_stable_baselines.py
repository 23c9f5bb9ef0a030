"""Stable-Baselines3 learns on our environments. Set PEERS_PYTHON to an interpreter that has it."""

import json
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from systems.autoscaling.benchmarks.speed import WAYS, measure_way

ROOT = Path(__file__).resolve().parents[4]


def _options(python: Path) -> Namespace:
    return Namespace(peers_python=python, runs=1, seconds=0.01, device="cpu")


PEERS_PYTHON = Path(os.environ.get("PEERS_PYTHON", sys.executable))
HAS_PEER = subprocess.run([PEERS_PYTHON, "-c", "import stable_baselines3"], capture_output=True, check=False
                          ).returncode == 0
_LEARN = """import json, sys
import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecMonitor
from systems.autoscaling.benchmarks.stable_baselines import AllAtOnce, one_by_one
from systems.autoscaling.simulator.simulator import Autoscaling
from models.control.simulation.gymnasium_wrappers import Episodes
make = {"one_by_one": one_by_one, "all_at_once": AllAtOnce}[sys.argv[1]]
environment = VecMonitor(make(Autoscaling(), 4, episodes=Episodes(steps=10)))
model = PPO("MlpPolicy", environment, n_steps=25, batch_size=20, n_epochs=1, seed=1)
model.learn(100)
print(json.dumps({"steps": model.num_timesteps, "lengths": [int(episode["l"]) for episode in model.ep_info_buffer],
                  "weight": float(next(model.policy.parameters()).detach().sum())}))"""


def learn(way):
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([PEERS_PYTHON, "-c", _LEARN, way], capture_output=True, text=True, check=True, cwd=ROOT,
                          env={**os.environ, "PYTHONPATH": path})
    return json.loads(done.stdout.strip().split("\n")[-1])


@pytest.mark.skipif(not HAS_PEER, reason="PEERS_PYTHON has no stable_baselines3")
@pytest.mark.parametrize("way", ["one_by_one", "all_at_once"])
def test_stable_baselines_learns_and_sees_whole_episodes(way):
    found = learn(way)
    assert found["steps"] == 100
    assert found["lengths"] == [10] * 8  # 25 steps of 4 applications: two whole episodes each
    assert learn(way) == found  # seeded


def test_a_peer_that_is_missing_is_left_out_with_its_reason(tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'stable_baselines3'\" >&2\nexit 1\n")
    python.chmod(0o700)
    assert measure_way("stable_baselines_wrapper", _options(python)) == {
        "missing": "ModuleNotFoundError: No module named 'stable_baselines3'"}
    assert "No such file" in measure_way("stable_baselines_wrapper", _options(tmp_path / "none"))["missing"]
    assert WAYS["stable_baselines_wrapper"].by_peers
