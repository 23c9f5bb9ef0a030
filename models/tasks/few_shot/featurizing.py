"""ingest, featurize and audit of a few-shot task: the pool's knowledge, and each workload's rows.

See features.py for what the files hold.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from feature_store.data_quality import summarise
from feature_store.errors import InputError
from feature_store.features import combined_digest, write_whole
from feature_store.measurement_dropping import KNOWN
from feature_store.measurement_mapping import is_measurement_mapping, parse_measurement_mapping
from feature_store.measurements import Measurements, load_measurements
from feature_store.names import inside
from feature_store.scaling import FeatureScaling, MinMaxScaling
from feature_store.strict_yaml import parse_yaml, read_yaml
from models.adaptation.encoding import Encoder, Table, table_of
from models.adaptation.learner import Pool
from models.audit.specification_audit import PropertyAudit
from models.audit.table_audit import audit_table, products_of
from models.tasks.attempts import attempt
from models.tasks.few_shot.features import OWN_PREFIX, Adapted, Knowledge, adapt, learn_pool, pool_rows
from models.tasks.few_shot.model_inputs import inputs_of, samples_of
from models.tasks.few_shot.settings import POOL, FewShot
from models.tasks.few_shot.task import FewShotTask

MEASUREMENTS = "measurements.parquet"


def ingest_measurements(telemetry: str, mapping_yaml: str, output: Path) -> pd.DataFrame:
    """Measurements as telemetry; keeps them as they are in `output`, with their mapping and what a reader should know.

    Raises:
        InputError: the file or its mapping cannot be read, or is not of measurements.
    """
    content = parse_yaml(mapping_yaml, "mapping", "mapping")
    if not is_measurement_mapping(content):
        raise InputError("a few-shot task must be given measurements, got telemetry; pass a mapping of workload, "
                         "configuration and target (docs/reference/measurements.md)")
    if (output / MEASUREMENTS).exists():
        raise InputError(f"measurements must be one file, got a data set of several, {telemetry} the second of them; "
                         "write them to one")
    measurements = load_measurements(Path(telemetry), parse_measurement_mapping(content, "mapping"))
    measurements.frame.to_parquet(output / MEASUREMENTS, index=False, compression="zstd")
    (output / "measurements.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    (output / KNOWN).write_text(json.dumps(
        {"failed": dict(measurements.failed), "only_failed": measurements.only_failed, "flags": measurements.flags,
         "bad_rows": {name: found.to_dict() for name, found in measurements.bad_rows.items()}}))
    return samples_of(measurements)


def featurize_few_shot(task: FewShotTask, samples: Mapping[str, pd.DataFrame],
                       checks: Mapping[str, Sequence[Mapping[str, Any]]], seed: int, validated: Path, output: Path,
                       state: Path) -> dict[str, str]:
    """Writes _pool/ and a folder for each workload of `checks`; workload -> "" or why there is none.

    All share one scaling, so that one base learner can be pretrained for them: the embedding's box holds the hull of
    the pool's and the boxes around every adapted workload's own.
    """
    settings = task.few_shot
    knowledge, products = _knowledge(settings, seed, validated, state)
    target = task.target.name
    pool = pd.DataFrame(pool_rows(knowledge, settings, seed), columns=[*knowledge.columns(settings), target])
    status, made = {}, {}

    def work(name: str) -> None:
        made[name] = adapt(knowledge, name, settings, target, seed)

    for name in checks:
        status[name] = attempt(partial(work, name))
    scaling = _scaling(task, knowledge, list(made.values()), pool)
    folder = output / POOL
    folder.mkdir(parents=True, exist_ok=True)
    knowledge.encoder.save(folder / "encoder.npz")
    pool.to_parquet(folder / "rows.parquet", index=False)
    knowledge.table.configurations.to_parquet(folder / "configurations.parquet", index=False)
    (folder / "pool.json").write_text(json.dumps({**knowledge.to_json(), "products": products}, indent=1))
    known = json.loads((validated / KNOWN).read_text())
    for name, adapted in made.items():
        own = samples[name].reset_index(drop=True)
        status[name] = attempt(partial(_write, task, seed, knowledge, scaling, inside(output, name), adapted, own,
                                       known["failed"].get(name, 0), known["bad_rows"].get(name), checks[name]))
    return status


def audit_few_shot(features: Path, name: str, task: FewShotTask) -> tuple[PropertyAudit, ...]:
    """Of the workload's measured configurations, each the mean of its runs, as `assay audit` judges a table."""
    pool = json.loads((features / POOL / "pool.json").read_text())
    configurations = pd.read_parquet(features / POOL / "configurations.parquet")
    options = pd.read_parquet(features / name / "options.parquet")
    y, runs = (options[OWN_PREFIX + column].to_numpy()[None] for column in ("measured", "runs"))
    nothing = np.empty((len(configurations), 0))
    table = Table((name,), configurations, Encoder(()), Pool(
        nothing, np.empty((0, *y.shape[1:] * 2)), y, runs, np.empty((*y.shape, 0)),
        float("nan") if pool["noise"] is None else pool["noise"]))
    rules = [rule["monotone"] for rule in task.workload(name).specification["properties"] if "monotone" in rule]
    directions = {feature: rule["direction"] for rule in rules if not rule.get("when") for feature in rule["features"]}
    found = audit_table(table, directions, products=pool["products"])
    return tuple(found[feature].workloads[name] for feature in directions)


