from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.adaptation.splits import SPLITS, Loaded, check_split, files_of, load, loaded, split
from feature_store.errors import InputError
from models.adaptation.learner import Pool

MAPPING = """
workload: {column: workload}
configuration:
  provider: {column: provider, kind: category}
  nodes: {column: nodes}
target: {name: runtime_s, column: runtime}
metrics: {cpu: {column: cpu}}
groups:
  algorithm: {column: algorithm}
"""
# Sums of some twenty squares of size 0.1.
TOLERANCE = 1e-12


def frame(workloads: int = 12, algorithms: int = 4, repeats: int = 2, seed: int = 0) -> pd.DataFrame:
    """Every workload under 3 providers and 5 sizes, `repeats` times; a tenth of the runs is not there."""
    rng = np.random.default_rng(seed)
    rows = [{"workload": f"w{w:02}", "algorithm": f"a{w % algorithms}", "provider": provider, "nodes": 2**size,
             "runtime": float(np.exp(3 + 0.3 * w / workloads - 0.4 * size + 0.1 * rng.normal())),
             "cpu": float(rng.random())}
            for w in range(workloads) for provider in "ABC" for size in range(5) for _ in range(repeats)]
    return pd.DataFrame(rows).sample(frac=0.9, random_state=seed).reset_index(drop=True)


def written(folder: Path, content: pd.DataFrame, mapping: str = MAPPING) -> Loaded:
    content.to_csv(folder / "runs.csv", index=False)
    (folder / "mapping.yaml").write_text(mapping)
    return loaded(folder / "runs.csv", folder / "mapping.yaml")


@pytest.fixture
def data(tmp_path: Path) -> Loaded:
    return written(tmp_path, frame())


def rows_of(pool: Pool, everything: Pool) -> list[int]:
    """Which workloads of the table the pool's are, by what was measured of them."""
    found = []
    for y in pool.y:
        there = ~np.isnan(y)
        match = [row for row, other in enumerate(everything.y) if (other[there] == y[there]).all()]
        assert len(match) == 1
        found += match
    return found


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", SPLITS)
def test_no_workload_is_on_both_sides(data: Loaded, kind: str, seed: int) -> None:
    parts = split(data, kind, seed, "provider")
    known = rows_of(parts.pool, data.table.pool)
    assert not set(known) & set(parts.new)
    assert len(set(parts.new)) == len(parts.new)
    if kind != "algorithm":
        assert len(known) == len(parts.new) == 6


@pytest.mark.parametrize("seed", range(5))
def test_no_algorithm_is_on_both_sides(data: Loaded, seed: int) -> None:
    parts = split(data, "algorithm", seed, "provider")
    groups = data.groups["algorithm"]
    known = set(groups[rows_of(parts.pool, data.table.pool)])
    assert known and not known & set(groups[parts.new])
    assert len(parts.pool.y) + len(parts.new) == 12


@pytest.mark.parametrize("seed", range(5))
def test_pool_has_nothing_of_the_provider_that_is_held_out(data: Loaded, seed: int) -> None:
    parts = split(data, "provider", seed, "provider")
    values = data.table.configurations["provider"].to_numpy()
    held_out = set(values[parts.target])
    assert len(held_out) == 1
    assert (parts.support == parts.target).all() and (parts.target == (values == held_out.pop())).all()
    assert np.isnan(parts.pool.y[:, parts.target]).all() and np.isfinite(parts.pool.y[:, ~parts.target]).any()
    assert (parts.pool.runs[:, parts.target] == 0).all()
    assert np.isnan(parts.pool.metrics[:, parts.target]).all()


@pytest.mark.parametrize("seed", range(5))
def test_pool_knows_nothing_of_the_configurations_to_predict(data: Loaded, seed: int) -> None:
    parts = split(data, "configuration", seed, "provider")
    assert (parts.support != parts.target).all()
    assert parts.support.sum() == 7  # of 15
    assert np.isnan(parts.pool.y[:, parts.target]).all()
    assert (parts.pool.runs[:, parts.target] == 0).all()
    assert np.isnan(parts.pool.metrics[:, parts.target]).all()


def test_unseen_workloads_are_measured_and_predicted_under_all_configurations(data: Loaded) -> None:
    parts = split(data, "workload", 0, "provider")
    assert parts.support.all() and parts.target.all()
    np.testing.assert_array_equal(parts.pool.y, data.table.pool.y[rows_of(parts.pool, data.table.pool)])


@pytest.mark.parametrize("kind", SPLITS)
def test_pools_noise_is_that_of_its_own_runs(data: Loaded, kind: str) -> None:
    parts = split(data, kind, 1, "provider")
    names, squares, degrees = list(data.table.configurations), 0.0, 0
    for row in rows_of(parts.pool, data.table.pool):
        for c, configuration in data.table.configurations.iterrows():
            runs = data.measurements.frame
            own = runs[(runs["workload"] == data.table.workloads[row]) & (runs[names] == configuration).all(axis=1)]
            if parts.pool.runs[row_at(parts.pool, data, row), c]:
                logs = np.log(own["runtime_s"])
                squares, degrees = squares + ((logs - logs.mean()) ** 2).sum(), degrees + len(logs) - 1
    np.testing.assert_allclose(parts.pool.noise, squares / degrees, rtol=TOLERANCE)


