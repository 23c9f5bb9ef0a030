"""The audit of measurements of workloads under configurations: made ones, and public ones whose shares are known."""

import itertools
import json
import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from feature_store.errors import InputError
from feature_store.measurement_mapping import load_measurement_mapping
from feature_store.measurements import load_measurements
from models.adaptation.encoding import Encoder, Table, table_of
from models.adaptation.learner import Pool
from models.audit.table_audit import TableAudit, audit_table, products_of

ROOT = Path(__file__).parents[3]
DATA = Path(os.environ.get("ASSAY_DATA", ROOT.parent / "shared" / "data"))
FILES = {"cloudbandit": DATA / "cloudbandit" / "multi-cloud-configuration.csv",
         "scout": DATA / "scout" / "scout_from_bbo_arena_random_search.csv"}
PRODUCTS = {"total_cores": ("cores", "nodes")}
SIZES = [(cores, nodes) for cores in (2.0, 4.0, 8.0) for nodes in (1.0, 2.0, 3.0, 4.0)]


def made(effects: dict[str, float], noise: float = math.nan, runs: int = 1) -> Table:
    """Run time = nodes ** effect, a workload an effect, over two types, three sizes and four numbers of nodes."""
    cells = [(kind, cores, nodes, cores * nodes) for kind in "ab" for cores, nodes in SIZES]
    configurations = pd.DataFrame(cells, columns=["type", "cores", "nodes", "total_cores"])
    y = np.log(configurations["nodes"].to_numpy())[None] * np.array(list(effects.values()))[:, None]
    count = len(configurations)
    pool = Pool(np.zeros((count, 1)), np.zeros((1, count, count)), y, np.full(y.shape, runs), np.empty((*y.shape, 0)),
                noise ** 2)
    return Table(tuple(effects), configurations, Encoder(()), pool)


def of_nodes(table: Table) -> TableAudit:
    return audit_table(table, {"nodes": "decreasing"}, products=PRODUCTS)["nodes"]


def measured(name: str) -> Table:
    path = FILES[name]
    if not path.is_file():
        pytest.skip(f"the public measurements are not at {path} (set ASSAY_DATA)")
    return table_of(load_measurements(path, load_measurement_mapping(ROOT / "examples" / "sizing" / f"{name}.yaml")))


def test_each_workload_is_audited_by_itself_and_exceptions_are_named() -> None:
    found = of_nodes(made({"fast": -1.0, "slow": 0.5, "flat": -0.5}))
    assert {name: (own.pairs, own.obeys) for name, own in found.workloads.items()} == {
        "fast": (36, 1.0), "slow": (36, 0.0), "flat": (36, 1.0)}
    assert found.overall.pairs == 3 * 36 and math.isclose(found.overall.obeys, 2 / 3)
    assert found.exceptions == ("slow",)


def test_three_workloads_say_less_of_a_fourth_than_their_pairs_do_of_themselves() -> None:
    found = of_nodes(made({"a": -1.0, "b": 0.5, "c": -0.5}))
    assert found.overall.obeys_interval.upper - found.overall.obeys_interval.lower > 0.8
    assert found.overall.verdict == "undecided"


def test_a_product_moves_with_its_factors_and_without_it_nothing_differs_in_one_column_alone() -> None:
    table = made({"a": -1.0})
    found = audit_table(table, {"cores": "decreasing", "total_cores": "decreasing"}, products=PRODUCTS)
    differ = sum(a * b != c * d for (a, b), (c, d) in itertools.combinations(SIZES, 2))
    assert found["cores"].overall.pairs == 2 * 4 * 3 and found["total_cores"].overall.pairs == 2 * differ
    assert audit_table(table, {"cores": "decreasing"})["cores"].overall.kind == "none"


