"""A controller finds its task: by its bundle, by the ledger, by what was kept while the ledger is away."""

import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from feature_store.errors import AssayError, InputError
from models.configuration import Configuration
from serving.control.start import ControlRequest, with_task
from serving.kept_bundles import kept_bundle
from serving.ledger import Ledger
from tests.serving.control.policy_bundle import write_champion

REQUEST = ControlRequest("nginx", Path("controller.yaml"))


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    return write_champion(tmp_path / "home")


def moved(configuration: Configuration, *actions: str, **changes: object) -> None:
    ledger = Ledger(configuration.ledger_path, configuration.public_key_path, configuration.private_key_path)
    last = ledger.history()[-1].move
    ledger.append([replace(last, action=action, previous_version=1 if action == "retire" else None,  # type: ignore
                           reason="bad" if action == "retire" else "", **changes) for action in actions])


def kept(configuration: Configuration, folder: Path) -> None:
    shutil.copytree(kept_bundle(configuration.home, "autoscaling", "nginx", 1), folder / "champion" / "bundle")


def test_a_task_that_was_given_stays_whatever_the_ledger_says(configuration: Configuration) -> None:
    assert with_task(replace(REQUEST, task="sizing"), configuration).task == "sizing"


def test_a_bundle_says_its_own_also_where_there_is_no_ledger(configuration: Configuration) -> None:
    bundle = kept_bundle(configuration.home, "autoscaling", "nginx", 1)
    configuration.ledger_path.unlink()
    assert with_task(replace(REQUEST, bundle=bundle), configuration).task == "autoscaling"


def test_it_is_that_of_the_one_champion_or_of_the_one_that_was(configuration: Configuration) -> None:
    assert with_task(REQUEST, configuration).task == "autoscaling"
    moved(configuration, "register", task="tuning")  # registered, and no champion
    assert with_task(REQUEST, configuration).task == "autoscaling"


def test_a_retired_champion_s_task_is_known_too(configuration: Configuration) -> None:
    moved(configuration, "retire")
    assert with_task(REQUEST, configuration).task == "autoscaling"


def test_of_two_champions_and_of_none_nobody_can_say_which(configuration: Configuration) -> None:
    moved(configuration, "register", "champion", task="tuning")
    with pytest.raises(InputError, match=r"task must be given .*'nginx' may be of one of autoscaling, tuning"):
        with_task(REQUEST, configuration)
    with pytest.raises(InputError, match=r"'redis' may be of none that can be known"):
        with_task(replace(REQUEST, workload="redis"), configuration)


def test_a_ledger_that_hangs_is_one_that_is_away(configuration: Configuration, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(configuration, configuration.home / "controllers" / "autoscaling" / "nginx")
    monkeypatch.setattr("serving.control.start.WITHIN_S", 0.2)
    monkeypatch.setattr(Ledger, "chain", lambda *_, **__: time.sleep(5.0))
    began = time.monotonic()
    assert with_task(REQUEST, configuration).task == "autoscaling"
    assert time.monotonic() - began < 4.0


def test_while_the_ledger_is_away_what_a_controller_kept_says_it(configuration: Configuration, tmp_path: Path) -> None:
    kept(configuration, configuration.home / "controllers" / "autoscaling" / "nginx")
    kept(configuration, tmp_path / "elsewhere")
    configuration.ledger_path.write_bytes(b"no ledger")
    assert with_task(REQUEST, configuration).task == "autoscaling"
    assert with_task(replace(REQUEST, folder=tmp_path / "elsewhere"), configuration).task == "autoscaling"
    with pytest.raises(AssayError, match="ledger"):
        with_task(replace(REQUEST, folder=tmp_path / "empty"), configuration)
    shutil.rmtree(configuration.ledger_path.parent)
    with pytest.raises(InputError, match="none that can be known"):
        with_task(replace(REQUEST, folder=tmp_path / "empty"), configuration)
