"""The stages of a table controller; what it does not need says why."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from feature_store.errors import InputError
from feature_store.features import combined_digest, write_whole
from feature_store.schema import Column, TelemetrySchema
from models.tasks.attempts import attempt
from models.tasks.kind import OnFinished, OnProgress, OwnTask
from tests.kinds.table_controller.task import INPUTS, OUTPUTS, TableControllerTask

if TYPE_CHECKING:
    from feature_store.strict_yaml import Lines
    from models.export.product import Product, Versions
    from models.verification.language.specification import Specification
    from tests.kinds.table_controller.pages import TableControllerPages

RANGES = {"p99_over_slo": (0.0, 3.0), "utilization": (0.0, 1.0), "limit_cores": (0.5, 8.0)}
MODEL, SEED = "controller.npz", 7  # of the episodes: every version is judged by the same


class TableController:
    """Implements `Kind`."""

    @property
    def task_file(self) -> type[TableControllerTask]:
        return TableControllerTask

    @property
    def other_files(self) -> Mapping[str, Any]:
        return {}

    def check(self, task: TableControllerTask, workload: str, where: str, lines: Lines | None) -> None:
        _specification(task, workload, where, lines)

    def shape(self, task: TableControllerTask, workload: str) -> tuple[int, ...]:
        return ()

    def default_telemetry(self, task: TableControllerTask) -> Path:
        raise InputError("telemetry: expected a CSV file (--telemetry), got none")

    def own_files(self, task: TableControllerTask) -> tuple[Path, ...]:
        return ()

    def recognises(self, mapping: Any) -> bool:
        return False

    def own_task(self, mapping: Path, telemetry: Path, workloads: Sequence[str], seed: int) -> OwnTask:
        raise InputError(f"mapping: a table controller takes none, got {mapping}")

    def ingest(self, task: TableControllerTask, telemetry: str, mapping_yaml: str, output: Path) -> pd.DataFrame:
        try:
            return pd.read_csv(telemetry, parse_dates=["window_start"])
        except (OSError, ValueError) as error:
            raise InputError(f"telemetry: expected a CSV file, got {error} ({telemetry})") from error

    def asked(self, task: TableControllerTask, mapping_yaml: str) -> Mapping[str, set[str]]:
        raise InputError("telemetry: expected a CSV file, got a server")

    def schema(self, task: TableControllerTask, workload: str) -> TelemetrySchema:
        return TelemetrySchema(workload, {name: Column(unit, *RANGES[name], name) for name, unit in INPUTS.items()},
                               {name: Column(unit, None, None, name) for name, unit in OUTPUTS.items()}, (), 4)

    def featurize(self, task: TableControllerTask, samples: Mapping[str, pd.DataFrame],
                  checks: Mapping[str, Sequence[Mapping[str, Any]]], seed: int, validated: Path, output: Path,
                  state: Path) -> dict[str, str]:
        def work(name: str) -> None:
            table = samples[name][[*INPUTS, *OUTPUTS]].reset_index(drop=True)
            quality = {"data_version": combined_digest({"table": table}), "rows": len(table),
                       "checks": [dict(check) for check in checks[name]]}
            write_whole(output / name, {"table": table}, {"quality.json": json.dumps(quality)})

        return {name: attempt(partial(work, name)) for name in checks}

    def correlated(self, task: TableControllerTask) -> tuple[list[str], str]:
        return [], ""

    def audit(self, task: TableControllerTask, workload: str, features: Path) -> str:
        return "a table says what is wanted: there is nothing to audit"

    def by_policy(self, task: TableControllerTask, workload: str) -> bool:
        return True

    def pretrain(self, task: TableControllerTask, workloads: Sequence[str], seed: int, features: Path, output: Path,
                 checkpoints: Path, progress: OnProgress) -> str:
        return "a table is fitted in a moment: there is nothing to pretrain"

    def finetune(self, task: TableControllerTask, workloads: Sequence[str], seed: int, features: Path,
                 pretrained: Path, folders: Mapping[str, Path], checkpoints: Path, finished: OnFinished,
                 progress: OnProgress) -> None:
        from tests.kinds.table_controller.controller import fit

        for name in workloads:
            table = pd.read_parquet(features / name / "table.parquet")
            fit(table, task.knots).save(folders[name] / MODEL)
            finished(name, "")

    def product(self, task: TableControllerTask, workload: str, versions: Versions, features: Path,
                learner: Path) -> Product:
        from models.export.product import Product, ProductInput, ProductOutput, promised
        from tests.kinds.table_controller.controller import Controller, to_onnx

        table = pd.read_parquet(features / workload / "table.parquet")
        low, high = table[list(OUTPUTS)].min(), table[list(OUTPUTS)].max()
        promise = promised(_specification(task, workload), [float(high[name] - low[name]) for name in OUTPUTS],
                           {**INPUTS, **OUTPUTS})
        kinds = {"new_limit_cores": "target", "replica_change": "change"}
        return Product(
            task.name, workload, to_onnx(Controller.load(learner / MODEL)), promise,
            tuple(ProductInput(name, unit, name, *RANGES[name]) for name, unit in INPUTS.items()),
            tuple(ProductOutput(name, unit, kinds[name], float(low[name]), float(high[name]))  # type: ignore[arg-type]
                  for name, unit in OUTPUTS.items()), versions, seconds=task.verify_seconds)

    def evidence(self, task: TableControllerTask, workload: str, seed: int, features: Path, verified: Path,
                 product: Path) -> dict[str, Any]:
        from models.export.parity import one_row_latency_us

        model = (product / "model.onnx").read_bytes()
        table = pd.read_parquet(features / workload / "table.parquet")
        judged = _judged(task, model)
        return {**judged, "metrics": {**judged["metrics"],
                                      "latency_us": one_row_latency_us(model, table[list(INPUTS)].to_numpy()[0])}}

    def champion(self, task: TableControllerTask, workload: str, features: Path, bundle: Any) -> dict[str, Any]:
        return _judged(task, bundle.model)

    @property
    def pages(self) -> TableControllerPages:
        from tests.kinds.table_controller.pages import TableControllerPages

        return TableControllerPages()


def _judged(task: TableControllerTask, model: bytes) -> dict[str, Any]:
    """Of the rewards of the same episodes for every version."""
    from models.paired_cases import Cases
    from tests.kinds.table_controller.controller import rewards

    found = rewards(model, task.episodes, SEED)
    digest = hashlib.sha256(f"{task.episodes} episodes from seed {SEED}".encode()).hexdigest()
    return {"metrics": {"mean_reward": float(np.mean(found))}, "case_counts": {"mean_reward": len(found)},
            "units": {"mean_reward": "cores"},
            "cases": Cases("reward per episode", "mean_reward", "larger", "cores", tuple(found.tolist()), digest,
                           block=1).to_json()}


def _specification(task: TableControllerTask, workload: str, where: str = "task",
                   lines: Lines | None = None) -> Specification:
    from models.verification.language.specification_language import parse_specification

    return parse_specification(task.workload(workload).specification, tuple(INPUTS), RANGES,
                               f"{where}, workload {workload}", tuple(OUTPUTS), {**INPUTS, **OUTPUTS},
                               lines and lines.below("workloads", workload, "specification"))


KIND = TableController()
