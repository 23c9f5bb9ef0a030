"""`assay init`: mlflow.yaml for a folder that has none; and from a service that runs to the files to go on with."""

import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

import typer

from feature_store.errors import InputError
from models.control.contract.own_service import Service
from pipelines.console import (
    SHIPPED_CONFIGURATION,
    JsonOption,
    found_configuration,
    print_json,
    print_line,
    print_note,
    reported,
    working,
)

MOST_WINDOWS = 200_000  # some five months of minutes
_KUBERNETES = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


@reported
def init(
    prometheus: Annotated[str | None, typer.Option(
        help="Address of the Prometheus server that knows the service.")] = None,
    deployment: Annotated[str | None, typer.Option(help="Kubernetes Deployment of the service.")] = None,
    namespace: Annotated[str, typer.Option(help="Of the Deployment.")] = "default",
    container: Annotated[str | None, typer.Option(help="Of its pods; default: named as the Deployment.")] = None,
    cgroup: Annotated[str | None, typer.Option(
        help="Control group of the service on this host, as a path below /sys/fs/cgroup.")] = None,
    csv: Annotated[Path | None, typer.Option(
        help="A CSV or Parquet file of recorded windows, in place of a server.")] = None,
    name: Annotated[str | None, typer.Option(
        help="Of the service, as its series are labelled; default: of the Deployment or the group.")] = None,
    objective: Annotated[float | None, typer.Option(
        help="What the service promises, such as ms at the 99th percentile; default: one is proposed.")] = None,
    last: Annotated[str, typer.Option(help="How far to look back: 90m, 36h, 7d.")] = "7d",
    window: Annotated[float, typer.Option(min=1, max=86_400, help="Length of a window, in seconds.")] = 60.0,
    system: Annotated[str | None, typer.Option(
        help="What is to be controlled; default: the first that can be begun so.")] = None,
    output: Annotated[Path | None, typer.Option(help="Folder to write; default: one named as the service.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that are there.")] = False,
    json_output: JsonOption = False,
) -> None:
    """Write mlflow.yaml; with --prometheus or --csv: also task, load map and controller file for a service that runs.

    mlflow.yaml says where state and models are kept and which gates they pass. The state folder, .assay, is beside it.

    Nothing is changed on the service. What was found is said, and what was not; the files have a comment for each line
    that you may want to change. Go on with `assay validate`, `assay run` and `assay control --shadow`, as the last
    lines say.

    Example: assay init --prometheus http://127.0.0.1:9090 --deployment web --namespace shop
    """
    from models.control.contract.systems import own_service_system

    if prometheus is not None and csv is not None:
        raise InputError("expected either --prometheus or --csv, got both")
    configuration = {"mlflow.yaml": SHIPPED_CONFIGURATION.read_text(encoding="utf-8")}
    if prometheus is None and csv is None:
        if unused := [one for one, given in (("name", name), ("deployment", deployment), ("cgroup", cgroup)) if given]:
            raise InputError(f"expected --prometheus or --csv, which know the service of --{unused[0]}, got none")
        _finish(output or Path(), configuration, ["assay run"], overwrite, json_output)
        return
    label = name or deployment or (cgroup or "").rstrip("/").rpartition("/")[2] or (csv.stem if csv else "")
    if not label:
        raise InputError("name must say which service is meant (--name, --deployment or --cgroup), got none")
    called = re.sub(r"[^A-Za-z0-9_]+", "-", label).strip("-_")  # of folders, tasks and registered models
    if not called:
        raise InputError(f"name must have a letter or a digit, got {label!r}")
    service = Service(called, label, prometheus or "", csv, _target(deployment, namespace, container, cgroup),
                      objective, _seconds(last, window), window)
    folder, said = output or Path(called), print_note if json_output else print_line
    with working("looking at what is recorded", json_output):
        files = own_service_system(system).begin(service, said)
    _finish(folder, files, _next_steps(folder, files, service), overwrite, json_output,
            {} if found_configuration() else configuration)


