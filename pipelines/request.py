"""A training request: everything the `train` pipeline is told, as plain values.

Flow: the command line builds one from its options; local_run.py executes it here, cluster.py submits it.
Task and mapping travel as text, so that the same request runs where their files do not exist.
"""

import hashlib
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from feature_store.errors import InputError
from feature_store.names import is_task_name
from feature_store.strict_yaml import Lines, read_located_yaml, read_yaml
from models.tasks.kind import LearnsFromLogs, OwnTask, workload_column
from models.tasks.kinds import kind_names, kind_of, own_folders
from models.tasks.task import DEFAULT_KIND, parse_task, task_path
from pipelines.shards import make_readers, make_shards, shard_texts

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("components", "feature_store", "models", "pipelines", "recording", "serving", "systems")


@dataclass(frozen=True)
class TrainRequest:
    """Arguments of the pipeline.

    Attributes:
        task: as its kind reads it; task_yaml: its text.
        workloads: the ones to train.
        shards: the same, as the fan-out takes them.
        readers: the same, as telemetry is read: in shards where it is a data set that is cut by workload.
        parallelism: shards at work at once.
        telemetry: a file's path or s3:// address, or the address of a Prometheus server, with a password if it has one.
        command: what a user types to do it again; without that password.
    """

    task: Any
    task_yaml: str
    workloads: tuple[str, ...]
    shards: tuple[tuple[str, ...], ...]
    readers: tuple[tuple[str, ...], ...]
    parallelism: int
    telemetry: str
    mapping_yaml: str
    data_version: str
    code_version: str
    seed: int
    run_name: str
    scheduled: bool = False
    command: str = ""

    def arguments(self) -> dict[str, Any]:
        """The pipeline's parameters."""
        return {"task_yaml": self.task_yaml, "workloads": list(self.workloads), "shards": shard_texts(self.shards),
                "readers": shard_texts(self.readers), "telemetry": self.telemetry, "data_version": self.data_version,
                "code_version": self.code_version, "mapping_yaml": self.mapping_yaml, "seed": self.seed,
                "run_name": self.run_name, "command": self.command, "scheduled": self.scheduled}


@dataclass(frozen=True)
class Fanout:
    """How the workloads are spread: shards, and how many are at work at once; None: as many as there are cores."""

    shards: int | None = None
    parallelism: int | None = None

    def settled(self) -> tuple[int, int]:
        """Numbers of shards and of those at work at once. Raises InputError for a number below 1."""
        parallelism = os.cpu_count() or 1 if self.parallelism is None else self.parallelism
        shards = parallelism if self.shards is None else self.shards
        for name, value in (("shards", shards), ("parallelism", parallelism)):
            if value < 1:
                raise InputError(f"{name}: expected a number from 1, got {value} (--{name})")
        return shards, parallelism


def check_run_name(name: str) -> str:
    """The name, which becomes a folder of runs and reports. Raises InputError where it cannot be one."""
    if not is_task_name(name):
        raise InputError(f"run name must be letters, digits, - and _, and not begin with -, got {name!r} (--name)")
    return name