def _knowledge(settings: FewShot, seed: int, validated: Path,
               state: Path) -> tuple[Knowledge, dict[str, tuple[str, ...]]]:
    """What is learned of the pool, and which columns of a configuration are products of others."""
    mapping = parse_measurement_mapping(read_yaml(validated / "measurements.yaml", "mapping"), "mapping")
    frame = pd.read_parquet(validated / MEASUREMENTS)
    table = table_of(Measurements(frame, mapping))
    journal = None
    if settings.trials:
        content = json.dumps([str(settings), seed, combined_digest({"frame": frame})])
        name = f"{hashlib.sha256(content.encode()).hexdigest()[:16]}.log"
        journal = state / "optuna" / name
        journal.parent.mkdir(parents=True, exist_ok=True)
    return learn_pool(table, inputs_of(mapping, table.configurations), settings, seed, journal), products_of(mapping)


def _write(task: FewShotTask, seed: int, knowledge: Knowledge, scaling: FeatureScaling, folder: Path,
           made: Adapted, own: pd.DataFrame, failed: int, bad_rows: dict[str, Any] | None,
           checks: Sequence[Mapping[str, Any]]) -> None:
    sides = {"train": made.train, "test": made.test}
    names = [*(one.name for one in knowledge.inputs), task.target.name]
    quality = {
        "workload": folder.name, "rows": len(own), "train_rows": len(made.train), "test_rows": len(made.test),
        "measured_runs_of_the_support": made.facts["runs"], "pool_workloads": knowledge.pool.workloads,
        "data_version": combined_digest(sides), "split_by": list(task.split_by), "seed": seed,
        "dropped": {"failed runs": failed} if failed else {},
        "checks": [dict(check) for check in checks], "data": summarise(own, names).to_dict(),
        **({"bad_rows": bad_rows} if bad_rows else {})}
    write_whole(folder, {**sides, "options": made.options},
                {"scaling.json": scaling.to_json(), "quality.json": json.dumps(quality, indent=2),
                 "few_shot.json": json.dumps(made.facts, indent=1)})


def _scaling(task: FewShotTask, knowledge: Knowledge, made: Sequence[Adapted], pool: pd.DataFrame) -> FeatureScaling:
    """Of every configuration of the file, of the embeddings' box, and of all targets that are trained on."""
    columns = [one.name for one in knowledge.inputs]
    ranges = MinMaxScaling.from_frame(pd.DataFrame(knowledge.values, columns=columns), columns).to_dict()
    ranges |= {one.name: [0.0, 1.0] for one in knowledge.inputs if one.value is not None}
    for name in [name for name in pool.columns[:-1] if name not in ranges]:
        own = [adapted.embedding_ranges[name] for adapted in made]
        low, high = min([low for low, _ in own], default=0.0), max([high for _, high in own], default=0.0)
        ranges[name] = [low, high if high > low else low + 1]
    target = task.target.name
    targets = pd.concat([adapted.train[[target]] for adapted in made] + [pool[[target]]], ignore_index=True)
    return FeatureScaling(MinMaxScaling.from_dict(ranges), MinMaxScaling.from_frame(targets, [target]))