def _finish(folder: Path, files: Mapping[str, str], steps: Sequence[str], overwrite: bool, json_output: bool,
            here: Mapping[str, str] = MappingProxyType({})) -> None:
    """Writes the files into the folder, and what is missing in the current one; says so, and how to go on."""
    places = {one: folder / one for one in files} | {one: Path(one) for one in here}
    _write({place: {**files, **here}[one] for one, place in places.items()}, overwrite)
    paths = {one: str(place) for one, place in places.items()}
    if json_output:
        print_json({"files": paths, "next": steps})
        return
    for path in paths.values():
        print_line(f"wrote    {path}")
    for one in steps:
        print_line(f"next     {one}")


def _target(deployment: str | None, namespace: str, container: str | None,
            cgroup: str | None) -> Mapping[str, Mapping[str, str]]:
    """Section of the controller file -> its keys."""
    if deployment is not None and cgroup is not None:
        raise InputError("expected one of --deployment and --cgroup, got both")
    for what, given in (("deployment", deployment), ("namespace", namespace), ("container", container)):
        if given is not None and not _KUBERNETES.fullmatch(given):
            raise InputError(f"{what} must be a name as Kubernetes has it (a-z, 0-9, - and .), got {given!r}")
    if deployment is not None:
        return {"kubernetes": {"namespace": namespace, "deployment": deployment, "container": container or deployment}}
    if cgroup is not None:
        parent, _, group = cgroup.strip("/").removeprefix("sys/fs/cgroup/").rpartition("/")
        return {"cgroup": {"group": group, **({"parent": parent} if parent else {}), "state": "/run/assay"}}
    return {}


def _seconds(text: str, window_s: float) -> float:
    """A length of time such as 90m, of some windows. Raises InputError."""
    units = {"m": 60.0, "h": 3600.0, "d": 86_400.0}
    try:
        value = float(text[:-1]) * units[text[-1:]]
    except (ValueError, KeyError):
        value = 0.0
    if not 0 < value <= 366 * units["d"]:
        raise InputError(f"last must be a time such as 90m, 36h or 7d, of at most 366d, got {text!r}")
    if not 2 * window_s <= value <= MOST_WINDOWS * window_s:
        raise InputError(f"last must be 2 to {MOST_WINDOWS:,} windows (--window) of {window_s:g} s, got {text}, which "
                         f"are {value / window_s:.4g}")
    return value


def _write(files: Mapping[Path, str], overwrite: bool) -> None:
    """None gets its name before all are written. Raises InputError: one is there, or cannot be written."""
    from feature_store.whole_files import whole_file

    if folders := [str(one) for one in files if one.is_dir()]:
        raise InputError(f"files must not be folders, got {', '.join(folders)}; name another folder (--output)")
    if not overwrite and (there := [str(one) for one in files if one.exists()]):
        raise InputError(f"files must not be there yet, got {', '.join(there)}; --overwrite replaces them, --output "
                         "names another folder")
    try:
        with ExitStack() as written:
            for one, text in files.items():
                one.parent.mkdir(parents=True, exist_ok=True)
                mode = 0o600 if one.name == "controller.yaml" else 0o666  # a password may be in it
                written.enter_context(whole_file(one, mode=mode)).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"folder must be one that can be written, got {error.strerror} ({one.parent})") from error


def _next_steps(folder: Path, files: Mapping[str, str], service: Service) -> list[str]:
    from feature_store.sources.prometheus_api import shown_address

    task, controller = (shlex.quote(str(folder / one)) for one in ("task.yaml", "controller.yaml"))
    load = shlex.quote(f"{folder / 'load.csv'}") if "load.csv" in files else (
        f"{shown_address(service.prometheus)} --mapping {shlex.quote(str(folder / 'load.yaml'))}")
    steps = [f"assay validate --task {task} --telemetry {load}", f"assay run --task {task} --telemetry {load}"]
    if "controller.yaml" in files:
        steps.insert(0, f"assay control --generic --shadow --workload {service.name} --controller {controller} "
                        f"--actuator watch --folder {shlex.quote(str(folder / 'generic'))}    # before anything is "
                        "trained, with the `settings` of that file")
        steps.append(f"assay control --shadow --workload {service.name} --controller {controller} "
                     "--actuator watch    # decides beside what is there, sets nothing")
        steps.append(f"assay shadow-report --workload {service.name} --task {task}    # what it would have come to")
    return steps
