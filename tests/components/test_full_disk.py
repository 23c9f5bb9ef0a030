"""A disk that is full at registration: an error, nothing half-registered, nothing lost; with room it goes on."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from feature_store.errors import AssayError
from models.configuration import Configuration
from pipelines.run_summary import run_exit_code
from serving.bundle import check_bundle
from serving.ledger import Ledger
from tests.components.small_disk import fill, small_disk
from tests.components.steps import IGNORED_WARNING, Steps, prepare, project
from tests.e2e import tiny

pytestmark = pytest.mark.filterwarnings(IGNORED_WARNING)

PAIR = ("tiny", "redis")


@dataclass(frozen=True)
class SmallHome:
    """Version 1 is champion; version 2 has passed its gates and waits to be registered."""

    configuration: Configuration
    second: Steps

    def versions(self) -> list[int]:
        import mlflow

        client = mlflow.MlflowClient(self.configuration.tracking_uri, self.configuration.tracking_uri)
        found = client.search_model_versions("name = 'assay.tiny.redis'")
        return sorted(int(version.version) for version in found)

    def ledger(self) -> Ledger:
        return Ledger(self.configuration.ledger_path, self.configuration.public_key_path)


@pytest.fixture(scope="module")
def small_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallHome]:
    folder = tmp_path_factory.mktemp("full")
    with small_disk(folder / "home", 24 * 1024), project(folder) as configuration:
        first = prepare(folder, tiny.telemetry(), tiny.task(("redis",)))
        first.train()
        first.gate()
        assert first.register()["redis"]["status"] == "registered"
        first.report("first")
        second = replace(first, folder=folder / "second", seed=1)
        second.train()
        assert second.gate()
        yield SmallHome(configuration, second)


@pytest.mark.parametrize("leave_kb", [0, 48])
def test_nothing_is_registered_and_the_champion_stays(small_home: SmallHome, leave_kb: int) -> None:
    home, before = small_home.configuration.home, small_home.ledger().verify()
    filler = fill(home, leave_kb)
    try:
        message = refusal(small_home.second)
    finally:
        filler.unlink()
    assert "space" in message or "full" in message
    assert small_home.ledger().verify() == before
    assert small_home.ledger().champion_of(*PAIR) == 1
    kept = home / "bundles" / "tiny" / "redis"
    assert [path.name for path in kept.iterdir()] == ["1"]
    check_bundle(kept / "1", small_home.configuration.public_key_path, deep=True)


def test_with_room_again_the_same_step_registers(small_home: SmallHome) -> None:
    entry = small_home.second.register()["redis"]
    assert entry["status"] == "registered"
    standing = small_home.ledger().standing(*PAIR)
    assert sorted(standing.registered) == small_home.versions() and len(standing.registered) == 2
    assert run_exit_code(small_home.second.report("second")) == 0


def refusal(steps: Steps) -> str:
    """The message: of the workload, or of the step where the disk leaves no room for anything."""
    try:
        entry = steps.register()["redis"]
    except AssayError as error:
        return str(error)
    assert entry["status"] == "error" and "version" not in entry
    assert run_exit_code({"entries": [entry]}) == 1
    return str(entry["message"])


def test_a_report_that_cannot_be_written_is_an_error_of_the_step(small_home: SmallHome) -> None:
    filler = fill(small_home.configuration.home)
    try:
        with pytest.raises((AssayError, OSError)):
            small_home.second.report("third")
    finally:
        filler.unlink()
    last = small_home.second.events()[-1]
    assert (last["event"], last["exit_code"]) == ("failed", 2)
    assert Path(small_home.second.report("third")["report"]).is_file()
