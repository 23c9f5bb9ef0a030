"""What a controller file asks of a Prometheus server for one value."""

from dataclasses import dataclass

from serving.control.file_part import FilePart

FRESH_S, TIMEOUT_S = 60.0, 5.0  # oldest measurement; longest wait for all of a step together


@dataclass(frozen=True)
class Query:
    """Of one input. newest: PromQL of the Unix time of the newest sample, "" where it is not asked for."""

    query: str
    scale: float = 1.0
    newest: str = ""
    fresh_s: float = FRESH_S


def read_query(signals: FilePart, name: str, newest: str = "", fresh_s: float = FRESH_S) -> Query:
    """A query as it stands under its input's name: its text alone, or a mapping.

    Args:
        newest, fresh_s: of the file, where it says none of its own.

    Raises:
        InputError: it is none.
    """
    if not signals.has_mapping(name):
        return Query(signals.text(name), 1.0, newest, fresh_s)
    one = signals.part(name)
    one.only(("query", "scale", "newest", "fresh_s"))
    return Query(one.text("query"), one.number("scale", 1.0), one.text("newest", newest),
                 one.number("fresh_s", fresh_s))
