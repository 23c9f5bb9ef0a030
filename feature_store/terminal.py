"""What Python itself writes to the terminal, escaped: traces, warnings and log lines repeat texts out of files."""

import logging
import sys
import threading
import traceback
import warnings
from types import TracebackType
from typing import Any

from feature_store.names import printable

KEPT = "\n\t"


def print_trace() -> None:
    """The trace of the error that is being handled, on stderr."""
    sys.stderr.write(printable(traceback.format_exc(), KEPT))


def escape_what_python_says() -> None:
    """From now on, in this process: warnings, errors that no thread catches, and what is logged to nobody."""
    warnings.formatwarning = _formatted
    sys.excepthook = _uncaught
    threading.excepthook = _uncaught_in_thread
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_Escaped())


_format_warning = warnings.formatwarning


def _formatted(*arguments: Any, **options: Any) -> str:
    return printable(_format_warning(*arguments, **options), KEPT)


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    sys.stderr.write(printable("".join(traceback.format_exception(kind, error, trace)), KEPT))


def _uncaught_in_thread(failed: threading.ExceptHookArgs) -> None:
    if failed.exc_value is not None and not isinstance(failed.exc_value, SystemExit):  # which ends a thread silently
        _uncaught(failed.exc_type, failed.exc_value, failed.exc_traceback)


class _Escaped(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        return printable(super().format(record), KEPT)
