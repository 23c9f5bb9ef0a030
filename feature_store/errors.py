"""The one exception family of the project.

It lives in the lowest layer because every layer raises it. The command line maps a family
member to its exit code: 2 for bad usage or input, 1 where the job itself said no.
A message reads `<thing> must <rule>, got <value> (<where>)`, then what to do next.
"""

from collections.abc import Iterable
from difflib import get_close_matches

LISTED = 20  # names that a message lists at most


class AssayError(Exception):
    """Base of every error that this project raises on purpose. Exit code 2.

    As a text it is one line, also where it passes on what a library says in several.
    """

    exit_code = 2

    def __str__(self) -> str:
        return " ".join(line.strip() for line in super().__str__().splitlines() if line.strip())


class InputError(AssayError):
    """A file, a column, a value or an option is unusable. Exit code 2."""


class MissingToolError(AssayError):
    """A program or an extra is not installed; the message carries the install command. Exit code 2."""


class SourceError(AssayError):
    """A telemetry source (Prometheus, a file, the host) did not deliver. Exit code 2."""


class UnavailableError(AssayError):
    """A service did not answer: what it holds may be whole, and the same command goes on later. Exit code 2."""


class RefusedError(AssayError):
    """The job said no: a gate failed, a proof is missing, a signature is wrong. Exit code 1."""

    exit_code = 1


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint naming the known name nearest to `name`, or where none is near the first of them, and how many more."""
    known = sorted(known)
    close = get_close_matches(name, known, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    more = f" and {len(known) - LISTED:,} more" if len(known) > LISTED else ""
    return f"known: {', '.join(known[:LISTED]) or 'none'}{more}"
