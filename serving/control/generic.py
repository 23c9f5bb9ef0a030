"""Policies that ship with Assay: proved and judged for services of all kinds, trained for none of them.

    data/generic/<task>/    bundle/, a signed bundle; assay.pub, the key of its signature

Whoever has trained nothing yet may try one in shadow. None of them ever acts: no gate has held it against this service.
"""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from feature_store.errors import InputError
from feature_store.names import check_task_name, check_workload_name
from serving.bundle import CheckedBundle, check_bundle
from serving.contract import Contract


def generic_task(folder: Path) -> str:
    """The task that there is such a policy of. folder: of all of them. Raises InputError: none or several."""
    found = sorted(one.parent.name for one in folder.glob("*/bundle"))
    if len(found) != 1:
        raise InputError("task must be given (--task), for generic policies are shipped of "
                         f"{', '.join(found) or 'none'} ({folder})")
    return found[0]


def generic_bundle(folder: Path, task: str, workload: str) -> CheckedBundle:
    """The task's generic policy, checked as every bundle is, under the name of a workload.

    Args:
        folder: of all of them.

    Raises:
        InputError: none is shipped of this task.
        RefusedError: it does not check.
    """
    place = folder / check_task_name(task, "--task")
    if not (place / "bundle").is_dir():
        raise InputError(f"generic policy must be of a task that one is shipped of, got {task!r} ({folder})")
    bundle = check_bundle(place / "bundle", place / "assay.pub")
    contract = replace(bundle.contract, workload=check_workload_name(workload, "--workload"))
    return CheckedBundle(replace(bundle, promise=replace(bundle.promise, contract=contract)))


def require_own_settings(contract: Contract, given: Collection[str]) -> None:
    """Raises InputError: the controller file does not say what was promised of this service.

    Args:
        contract: of a generic policy.
        given: names of the settings in the file.
    """
    assert contract.driving is not None
    own = contract.driving.settings
    if missing := [name for name in own if name not in given]:
        said = ", ".join(f"{name}: {own[name]:g}" for name in missing)
        raise InputError(f"settings must say {', '.join(missing)} of this service in the controller file, which no "
                         f"generic policy knows (such as `settings: {{{said}}}`), got none")
