"""The ledger in a table of PostgreSQL: several machines append, and nothing of it is lost. The server is a real one."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest

from feature_store.errors import AssayError, InputError, RefusedError
from models.configuration import load_configuration
from serving.admission import _require_keys
from serving.control.seen_ledger import SeenLedger
from serving.ledger import Ledger
from serving.ledger_heads import registry_heads
from serving.ledger_table import TABLE
from serving.lifecycle import Lifecycle
from serving.state_folder import state_folder
from tests.e2e.services import IS_INSTALLED, PASSWORD, Server, database
from tests.serving.conftest import FakeStore, accept, write_bundle
from tests.serving.test_ledger import HISTORY, ROOT, move
from tests.serving.test_lifecycle import PAIR

pytestmark = pytest.mark.skipif(not IS_INSTALLED, reason="needs Debian's postgresql")

Keys = tuple[Path, Path]
APPEND = """
import sys
from pathlib import Path
from serving.ledger import Ledger
from serving.moves import Move
address, public, private, workload, count = sys.argv[1:]
ledger = Ledger(address, Path(public), Path(private))
for version in range(1, int(count) + 1):
    ledger.append([Move("register", "2026-01-31T12:00:00+00:00", "t", workload, "m", version, None, "a" * 64, True,
                        "r", workload)])
    print(version, flush=True)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[Server, str]]:
    with pytest.MonkeyPatch.context() as patch, database() as (made, url):
        patch.setenv("PGPASSWORD", PASSWORD)
        yield made, url


@pytest.fixture
def address(server: tuple[Server, str], request: pytest.FixtureRequest) -> str:
    """Of a fresh database."""
    name = f"t{abs(hash(request.node.name))}"
    with psycopg.connect(server[1], autocommit=True) as connection:
        connection.execute(f"create database {name}")
    return server[1].removesuffix("/postgres") + f"/{name}"


@pytest.fixture
def ledger(address: str, keys: Keys) -> Ledger:
    return Ledger(address, keys[1], keys[0])


@pytest.fixture
def filled(ledger: Ledger) -> Ledger:
    for moves in HISTORY:
        ledger.append(moves)
    return ledger


def execute(address: str, command: str) -> None:
    with psycopg.connect(address) as connection:
        connection.execute(command)


def writer(address: str, keys: Keys, workload: str, count: int) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", APPEND, address, str(keys[1]), str(keys[0]), workload, str(count)],
                            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_what_is_appended_is_read_back_chained_and_verified(ledger: Ledger) -> None:
    assert ledger.verify() == () and not ledger.is_there()
    for moves in HISTORY:
        ledger.append(moves)
    assert [entry.move for entry in ledger.verify()] == [item for moves in HISTORY for item in moves]
    assert ledger.is_there() and ledger.champion_of("performance", "redis") == 1


def test_it_holds_the_lines_that_a_file_would_hold(filled: Ledger, keys: Keys, tmp_path: Path) -> None:
    """So that one can be made from the other."""
    path = tmp_path / "promotions.jsonl"
    path.write_bytes(b"".join(entry.line for entry in filled.verify()))
    assert Ledger(path, keys[1]).verify() == filled.verify()


def test_two_writers_at_once_lose_nothing(ledger: Ledger, address: str, keys: Keys) -> None:
    writers = [writer(address, keys, name, 50) for name in ("first", "second")]
    for process in writers:
        _, error = process.communicate(timeout=120)
        assert process.returncode == 0, error
    moves = [entry.move for entry in ledger.verify()]
    assert len(moves) == 100
    for name in ("first", "second"):
        assert [one.version for one in moves if one.workload == name] == list(range(1, 51))
    assert any(one.workload != other.workload for one, other in pairwise(moves))


