"""Verifies the chain of a ledger's entries, and remembers what this process has verified.

Two depths. The chain: every entry's content and place, each hash recomputed, every move against the rules, and the LAST
entry's signature. All signatures: each entry's own too. A controller needs the chain alone, for it is as strong:

    The last signature is over the last entry's content, which holds the hash of the entry before, which is over that
    entry's content, and so on to the first. Whoever could change, remove, insert or reorder an earlier entry under an
    unchanged last signature had found two contents with one SHA-256. And the key signs nothing on top of entries that
    do not verify (Ledger.append checks all signatures first), so the owner of the key vouches for every entry below the
    one that is signed. What the chain does not see is damage to an earlier entry's signature itself, which no decision
    reads; `assay history` and every append look at those as well. Neither depth sees that the end was cut off, for a
    prefix of a chain is a chain: that is what heads are for (serving/ledger_heads.py).

The same holds up entries whose key was revoked: what stands below a revoke_key entry is there because of that entry,
which an accepted key signed, and the signatures below it are not looked at. Without such an entry all signatures fail
at the first that is by no accepted key. What is signed by a revoked key above the entry fails at both depths.

Nothing of this is kept on the disk: a file that says "verified" would have to be trusted as much as the key. In memory
the verified bytes themselves are kept, and a ledger that begins with exactly these need only be verified from there on.
"""

import threading
from dataclasses import dataclass, replace
from pathlib import Path

from serving.keys import PublicKeys
from serving.ledger_entry import GENESIS, Entry, check_link, check_signature, parse_entry
from serving.moves import KEY_ACTIONS, Standing, Track

Pair = tuple[str, str]


@dataclass(frozen=True)
class Chain:
    """Entries that were verified together.

    Attributes:
        data: their lines, as they stand in the ledger.
        standings: by (task, workload).
        signed: number of entries from the first on whose own signature was checked, or which a revocation vouches for.
    """

    data: bytes = b""
    entries: tuple[Entry, ...] = ()
    standings: tuple[tuple[Pair, Standing], ...] = ()
    signed: int = 0

    @property
    def last_hash(self) -> str:
        """What the next entry has to name."""
        return self.entries[-1].hash if self.entries else GENESIS

    def holds(self, head: str) -> bool:
        """Whether one of the entries has this head."""
        number = head.partition(":")[0]
        # before int(): the head of a stranger may be any text
        is_number = number.isascii() and number.isdigit() and len(number) <= _MOST_DIGITS
        return is_number and int(number) < len(self.entries) and self.entries[int(number)].head == head


_MOST_DIGITS = 18  # of an entry's number
_LEDGERS_REMEMBERED = 4  # ledgers that a process remembers; a controller has one
_remembered: dict[tuple[Path | str, tuple[str, ...]], Chain] = {}
_lock = threading.Lock()


def verified_chain(
    path: Path | str, lines: list[bytes], keys: PublicKeys, every_signature: bool
) -> Chain:
    """The chain of the complete lines of the ledger at `path`, or at an address.

    Args:
        keys: the accepted ones.
        every_signature: look at each entry's own signature, not only at the last one's.

    Raises:
        RefusedError: naming the first entry that does not hold.
    """
    data = b"".join(line + b"\n" for line in lines)
    name = (path.absolute() if isinstance(path, Path) else path, tuple(keys.by_fingerprint))
    with _lock:
        chain = _remembered.get(name, Chain())
    if not data.startswith(chain.data):
        chain = Chain()
    chain = _signed(_extended(chain, data, lines[len(chain.entries) :], path), chain, keys, path, every_signature)
    with _lock:
        _remembered.pop(name, None)
        _remembered[name] = chain
        for old in list(_remembered)[:-_LEDGERS_REMEMBERED]:
            del _remembered[old]
    return chain


def _extended(chain: Chain, data: bytes, lines: list[bytes], path: Path | str) -> Chain:
    if not lines:
        return chain
    entries, standings = list(chain.entries), dict(chain.standings)
    tracks: dict[Pair, Track] = {}
    for number, line in enumerate(lines, start=len(entries)):
        where = f"{path}, entry {number}"
        entry = parse_entry(line, where)
        check_link(entry, number, entries[-1].hash if entries else GENESIS, where)
        entries.append(entry)
        if entry.move.action in KEY_ACTIONS:
            continue
        pair = (entry.move.task, entry.move.workload)
        if pair not in tracks:
            tracks[pair] = Track(standings.get(pair, Standing()))
        tracks[pair].apply(entry.move, where)
    standings.update((pair, track.standing()) for pair, track in tracks.items())
    return Chain(data, tuple(entries), tuple(standings.items()), chain.signed)


def _signed(chain: Chain, before: Chain, keys: PublicKeys, path: Path | str, every_signature: bool) -> Chain:
    if chain is before and (chain.signed == len(chain.entries) or not every_signature):
        return chain
    first = len(chain.entries) - 1
    if every_signature:
        revocations = (entry.sequence for entry in reversed(chain.entries) if entry.move.action == "revoke_key")
        first = max(chain.signed, next(revocations, 0))
    for entry in chain.entries[first:]:
        check_signature(entry, keys, f"{path}, entry {entry.sequence}")
    return replace(chain, signed=len(chain.entries)) if every_signature else chain
