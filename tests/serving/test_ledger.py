"""The ledger holds every move in order; whoever changes one byte of it is found out."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from feature_store.errors import AssayError, InputError, RefusedError
from serving import ledger_chain
from serving.canonical import canonical_json
from serving.keys import load_private_key
from serving.ledger import Ledger
from serving.ledger_entry import GENESIS, parse_entry, sign_entry
from serving.ledger_heads import head_file, pinned_head, registry_heads
from serving.moves import Move

Keys = tuple[Path, Path]
ROOT = Path(__file__).parents[2]
SHA = "a" * 64


def move(action: Any, version: int, previous: int | None = None, **changes: Any) -> Move:
    values: dict[str, Any] = {
        "action": action,
        "at": "2026-01-31T12:00:00+00:00",
        "task": "performance",
        "workload": "redis",
        "model": "assay.performance.redis",
        "version": version,
        "previous_version": previous,
        "bundle_sha256": SHA,
        "gates_passed": action != "reject",
        "reason": "because",
        "actor": "test",
    }
    return Move(**{**values, **changes})


HISTORY = [
    [move("register", 1), move("challenger", 1), move("champion", 1)],
    [move("reject", 2, 1)],
    [move("register", 3, 1), move("challenger", 3, 1)],
    [move("approve", 3, 1, actor="ann", reason='looks good: ünïcode \n and "quotes"')],
    [move("register", 1, workload="nginx", model="assay.performance.nginx")],
    [move("rollback", 1, 3)],
]


@pytest.fixture
def ledger(tmp_path: Path, keys: Keys) -> Ledger:
    return Ledger(tmp_path / "ledger" / "promotions.jsonl", keys[1], keys[0])


@pytest.fixture
def filled(ledger: Ledger) -> Ledger:
    for moves in HISTORY:
        ledger.append(moves)
    return ledger


def test_an_empty_ledger_has_no_champion(ledger: Ledger) -> None:
    assert ledger.verify() == ()
    assert ledger.champion_of("performance", "redis") is None
    assert not ledger.path.parent.exists(), "reading creates nothing"


def test_what_is_appended_is_read_back_chained_and_verified(filled: Ledger) -> None:
    entries = filled.verify()
    assert [entry.move for entry in entries] == [item for moves in HISTORY for item in moves]
    assert [entry.sequence for entry in entries] == list(range(9))
    assert entries[0].previous_hash == GENESIS
    assert [entry.previous_hash for entry in entries[1:]] == [entry.hash for entry in entries[:-1]]
    assert entries[3].head == f"3:{entries[3].hash}"
    assert len(filled.history("performance", "redis")) == 8
    assert len(filled.history(workload="nginx")) == 1
    assert len(filled.history("other")) == 0


def test_the_standing_follows_the_moves(filled: Ledger) -> None:
    standing = filled.standing("performance", "redis")
    assert standing.champion == filled.champion_of("performance", "redis") == 1
    assert standing.previous_champion is None
    assert standing.challenger is None
    assert standing.rejected == {2}
    assert set(standing.registered) == {1, 3}
    assert standing.last_version == 3
    assert filled.champion_of("performance", "nginx") is None


@pytest.mark.parametrize(
    ("moves", "message"),
    [
        ([move("champion", 1)], "version must be registered with its gates passed"),
        ([move("reject", 1), move("challenger", 1)], "version must be registered with its gates passed"),
        ([move("register", 1), move("register", 1)], "version must be new"),
        ([move("reject", 1), move("register", 1)], "version must be new"),
        ([move("register", 0)], "version must be new"),
        ([move("register", 1, gates_passed=False)], "gates must fit the move"),
        ([move("reject", 1, gates_passed=True)], "gates must fit the move"),
        ([move("register", 1, 7)], "previous_version must be the champion None, got 7"),
        ([move("register", 1), move("champion", 1, bundle_sha256="b" * 64)], "bundle must be the registered"),
        ([move("register", 1), move("champion", 1), move("approve", 1, 1)], "champion already"),
        ([move("register", 1), move("champion", 1), move("rollback", 1, 1)], "the champion before, None"),
        (
            [move("register", 1), move("register", 2), move("champion", 1), move("champion", 2)],
            "previous_version must be the champion 1, got None",
        ),
    ],
)
def test_a_move_that_breaks_a_rule_is_not_written(ledger: Ledger, moves: list[Move], message: str) -> None:
    with pytest.raises(RefusedError, match=message):
        ledger.append(moves)
    assert not ledger.path.exists()


@pytest.mark.parametrize("at", ["", "yesterday", "2026-01-31T12:00:00", "2026-01-31T12:00:00+02:00"])
def test_a_time_that_is_not_utc_is_not_written(ledger: Ledger, at: str) -> None:
    with pytest.raises(InputError, match="at must be a UTC time"):
        ledger.append([move("register", 1, at=at)])


@pytest.mark.parametrize("changes", [{"workload": "../../../precious"}, {"task": "a/b"}, {"workload": "a\n"}])
def test_a_name_that_is_a_path_is_neither_written_nor_read(
    filled: Ledger, keys: Keys, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=r"must hold only letters.*new entry 9\)"):
        filled.append([move("register", 1, **changes)])
    monkeypatch.setattr("serving.ledger.check_move", lambda move, where: None)
    filled.append([move("register", 1, **changes)])
    for call in (filled.verify, filled.standings):
        with pytest.raises(RefusedError, match=r"must hold only letters.*entry 9\)"):
            call()


def test_without_the_private_key_it_reads_and_does_not_write(filled: Ledger, keys: Keys) -> None:
    reader = Ledger(filled.path, keys[1])
    assert reader.verify() == filled.verify()
    with pytest.raises(InputError, match="expected a private key to write with"):
        reader.append([move("register", 9, 1)])


def test_the_wrong_key_is_refused_for_reading_and_for_writing(filled: Ledger, other_keys: Keys) -> None:
    stranger = Ledger(filled.path, other_keys[1], other_keys[0])
    with pytest.raises(RefusedError, match=r"entry 0\)"):
        stranger.verify()
    with pytest.raises(RefusedError, match="must be signed with the project's key"):
        stranger.append([move("register", 9, 1)])


def lines(ledger: Ledger) -> list[bytes]:
    return ledger.path.read_bytes().splitlines(keepends=True)


def edited(line: bytes, **changes: Any) -> bytes:
    return canonical_json({**json.loads(line), **changes}) + b"\n"


def rewritten(line: bytes, ledger: Ledger, keys: Keys, **changes: Any) -> bytes:
    """An entry changed by someone who can compute hashes and has another key."""
    entry = parse_entry(line.rstrip(b"\n"), "test")
    changed = Move(**{**vars(entry.move), **changes})
    forged = sign_entry(load_private_key(keys[0]), changed, entry.sequence, entry.previous_hash)
    return canonical_json(forged.to_json()) + b"\n"


DAMAGE: dict[str, tuple[Callable[[list[bytes]], list[bytes]], str]] = {
    "version changed": (lambda x: [*x[:4], edited(x[4], version=9), *x[5:]], "entry 4"),
    "reason changed": (lambda x: [*x[:6], edited(x[6], reason="no"), *x[7:]], "entry 6"),
    "time changed": (lambda x: [edited(x[0], at="2020-01-01T00:00:00+00:00"), *x[1:]], "entry 0"),
    "hash changed": (lambda x: [*x[:4], edited(x[4], hash="0" * 64), *x[5:]], "entry 4"),
    "signature of another entry": (
        lambda x: [*x[:4], edited(x[4], signature=json.loads(x[3])["signature"]), *x[5:]],
        "entry 4",
    ),
    "signature empty": (lambda x: [*x[:4], edited(x[4], signature=""), *x[5:]], "entry 4"),
    "first removed": (lambda x: x[1:], "entry 0"),
    "middle removed": (lambda x: [*x[:4], *x[5:]], "entry 4"),
    "two swapped": (lambda x: [*x[:3], x[4], x[3], *x[5:]], "entry 3"),
    "one repeated": (lambda x: [*x[:4], x[3], *x[4:]], "entry 4"),
    "last repeated": (lambda x: [*x, x[-1]], "entry 9"),
    "empty line": (lambda x: [*x[:4], b"\n", *x[4:]], "entry 4"),
    "not JSON": (lambda x: [*x[:4], b"hello\n", *x[4:]], "entry 4"),
    "other spacing": (lambda x: [*x[:4], x[4].replace(b'":', b'": '), *x[5:]], "entry 4"),
    "unknown key": (lambda x: [*x[:4], edited(x[4], extra=1), *x[5:]], "entry 4"),
    "number as text": (lambda x: [*x[:4], edited(x[4], version="3"), *x[5:]], "entry 4"),
    "truth value as number": (lambda x: [*x[:4], edited(x[4], version=True), *x[5:]], "entry 4"),
    "unknown action": (lambda x: [*x[:4], edited(x[4], action="delete"), *x[5:]], "entry 4"),
    "half a line in the middle": (lambda x: [*x[:4], x[4][:50] + b"\n", *x[5:]], "entry 4"),
    "windows line ends": (lambda x: [line.replace(b"\n", b"\r\n") for line in x], "entry 0"),
}


@pytest.mark.parametrize(("damage", "where"), DAMAGE.values(), ids=DAMAGE.keys())
def test_damage_is_refused_naming_the_entry_and_is_not_repaired(
    filled: Ledger, damage: Callable[[list[bytes]], list[bytes]], where: str
) -> None:
    data = b"".join(damage(lines(filled)))
    filled.path.write_bytes(data)
    for call in (filled.verify, lambda: filled.append([move("register", 9, 1)])):
        with pytest.raises(RefusedError, match=rf"{where}\b"):
            call()
    assert filled.path.read_bytes() == data
    assert not filled.path.with_name("promotions.jsonl.torn").exists()


def test_an_entry_forged_with_another_key_is_refused(filled: Ledger, other_keys: Keys) -> None:
    before = lines(filled)
    forged = rewritten(before[-1], filled, other_keys, reason="forged")
    filled.path.write_bytes(b"".join([*before[:-1], forged]))
    with pytest.raises(RefusedError, match=r"signed with the project's key.*entry 8\)"):
        filled.verify()


def test_an_old_entry_rewritten_with_the_right_key_breaks_the_chain(filled: Ledger, keys: Keys) -> None:
    before = lines(filled)
    forged = rewritten(before[3], filled, keys, reason="rewritten history")
    filled.path.write_bytes(b"".join([*before[:3], forged, *before[4:]]))
    with pytest.raises(RefusedError, match=r"previous_hash must be .*entry 4\)"):
        filled.verify()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_changed_byte_goes_unnoticed(filled: Ledger, data: st.DataObject) -> None:
    original = filled.path.read_bytes()
    position = data.draw(st.integers(0, len(original) - 2))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != original[position]))
    filled.path.write_bytes(original[:position] + bytes([byte]) + original[position + 1 :])
    try:
        with pytest.raises(RefusedError, match="entry"):
            filled.verify()
    finally:
        filled.path.write_bytes(original)


@pytest.mark.parametrize("cut", [1, 2, 100, 400])
def test_a_line_that_a_crash_tore_is_left_out_and_set_aside_by_the_next_writer(
    filled: Ledger, cut: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Crash(BaseException):
        pass

    written: list[bytes] = []

    def die(data: bytes) -> None:
        written.append(data[:-cut])
        with filled.path.open("ab") as file:
            file.write(data[:-cut])
        raise Crash

    whole = filled.path.read_bytes()
    monkeypatch.setattr(filled._place, "_write", die)
    with pytest.raises(Crash):
        filled.append([move("register", 9, 1)])
    monkeypatch.undo()
    assert len(filled.verify()) == 9, "the entry was never acted upon: its writer had not returned"
    assert filled.path.read_bytes() == whole + written[0], "reading repairs nothing: a writer may be in the middle"
    added = filled.append([move("register", 9, 1)])
    assert added[0].sequence == 9
    assert len(filled.verify()) == 10
    assert filled.path.with_name("promotions.jsonl.torn").read_bytes() == written[0] + b"\n"


@pytest.mark.parametrize("cut", [1, 2, 100, 400])
def test_a_last_line_that_was_cut_after_its_writer_had_returned_is_refused(filled: Ledger, cut: int) -> None:
    filled.path.write_bytes(filled.path.read_bytes()[:-cut])
    damaged = filled.path.read_bytes()
    for call in (filled.verify, filled.standings, lambda: filled.append([move("register", 9, 1)])):
        message = r"hold entry '8:.* that promotions\.jsonl\.head remembers.*its last line was cut off.*accept the loss"
        with pytest.raises(RefusedError, match=message):
            call()
    assert filled.path.read_bytes() == damaged
    head_file(filled.path).unlink()  # as the message says
    assert filled.append([move("register", 9, 3)])[0].sequence == 8


def test_a_tail_cut_at_a_line_is_visible_by_the_heads_alone(filled: Ledger) -> None:
    pinned = pinned_head(filled.verify()[-1].head)
    filled.path.write_bytes(b"".join(lines(filled)[:-2]))
    with pytest.raises(RefusedError, match="its end was cut off or it was replaced"):
        filled.verify()
    head_file(filled.path).unlink()
    assert len(filled.verify()) == 7
    for heads in (pinned, registry_heads({"m": pinned[0].value})):
        with pytest.raises(RefusedError, match="its end was cut off or it was replaced"):
            filled.standings(heads)


@pytest.mark.parametrize("content", ["", "x", "3", "99:abc", "\x00", "8:" + "0" * 64])
def test_a_head_file_that_fits_no_entry_is_refused_and_names_the_way_out(filled: Ledger, content: str) -> None:
    head_file(filled.path).write_text(content)
    with pytest.raises(RefusedError, match=r"delete .*promotions\.jsonl\.head to accept the loss"):
        filled.verify()


def test_of_a_head_file_of_any_size_a_line_is_read(filled: Ledger) -> None:
    head_file(filled.path).write_text("9" * 1_000_000)
    with pytest.raises(RefusedError, match="to accept the loss") as caught:
        filled.verify()
    assert len(str(caught.value)) < 1000


def test_a_head_that_could_not_be_written_stays_behind_and_refuses_nothing(
    filled: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any, **options: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    before = head_file(filled.path).read_text()
    monkeypatch.setattr("serving.ledger_heads.write_file", full)
    filled.append([move("register", 9, 1)])
    assert head_file(filled.path).read_text() == before
    assert len(filled.verify()) == 10


# How deep a reader looks


def test_an_earlier_signature_that_was_damaged_is_seen_by_history_and_append_alone(filled: Ledger) -> None:
    """It is no part of what the last signature covers, and no decision reads it."""
    before, expected = lines(filled), filled.standings()
    damaged = edited(before[4], signature=json.loads(before[3])["signature"])
    filled.path.write_bytes(b"".join([*before[:4], damaged, *before[5:]]))
    assert filled.standings() == expected
    for call in (filled.verify, filled.history, lambda: filled.append([move("register", 9, 1)])):
        with pytest.raises(RefusedError, match=r"signed with the project's key.*entry 4\)"):
            call()


def test_the_last_signature_is_checked_by_every_reader(filled: Ledger, other_keys: Keys) -> None:
    before = lines(filled)
    for last in (
        rewritten(before[-1], filled, other_keys, reason="forged"),
        edited(before[-1], signature=""),
        edited(before[-1], signature=json.loads(before[3])["signature"]),
    ):
        filled.path.write_bytes(b"".join([*before[:-1], last]))
        head_file(filled.path).unlink(missing_ok=True)
        with pytest.raises(RefusedError, match=r"signed with the project's key.*entry 8\)"):
            filled.standings()


def test_a_chain_that_was_made_anew_by_another_key_is_refused(
    filled: Ledger, tmp_path: Path, other_keys: Keys, keys: Keys
) -> None:
    """Every hash holds, and the true last entry cannot be put on top of it."""
    forger = Ledger(tmp_path / "forged.jsonl", other_keys[1], other_keys[0])
    forger.append([*HISTORY[0], move("reject", 2, 1, reason="forged")])
    reader = Ledger(forger.path, keys[1])
    with pytest.raises(RefusedError, match=r"signed with the project's key.*entry 3\)"):
        reader.standings()
    forger.path.write_bytes(forger.path.read_bytes() + b"".join(lines(filled)[4:]))
    head_file(forger.path).unlink()
    with pytest.raises(RefusedError, match=r"previous_hash must be .*entry 4\)"):
        reader.standings()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_changed_byte_outside_of_earlier_signatures_goes_unnoticed_by_a_controller(
    filled: Ledger, data: st.DataObject
) -> None:
    original, expected = filled.path.read_bytes(), filled.standings()
    position = data.draw(st.integers(0, len(original) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != original[position]))
    filled.path.write_bytes(original[:position] + bytes([byte]) + original[position + 1 :])
    reader = Ledger(filled.path, filled._public_key_path)
    try:
        found = reader.standings()
        number = original[:position].count(b"\n")
        before, after_change = json.loads(lines_of(original)[number]), json.loads(lines(filled)[number])
        assert number < 8 and {**before, "signature": ""} == {**after_change, "signature": ""}
        assert found == expected
    except RefusedError:
        pass
    finally:
        filled.path.write_bytes(original)


def lines_of(data: bytes) -> list[bytes]:
    return data.splitlines(keepends=True)


def test_what_was_verified_once_is_not_verified_again_in_this_process(
    filled: Ledger, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled.verify()
    looked: list[str] = []
    parse = ledger_chain.parse_entry
    monkeypatch.setattr(ledger_chain, "parse_entry", lambda line, where: (looked.append(where), parse(line, where))[1])
    Ledger(filled.path, keys[1]).standings()
    assert looked == [], "another ledger object of this process has verified it"
    filled.append([move("register", 9, 1)])
    filled.verify()
    assert [where.rpartition(" ")[2] for where in looked] == ["9"]
    looked.clear()
    data = filled.path.read_bytes()
    filled.path.write_bytes(data.replace(b'"because"', b'"BECAUSE"', 1))
    with pytest.raises(RefusedError, match="hash must be that of the entry"):
        Ledger(filled.path, keys[1]).standings()
    assert looked, "the bytes are compared, not the time or the size of the file"


def test_of_ten_thousand_entries_each_is_read_once_and_one_signature_checked(
    ledger: Ledger, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves: list[Move] = []
    for version in range(1, 5001):
        previous = version - 1 or None
        moves += [move("register", version, previous), move("champion", version, previous)]
    ledger.append(moves)
    counted = dict.fromkeys(("parse_entry", "check_signature"), 0)

    def counting(name: str) -> Callable[..., Any]:
        original = getattr(ledger_chain, name)

        def call(*arguments: Any) -> Any:
            counted[name] += 1
            return original(*arguments)

        return call

    for name in counted:
        monkeypatch.setattr(ledger_chain, name, counting(name))
    reader = Ledger(ledger.path, keys[1])
    for _ in range(2):
        assert reader.champion_of("performance", "redis") == 5000
        assert counted == {"parse_entry": 10_000, "check_signature": 1}


def test_a_full_disk_records_nothing(filled: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    before = filled.path.read_bytes()
    write = os.write

    def half(descriptor: int, data: bytes) -> int:
        return write(descriptor, data[: len(data) // 2])

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    for fake in (half, full):
        monkeypatch.setattr(os, "write", fake)
        with pytest.raises(AssayError, match="must be written in full, got No space left"):
            filled.append([move("register", 9, 1)])
        assert filled.path.read_bytes() == before
    monkeypatch.undo()
    filled.append([move("register", 9, 1)])
    assert len(filled.verify()) == 10


def test_a_torn_line_that_cannot_be_set_aside_records_nothing(filled: Ledger) -> None:
    with filled.path.open("ab") as file:
        file.write(b'{"half')
    torn = filled.path.read_bytes()
    filled.path.with_name("promotions.jsonl.torn").mkdir()
    with pytest.raises(AssayError, match="must be written in full, got Is a directory"):
        filled.append([move("register", 9, 1)])
    assert filled.path.read_bytes() == torn


def test_a_failed_sync_records_nothing(filled: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    before = filled.path.read_bytes()

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(AssayError, match="Input/output error"):
        filled.append([move("register", 9, 1)])
    assert filled.path.read_bytes() == before


APPEND = """
import sys
from pathlib import Path
from serving.ledger import Ledger
from serving.moves import Move
path, public, private, first, count = sys.argv[1:]
ledger = Ledger(Path(path), Path(public), Path(private))
for version in range(int(first), int(first) + int(count)):
    with ledger.locked():
        champion = ledger.champion_of("t", "w")
        common = dict(at="2026-01-31T12:00:00+00:00", task="t", workload="w", model="m", version=version,
                      previous_version=champion, bundle_sha256="a" * 64, gates_passed=True,
                      reason="r", actor="a")
        ledger.append([Move(action="register", **common), Move(action="champion", **common)])
    print(version, flush=True)