def test_a_killed_holder_frees_the_ledger(filled: Ledger, address: str, keys: Keys) -> None:
    program = ("import sys, time\nfrom pathlib import Path\nfrom serving.ledger import Ledger\n"
               "with Ledger(sys.argv[1], Path(sys.argv[2])).locked():\n    print('held', flush=True)\n"
               "    time.sleep(600)")
    process = subprocess.Popen([sys.executable, "-c", program, address, str(keys[1])], cwd=ROOT,
                               stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    message = r"must be free within 0\.2 s, another process holds it"
    with pytest.raises(AssayError, match=message), filled.locked(timeout_s=0.2):
        pass
    process.kill()
    process.wait()
    process.stdout.close()
    with filled.locked(timeout_s=5.0):
        assert len(filled.append([move("register", 9, 1)])) == 1


def test_threads_wait_for_each_other_and_one_may_nest(filled: Ledger) -> None:
    refused: list[str] = []

    def other() -> None:
        try:
            with filled.locked(timeout_s=0.2):
                pass
        except AssayError as error:
            refused.append(str(error))

    with filled.locked(), filled.locked():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        filled.append([move("register", 9, 1)])
    assert len(refused) == 1 and "another process holds it" in refused[0]


def test_who_lost_the_connection_lost_the_lock_and_appends_nothing(filled: Ledger, address: str, keys: Keys) -> None:
    """A server that was restarted has freed the lock: another may have appended since."""
    with pytest.raises(AssayError, match="ledger must be written, and `assay history` says whether it was"):
        with filled.locked():
            execute(address, "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory'")
            Ledger(address, keys[1], keys[0]).append([move("register", 9, 1)])
            filled.append([move("register", 10, 1)])
    assert filled.verify()[-1].move.version == 9
    filled.append([move("register", 10, 1)])


@pytest.mark.parametrize(("change", "message"), [
    ("update {} set line = convert_to(replace(convert_from(line, 'UTF8'), 'ann', 'bob'), 'UTF8') where sequence = 6",
     "hash must be that of the entry"),
    ("delete from {} where sequence = 4", "sequence must be 4, got 5"),
    ("delete from {} where sequence = 8", "that the registry saw for m"),
    ("drop table {}", "that the registry saw for m"),
])
def test_whoever_changes_a_row_is_found_out(filled: Ledger, address: str, change: str, message: str) -> None:
    heads = registry_heads({"m": filled.verify()[-1].head})
    execute(address, change.format(TABLE))
    with pytest.raises(RefusedError, match=message):
        filled.verify(heads)


def test_the_database_takes_no_second_entry_of_one_number(filled: Ledger, address: str) -> None:
    with pytest.raises(psycopg.errors.UniqueViolation):
        execute(address, f"insert into {TABLE} select * from {TABLE} where sequence = 8")


def test_a_role_that_may_read_and_add_can_write_and_not_rewrite(filled: Ledger, address: str, keys: Keys) -> None:
    execute(address, f"create role writer login password '{PASSWORD}'; grant select, insert on {TABLE} to writer; "
                     f"create role reader login password '{PASSWORD}'; grant select on {TABLE} to reader")
    as_writer, as_reader = (address.replace("assay@", f"{role}@") for role in ("writer", "reader"))
    Ledger(as_writer, keys[1], keys[0]).append([move("register", 9, 1)])
    assert len(Ledger(as_reader, keys[1]).verify()) == 10
    with pytest.raises(AssayError, match="permission denied"):
        Ledger(as_reader, keys[1], keys[0]).append([move("register", 10, 1)])
    for command in (f"delete from {TABLE}", f"update {TABLE} set sequence = 77 where sequence = 9"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            execute(as_writer, command)


def test_a_controller_reads_it_and_refuses_an_older_one(filled: Ledger, address: str, keys: Keys, tmp_path: Path
                                                        ) -> None:
    state = state_folder(tmp_path, address, keys[1])
    (tmp_path / "controller").mkdir()
    seen = SeenLedger(state, tmp_path / "controller")
    assert seen.standings()["performance", "redis"].champion == 1
    execute(address, f"delete from {TABLE} where sequence = 8")
    with pytest.raises(RefusedError, match="ledger must hold entry"):
        SeenLedger(state, tmp_path / "controller").standings()
    execute(address, f"truncate {TABLE}")
    with pytest.raises(AssayError, match="ledger must be there, got none"):
        seen.standings()


def test_registrations_and_their_audit_go_by_it(address: str, tmp_path: Path, fake_store: FakeStore) -> None:
    configuration = replace(load_configuration(ROOT / "mlflow.yaml", {"ASSAY_HOME": str(tmp_path / "home")}),
                            ledger_path=address)
    lifecycle = Lifecycle(configuration, fake_store, "tester", lambda: datetime(2026, 1, 1, tzinfo=UTC), accept)
    assert lifecycle.register(write_bundle(tmp_path / "bundle")).alias == "champion"
    assert lifecycle.champion(*PAIR) == 1 and not list((tmp_path / "home/ledger").rglob("*.jsonl"))
    assert lifecycle.registry_audit.audit() == ()
    fake_store.set_alias("assay.performance.redis", "champion", None)
    assert [drift.alias for drift in lifecycle.reconcile()] == ["champion"]
    configuration.private_key_path.unlink()
    with pytest.raises(RefusedError, match="expected one beside the ledger"):
        _require_keys(configuration)


def test_a_ledger_that_is_away_or_locked_up_is_one_line(server: tuple[Server, str], address: str, keys: Keys,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(address, keys[1], keys[0])
    ledger.append([move("register", 1)])
    with ledger.locked():
        server[0].kill()
        with pytest.raises(AssayError, match=r"ledger must be readable, got .*refused") as caught:
            ledger.append([move("register", 2)])
        assert "\n" not in str(caught.value)
    server[0].start()
    ledger.append([move("register", 2)])
    monkeypatch.setenv("PGPASSWORD", "wrong")
    with pytest.raises(AssayError, match='password authentication failed for user "assay"') as caught:
        ledger.verify()
    assert "\n" not in str(caught.value) and "wrong" not in str(caught.value)


@pytest.mark.parametrize(("address", "message"), [
    ("postgresql://assay:secret@host/mlflow", "address without a password"),
    ("postgresql://host/mlflow?color=red", "expected postgresql://user@host/database"),
])
def test_an_address_with_a_password_or_another_mistake_is_refused(address: str, message: str, keys: Keys) -> None:
    with pytest.raises(InputError, match=message) as caught:
        Ledger(address, keys[1])
    assert "secret" not in str(caught.value)


def test_keys_are_rotated_and_revoked_on_a_ledger_in_a_table(address: str, tmp_path: Path) -> None:
    configuration = load_configuration(ROOT / "mlflow.yaml", {"ASSAY_HOME": str(tmp_path / "home")})
    lifecycle = Lifecycle(replace(configuration, ledger_path=address), FakeStore(tmp_path / "store"), "ann",
                          lambda: datetime(2026, 1, 31, 12, tzinfo=UTC), accept)
    lifecycle.register(write_bundle(tmp_path / "bundle"))
    old, new = lifecycle.keys.rotate()
    lifecycle.keys.revoke(old, "stolen")
    ledger = Ledger(address, configuration.public_key_path)
    assert [(entry.move.action, entry.move.bundle_sha256) for entry in ledger.verify()[3:]] == [
        ("rotate_key", new), ("revoke_key", old)]
    assert ledger.champion_of(*PAIR) == 1
    with pytest.raises(RefusedError, match="got another key"):
        lifecycle.open_champion(*PAIR)
    assert [one.problem for one in lifecycle.keys.sign_again()] == [""]
    assert lifecycle.open_champion(*PAIR)
    execute(address, f"delete from {TABLE} where sequence = 4")
    with pytest.raises(RefusedError, match="must be signed with the project's key"):
        ledger.standings()
