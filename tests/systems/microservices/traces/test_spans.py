from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from feature_store.errors import InputError
from systems.microservices.traces import spans as module
from systems.microservices.traces.critical_paths import critical_paths
from systems.microservices.traces.spans import PEER, link, read_table
from tests.systems.microservices.traces.made_traces import random_traces, table


def test_parents_are_found_within_the_trace_alone() -> None:
    first = table((1, -1, "a", 0, 100), (2, 1, "b", 10, 50))
    both = pd.concat([first, first.assign(trace=1)], ignore_index=True)

    found = link(both)

    assert found.parent.tolist() == [-1, 0, -1, 2]
    assert found.depth.tolist() == [0, 1, 0, 1]
    assert found.roots.tolist() == [0, 2] and not found.problems


def test_what_is_broken_is_counted_and_never_on_a_path() -> None:
    broken = table((1, -1, "a", 0, 100), (1, -1, "a", 0, 100), (2, 99, "b", 0, 50), (3, 4, "c", 0, 10),
                   (4, 3, "c", 0, 10), (5, 4, "d", 0, 10), (6, 1, "e", 0, -5), (7, -1, "f", 0, 20))

    found = link(broken)

    assert found.problems == {module.REPEATED: 1, module.NEGATIVE: 1, module.ORPHAN: 1, module.LOOP: 3,
                              module.SEVERAL_ROOTS: 1}
    on_path = critical_paths(found).on_path
    assert [found.services[service] for service in found.service[on_path]] == ["a"]


@pytest.mark.parametrize(("column", "value"), [
    ("start_us", None), ("start_us", 10**30), ("start_us", -2**60), ("duration_us", None), ("duration_us", np.inf),
    ("duration_us", "x"), ("trace", None), ("span", None), ("service", None)])
def test_what_lacks_a_time_an_id_or_a_service_is_left_out(column: str, value: object) -> None:
    frame = table((1, -1, "a", 0, 100), (2, 1, "b", 10, 50), (3, 1, "c", 70, 20)).astype({column: object})
    frame.loc[1, column] = value

    found = link(frame)

    assert found.problems == {module.UNUSABLE: 1} and found.duration_us.tolist() == [100, 20]
    assert found.services == ("a", "c") and found.parent.tolist() == [-1, 0]


def test_a_null_parent_is_none_and_leaves_ids_of_64_bits_what_they_are(tmp_path: Path) -> None:
    first = 2**62 + 1
    frame = table((first, None, "a", 0, 100), (first + 1, first, "b", 10, 50)).assign(background=[None, True])
    pq.write_table(pa.table({name: frame[name].tolist() for name in frame}), tmp_path / "spans.parquet")

    found = link(read_table(tmp_path / "spans.parquet"))

    assert found.parent.tolist() == [-1, 0] and not found.problems and found.background.tolist() == [False, True]


def test_the_longest_span_stands_for_a_root_that_is_missing() -> None:
    found = link(table((1, 77, "a", 0, 30), (2, 77, "b", 40, 60), (3, 2, "c", 45, 10)))

    assert found.problems == {module.ROOTLESS: 1, module.ORPHAN: 1}
    assert found.services[found.service[found.roots[0]]] == "b"


def test_spans_that_are_all_in_a_loop_have_no_root() -> None:
    found = link(table((1, 2, "a", 0, 30), (2, 1, "b", 0, 30)))

    assert found.problems == {module.LOOP: 2} and not len(found.roots)
    assert not critical_paths(found).on_path.any()


def test_ids_may_be_texts_and_rows_in_any_order() -> None:
    frame = random_traces(1, 30)
    texts = frame.astype({"span": str, "trace": str}).assign(
        parent=frame["parent"].astype(str).replace("-1", "")).sample(frac=1, random_state=1)

    numbers, shuffled = link(frame), link(texts)

    assert sorted(shuffled.depth) == sorted(numbers.depth) and not shuffled.problems
    assert critical_paths(shuffled).own_us.sum() == critical_paths(numbers).own_us.sum()


def test_a_call_to_what_writes_no_spans_is_the_callees() -> None:
    frame = table((1, -1, "a", 0, 100), (2, 1, "a", 10, 50), (3, 1, "a", 60, 20), (4, 3, "b", 61, 10)).assign(
        **{PEER: ["", "redis", "b", ""]})

    found = link(frame)

    assert [found.services[service] for service in found.service] == ["a", "redis", "a", "b"]


@pytest.mark.parametrize("none", ["", None, np.nan, pd.NA])
@pytest.mark.parametrize("kind", [object, "category"])
def test_a_span_without_a_callee_stays_its_services(tmp_path: Path, none: object, kind: object) -> None:
    """None of its time goes to nobody, or to whom comes last in the alphabet; nor through Parquet."""
    frame = table((1, -1, "a", 0, 100), (2, 1, "b", 10, 50), (3, 1, "a", 60, 20)).assign(
        **{PEER: pd.Series([none, none, "redis"], dtype=object).astype(kind)})
    frame.to_parquet(tmp_path / "spans.parquet")

    for found in (link(frame), link(read_table(tmp_path / "spans.parquet"))):
        assert [found.services[service] for service in found.service] == ["a", "b", "redis"]
        assert found.services == ("a", "b", "redis") and not found.problems


@pytest.mark.parametrize("none", [None, np.nan])
def test_a_span_without_an_operation_has_one_without_a_name(tmp_path: Path, none: object) -> None:
    frame = table((1, -1, "a", 0, 100), (2, 1, "b", 10, 50), (3, 1, "c", 70, 20)).assign(
        operation=pd.Series(["get", none, none], dtype=object))
    frame.to_parquet(tmp_path / "spans.parquet")

    for found in (link(frame), link(read_table(tmp_path / "spans.parquet"))):
        assert [found.operations[operation] for operation in found.operation] == ["get", "", ""]
        assert found.operation.min() == 0


def test_an_empty_table_and_one_without_a_column_are_refused() -> None:
    with pytest.raises(InputError, match="must have spans, got none: 1 spans that end before they start"):
        link(table((1, -1, "a", 0, -1)))
    with pytest.raises(InputError, match="duration_us missing"):
        link(table((1, -1, "a", 0, 1)).drop(columns="duration_us"))
