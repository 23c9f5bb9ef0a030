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
from typing import Any, Literal

from feature_store.errors import InputError, nearest
from feature_store.names import TASK, WORKLOAD, check_task_name, check_workload_name
from feature_store.strict_yaml import read_yaml
from models.gates import Gate, parse_gates
from models.paired_comparison import ComparisonRule

Approval = Literal["auto", "manual"]

# MLflow reserves "latest" and names such as "v3" as aliases.
_ALIAS = re.compile(r"(?!(?:latest|[vV]\d+)$)[A-Za-z][A-Za-z0-9_-]*")
_URI = re.compile(r"[a-z][a-z0-9+.-]*:")
_KEYS: dict[str, tuple[str, ...]] = {
    "": ("tracking", "experiment", "model_name", "aliases", "approval", "ledger", "keys", "gates"),
    "tracking": ("uri", "artifacts"),
    "aliases": ("champion", "challenger"),
    "keys": ("private", "public"),
}
_OPTIONAL: dict[str, tuple[str, ...]] = {"": ("promotion",)}


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
        ledger_path: the promotion ledger (JSON lines).
        private_key_path, public_key_path: EC P-256 key pair, PEM.
        gates: gates[task], in the order of the file; asking for a task that is not listed is an InputError.
        promotion: what replaces a champion without a person's word.
    """

    home: Path
    tracking_uri: str
    artifact_root: str
    experiment: str
    model_name_template: str
    champion_alias: str
    challenger_alias: str
    approval: Approval
    ledger_path: Path
    private_key_path: Path
    public_key_path: Path
    gates: dict[str, tuple[Gate, ...]]
    promotion: PromotionRule = field(default_factory=PromotionRule)

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
    path = Path(path).absolute()
    data = read_yaml(path, "configuration")
    home = _home(path, environment)
    root = _section(data, "", path)
    tracking, aliases, keys = (_section(root[name], name, path) for name in ("tracking", "aliases", "keys"))
    return Configuration(
        home=home,
        tracking_uri=_tracking_uri(_text(tracking, "uri", path), home, path),
        artifact_root=_location(_text(tracking, "artifacts", path), home),
        experiment=_text(root, "experiment", path),
        model_name_template=_template(_text(root, "model_name", path), path),
        champion_alias=_alias(aliases, "champion", path),
        challenger_alias=_alias(aliases, "challenger", path),
        approval=_approval(root["approval"], path),
        ledger_path=home / _text(root, "ledger", path),
        private_key_path=home / _text(keys, "private", path),
        public_key_path=home / _text(keys, "public", path),
        gates=_gates(root["gates"], path),
        promotion=_promotion(root.get("promotion", {}), path),
    )


def _home(path: Path, environment: Mapping[str, str]) -> Path:
    given = environment.get("ASSAY_HOME", "")
    if not given:
        return path.parent / ".assay"
    if not Path(given).is_absolute():
        # Steps run in other working directories: a relative folder would split the state in two.
        raise InputError(f"ASSAY_HOME must be an absolute path, got {given!r} (environment)")
    return Path(given)


def _promotion(data: Any, path: Path) -> PromotionRule:
    known = ("minimum_improvement", "minimum_improvement_of_spread", "minimum_gain", "confidence",
             "specification_leeway")
    where = f"{path}, promotion"
    if not isinstance(data, Mapping):
        raise InputError(f"promotion must be a mapping of {', '.join(known)}, got {data!r} ({path})")
    for key in data:
        if key not in known:
            raise InputError(f"key must be a known one, got {key!r} ({where}); {nearest(str(key), known)}")
    leeway = data.get("specification_leeway", 0.0)
    if isinstance(leeway, bool) or not isinstance(leeway, (int, float)) or not 0 <= leeway < 1:
        raise InputError(f"specification_leeway must be a number from 0 to below 1, got {leeway!r} ({where})")
    try:
        rule = ComparisonRule(**{key: value for key, value in data.items() if key != "specification_leeway"})
    except InputError as error:
        raise InputError(f"{error} ({where})") from error
    return PromotionRule(rule, float(leeway))


def _section(data: Any, name: str, path: Path) -> Mapping[str, Any]:
    where = f"{path}, {name}" if name else str(path)
    known = _KEYS[name] + _OPTIONAL.get(name, ())
    if not isinstance(data, Mapping):
        raise InputError(
            f"configuration must be a mapping of {', '.join(_KEYS[name])}, got {data!r} ({where})"
        )
    for key in data:
        if key not in known:
            raise InputError(f"key must be a known one, got {key!r} ({where}); {nearest(str(key), known)}")
    for key in _KEYS[name]:
        if key not in data:
            raise InputError(
                f"key {key!r} must be given, got {', '.join(map(str, data)) or 'none'} ({where})"
            )
    return data


def _text(section: Mapping[str, Any], key: str, path: Path) -> str:
    value = section[key]
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{key} must be a text, got {value!r} ({path})")
    return value


def _tracking_uri(uri: str, home: Path, path: Path) -> str:
    if uri.startswith("sqlite:///"):
        if found := set("?#%") & set(str(home)):
            # A URI ends its path there: the database would be written beside the state folder.
            raise InputError(f"state folder must have no ?, # or % in its path, got {' '.join(sorted(found))} ({home})")
        return f"sqlite:///{home / uri.removeprefix('sqlite:///')}"
    if uri.startswith("file:") or not _URI.match(uri):
        raise InputError(
            f"tracking uri must name a database or a server, got {uri!r} ({path}); "
            "MLflow no longer keeps runs in a plain folder: write sqlite:///mlflow.db"
        )
    return uri


def _location(location: str, home: Path) -> str:
    return location if _URI.match(location) else str(home / location)


def _template(template: str, path: Path) -> str:
    if not all(template.count(part) == 1 for part in ("{task}", "{workload}")):
        raise InputError(
            f"model_name must hold {{task}} and {{workload}} once each, got {template!r} ({path})"
        )
    between = re.split(r"\{task\}|\{workload\}", template)
    if set("/:{}%'\"") & set("".join(between)) or "." not in between[1]:
        rule = "must have a dot between its parts and hold none of / : {} % and quotes"
        raise InputError(f"model_name {rule}, got {template!r} ({path})")
    return template


def _alias(aliases: Mapping[str, Any], key: str, path: Path) -> str:
    alias = _text(aliases, key, path)
    other = aliases["challenger" if key == "champion" else "champion"]
    if not _ALIAS.fullmatch(alias) or alias == other:
        rule = "must be a name of its own (letters, digits, _, -; not latest or v3)"
        raise InputError(f"alias {key} {rule}, got {alias!r} ({path})")
    return alias


def _approval(value: Any, path: Path) -> Approval:
    if value == "auto":
        return "auto"
    if value == "manual":
        return "manual"
    raise InputError(f"approval must be auto or manual, got {value!r} ({path})")


def _gates(data: Any, path: Path) -> dict[str, tuple[Gate, ...]]:
    if not isinstance(data, Mapping) or not data:
        raise InputError(f"gates must map a task to its gates, got {data!r} ({path})")
    gates = _GatesByTask()
    for task, lines in data.items():
        gates[str(task)] = parse_gates(lines, f"{path}, gates.{task}")
    return gates
