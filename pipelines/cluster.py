"""Runs and schedules on a cluster, through `kfp.Client`: `assay submit` and `assay schedule`.

A schedule is a KFP recurring run in one experiment, found again by its name (KFP's own names need not be
unique). Cron has six fields there and is in UTC by default: pipelines/schedules/cron.py.

The cache. KFP answers a task from its cache where image, command, inputs and outputs are those of an earlier
run (backend/src/v2/driver/cache.go, `getFingerPrint`), so a recurring run with fixed arguments trains once
and then never again. Its macros do NOT help, as read in kubeflow/pipelines 2.17.0:
  - A recurring run with a pipeline spec or a pinned version, all that `Client.create_recurring_run` makes, is
    compiled once, at creation, with its arguments inside (backend/src/apiserver/resource/resource_manager.go
    `CreateJob`, .../template/v2_template.go `ScheduledWorkflow`, v2/compiler/argocompiler/dag.go
    `runtime-config`). At each tick the controller fills `[[ScheduledTime]]` and the like into the workflow's
    own arguments alone (crd/controller/scheduledworkflow/util/scheduled_workflow.go `NewWorkflow`,
    common/util/workflow.go `OverrideParameters`), and a v2 pipeline has no parameter there: the component
    sees the literal "[[ScheduledTime]]". Reported as github.com/kubeflow/pipelines/issues/12494.
  - Since 2.16.0 (pull request 12497) macros are filled in where the API server makes the run (v2_template.go
    `RunWorkflow`): single runs, and recurring runs that name a pipeline without a version. There
    `[[CurrentTime]]` and `[[RunUUID]]` are filled; `[[ScheduledTime]]` is not, as the controller sends no
    scheduled time. Older servers fill none, and a literal would be recorded as the data version.
So a schedule is sent with caching off in every task (pipelines/package.py: kfp's `enable_caching=False`
forgets loops), and its `data_version` is a text made at creation: it keeps the schedule apart from every
single run and from its own predecessors. It does NOT change from tick to tick: the version of the data is
what ingestion finds.
"""

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipelines.kfp_connection import Endpoint, connected
from pipelines.package import PipelinePackage, check_arguments, read_package, without_caching, write_package
from pipelines.schedules.cron import from_kfp_cron, next_runs, parse_cron
from pipelines.schedules.schedule_info import ScheduleInfo, check_schedule_name, no_such_schedule

EXPERIMENT = "assay"
DATA_VERSION = "data_version"
_PAGE_SIZE = 100
_EQUALS = 1  # kfp 2.17.0, client/client.py, _FILTER_OPERATIONS
_ZONE_NOTE = "times in UTC, Kubeflow's default; a cluster with another cronScheduleTimezone runs by that"


@dataclass(frozen=True)
class SubmittedRun:
    """A run that the cluster has taken: its id, its page in the KFP interface, its name and experiment."""

    run_id: str
    url: str
    name: str
    experiment: str


def submit(
    package_path: Path,
    arguments: Mapping[str, Any],
    endpoint: Endpoint,
    *,
    run_name: str | None = None,
    service_account: str | None = None,
    now: datetime | None = None,
) -> SubmittedRun:
    """Start one run of a compiled pipeline.

    Args:
        package_path: the compiled YAML.
        arguments: values of the pipeline's parameters; those with defaults may be left out.
        endpoint: the cluster.
        run_name: without it the pipeline's name and the time.
        service_account: Kubernetes service account of the pods; None: the cluster's.
        now: the time for the name; without it the clock.

    Raises:
        InputError: the package or an argument is wrong; nothing was sent.
        SourceError: the cluster does not take it.
    """
    package = read_package(package_path)
    checked = check_arguments(package, arguments)
    name = run_name or f"{package.name} {now or datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
    with _sendable(package) as path, connected(endpoint) as client:
        run = client.run_pipeline(
            experiment_id=_make_experiment(client, endpoint),
            job_name=name,
            pipeline_package_path=str(path),
            params=checked,
            service_account=service_account,
        )
        return SubmittedRun(run.run_id, f"{endpoint.url}/#/runs/details/{run.run_id}", name, EXPERIMENT)


def create_schedule(
    name: str,
    cron: str,
    package_path: Path,
    arguments: Mapping[str, Any],
    endpoint: Endpoint,
    *,
    service_account: str | None = None,
    now: datetime | None = None,
) -> ScheduleInfo:
    """Make a recurring run, one run at a time and without catching up; one of the same name is replaced.

    The new one is made before the old one is deleted: if anything fails between, no schedule is lost, and
    creating it again tidies up.

    Args:
        name: the schedule's name.
        cron: five fields.
        package_path: the compiled YAML; later compilations reach the schedule only by creating it again.
        arguments: as in `submit`; `data_version` is set here where the pipeline has it and it is not given.
        endpoint: the cluster.
        service_account: as in `submit`.
        now: the time for `data_version` and the next runs; without it the clock.

    Raises:
        InputError: name, cron, package or an argument is wrong; nothing was sent.
        SourceError: the cluster does not take it.
    """
    now = now or datetime.now(UTC)
    checked_cron = parse_cron(cron)
    check_schedule_name(name)
    package = without_caching(read_package(package_path))
    arguments = check_arguments(package, _with_data_version(package, arguments, name, now))
    with _sendable(package) as path, connected(endpoint) as client:
        experiment_id = _make_experiment(client, endpoint)
        replaced = _recurring_runs(client, experiment_id, name)
        made = client.create_recurring_run(
            experiment_id=experiment_id,
            job_name=name,
            description=f"assay schedule; cron {checked_cron.expression} (UTC by default); caching off",
            cron_expression=checked_cron.kfp,
            max_concurrency=1,
            no_catchup=True,
            params=arguments,
            pipeline_package_path=str(path),
            enable_caching=False,
            service_account=service_account,
        )
        for old in replaced:
            client.delete_recurring_run(old.recurring_run_id)
    notes = tuple(f"replaced the schedule of that name ({_cron_text(old)})" for old in replaced)
    info = _info(made, endpoint, now)
    return replace(info, notes=notes + info.notes)