def row_at(pool: Pool, data: Loaded, row: int) -> int:
    return rows_of(pool, data.table.pool).index(row)


@pytest.mark.parametrize("kind", SPLITS)
def test_runs_that_the_pool_may_not_know_do_not_change_it(tmp_path: Path, kind: str) -> None:
    """Targets of new workloads and of unknown configurations are ten times what they were, and noisier."""
    content = frame()
    data = written(tmp_path, content)
    parts = split(data, kind, 2, "provider")
    pool_names = {data.table.workloads[row] for row in rows_of(parts.pool, data.table.pool)}
    unknown = {tuple(c) for c in data.table.configurations[np.isnan(parts.pool.y).all(axis=0)].to_numpy()}
    hidden = ~content["workload"].isin(pool_names) | np.array(
        [(row.provider, row.nodes) in unknown for row in content.itertuples()])
    changed = content.assign(runtime=np.where(
        hidden, content["runtime"] * 10 * np.random.default_rng(1).lognormal(size=len(content)), content["runtime"]))
    other = split(written(tmp_path, changed), kind, 2, "provider")
    np.testing.assert_array_equal(other.pool.y, parts.pool.y)
    np.testing.assert_array_equal(other.pool.x, parts.pool.x)
    np.testing.assert_array_equal(other.new, parts.new)
    assert other.pool.noise == parts.pool.noise


def test_noise_is_not_known_where_no_run_of_the_pool_was_repeated(tmp_path: Path) -> None:
    content = frame()
    once = content.drop_duplicates(["workload", "provider", "nodes"])
    assert np.isnan(split(written(tmp_path, once), "workload", 0, "provider").pool.noise)


@pytest.mark.parametrize("kind", SPLITS)
def test_same_seed_gives_the_same_split_and_others_another(data: Loaded, kind: str) -> None:
    first, second = (split(data, kind, 3, "provider") for _ in range(2))
    np.testing.assert_array_equal(first.pool.y, second.pool.y)
    np.testing.assert_array_equal(first.new, second.new)
    assert len({(tuple(parts.new), tuple(parts.target)) for parts in (
        split(data, kind, seed, "provider") for seed in range(6))}) > 1


def test_new_workloads_have_runs_to_measure_and_to_predict(tmp_path: Path) -> None:
    """Workloads with two or three runs in all leave none to predict after three; they are in neither side's way."""
    content = frame()
    few = content["workload"].isin([f"w{w:02}" for w in range(0, 12, 2)])
    kept = pd.concat([content[~few], content[few].groupby("workload").head(3)])
    data = written(tmp_path, kept)
    for seed in range(5):
        parts = split(data, "workload", seed, "provider")
        counts = (~np.isnan(data.table.pool.y)).sum(axis=1)
        assert (counts[parts.new] >= 4).all()


@pytest.mark.parametrize("kind", ["workload", "algorithm", "configuration"])
def test_table_is_left_as_it_is(data: Loaded, kind: str) -> None:
    before = data.table.pool.y.copy(), data.table.pool.runs.copy()
    split(data, kind, 0, "provider")
    np.testing.assert_array_equal(data.table.pool.y, before[0])
    np.testing.assert_array_equal(data.table.pool.runs, before[1])


def test_split_that_leaves_a_side_empty_is_turned_down(tmp_path: Path) -> None:
    content = frame()
    one_provider = written(tmp_path, content[content["provider"] == "A"])
    with pytest.raises(InputError, match="split 'provider' must leave workloads on both sides, got 0 and 6"):
        split(one_provider, "provider", 0, "provider")
    one_algorithm = written(tmp_path, content.assign(algorithm="a"))
    with pytest.raises(InputError, match="split 'algorithm' must leave workloads on both sides, got 0 and 12"):
        split(one_algorithm, "algorithm", 0, "provider")
    two = written(tmp_path, content[content["workload"].isin(["w00", "w01"])])
    with pytest.raises(InputError, match="split 'workload' must leave workloads on both sides, got 1 and 1"):
        split(two, "workload", 0, "provider")


def test_split_without_its_group_or_category_is_turned_down(data: Loaded) -> None:
    with pytest.raises(InputError, match=r"mapping must have the group 'algorithm' .* got no group"):
        check_split(replace(data, groups={}), "algorithm", "provider")
    with pytest.raises(InputError, match="must have the column 'cloud' for the split 'provider', got provider, nodes"):
        split(data, "provider", 0, "cloud")
    with pytest.raises(InputError, match="did you mean 'workload'"):
        split(data, "workloads", 0, "provider")
    check_split(data, "workload", "cloud")  # which needs no category


def test_workload_in_two_groups_is_turned_down(tmp_path: Path) -> None:
    content = frame()
    content.loc[content.index[content["workload"] == "w03"][0], "algorithm"] = "another"
    with pytest.raises(InputError, match="'algorithm' must be the same in all runs of a workload, got 2 of 'w03'"):
        written(tmp_path, content)


def test_groups_are_those_of_the_tables_workloads(data: Loaded) -> None:
    assert data.table.workloads == tuple(f"w{w:02}" for w in range(12))
    assert list(data.groups["algorithm"]) == [f"a{w % 4}" for w in range(12)]


def test_data_set_that_is_not_known_is_turned_down_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'scout'"):
        load("scoot", tmp_path)
    file, mapping = files_of("scout", tmp_path)
    assert file.is_relative_to(tmp_path) and mapping.is_file()
