"""A recording campaign on this host: plan, prepare, run every combination, clean, write the data set.

Source: vPALs, section "Data processing pipeline" (colocation up to theta on one machine).
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil

from feature_store.errors import SourceError
from feature_store.sources.metric_map import read_metric_map
from recording.combination_run import CombinationRun, Stage
from recording.control_groups import ControlGroups, find_hierarchy
from recording.data_card import keep_host
from recording.dataset import CampaignSummary, write_dataset
from recording.engine import Campaign, ProgressEvent
from recording.monitoring import Monitoring
from recording.plan import Combination, plan_campaign
from recording.preparation import prepare_workload
from recording.processes import Guard
from recording.raw_folder import RawFolder
from recording.settings import CampaignSettings
from recording.stamped_log import LogStamper
from recording.tools import INTERFERENCE_TOOLS, MONITORING_TOOLS, require_tools
from recording.workloads.catalogue import WORKLOADS

# Seconds of metrics read before the start and after the end, for the windows at the edges.
_MARGIN_S = 2.0


def required_tools(settings: CampaignSettings) -> list[str]:
    """Programs that a campaign with these settings runs."""
    names = [*MONITORING_TOOLS, *(INTERFERENCE_TOOLS if settings.interference else ())]
    for workload in settings.workloads:
        names += WORKLOADS[workload].tools
    return list(dict.fromkeys(names))


def record_campaign(
    settings: CampaignSettings,
    destination: Path,
    on_progress: Callable[[ProgressEvent], None],
    *,
    raw: Path | None = None,
    resume: bool = False,
    write_only: bool = False,
    scratch: Path | None = None,
    command: str = "assay record",
) -> CampaignSummary:
    """Records a campaign and writes samples.parquet, card.json and README.md to `destination`.

    Args:
        settings: what to record.
        destination: folder of the data set.
        on_progress: called for everything worth telling.
        raw: folder of the raw data; `destination`/raw where None.
        resume: go on with the campaign in `raw`.
        write_only: record nothing more; write the data set of what is finished in `raw`.
        scratch: parent of the temporary folder; it should lie on the disk to be measured.
        command: the command line to write into the data card.

    Raises:
        MissingToolError: where a program is not installed.
        InputError: where `raw` holds another campaign, none to go on with, or one that began on another machine.
        SourceError: where preparation fails, or no combination gave a sample.
    """
    plan = plan_campaign(settings)
    if not write_only:
        require_tools(required_tools(settings))
    folder = RawFolder(raw or destination / "raw", settings, resume=resume or write_only)
    campaign = Campaign(plan, lambda combination: folder.has(combination.identifier), on_progress)
    if not write_only and (left := campaign.left):
        packages = ("torch",) if "training" in settings.workloads else ()
        keep_host(folder.path, required_tools(settings), packages, begun=len(left) < len(plan))
        campaign.record_missing(partial(_record, campaign, settings, folder), scratch, "removing temporary files")
    summary = write_dataset(settings, plan, folder, destination, command)
    campaign.tell("done", f"{summary.samples} samples in {destination}")
    return summary


def _record(campaign: Campaign[Combination], settings: CampaignSettings, folder: RawFolder, guard: Guard,
            left: list[Combination]) -> None:
    groups = ControlGroups(guard, find_hierarchy())
    if not (groups.has_cpu and groups.has_memory):
        limits = " and ".join(
            name
            for name, has in (("CPU quotas", groups.has_cpu), ("memory limits", groups.has_memory))
            if not has
        )
        campaign.tell("warning", f"control groups are not writable here: recording without {limits}")
    homes = {}
    for name in settings.workloads:
        campaign.tell("prepare", f"preparing {name}")
        homes[name] = prepare_workload(guard, name)
    campaign.tell("prepare", "starting Prometheus and the node exporter")
    monitoring = Monitoring(guard, read_metric_map())
    stamper = LogStamper()
    pids = {"recorder": os.getpid(), "prometheus": monitoring.server.session}
    pids["node_exporter"] = monitoring.exporter.session
    stage = Stage(
        guard=guard,
        groups=groups,
        monitoring=monitoring,
        stamper=stamper,
        homes=homes,
        host_cores=float(len(os.sched_getaffinity(0))),
        host_memory_mb=psutil.virtual_memory().total / 2**20,
        recorder_pids=pids,
    )
    try:
        for combination in left:
            problem = _record_one(stage, settings, folder, combination)
            names = "+".join(planned.name for planned in combination.workloads)
            text = f"{combination.identifier} {names}" + (f": {problem}" if problem else "")
            campaign.tell("dropped" if problem else "combination", text)
    finally:
        stamper.close()


def _record_one(stage: Stage, settings: CampaignSettings, folder: RawFolder, combination: Combination) -> str:
    """Runs one combination and writes its raw data; returns what went wrong, if anything."""
    with CombinationRun(stage, combination) as run:
        outcome = run.record(settings.seconds_per_combination)
        monitors_alive = all(process.is_alive() for process in stage.monitoring.processes)
        if not monitors_alive:
            raise SourceError(
                f"Prometheus and its exporter: expected both to keep running, but one ended ({combination.identifier})"
            )
        metrics = stage.monitoring.read(outcome.start_s - _MARGIN_S, outcome.end_s)
        folder.write(outcome, metrics, run.logs)
    return outcome.problem
