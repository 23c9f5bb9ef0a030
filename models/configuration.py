"""Reads `mlflow.yaml`: addresses, names, approval, key and ledger paths, gate thresholds.

Parsed once at the boundary into one frozen value that every later step receives. All paths in it are
absolute. The state folder ("home") is $ASSAY_HOME, or `.assay/` beside mlflow.yaml; relative paths
in the file are resolved against it, so that steps which run in other working directories agree.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from feature_store.errors import InputError, nearest
from feature_store.names import TASK, WORKLOAD, check_task_name, check_workload_name
from feature_store.strict_yaml import Lines, read_located_yaml
from models.gates import Gate, parse_gates
from models.paired_comparison import ComparisonRule

Approval = Literal["auto", "manual"]
LEDGER_DATABASE = "postgresql://"
Event = Literal["promoted", "rolled_back", "waits_for_approval", "refused", "run_failed", "incident"]
EVENTS: tuple[Event, ...] = get_args(Event)


@dataclass(frozen=True)
class PromotionRule:
    """What a version that passed its gates needs to replace a champion by itself (serving/succession.py).

    Attributes:
        comparison: by how much it must be better on the same test rows.
        specification_leeway: by which share its specification may fall short of the champion's.
    """

    comparison: ComparisonRule = field(default_factory=ComparisonRule)
    specification_leeway: float = 0.0


@dataclass(frozen=True)
class NotificationRule:
    """Who is told what (pipelines/notification.py).

    Attributes:
        command: program and arguments that get each notice; () for none.
        webhook: address that each notice is posted to; "" for none.
        events: those that are told.
    """

    command: tuple[str, ...]
    webhook: str
    events: frozenset[Event]


@dataclass(frozen=True)
class Configuration:
    """The content of mlflow.yaml with every path absolute.

    Attributes:
        home: the state folder.
        tracking_uri: MLflow tracking and registry URI; a local sqlite path is absolute.
        artifact_root: absolute folder, or the URI of an artifact store.
        experiment: name of the MLflow experiment.
        model_name_template: holds `{task}` and `{workload}`; read through `model_name`.
        champion_alias, challenger_alias: registry aliases.
        approval: "auto" or "manual".
        ledger_path: the promotion ledger: its file, or as a text the address of its database.
        private_key_path, public_key_path: EC P-256 key pair, PEM.
        gates: gates[task], in the order of the file; asking for a task that is not listed is an InputError.
        promotion: what replaces a champion without a person's word.
        notify: who is told what; None: nobody.
    """

    home: Path
    tracking_uri: str
    artifact_root: str
    experiment: str
    model_name_template: str
    champion_alias: str
    challenger_alias: str
    approval: Approval
    ledger_path: Path | str
    private_key_path: Path
    public_key_path: Path
    gates: dict[str, tuple[Gate, ...]]
    promotion: PromotionRule = field(default_factory=PromotionRule)
    notify: NotificationRule | None = None

    def model_name(self, task: str, workload: str) -> str:
        """Name of the registered model of one task and workload, e.g. "assay.performance.redis".

        Raises:
            InputError: a name is none (feature_store/names.py).
        """
        check_task_name(task, "model name")
        check_workload_name(workload, "model name")
        return self.model_name_template.replace("{task}", task).replace("{workload}", workload)

    def is_model_name(self, name: str) -> bool:
        """Whether a registered model can be one of this project's: others may share its registry."""
        pattern = re.escape(self.model_name_template)
        for what, names in (("{task}", TASK), ("{workload}", WORKLOAD)):
            pattern = pattern.replace(re.escape(what), names.pattern)
        return re.fullmatch(pattern, name) is not None


DEFAULT_GATES = "default"


class _GatesByTask(dict[str, tuple[Gate, ...]]):
    """Answers for a task that is not listed: with the gates named `default`, or an error that names the task."""

    def __missing__(self, task: str) -> tuple[Gate, ...]:
        if task != DEFAULT_GATES and DEFAULT_GATES in self:
            return self[DEFAULT_GATES]
        raise InputError(
            f"task must have gates in mlflow.yaml, got {task!r}; {nearest(task, self)} "
            "Add its gates, or `default`, under `gates:`"
        )


def load_configuration(path: Path, environment: Mapping[str, str] = os.environ) -> Configuration:
    """Parses mlflow.yaml.

    Args:
        path: the file.
        environment: where ASSAY_HOME is looked up.

    Raises:
        InputError: the file is missing or not YAML, a key is unknown or missing, a value is unusable.
    """
    # what runs beside a controller imports this module, and does without pydantic
    from feature_store.written.model import check_written
    from models.configuration_file import ConfigurationFile

    path = Path(path).absolute()
    data, lines = read_located_yaml(path, "configuration")
    file = check_written(ConfigurationFile, data, "configuration", str(path), lines)
    home = _home(path, environment)
    comparison = ComparisonRule(**file.promotion.model_dump(exclude={"specification_leeway"}))
    return Configuration(
        home=home,
        tracking_uri=_tracking_uri(file.tracking.uri, home),
        artifact_root=_location(file.tracking.artifacts, home),
        experiment=file.experiment,
        model_name_template=file.model_name,
        champion_alias=file.aliases.champion,
        challenger_alias=file.aliases.challenger,
        approval=file.approval,
        ledger_path=file.ledger if file.ledger.startswith(LEDGER_DATABASE) else home / file.ledger,
        private_key_path=home / file.keys.private,
        public_key_path=home / file.keys.public,
        gates=_gates(data["gates"], str(path), lines),
        promotion=PromotionRule(comparison, file.promotion.specification_leeway),
        notify=None if file.notify is None else NotificationRule(
            tuple(file.notify.command), file.notify.webhook, frozenset(file.notify.events)),
    )


def _home(path: Path, environment: Mapping[str, str]) -> Path:
    given = environment.get("ASSAY_HOME", "")
    if not given:
        return path.parent / ".assay"
    if not Path(given).is_absolute():
        # Steps run in other working directories: a relative folder would split the state in two.
        raise InputError(f"ASSAY_HOME must be an absolute path, got {given!r} (environment)")
    return Path(given)


def _tracking_uri(uri: str, home: Path) -> str:
    if not uri.startswith("sqlite:///"):
        return uri
    if ending := set("?#%") & set(str(home)):
        # A URI ends its path there: the database would be written beside the state folder.
        raise InputError(f"state folder must have no ?, # or % in its path, got {' '.join(sorted(ending))} ({home})")
    return f"sqlite:///{home / uri.removeprefix('sqlite:///')}"


def _location(location: str, home: Path) -> str:
    return location if re.match(r"[a-z][a-z0-9+.-]*:", location) else str(home / location)


def _gates(tasks: Mapping[str, Any], where: str, lines: Lines) -> dict[str, tuple[Gate, ...]]:
    gates = _GatesByTask()
    for task, written in tasks.items():
        places = {name: f"{where}, line {lines.line(['gates', task, name])}, gates.{task}" for name in written}
        gates[task] = tuple(gate for name in written for gate in parse_gates({name: written[name]}, places[name]))
    return gates
