"""What adaptation costs: gradient steps and seconds until a new workload's error is within 2 % of its converged one.

    python -m benchmarks adaptation-cost [--data cloudbandit scout performance shifted] [--seeds 0 1 ...]

Three starts of the same base learner on the same rows (monotone by construction, Adam, mean squared error):

    pretrained  the pool's base learner, told the workload's embedding (sizing) or given a new head (performance)
    transfer    a network that was trained to the end on one other workload (sizing, performance) or on the same one
                in the base campaign (shifted), then trained on: parameter transfer as FIRM's
    scratch     fresh weights

Sizing: half of the workloads are new, three random runs each; the rows are the few-shot features that the pipeline
makes, errors are of the configurations that were not run. Performance: each recorded workload is left out once, with
100 or all of its training rows. `shifted`: the five workloads' second campaign, from a pool of the first. Beside each
start's own converged error, the one that fresh weights reach is asked of all. All networks of a data set and seed are
one tensor operation (batched_training.py). Pools of several sizes give the amortisation of
Qiu's thesis, appendix A.7, figure A.5: pretraining and n adaptations against n transfers.

Sizing also says whether the error can be foreseen: the rank correlation of the error before adaptation with the
embedding's similarity to the pool (thesis, section 5.6.3) and with the closed form's own deviation.
"""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from benchmarks.adaptation.splits import load
from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.data_folder import add_data_folder, required
from benchmarks.harness.entries import Entries, made_by
from benchmarks.harness.machine import describe_machine, load_average, now_utc
from benchmarks.harness.result_file import RESULTS
from benchmarks.harness.task_digest import with_task
from benchmarks.learning.batched_training import (
    Curves,
    FloatArray,
    Networks,
    fresh,
    steps_to_converge,
    steps_to_reach,
    train,
)
from feature_store.scaling import MinMaxScaling
from feature_store.splits import split_by_group
from models.tasks.few_shot.features import OWN, Adapted, adapt, learn_pool, pool_rows
from models.tasks.few_shot.model_inputs import inputs_of
from models.tasks.few_shot.settings import FewShot
from models.tasks.supervised.task import SupervisedTask
from models.tasks.task import load_task
from models.training.pretraining import POOL_HEAD, WorkloadData, pretrain
from models.training.settings import TrainingSettings

OUTPUT = RESULTS / "adaptation_cost.json"
FORMAT = "assay-adaptation-cost/1"
SIZING, DATA = ("cloudbandit", "scout"), ("cloudbandit", "scout", "performance", "shifted")
SEEDS = tuple(range(10))
RECORDED_SEEDS = 5  # of the recorded campaigns, whose networks have hundreds of test rows
POOL_SIZES = (4, 8, 0)  # 0: all of the half
HIDDEN, STEPS, EVERY, RATE = (64, 64), 1200, 20, 2e-3
SETTINGS = TrainingSettings(trunk_width=64, pretrain_epochs=20, learning_rate=RATE)
FEW_ROWS = 100
CAMPAIGNS = Path(__file__).resolve().parents[2] / "data"
Rows = list[tuple[FloatArray, FloatArray, FloatArray, FloatArray]]  # x, y, x_test, y_test of each network


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    add_data_folder(parser)


def run(options: argparse.Namespace) -> None:
    """Makes the entries that are missing."""
    torch.set_num_threads(1)
    code = with_task(load_task("performance"), code_digest("benchmarks.adaptation.cost", ""))
    results = Entries(options.output, FORMAT, _key, made_by(code))
    results.content |= {"machine": describe_machine(), "steps": STEPS, "every": EVERY, "within": 0.02,
                        "hidden": list(HIDDEN)}
    for data in options.data:
        for seed in options.seeds:
            if results.has((DATA.index(data), seed)) or (data not in SIZING and seed >= RECORDED_SEEDS):
                continue
            began = time.monotonic()
            made = _sizing(data, seed, required(options.data_folder)) if data in SIZING else _recorded(data, seed)
            results.add(*({"data": data, "seed": seed, **entry, "code": code, "at": now_utc(), "load": load_average()}
                          for entry in made))
            print(f"{time.monotonic() - began:6.0f} s  {data}, seed {seed}", file=sys.stderr, flush=True)


def _key(entry: Mapping[str, Any]) -> tuple[int, int]:
    return DATA.index(entry["data"]), entry["seed"]


