"""A state folder that was copied or moved is refused until it is adopted, and then is its own."""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from feature_store.errors import AssayError, InputError, RefusedError
from models.configuration import Configuration, load_configuration
from serving.registry import Registry
from serving.relocation import HOME_TAG, adopt, recorded_home, require_own_home
from tests.serving.measured import measured_champion

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")

ROOT = Path(__file__).parents[2]
PAIR = ("performance", "redis")


def at(home: Path) -> Configuration:
    return load_configuration(ROOT / "mlflow.yaml", {"ASSAY_HOME": str(home)})


def files(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
            for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "mlflow.lock"}


def execute(configuration: Configuration, command: str, *values: str) -> None:
    with sqlite3.connect(configuration.home / "mlflow.db") as database:
        database.execute(command, values)
    database.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, bundle_writer: Callable[..., Path], checker: Any) -> Configuration:
    """A state folder with one champion; not to be changed."""
    folder = tmp_path_factory.mktemp("made")
    configuration = at(folder / "home")
    Registry(configuration, checker=checker).register(bundle_writer(folder / "bundle"))
    return configuration


@pytest.fixture
def original(made: Configuration, tmp_path: Path) -> Iterator[Configuration]:
    shutil.copytree(made.home, tmp_path / "original")
    adopt(at(tmp_path / "original"))
    yield at(tmp_path / "original")


def test_a_state_folder_knows_where_it_lies(made: Configuration) -> None:
    assert recorded_home(made) == made.home
    require_own_home(made)
    with pytest.raises(InputError, match="got one where it was made"):
        adopt(made)


def test_a_copy_is_refused_and_the_original_is_left_alone(original: Configuration, tmp_path: Path) -> None:
    shutil.copytree(original.home, tmp_path / "copy")
    before = files(original.home)
    with pytest.raises(RefusedError, match=rf"says, {original.home}, got {tmp_path}/copy; it was copied.*assay adopt"):
        Registry(at(tmp_path / "copy"))
    assert files(original.home) == before


def test_an_adopted_copy_lives_without_the_original(
    original: Configuration, tmp_path: Path, bundle_writer: Callable[..., Path], checker: Any
) -> None:
    shutil.copytree(original.home, tmp_path / "copy")
    (tmp_path / "copy" / "cache").mkdir()
    before, copy = files(original.home), at(tmp_path / "copy")
    done = adopt(copy)
    assert (done.home, done.before) == (copy.home, original.home)
    assert done.paths >= 4, "experiment, run, model and version"
    assert not (copy.home / "cache").exists(), "it names files of the original"
    text = "\n".join(sqlite3.connect(copy.home / "mlflow.db").iterdump())
    assert f"{original.home}/" not in text
    assert f"{copy.home}/artifacts" in text
    registry = Registry(copy, checker=checker)
    champion = measured_champion(1, 2.0)
    registry.register(bundle_writer(tmp_path / "bundle", slope=9.0, champion=champion), champion=champion)
    assert files(original.home) == before
    shutil.rmtree(original.home)
    assert registry.champion(*PAIR) == 2
    registry.open_champion(*PAIR)
    registry.rollback(*PAIR)
    registry.open_champion(*PAIR)


def test_a_moved_folder_is_adopted_and_links_to_it_are_the_same_folder(original: Configuration, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(original.home)
    Registry(at(tmp_path / "link")).open_champion(*PAIR)
    original.home.rename(tmp_path / "moved")
    with pytest.raises(RefusedError, match="assay adopt"):
        require_own_home(at(tmp_path / "moved"))
    adopt(at(tmp_path / "moved"))
    Registry(at(tmp_path / "moved")).open_champion(*PAIR)


def test_a_folder_from_before_homes_were_recorded_is_recognised_and_records_its_own(
    original: Configuration, tmp_path: Path
) -> None:
    execute(original, "delete from experiment_tags where key = ?", HOME_TAG)
    shutil.copytree(original.home, tmp_path / "copy")
    with pytest.raises(RefusedError, match=f"says, {original.home}, got"):
        Registry(at(tmp_path / "copy"))
    Registry(original)
    execute(original, "update experiments set artifact_location = ?", "/elsewhere")
    assert recorded_home(original) == original.home, "by the tag now"


def test_a_folder_whose_name_begins_alike_is_not_rewritten(original: Configuration, tmp_path: Path) -> None:
    execute(original, "update runs set artifact_uri = ?", f"{original.home}-other/artifacts")
    original.home.rename(tmp_path / "moved")
    adopt(at(tmp_path / "moved"))
    with sqlite3.connect(tmp_path / "moved" / "mlflow.db") as database:
        assert database.execute("select artifact_uri from runs").fetchone() == (f"{original.home}-other/artifacts",)
    database.close()


def test_a_server_and_a_new_folder_have_nothing_to_adopt(original: Configuration, tmp_path: Path) -> None:
    server = replace(original, home=tmp_path / "elsewhere", tracking_uri="http://127.0.0.1:9")
    for configuration in (server, at(tmp_path / "new")):
        require_own_home(configuration)
        with pytest.raises(InputError, match="state folder: expected a database of its own"):
            adopt(configuration)


def test_a_broken_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_bytes(b"no database at all, but long enough to be looked at" * 100)
    with pytest.raises(AssayError, match=r"database must be usable, got .*mlflow\.db"):
        require_own_home(at(tmp_path))