"""


def start(ledger: Ledger, keys: Keys, first: int, count: int) -> subprocess.Popen[str]:
    arguments = [str(ledger.path), str(keys[1]), str(keys[0]), str(first), str(count)]
    return subprocess.Popen(
        [sys.executable, "-c", APPEND, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


def test_processes_that_append_at_once_leave_one_chain_and_one_champion(ledger: Ledger, keys: Keys) -> None:
    started = [start(ledger, keys, first, 8) for first in (100, 200, 300)]
    for process in started:
        process.communicate(timeout=60)
        assert process.returncode == 0
    entries = ledger.verify()
    assert len(entries) == 48
    champions = [entry.move for entry in entries if entry.move.action == "champion"]
    assert [item.previous_version for item in champions[1:]] == [item.version for item in champions[:-1]]
    assert ledger.champion_of("t", "w") == champions[-1].version


def test_a_killed_writer_loses_nothing_it_had_reported(ledger: Ledger, keys: Keys) -> None:
    process = start(ledger, keys, 1, 1000)
    assert process.stdout is not None
    reported = [int(process.stdout.readline()) for _ in range(5)]
    process.send_signal(signal.SIGKILL)
    reported += [int(line) for line in process.communicate(timeout=60)[0].split()]
    assert process.returncode == -signal.SIGKILL
    recorded = {entry.move.version for entry in ledger.verify() if entry.move.action == "champion"}
    assert set(reported) <= recorded
    champion = ledger.champion_of("t", "w")
    ledger.append([move("register", 5000, champion, task="t", workload="w")])
    ledger.verify()


def test_a_held_lock_is_waited_for_and_then_named(filled: Ledger, keys: Keys) -> None:
    other = Ledger(filled.path, keys[1], keys[0])
    with filled.locked():
        with filled.locked():
            filled.append([move("register", 9, 1)])
        start_s = time.monotonic()
        message = r"must be free within 0\.1 s, another process holds it"
        with pytest.raises(AssayError, match=message), other.locked(timeout_s=0.1):
            pass
        assert time.monotonic() - start_s < 5
    with other.locked(timeout_s=0.1):
        other.append([move("register", 10, 1)])


def test_an_unreadable_ledger_is_named(tmp_path: Path, keys: Keys) -> None:
    ledger = Ledger(tmp_path, keys[1], keys[0])
    with pytest.raises(InputError, match="ledger must be a readable file"):
        ledger.verify()
    blocked = Ledger(tmp_path / "file" / "ledger.jsonl", keys[1], keys[0])
    (tmp_path / "file").write_text("")
    with pytest.raises(AssayError, match="ledger must be"):
        blocked.append([move("register", 1)])
