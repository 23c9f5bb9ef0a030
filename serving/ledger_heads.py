"""Who remembers the ledger's end, and what is said where the ledger no longer reaches it.

A ledger whose end was cut off is a valid, shorter chain. So its end (the head: "<sequence>:<sha256 of the entry>") is
remembered outside of it, by three that fail in different ways:

    <ledger>.head     beside one that is a file, written after every append: an editor, a full disk, a restored old copy
    the registry      a tag of every registered model, the last entry about it: whoever can write the folder alone
    a caller          `least_head`, pinned by a controller: whoever can write folder and registry

An incomplete last line is no cut end where nobody remembers it: its writer crashed before it had returned, nothing was
done upon it, and the next writer sets it aside. Where somebody does remember it, its end is gone.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from feature_store.errors import InputError, RefusedError
from feature_store.whole_files import read_regular, write_file
from serving.ledger_chain import Chain

HEAD_TAG = "assay.ledger_head"
LONGEST = 200  # characters of a head file that are read: a head has 64 digits of a hash, a colon and a number


@dataclass(frozen=True)
class Head:
    """A remembered end of the ledger.

    Attributes:
        value: "<sequence>:<sha256 of the entry>".
        witness: who remembers it.
        loss: how to accept that it is gone, where no backup is left.
    """

    value: str
    witness: str
    loss: str


def registry_heads(heads: Mapping[str, str]) -> tuple[Head, ...]:
    """Of registered models: name -> head tag."""
    return tuple(Head(value, f"the registry saw for {model}", f"delete the tag {HEAD_TAG} of {model}")
                 for model, value in sorted(heads.items()))


def pinned_head(least_head: str | None) -> tuple[Head, ...]:
    """Of a caller; None: he has none."""
    if least_head is None:
        return ()
    return (Head(least_head, "the caller pins as the least head", "pin the head that `assay history` prints"),)


def head_file(ledger: Path) -> Path:
    """Where the head is kept beside a ledger."""
    return ledger.with_name(f"{ledger.name}.head")


def read_head_file(ledger: Path) -> tuple[Head, ...]:
    """The head beside a ledger; none where there is no such file. Read it before the ledger, which may be growing.

    Raises:
        InputError: there is one that cannot be read.
    """
    path = head_file(ledger)
    try:
        head = read_regular(path, LONGEST).decode("ascii", "replace").strip()
        return (Head(head, f"{path.name} remembers", f"delete {path}"),)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise InputError(f"head of the ledger must be a readable file, got {error.strerror} ({path})") from error


def write_head_file(ledger: Path, head: str) -> None:
    """Replaces the head beside a ledger. On a full disk an older one stays, which any longer ledger fits."""
    with contextlib.suppress(OSError):
        write_file(head_file(ledger), f"{head}\n")


def require_heads(chain: Chain, heads: tuple[Head, ...], path: Path | str, is_torn: bool) -> None:
    """Refuses a ledger that does not hold an entry that somebody remembers.

    Args:
        path: of the ledger, or its address.
        is_torn: whether the ledger goes on with an incomplete line.

    Raises:
        RefusedError: naming the entry, who remembers it, and the ways out.
    """
    gone = [head for head in heads if not chain.holds(head.value)]
    if not gone:
        return
    what = "its last line was cut off" if is_torn else "its end was cut off or it was replaced"
    others = f" (and {len(gone) - 1} more that are remembered)" if len(gone) > 1 else ""
    raise RefusedError(
        f"ledger must hold entry {gone[0].value!r} that {gone[0].witness}{others}, got {len(chain.entries)} complete "
        f"entries without it ({path}); {what}: restore it from a backup. Where there is none, "
        f"{'; '.join(head.loss for head in gone)} to accept the loss"
    )