def make_request(
    task: str, telemetry: str | None, mapping: Path | None, workloads: Sequence[str], seed: int, run_name: str,
    method: str | None = None, scheduled: bool = False, config: Path | None = None, fanout: Fanout = Fanout(),
    budget: float | None = None,
) -> TrainRequest:
    """Reads task and mapping, checks the options against each other, and digests code and data.

    Args:
        task: name or path of a task; a mapping that carries a task of its own overrules it.
        telemetry: a file or folder, or the address of a server; None: what comes with the task.
        workloads: the ones to train; empty: all of the task.
        method: overrules the task's training method.
        config: the mlflow.yaml that was named, which the command that reproduces the run names again.
        fanout: how the workloads are spread.
        budget: overrules the task's training budget.

    Raises:
        InputError: a file is missing or malformed, or a workload or method is unknown.
    """
    from feature_store.digests import content_digest
    from feature_store.sources.data_set import is_data_set, version_of, workloads_apart
    from feature_store.sources.object_store import as_local, is_object
    from feature_store.sources.production import is_prometheus
    from feature_store.sources.prometheus_api import shown_address

    path = task_path(task)
    lines: Lines | None
    content, lines = read_located_yaml(path, "task file")
    text, where = path.read_text(encoding="utf-8"), str(path)
    mapping_yaml, own = "", None
    if mapping is not None:
        if telemetry is None:
            raise InputError(f"telemetry: expected the file or server that {mapping} maps (--telemetry), got none")
        own = _own_task(mapping, content, telemetry, workloads, seed)
        mapping_yaml = own.mapping_yaml
        if own.data is not None:
            content, lines, where = dict(own.data), own.lines, own.where
            text = yaml.safe_dump(content, sort_keys=False)
    loaded = parse_task(content, where, lines)
    for option, value in (("method", method), ("budget", budget)):
        if value is not None:
            content = {**content, "training": {**content.get("training", {}), option: value}}
            text = yaml.safe_dump(content, sort_keys=False)
            loaded = parse_task(content, f"--{option}")
    kind = kind_of(loaded.kind, where)
    given = _given(telemetry or str(kind.default_telemetry(loaded)))
    telemetry = telemetry or given
    chosen = tuple(dict.fromkeys(workloads)) or tuple(loaded.workloads)
    for name in chosen:
        kind.check(loaded, name, where, lines)
    count, parallelism = fanout.settled()
    shards = make_shards(chosen, {name: kind.shape(loaded, name) for name in chosen}, count)
    readers: tuple[tuple[str, ...], ...] = (chosen,)
    if is_prometheus(telemetry):
        # a new one each time: neither the step cache nor a schedule may take old telemetry for the server's present
        version = f"live-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
        given = shown_address(given)  # the command is in signed evidence, MLflow and pages
    else:
        telemetry = telemetry if is_object(telemetry) else str(_existing(telemetry))
        logs = kind.logs(loaded, chosen) if isinstance(kind, LearnsFromLogs) else ()
        if is_data_set(telemetry):
            version = version_of(telemetry)
            readers = make_readers(shards, workloads_apart(telemetry, workload_column(kind, mapping_yaml)))
        else:
            with as_local(telemetry) as local:
                version = content_digest(Path(local))
        if logs:
            version = hashlib.sha256("".join([version, *map(content_digest, logs)]).encode()).hexdigest()
    its_own = own is not None and own.data is not None
    command = reproducing_command(None if its_own else task, given, mapping, workloads, seed, method, config, budget)
    return TrainRequest(loaded, text, chosen, shards, readers, parallelism, telemetry, mapping_yaml, version,
                        code_version((*own_folders(loaded.kind), *kind.own_files(loaded))), seed, run_name, scheduled,
                        command)


def reproducing_command(task: str | None, telemetry: str, mapping: Path | None, workloads: Sequence[str], seed: int,
                        method: str | None, config: Path | None, budget: float | None = None) -> str:
    """What a user types to do a run again, with every option that bears on its models.

    Paths stand as they were given. `--name`, which must be new, and `--scheduled`, which does nothing without new data,
    are left out.

    Args:
        task: None where the mapping has a task of its own.
    """
    words = ["assay", "run", *(["--task", task] if task else []), "--telemetry", telemetry]
    words += ["--mapping", str(mapping)] if mapping else []
    for name in workloads:
        words += ["--workload", name]
    words += ["--seed", str(seed), *(["--method", method] if method else [])]
    words += ["--budget", f"{budget:g}"] if budget else []
    return shlex.join([*words, *(["--config", str(config)] if config else [])])


def _own_task(mapping: Path, content: Any, telemetry: str, workloads: Sequence[str], seed: int) -> OwnTask:
    """What the mapping brings along, by the task's kind or else by the kind whose form the mapping has."""
    from feature_store.sources.object_store import as_local
    from feature_store.sources.production import is_prometheus

    if not mapping.is_file():
        raise InputError(f"mapping must be an existing file, got {mapping}")
    written = read_yaml(mapping, "mapping")
    if is_prometheus(telemetry):
        return OwnTask(None, mapping.read_text(encoding="utf-8"))
    its_kind = content.get("kind", DEFAULT_KIND) if isinstance(content, dict) else DEFAULT_KIND
    kinds = [kind_of(name, "task") for name in dict.fromkeys((its_kind, *kind_names()))]
    kind = next(kind for kind in kinds if kind.recognises(written))
    with as_local(telemetry) as local:
        return kind.own_task(mapping, Path(local), workloads, seed)


def _given(telemetry: str) -> str:
    """What comes with Assay as a user would type it: from the current folder on, where it lies below it."""
    path = Path(telemetry)
    ours = path.is_absolute() and path.is_relative_to(ROOT) and path.is_relative_to(Path.cwd())
    return str(path.relative_to(Path.cwd())) if ours else telemetry


def _existing(telemetry: str) -> Path:
    path = Path(telemetry)
    if not path.exists():
        raise InputError("telemetry must be an existing file, a folder of Parquet files, the s3:// address of one or "
                         f"the http address of a Prometheus server, got {path}")
    return path.absolute()  # the steps run in folders of their own


def code_version(others: Sequence[Path] = ()) -> str:
    """A digest of source files: what a cached step's result depends on beside its data.

    Args:
        others: folders and files of code that a task brings along, which count beside Assay's own.
    """
    digest = hashlib.sha256()
    for folder in (*(ROOT / package for package in PACKAGES), *others):
        for path in sorted(folder.rglob("*")) if folder.is_dir() else [folder]:
            if path.suffix in (".py", ".yaml", ".lua", ".html", ".css", ".js"):
                digest.update(str(path.relative_to(folder.parent)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
