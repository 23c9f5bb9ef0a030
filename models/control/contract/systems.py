"""The table of systems: every folder of systems/ that has an `environment.py`, which holds `ENVIRONMENT`.

A task file names its environment by the folder's name. One that stands elsewhere is named by its import path, with at
least one dot: `environment: my_package.my_environment` is a module that holds `ENVIRONMENT`, a `ControlledSystem`
(environment.py); it must be importable wherever the pipeline runs.
"""

import importlib
import importlib.util
import re
from pathlib import Path
from typing import Any

from feature_store.errors import InputError, nearest
from models.control.contract.acting import code_files
from models.control.contract.environment import ControlledSystem
from models.control.contract.own_service import OwnServiceSystem

FOLDER = Path(__file__).resolve().parents[3] / "systems"
_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


def environment_names() -> tuple[str, ...]:
    """Names of the environments that come with Assay, in alphabetical order."""
    return tuple(sorted(path.parent.name for path in FOLDER.glob("*/environment.py")))


def modules_of(part: str) -> dict[str, str]:
    """System that has such a part -> import path of it. part: such as "traces.culprits"."""
    file = part.replace(".", "/") + ".py"
    return {path.name: f"systems.{path.name}.{part}" for path in sorted(FOLDER.iterdir()) if (path / file).is_file()}


def environment_of(name: Any) -> ControlledSystem:
    """The environment that a task file names.

    Raises:
        InputError: there is none of that name, its module cannot be imported, or lacks a part of the contract.
    """
    module = _module(name)
    try:
        found = importlib.util.find_spec(module)
    except ImportError:
        found = None
    except (Exception, SystemExit) as error:  # of the package that the module stands in
        raise _broken(name, error) from error
    if found is None:
        raise InputError(f"environment: expected a module that can be imported, got {name!r}")
    try:
        environment: ControlledSystem = importlib.import_module(module).ENVIRONMENT
    except (Exception, SystemExit) as error:
        raise _broken(name, error) from error
    if missing := [part for part in _parts() if not hasattr(environment, part)]:
        raise InputError("environment: expected an ENVIRONMENT with the whole contract "
                         f"(models/control/contract/environment.py), got {name!r} without {', '.join(missing)}")
    return environment


def own_service_system(name: str | None) -> OwnServiceSystem:
    """The system of that name, which must be one that can be begun from a service; None: the first that can.

    Raises:
        InputError: there is none, or it cannot.
    """
    for one in environment_names() if name is None else (name,):
        if isinstance(found := environment_of(one), OwnServiceSystem):
            return found
    raise InputError(f"system must be one that can be begun from a service that runs, got {name or 'none'}")


def own_files(name: str) -> tuple[Path, ...]:
    """The files of an environment that does not come with Assay, or the folder of its package, and those of what acts;
    () for one that does come with it."""
    if "." not in name:
        return ()
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        return ()
    acting = tuple(code_files(environment_of(name).acting).values())
    return tuple(map(Path, found.submodule_search_locations or (found.origin,))) + acting


def _module(name: Any) -> str:
    names = environment_names()
    if isinstance(name, str) and name in names:
        return f"systems.{name}.environment"
    if isinstance(name, str) and _PATH.fullmatch(name):
        return name
    raise InputError(f"environment: expected {', '.join(names)} or the import path of a module, got {name!r}; "
                     f"{nearest(str(name), names)}")


def _parts() -> list[str]:
    return [part for protocol in ControlledSystem.__mro__ for part in vars(protocol)
            if protocol.__module__ == ControlledSystem.__module__ and not part.startswith("_")]


def _broken(name: str, error: BaseException) -> InputError:
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    return InputError(f"environment: expected a module that holds ENVIRONMENT, got {name!r}, whose import fails with "
                      f"{reason}")
