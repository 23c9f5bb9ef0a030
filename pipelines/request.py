"""A training request: everything the `train` pipeline is told, as plain values.

Flow: the command line builds one from its options; local_run.py executes it here, cluster.py submits it.
Task and mapping travel as text, so that the same request runs where their files do not exist.
"""

import hashlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from feature_store.errors import InputError
from feature_store.names import is_task_name
from feature_store.strict_yaml import parse_yaml, read_yaml
from models.tasks.task import Task, load_task, parse_task, task_path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("components", "feature_store", "models", "pipelines", "recording", "serving")
DEFAULT_TELEMETRY = ROOT / "data" / "base" / "samples.parquet"


@dataclass(frozen=True)
class TrainRequest:
    """Arguments of the pipeline.

    telemetry: a file's path or the address of a Prometheus server. command: what a user types to do it again.
    """

    task: Task
    task_yaml: str
    workloads: tuple[str, ...]
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
        return {"task_yaml": self.task_yaml, "workloads": list(self.workloads), "telemetry": self.telemetry,
                "data_version": self.data_version, "code_version": self.code_version,
                "mapping_yaml": self.mapping_yaml, "seed": self.seed, "run_name": self.run_name,
                "command": self.command, "scheduled": self.scheduled}


def check_run_name(name: str) -> str:
    """The name, which becomes a folder of runs and reports. Raises InputError where it cannot be one."""
    if not is_task_name(name):
        raise InputError(f"run name must be letters, digits, - and _, and not begin with -, got {name!r} (--name)")
    return name


def make_request(
    task: str, telemetry: str, mapping: Path | None, workloads: Sequence[str], seed: int, run_name: str,
    method: str | None = None, scheduled: bool = False, config: Path | None = None,
) -> TrainRequest:
    """Reads task and mapping, checks the options against each other, and digests code and data.

    Args:
        task: name or path of a task; a mapping that carries a task of its own overrules it.
        workloads: the ones to train; empty: all of the task.
        method: overrules the task's training method.
        config: the mlflow.yaml that was named, which the command that reproduces the run names again.

    Raises:
        InputError: a file is missing or malformed, or a workload or method is unknown.
    """
    from feature_store.digests import content_digest
    from feature_store.mapping import load_mapping
    from feature_store.measurement_mapping import is_measurement_mapping
    from feature_store.sources.production import is_prometheus

    loaded, text, mapping_yaml = load_task(task), _task_text(task), ""
    own_task, given = False, telemetry
    if mapping is not None:
        if not mapping.is_file():
            raise InputError(f"mapping must be an existing file, got {mapping}")
        content = read_yaml(mapping, "mapping")
        mapping_yaml = mapping.read_text(encoding="utf-8")
        if is_measurement_mapping(content):
            loaded, text = _few_shot_task(content, Path(telemetry), mapping, workloads, seed)
            own_task = True
        elif not is_prometheus(telemetry):
            own = load_mapping(mapping).task
            if own is not None:
                loaded, text = parse_task(own, f"{mapping}: task"), yaml.safe_dump(dict(own), sort_keys=False)
                own_task = True
            # the mapping travels with its task inside, which may have been a path beside it
            mapping_yaml = yaml.safe_dump({**content, **({"task": dict(own)} if own else {})}, sort_keys=False)
    if method is not None:
        data = parse_yaml(text, "task", task)
        data["training"] = {**(data.get("training") or {}), "method": method}
        text = yaml.safe_dump(data, sort_keys=False)
        loaded = parse_task(data, "--method")
    chosen = tuple(dict.fromkeys(workloads)) or tuple(loaded.workloads)
    for name in chosen:
        _check_specification(loaded, name)
    if is_prometheus(telemetry):
        # a new one each time: neither the step cache nor a schedule may take old telemetry for the server's present
        version = f"live-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
    else:
        telemetry = str(_existing(telemetry))
        version = content_digest(Path(telemetry))
    command = reproducing_command(None if own_task else task, given, mapping, workloads, seed, method, config)
    return TrainRequest(loaded, text, chosen, telemetry, mapping_yaml, version, code_version(), seed, run_name,
                        scheduled, command)


def reproducing_command(task: str | None, telemetry: str, mapping: Path | None, workloads: Sequence[str], seed: int,
                        method: str | None, config: Path | None) -> str:
    """What a user types to do a run again, with every option that bears on its models.

    Paths stand as they were given, the default telemetry's from the current folder on where it lies below it. `--name`,
    which must be new, and `--scheduled`, which does nothing without new data, are left out.

    Args:
        task: None where the mapping has a task of its own.
    """
    if telemetry == str(DEFAULT_TELEMETRY) and DEFAULT_TELEMETRY.is_relative_to(Path.cwd()):
        telemetry = str(DEFAULT_TELEMETRY.relative_to(Path.cwd()))
    words = ["assay", "run", *(["--task", task] if task else []), "--telemetry", telemetry]
    words += ["--mapping", str(mapping)] if mapping else []
    for name in workloads:
        words += ["--workload", name]
    words += ["--seed", str(seed), *(["--method", method] if method else [])]
    return shlex.join([*words, *(["--config", str(config)] if config else [])])


def _few_shot_task(content: Any, telemetry: Path, mapping: Path, workloads: Sequence[str],
                   seed: int) -> tuple[Task, str]:
    """The task that measurements and the `task` of their mapping make, and its YAML."""
    from feature_store.measurement_mapping import parse_measurement_mapping
    from feature_store.measurements import load_measurements
    from models.tasks.few_shot.measurements_task import expand

    parsed = parse_measurement_mapping(content, str(mapping))
    if parsed.task is None:
        raise InputError(f"mapping of measurements must have a `task` that demands a direction, got none ({mapping}); "
                         "for example task: {demand: {nodes: decreasing}}")
    where = f"{mapping}: task"
    data = expand(parsed.task, load_measurements(telemetry, parsed), workloads, seed, where)
    return parse_task(data, where), yaml.safe_dump(data, sort_keys=False)


def _check_specification(task: Task, workload: str) -> None:
    """Refuses a specification that no data could fit, before any work; `featurize` checks it against the data."""
    from models.verification.language.specification_language import parse_specification

    specification = task.workload(workload).specification
    names = [quantity.name for quantity in task.features(workload)]
    where = f"task {task.name}, workload {workload}"
    try:
        parse_specification(specification, names, dict.fromkeys(names, (0.0, 1.0)), where)
    except (TypeError, ValueError) as error:
        raise InputError(f"specification must be of the documented form, got {error} ({where})") from error


def _existing(telemetry: str) -> Path:
    path = Path(telemetry)
    if not path.is_file():
        raise InputError(f"telemetry must be an existing file or the http address of a Prometheus server, got {path}")
    return path.absolute()  # the steps run in folders of their own


def _task_text(task: str) -> str:
    return task_path(task).read_text(encoding="utf-8")


def code_version() -> str:
    """A digest of the source files of all packages: what a cached step's result depends on beside its data."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*")):
            if path.suffix in (".py", ".yaml", ".lua", ".html", ".css"):
                digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