def _sizing(data: str, seed: int, folder: Path) -> list[dict[str, Any]]:
    """One entry a pool size; its `workloads` are the new ones."""
    measured = load(data, folder)
    table, rng = measured.table, np.random.default_rng(seed)
    order = rng.permutation(len(table.workloads))
    half = len(order) // 2
    inputs = inputs_of(measured.measurements.mapping, table.configurations)
    demand = measured.measurements.mapping.task or {}
    columns = [one.name for one in inputs]
    queries = [(columns.index(name), 1 if direction == "increasing" else -1)
               for name, direction in demand["demand"].items()]
    entries = []
    for size in POOL_SIZES:
        pool = tuple(table.workloads[i] for i in sorted(order[half:][: size or None]))
        settings = FewShot(pool=pool, bases="random", embedding=min(8, len(pool)))
        knowledge = learn_pool(table, inputs, settings, seed)
        new = [table.workloads[i] for i in sorted(order[:half])
               if (~np.isnan(table.pool.y[i])).sum() > settings.runs]
        adapted = [adapt(knowledge, name, settings, "target", seed) for name in new]
        shared = pool_rows(knowledge, settings, seed)
        scaling, span, base = _scaling(shared, adapted)
        rows = [_scaled(made, scaling, base, span) for made in adapted]
        relative = [span] * len(rows)
        source = _source(knowledge.values, table.pool.y[table.rows([pool[seed % len(pool)]])[0]], scaling, base, span)
        started = time.process_time()
        pretrained = pretrain({POOL_HEAD: WorkloadData(
            (*columns, *settings.inputs), scaling.scale(shared[:, :-1]), (shared[:, -1] - base) / span,
            queries)}, SETTINGS, seed)
        seconds = time.process_time() - started
        one = Networks.of([pretrained.start("new", [*columns, *settings.inputs], HIDDEN, queries, "monotone", seed)])
        first = fresh(1, len(columns) + settings.embedding, HIDDEN, queries, seed)
        to_source = train(first, [source[0]], [source[1]], [source[0]], [source[1]], queries, STEPS, EVERY, RATE, seed,
                          [span])
        # without an embedding, rows at other embeddings than the own would be other answers to the same question
        own = OWN * len(knowledge.values)
        plain = [(_without(x[:own], len(columns)), y[:own], _without(x_test, len(columns)), y_test)
                 for x, y, x_test, y_test in rows]
        starts = {"pretrained": (one.pick([0] * len(rows)), rows), "transfer": (first.pick([0] * len(rows)), plain),
                  "scratch": (fresh(len(rows), len(columns) + settings.embedding, HIDDEN, queries, seed + 1), rows)}
        facts = [made.facts for made in adapted]
        entries.append({
            "pool": len(pool), "rows": None, "workloads": new,
            "pretraining": {"steps": SETTINGS.pretrain_epochs * -(-len(shared) // (2 * SETTINGS.batch_size)),
                            "seconds": seconds},
            "source_steps": float(steps_to_converge(to_source)[0][0]),
            "methods": _measured(starts, queries, seed, relative),
            "foreseen": {"similarity": [own["similarity"] for own in facts],
                         "deviation": [float(made.options["deviation"].mean()) for made in adapted],
                         "flagged": [own["out_of_distribution"] for own in facts],
                         "closed_form_mape": [own["closed_form_mape"] for own in facts]}})
    return entries


def _recorded(data: str, seed: int) -> list[dict[str, Any]]:
    """One entry a number of training rows; its `workloads` are those left out, or those of the second campaign."""
    task = load_task("performance")
    names = list(task.workloads)
    joint = tuple(dict.fromkeys(q.name for name in names for q in task.features(name)))
    queries = [(joint.index(name), 1) for name in ("psi_cpu_some", "psi_io_full", "psi_io_some")]
    base = {name: _telemetry(task, name, "base", joint) for name in names}
    entries = []
    for few in (FEW_ROWS, None):
        rng = np.random.default_rng(seed)
        if data == "shifted":
            rows = [_telemetry(task, name, "shifted", joint, base[name][4]) for name in names]
        else:
            rows = [base[name] for name in names]
        new_rows: Rows = []
        for x, y, x_test, y_test, _ in rows:
            part = rng.permutation(len(x))[: few or len(x)]
            new_rows.append((x[part], y[part], x_test, y_test))
        started, modules = time.process_time(), []
        for name in names:
            pool = {other: WorkloadData(joint, base[other][0], base[other][1], queries) for other in names
                    if data == "shifted" or other != name}
            if data != "shifted" or not modules:
                pretrained = pretrain(pool, SETTINGS, seed)
            modules.append(pretrained.start(name, joint, HIDDEN, queries, "monotone", seed))
        seconds = (time.process_time() - started) / (1 if data == "shifted" else len(names))
        source = [names[i] if data == "shifted" else names[(i + 1 + seed % (len(names) - 1)) % len(names)]
                  for i in range(len(names))]
        first = fresh(len(names), len(joint), HIDDEN, queries, seed)
        to_source = train(first, [base[name][0] for name in source], [base[name][1] for name in source],
                          [base[name][2] for name in source], [base[name][3] for name in source], queries, STEPS, EVERY,
                          RATE, seed)
        starts = {"pretrained": (Networks.of(modules), new_rows), "transfer": (first, new_rows),
                  "scratch": (fresh(len(names), len(joint), HIDDEN, queries, seed + 1), new_rows)}
        count = sum(len(rows[0]) for rows in base.values())
        entries.append({
            "pool": len(names) - (data != "shifted"), "rows": few, "workloads": names,
            "pretraining": {"steps": SETTINGS.pretrain_epochs * -(-count // (2 * SETTINGS.batch_size)),
                            "seconds": seconds},
            "source_steps": float(steps_to_converge(to_source)[0].mean()),
            "methods": _measured(starts, queries, seed, None)})
    return entries


def _measured(starts: dict[str, tuple[Networks, Rows]], queries: Sequence[tuple[int, int]], seed: int,
              relative: Sequence[float] | None) -> dict[str, Any]:
    entry: dict[str, Any] = {}
    bar: FloatArray | None = None
    for method in ("scratch", "pretrained", "transfer"):
        networks, rows = starts[method]
        parts: list[list[FloatArray]] = [[own[k] for own in rows] for k in range(4)]
        curves = train(networks, *parts, queries, STEPS, EVERY, RATE, seed, relative)
        steps, converged = steps_to_converge(curves)
        bar = converged if bar is None else bar
        single = train(networks.pick([0]), *[part[:1] for part in parts], queries, 200, 200, RATE, seed,
                       relative and relative[:1])
        entry[method] = {"steps": steps.tolist(), "converged": converged.tolist(),
                         "steps_to_scratch": [None if np.isinf(own) else float(own)
                                              for own in steps_to_reach(curves, 1.02 * bar)],
                         "before": curves.errors[:, 0].tolist(), "curve": _thin(curves),
                         "seconds_per_step": single.seconds / 200}
    return entry


def _thin(curves: Curves) -> dict[str, list[float]]:
    """Mean error over the workloads, at fewer and fewer steps."""
    at = sorted({int(i) for i in np.geomspace(1, len(curves.steps) - 1, 20).round()} | {0})
    return {"steps": curves.steps[at].tolist(), "error": curves.errors[:, at].mean(axis=0).tolist()}


def _scaling(shared: FloatArray, adapted: Sequence[Adapted]) -> tuple[MinMaxScaling, float, float]:
    """Of all inputs; the span and base of all targets."""
    names = list(adapted[0].train.columns[:-1])
    ranges = {name: (low, high if high > low else low + 1) for name, low, high in
              ((name, min(float(made.train[name].min()) for made in adapted),
                max(float(made.train[name].max()) for made in adapted)) for name in names)}
    targets = np.concatenate([shared[:, -1], *(made.train.iloc[:, -1] for made in adapted)])
    return MinMaxScaling.from_dict(ranges), float(np.ptp(targets)), float(targets.min())


def _scaled(made: Adapted, scaling: MinMaxScaling, base: float,
            span: float) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    sides = []
    for side in (made.train, made.test):
        values = side.to_numpy(dtype=np.float64)
        sides += [scaling.scale(values[:, :-1]), (values[:, -1] - base) / span]
    return sides[0], sides[1], sides[2], sides[3]


def _source(values: FloatArray, y: FloatArray, scaling: MinMaxScaling, base: float,
            span: float) -> tuple[FloatArray, FloatArray]:
    """A workload of the pool, all that was measured of it, without an embedding."""
    is_measured = ~np.isnan(y)
    padded = np.pad(values[is_measured], ((0, 0), (0, len(scaling.names) - values.shape[1])))
    return _without(scaling.scale(padded), values.shape[1]), (y[is_measured] - base) / span


def _without(x: FloatArray, configuration: int) -> FloatArray:
    """Zeros in place of the embedding."""
    return np.concatenate([x[:, :configuration], np.zeros((len(x), x.shape[1] - configuration))], axis=1)


def _telemetry(task: SupervisedTask, name: str, campaign: str, joint: Sequence[str],
               ranges: Any = None) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, Any]:
    """Rows of a recorded workload in the joint features, zeros where it has none; ranges: scaling of another campaign,
    by default of the own training side."""
    frame = pd.read_parquet(CAMPAIGNS / campaign / "samples.parquet")
    frame = frame[frame["workload"] == name].reset_index(drop=True)
    names, target = [q.name for q in task.features(name)], task.target.name
    test = split_by_group(frame, task.split_by, task.test_share).test
    ranges = ranges or (MinMaxScaling.from_frame(frame[~test], names), MinMaxScaling.from_frame(frame[~test], [target]))
    x = np.zeros((len(frame), len(joint)))
    x[:, [joint.index(feature) for feature in names]] = ranges[0].scale(frame[names].to_numpy(dtype=np.float64))
    y = ranges[1].scale(frame[[target]].to_numpy(dtype=np.float64))[:, 0]
    return x[~test], y[~test], x[test], y[test], ranges
