"""`assay clean`: the disk space that past runs take in the state folder."""

import time
from typing import Annotated

import typer
from rich.filesize import decimal

from models.reporting.formatting import count
from pipelines.console import ConfigOption, JsonOption, configuration_from, print_json, print_line, reported, working


@reported
def clean(
    older_than: Annotated[float, typer.Option("--older-than", metavar="DAYS", min=0, help="Days since anything in it "
                                              "was last written.")] = 30.0,
    keep: Annotated[int, typer.Option(min=0, help="Newest runs, and newest reports, that stay whatever their "
                                                  "age.")] = 20,
    yes: Annotated[bool, typer.Option("--yes", help="Remove it. Without this it is only shown.")] = False,
    config: ConfigOption = None, json_output: JsonOption = False,
) -> None:
    """Show how much of the state folder is left over from past runs, by kind; with --yes, remove it.

    Left over are folders and reports of runs, cached steps, pretrained networks, learners and checkpoints of killed
    runs, searches, logs, and the logs of controllers in shadow. Runs and reports of champions, of the champions before
    them and of versions that wait stay. Ledger, keys, bundles, MLflow and controllers are never touched. While a run or
    a monitor is at work nothing is removed, with exit code 75.

    Example: assay clean --older-than 30 --keep 20 --yes
    """
    from pipelines import cleaning
    from serving.relocation import require_own_home

    configuration = configuration_from(config)
    require_own_home(configuration)
    found: list[cleaning.Leftover] = []
    linked = cleaning.linked_folders(configuration)
    if configuration.home.is_dir():  # else looking would make it
        with working("cleaning" if yes else "looking", json_output):
            found = (cleaning.clean if yes else cleaning.leftovers)(configuration, older_than, keep, time.time())
    kinds = {kind: [one.size for one in found if one.kind == kind] for kind in dict.fromkeys(one.kind for one in found)}
    size = sum(one.size for one in found)
    if json_output:
        print_json({"removed": yes, "bytes": size, "left_alone": [str(path) for path in linked], "kinds": [
            {"kind": kind, "entries": len(sizes), "bytes": sum(sizes)} for kind, sizes in kinds.items()]})
        return
    for kind, sizes in kinds.items():
        print_line(f"{kind}: {len(sizes):,}, {decimal(sum(sizes))}")
    for path in linked:
        print_line(f"left alone, as it is a link: {path}")
    if not found:
        print_line("there is nothing to remove")
    elif yes:
        print_line(f"removed: {count(len(found), 'entry', 'entries')}, {decimal(size)}")
    else:
        print_line(f"{decimal(size)} can be freed; --yes removes it")