def list_schedules(endpoint: Endpoint, *, now: datetime | None = None) -> tuple[ScheduleInfo, ...]:
    """The schedules of EXPERIMENT, whoever made them; none where there is no such experiment.

    Raises:
        SourceError: the cluster does not answer.
    """
    now = now or datetime.now(UTC)
    with connected(endpoint) as client:
        experiment_id = _find_experiment(client, endpoint)
        runs = _recurring_runs(client, experiment_id) if experiment_id is not None else []
    return tuple(_info(run, endpoint, now) for run in runs)


def delete_schedule(name: str, endpoint: Endpoint) -> ScheduleInfo:
    """Take a schedule away, with any other of its name; runs that it started go on. Returns what stood there.

    Raises:
        InputError: no schedule has that name.
        SourceError: the cluster does not answer.
    """
    with connected(endpoint) as client:
        experiment_id = _find_experiment(client, endpoint)
        runs = _recurring_runs(client, experiment_id) if experiment_id is not None else []
        named = [run for run in runs if run.display_name == name]
        for run in named:
            client.delete_recurring_run(run.recurring_run_id)
    if not named:
        raise no_such_schedule(name, (run.display_name for run in runs), f"{endpoint.url}, {EXPERIMENT}")
    return _info(named[0], endpoint, datetime.now(UTC))


def _with_data_version(
    package: PipelinePackage, arguments: Mapping[str, Any], name: str, now: datetime
) -> Mapping[str, Any]:
    """The arguments with a `data_version` that no other run has, unless the caller gave one."""
    if DATA_VERSION not in package.parameters or arguments.get(DATA_VERSION):
        return arguments
    return {**arguments, DATA_VERSION: f"schedule-{name}-{now.astimezone(UTC):%Y%m%dT%H%M%S.%fZ}"}


@contextmanager
def _sendable(package: PipelinePackage) -> Iterator[Path]:
    """The package as a file with the ending that `kfp.Client` asks for."""
    with tempfile.TemporaryDirectory(prefix="assay-package-") as folder:
        path = Path(folder) / "pipeline.yaml"
        write_package(package, path)
        yield path


def _make_experiment(client: Any, endpoint: Endpoint) -> str:
    return str(client.create_experiment(EXPERIMENT, namespace=endpoint.namespace).experiment_id)


def _find_experiment(client: Any, endpoint: Endpoint) -> str | None:
    """The experiment's id, without making it."""
    is_name = {"operation": _EQUALS, "key": "display_name", "stringValue": EXPERIMENT}
    answer = client.list_experiments(
        filter=json.dumps({"predicates": [is_name]}), namespace=endpoint.namespace
    )
    return str(answer.experiments[0].experiment_id) if answer.experiments else None


def _recurring_runs(client: Any, experiment_id: str, name: str | None = None) -> list[Any]:
    """All recurring runs of the experiment, or those of one name, page by page."""
    is_name = {"operation": _EQUALS, "key": "display_name", "stringValue": name}
    query = None if name is None else json.dumps({"predicates": [is_name]})
    runs: list[Any] = []
    token = ""
    while True:
        page = client.list_recurring_runs(
            page_token=token, page_size=_PAGE_SIZE, experiment_id=experiment_id, filter=query
        )
        runs += page.recurring_runs or []
        token = page.next_page_token or ""
        if not token:
            return runs


def _info(run: Any, endpoint: Endpoint, now: datetime) -> ScheduleInfo:
    """A recurring run as it is shown: by what its cron does, not by what it looks like."""
    kfp_cron = _kfp_cron(run)
    cron = from_kfp_cron(kfp_cron) if kfp_cron else None
    # A fresh answer may carry the mode alone.
    enabled = run.status == "ENABLED" if run.status else run.mode == "ENABLE"
    return ScheduleInfo(
        name=run.display_name,
        cron=_cron_text(run),
        kfp_cron=kfp_cron,
        next_runs=next_runs(cron, now.astimezone(UTC)) if cron is not None and enabled else (),
        target=f"kfp {endpoint.url}",
        enabled=enabled,
        notes=((*cron.notes, _ZONE_NOTE) if cron is not None else ()),
    )


def _kfp_cron(run: Any) -> str | None:
    schedule = run.trigger.cron_schedule if run.trigger is not None else None
    return schedule.cron if schedule is not None else None


def _cron_text(run: Any) -> str:
    """Five fields where there are such, else what stands there."""
    kfp_cron = _kfp_cron(run)
    if kfp_cron is None:
        periodic = run.trigger.periodic_schedule if run.trigger is not None else None
        return f"every {periodic.interval_second} s" if periodic is not None else "no trigger"
    cron = from_kfp_cron(kfp_cron)
    return cron.expression if cron is not None else kfp_cron
