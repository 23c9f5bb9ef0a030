"""The table of kinds of task: every folder beside this file that has a `kind.py`, which holds `KIND`, a `Kind`.

A task file names its kind by the folder's name. One that stands elsewhere is named by its import path, with at least
one dot: `kind: my_package.my_kind` is the package whose `kind.py` holds `KIND`; it must be importable wherever the
pipeline runs.

Importing this module imports no kind: what a kind needs is imported when a task of it is read.
"""

import importlib
import importlib.util
import re
from pathlib import Path
from typing import Any

from feature_store.errors import InputError, nearest
from feature_store.written.field_errors import at_line, value_text
from models.tasks.kind import Kind

ROOM = "models.tasks"
_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


def kind_names() -> tuple[str, ...]:
    """Names of the kinds that come with Assay, in alphabetical order."""
    return tuple(sorted(path.parent.name for path in Path(__file__).parent.glob("*/kind.py")))


def kind_of(name: Any, where: str, line: int | None = None) -> Kind:
    """The kind of a task file's `kind`.

    Args:
        name: a folder's name or an import path.
        where: goes into error messages.
        line: of the name in the file, where there is one.

    Raises:
        InputError: there is no such kind, its module cannot be imported, or lacks a part of the contract.
    """
    names = kind_names()
    if not isinstance(name, str) or not (name in names or _PATH.fullmatch(name)):
        raise InputError(f"kind: expected {', '.join(names)} or the import path of a package, got {value_text(name)}; "
                         f"{nearest(str(name), names)} {at_line(where, line)}")
    module = f"{name if '.' in name else f'{ROOM}.{name}'}.kind"
    try:
        found = importlib.util.find_spec(module)
    except ImportError:
        found = None
    except (Exception, SystemExit) as error:  # of the package that the module stands in
        raise _broken(name, error, at_line(where, line)) from error
    if found is None:
        raise InputError(f"kind: expected a package with a module `kind`, got {name!r}, which cannot be imported "
                         f"{at_line(where, line)}")
    try:
        kind: Kind = importlib.import_module(module).KIND
    except (Exception, SystemExit) as error:
        raise _broken(name, error, at_line(where, line)) from error
    # of ours the class alone: what a property imports is for whoever reads it
    whole = kind if "." in name else type(kind)
    if missing := [part for part in vars(Kind) if not part.startswith("_") and not hasattr(whole, part)]:
        raise InputError(f"kind: expected a KIND with the whole contract (models/tasks/kind.py), got {name!r} without "
                         f"{', '.join(missing)} {at_line(where, line)}")
    return kind


def own_folders(name: str) -> tuple[Path, ...]:
    """Folders of the package of a kind that does not come with Assay; () for one that does."""
    if "." not in name:
        return ()
    found = importlib.util.find_spec(name)
    return tuple(map(Path, found.submodule_search_locations or ())) if found else ()


def _broken(name: str, error: BaseException, place: str) -> InputError:
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    return InputError(f"kind: expected a package whose module `kind` holds KIND, got {name!r}, whose import fails with "
                      f"{reason} {place}")
