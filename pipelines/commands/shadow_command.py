"""`assay shadow-report`: what a controller in shadow would have come to."""

from pathlib import Path
from typing import Annotated

import orjson
import typer

from feature_store.errors import InputError
from pipelines.console import (
    GENERIC,
    ConfigOption,
    JsonOption,
    KeyOption,
    configuration_from,
    print_json,
    print_line,
    reported,
    working,
)


@reported
def shadow_report(
    workload: Annotated[str, typer.Option("--workload", "-w", help="Whose shadow it was.")],
    task: Annotated[str, typer.Option(help="Name of the task, or the path of its YAML.")],
    folder: Annotated[Path | None, typer.Option(
        help="Of the shadow; default: shadow/<task>/<workload> in the state folder.")] = None,
    bundle: Annotated[Path | None, typer.Option(help="A bundle folder instead of the registry's champion.")] = None,
    generic: Annotated[bool, typer.Option("--generic", help="It was the policy that ships with Assay.")] = False,
    public_key: KeyOption = None,
    output: Annotated[Path | None, typer.Option(help="The page; default: report.html in the shadow's folder.")] = None,
    config: ConfigOption = None, json_output: JsonOption = False,
) -> None:
    """Write one page about a shadow: what the policy would have saved, whether to believe it, what to do next.

    The recorded load is replayed in the task's twin under what was set, the policy, and its fallback.

    Example: assay shadow-report --workload shop --task shop/task.yaml --output page.html
    """
    from feature_store.whole_files import require_writable, write_whole
    from models.tasks.kinds import kind_of
    from models.tasks.shadowed_kind import ShadowedKind, ShadowedPolicy
    from models.tasks.task import load_task
    from serving.bundle import check_bundle
    from serving.control.champion import champion_of_ledger
    from serving.control.generic import generic_bundle
    from serving.control.start import ControlRequest, keyed, place_of, require_generic_alone

    read = load_task(task)
    kind = kind_of(read.kind, task)
    if not isinstance(kind, ShadowedKind):
        raise InputError(f"task must be one whose policies act, got one of the kind {read.kind} (--task)")
    request = ControlRequest(workload, Path(), read.name, bundle=bundle, public_key=public_key, folder=folder,
                             shadow=True, generic=GENERIC if generic else None)
    require_generic_alone(request)
    state = keyed(request, configuration_from(config))
    place = place_of(request, state.home)
    if not (place / "steps").is_dir():
        raise InputError(f"folder must be of a shadow, got none with a log ({place}); run `assay control --shadow` "
                         "first")
    page = output or place / "report.html"
    require_writable(page, "page", ())
    with working("replaying the load", json_output):
        checked = (generic_bundle(GENERIC, read.name, workload) if generic
                   else check_bundle(bundle, state.public_key_path) if bundle is not None
                   else champion_of_ledger(state, read.name, workload))
        contract = checked.contract
        if (contract.task, contract.workload) != (read.name, workload):
            raise InputError(f"bundle must be for {read.name}, {workload}, got one for {contract.task}, "
                             f"{contract.workload} ({bundle})")
        if contract.fallback is None:
            raise InputError("contract must name a fallback, got none; make the bundle again")
        policy = ShadowedPolicy(checked.model, checked.sha256[:12], contract.fallback.rule, contract.fallback.settings)
        found, html = kind.shadow_report(read, workload, place, policy, task)
    write_whole(page, html, "page")
    if json_output:
        print_json({**orjson.loads(orjson.dumps(found)), "page": str(page)})  # NaN becomes null
        return
    for line in (found["verdict"], *found["doubts"], *(f"next: {one}" for one in found["next"]), f"page: {page}"):
        print_line(line)
