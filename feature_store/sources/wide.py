"""A wide file, with columns for each workload (`web_latency`, `db_latency`), as one plain mapping for each of them.

Flow: sources/files.py asks for the mappings of a file by its header, and reads the file once with each. What a name
means follows from the mapping alone: it must be `{workload}_{column}`, or whatever the pattern is, with a `column` that
the mapping asks for. Nothing is guessed: a name with two readings is refused with both.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from feature_store.errors import InputError, nearest
from feature_store.mapping import ColumnSource, Label, TelemetryMapping


def plain_mappings(mapping: TelemetryMapping, header: Sequence[str], where: str) -> tuple[TelemetryMapping, ...]:
    """The mapping itself; of a wide file one for each workload, by name.

    Args:
        mapping: as its user wrote it.
        header: names of the file's columns.
        where: the file, as errors name it.

    Raises:
        InputError: a column is neither there as it stands nor for any workload, or both; a name has two readings; a
            workload has some of its columns only.
    """
    pattern = mapping.workload.column_names
    if pattern is None:
        return (mapping,)
    asked = tuple(dict.fromkeys(source.column for source in mapping.columns.values()))
    own = _readings(pattern, asked, header)
    names_of: dict[str, dict[str, str]] = {}
    for file_column, (workload, column) in _unambiguous(own, mapping, header, where):
        names_of.setdefault(workload, {})[column] = file_column
    for column in asked:
        _require_everywhere(column, names_of, pattern, header, where)
    return tuple(_of_workload(mapping, workload, names_of[workload]) for workload in sorted(names_of))


def _readings(pattern: str, asked: Sequence[str], header: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    """Column of the file -> every (workload, asked column) that its name can mean."""
    found: dict[str, list[tuple[str, str]]] = {}
    for column in asked:
        parts = [re.escape(part) for part in re.split(r"\{(?:workload|column)\}", pattern)]
        pieces = ["(.+)", re.escape(column)]
        first, second = pieces if pattern.index("{workload}") < pattern.index("{column}") else reversed(pieces)
        names = re.compile(parts[0] + first + parts[1] + second + parts[2], re.DOTALL)
        for name in header:
            if match := names.fullmatch(name):
                found.setdefault(name, []).append((match[1], column))
    return found


def _unambiguous(own: Mapping[str, list[tuple[str, str]]], mapping: TelemetryMapping, header: Sequence[str],
                 where: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """(column of the file, its one reading). Raises InputError: there are two."""
    as_they_stand = set(mapping.source_columns()) & set(header)
    for name, readings in own.items():
        texts = [f"{column!r} of workload {workload!r}" for workload, column in readings]
        texts += [f"{name!r} of all workloads"] if name in as_they_stand else []
        if len(texts) > 1:
            raise InputError(f"column {name!r} must have one meaning, got {' and '.join(texts)} ({where}, asked for by "
                             f"{mapping.where}); rename it, or a `column` of the mapping")
        yield name, readings[0]


def _require_everywhere(column: str, names_of: Mapping[str, Mapping[str, str]], pattern: str, header: Sequence[str],
                        where: str) -> None:
    """A column is there as it stands, or once for each workload."""
    having = [workload for workload, names in names_of.items() if column in names]
    wanted = pattern.replace("{column}", column)
    if column in header and having:
        raise InputError(f"column {column!r} must stand once for all workloads or once for each, got {column!r} and "
                         f"{names_of[having[0]][column]!r} ({where}); rename one of them")
    if column not in header and not having:
        raise InputError(f"expected columns named {wanted!r} or one {column!r}, got none ({where}); "
                         + nearest(wanted, header))
    if column not in header and (lacking := sorted(set(names_of) - set(having))):
        missing = wanted.replace("{workload}", lacking[0])
        raise InputError(f"expected a column {missing!r}, as {having[0]!r} has one, got none ({where}); "
                         + nearest(missing, header))


def _of_workload(mapping: TelemetryMapping, workload: str, names: Mapping[str, str]) -> TelemetryMapping:
    columns = {name: ColumnSource(names.get(source.column, source.column), source.factor)
               for name, source in mapping.columns.items()}
    return replace(mapping, workload=Label(constant=workload), columns=columns)