def test_worst_pairs_name_workload_and_configurations_and_show_no_logarithms() -> None:
    table = made({"fast": -1.0, "slow": 0.5})
    worst = of_nodes(table).overall.worst[0]
    assert worst.workload == "slow" and (worst.low_value, worst.high_value) == (1.0, 4.0)
    assert table.configurations.loc[[worst.low, worst.high], "nodes"].tolist() == [1.0, 4.0]
    assert worst.low_target == pytest.approx(1.0) and worst.high_target == pytest.approx(2.0)
    assert worst.violation == pytest.approx(math.log(2))


def test_the_noise_of_a_mean_shrinks_with_its_runs() -> None:
    shares = [of_nodes(made({"slow": 0.1}, 0.06, runs)).overall.within_noise for runs in (1, 100)]
    assert shares == [1.0, 0.0]


def test_configurations_that_were_not_measured_are_left_out() -> None:
    table = made({"a": -1.0, "b": -1.0})
    y = table.pool.y.copy()
    y[0, 1:] = np.nan
    found = of_nodes(replace(table, pool=replace(table.pool, y=y)))
    assert found.workloads["a"].kind == "none" and found.workloads["a"].verdict == "undecided"
    assert found.overall.pairs == found.workloads["b"].pairs == 36


def test_json_is_strict() -> None:
    found = of_nodes(made({"a": 1.0}))
    written = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert written["exceptions"] == ["a"] and written["workloads"]["a"]["noise"] is None
    assert written["overall"]["worst"][0]["workload"] == "a"


def test_unknown_columns_and_categories_are_refused() -> None:
    with pytest.raises(InputError, match="did you mean 'nodes'"):
        audit_table(made({"a": 1.0}), {"node": "decreasing"})
    with pytest.raises(InputError, match="numbers"):
        audit_table(made({"a": 1.0}), {"type": "decreasing"})


def test_products_are_those_of_the_mapping() -> None:
    assert products_of(load_measurement_mapping(ROOT / "examples" / "sizing" / "scout.yaml")) == PRODUCTS


def test_cloudbandit_obeys_within_its_noise_and_where_runs_are_long() -> None:
    table = measured("cloudbandit")
    rules = {"nodes": "decreasing", "vcpu": "decreasing"}
    found = audit_table(table, rules)  # type: ignore[arg-type]
    assert [round(found[name].overall.obeys, 2) for name in rules] == [0.79, 0.84]
    assert [round(found[name].overall.within_noise, 2) for name in rules] == [0.93, 0.95]
    assert [found[name].overall.verdict for name in rules] == ["obeyed", "obeyed"]
    long = np.flatnonzero(np.exp(np.nanmedian(table.pool.y, axis=1)) > 30)
    part = replace(table, workloads=tuple(table.workloads[i] for i in long), pool=table.pool.part(long))
    found = audit_table(part, rules)  # type: ignore[arg-type]
    assert all(found[name].overall.obeys > 0.91 for name in rules)


def test_scout_obeys_but_for_a_workload_and_contradicts_that_memory_helps() -> None:
    table = measured("scout")
    found = audit_table(table, {"cores": "decreasing", "nodes": "decreasing", "total_cores": "decreasing"},
                        products=PRODUCTS)
    for audited in found.values():
        assert audited.overall.verdict == "obeyed" and 0.9 <= audited.overall.obeys <= 0.96
        assert audited.exceptions[0] == "spark_lr_huge" and len(audited.exceptions) <= 2
        assert audited.workloads["spark_lr_huge"].obeys < 0.5
        assert math.isnan(audited.overall.noise)
    kind = table.configurations["type"]
    per_core = kind.str[0].map({"c": 2.0, "m": 4.0, "r": 8.0})  # GB, nominal
    derived = table.configurations.drop(columns="type").assign(generation=kind.str[1:], memory=per_core)
    memory = audit_table(replace(table, configurations=derived), {"memory": "decreasing"})["memory"]
    assert 0.38 <= memory.overall.obeys <= 0.57 and memory.overall.verdict == "contradicted"
