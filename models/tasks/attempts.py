"""One workload's error must not sink the others."""

from collections.abc import Callable

from feature_store.errors import AssayError, UnavailableError
from feature_store.terminal import print_trace


def attempt(work: Callable[[], None]) -> str:
    """Why `work` raised, "" where it did not. The log keeps the trace of what is a defect.

    Raises:
        UnavailableError: as `work` did: a service that is away is no workload's error.
    """
    try:
        work()
    except UnavailableError:
        raise
    except AssayError as error:
        return str(error) or type(error).__name__
    except (Exception, SystemExit) as error:  # a library that gives up ends its own workload alone
        print_trace()
        return f"{type(error).__name__}: {error}"
    return ""
