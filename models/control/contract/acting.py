"""What acts of a system beside a live service, in one module, which its bundles name.

    OBSERVER         class of an `Observer` (observer.py)
    RULES            name -> `RuleFamily` (controller.py): what a policy falls back to
    check_guarantee  a `GuaranteeChecker` (guarantee.py); left out where no policy of the system ships a guarantee

No torch, no simulator: a controller imports it. A bundle also carries the digest of this code, with all that it imports
of its own package, and nothing of this contract: where other code is installed, nobody knows whether the policy was
trained and judged beside it.
"""

import ast
import hashlib
import importlib
import importlib.util
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from feature_store.errors import InputError
from models.control.contract.controller import RuleFamily
from models.control.contract.guarantee import GuaranteeChecker
from models.control.contract.observer import Observer


@dataclass(frozen=True)
class Acting:
    """Observer, rules and, where there is one, the checker of guarantees of a system."""

    observer: Callable[[], Observer]
    rules: Mapping[str, RuleFamily]
    check_guarantee: GuaranteeChecker | None


def load_acting(module: str, sha256: str | None = None) -> Acting:
    """What the module holds.

    Args:
        sha256: digest that its code must have; None: whatever it has.

    Raises:
        InputError: there is no such module, it lacks a part, or its code is another one.
    """
    if sha256 is not None and (found := code_sha256(module)) != sha256:
        raise InputError(f"code of {module} must be what the bundle was made with, {sha256[:12]}, got {found[:12]}: "
                         "install the version of then, or make the bundle again")
    try:
        loaded: Any = importlib.import_module(module)
        return Acting(loaded.OBSERVER, loaded.RULES, getattr(loaded, "check_guarantee", None))
    except (ImportError, AttributeError) as error:
        raise InputError(f"acting must be a module that holds OBSERVER and RULES, got {module!r}: {error}") from error


def comes_along(module: str) -> bool:
    """Whether it is a module of a system that comes with Assay."""
    return re.fullmatch(r"systems\.[a-z][a-z0-9_]*\.acting", module) is not None and _source(module) is not None


@cache
def code_sha256(module: str) -> str:
    """Hex digest of `code_files`: their names and contents. Raises InputError as that does."""
    digest = hashlib.sha256()
    for name, path in code_files(module).items():
        digest.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def code_files(module: str) -> dict[str, Path]:
    """The sources of a module and of all that it imports of the package that it stands in, by name, in order of names.

    Raises:
        InputError: there is no such module.
    """
    package, found, pending = module.rpartition(".")[0] or module, dict[str, Path](), [module]
    while pending:
        name = pending.pop()
        path = _source(name)
        if name in found or path is None:
            continue
        found[name] = path
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ImportFrom):
                of = _imported_from(node, name if path.name == "__init__.py" else name.rpartition(".")[0])
                pending += [of, *(f"{of}.{one.name}" for one in node.names)]
            elif isinstance(node, ast.Import):
                pending += [one.name for one in node.names]
        pending = [one for one in pending if one.startswith(f"{package}.")]
    if module not in found:
        raise InputError(f"acting must be a module that can be imported, got {module!r}")
    return dict(sorted(found.items()))


def _imported_from(node: ast.ImportFrom, package: str) -> str:
    """The module that an import names, "" where none can be: relative to a package."""
    try:
        return importlib.util.resolve_name("." * node.level + (node.module or ""), package)
    except ImportError:  # beyond the outermost package
        return ""


def _source(name: str) -> Path | None:
    """The file of a module; None: there is none of that name."""
    try:
        found = importlib.util.find_spec(name)
    except ImportError:
        return None
    return None if found is None or found.origin is None or not found.has_location else Path(found.origin)
