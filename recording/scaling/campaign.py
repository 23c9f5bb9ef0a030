"""A scaling campaign on this host: plan, prepare, measure each server's demand, run every trial, write the data set.

Source: the telemetry that AWARE's agent sees (Qiu et al., USENIX ATC 2023; thesis, Table 5.1): limits, utilisation,
latency and throughput of a workload under a load that changes.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from feature_store.errors import SourceError
from recording.control_groups import ControlGroups, find_hierarchy
from recording.data_card import keep_host
from recording.engine import Campaign, ProgressEvent
from recording.preparation import prepare_state
from recording.processes import Guard
from recording.scaling.arrivals import read_shapes, synthetic_invocations
from recording.scaling.dataset import ScalingSummary, write_scaling_dataset
from recording.scaling.generator import real_time_prefix
from recording.scaling.live_deployment import LiveDeployment, Stage, own_processors
from recording.scaling.meters import between
from recording.scaling.open_loop import ANSWERED
from recording.scaling.plan import Deployment, Trial, plan_scaling
from recording.scaling.raw_trials import Event, RawTrials, TrialOutcome
from recording.scaling.servers.catalogue import SERVERS
from recording.scaling.settings import ScalingSettings
from recording.scaling.trial_run import Attempt, run_trial, undo_changes
from recording.tools import require_tools

# A server's demand is measured at this utilisation of one core, after a first guess at a low rate.
_DEMAND_UTILISATION = 0.5
_FIRST_RATE = 40.0
_DEMAND_S = 4.0
# Load before the first trial of a deployment whose start was recorded earlier: (utilisation, s).
_WARM_UP = ((0.4, 4.0),)


@dataclass(frozen=True)
class _Campaign:
    settings: ScalingSettings
    raw: RawTrials
    guard: Guard
    groups: ControlGroups
    tell: Callable[[str, str], None]


def required_scaling_tools(settings: ScalingSettings) -> list[str]:
    """Programs that a campaign with these settings runs."""
    return list(dict.fromkeys(tool for name in settings.servers for tool in SERVERS[name].tools))


def campaign_invocations(settings: ScalingSettings) -> np.ndarray:
    """Invocations per minute that the traces are drawn from, [functions, minutes]."""
    if settings.trace:
        return read_shapes(Path(settings.trace))
    return synthetic_invocations(np.random.default_rng(settings.seed), functions=20)


def record_scaling(
    settings: ScalingSettings,
    destination: Path,
    on_progress: Callable[[ProgressEvent], None],
    *,
    raw: Path | None = None,
    resume: bool = False,
    write_only: bool = False,
    scratch: Path | None = None,
    command: str = "assay record --task autoscaling",
) -> ScalingSummary:
    """Records a scaling campaign and writes its data set to `destination`.

    Args:
        settings: what to record.
        destination: folder of the data set.
        on_progress: called for everything worth telling.
        raw: folder of the raw data; `destination`/raw where None.
        resume: go on with the campaign in `raw`.
        write_only: record nothing more; write the data set of what is finished in `raw`.
        scratch: parent of the temporary folder.
        command: the command line to write into the data card.

    Raises:
        MissingToolError: where a program is not installed.
        InputError: where `raw` holds another campaign, none to go on with, or one that began on another machine, or
            the trace cannot be used.
        SourceError: where a server cannot be prepared, or no trial gave data.
    """
    if not write_only:
        require_tools(required_scaling_tools(settings))
    plan = plan_scaling(settings, campaign_invocations(settings))
    folder = RawTrials(raw or destination / "raw", settings, resume=resume or write_only)
    campaign = Campaign([trial for _, trials in plan for trial in trials],
                        lambda trial: folder.has(trial.identifier), on_progress)

    def record(guard: Guard, left: list[Trial]) -> None:
        groups = ControlGroups(guard, find_hierarchy())
        try:
            _record(_Campaign(settings, folder, guard, groups, campaign.tell), plan)
        finally:
            groups.remove_all()

    if not write_only and (left := campaign.left):
        begun = len(left) < len(campaign.plan) or any(folder.demand_s(name) is not None for name in settings.servers)
        keep_host(folder.path, required_scaling_tools(settings), begun=begun)
        campaign.record_missing(record, scratch, "removing temporary files")
    summary = write_scaling_dataset(settings, plan, folder, destination, command)
    campaign.tell("done", f"{summary.points} points and {summary.windows} windows in {destination}")
    return summary


def _record(campaign: _Campaign, plan: list[tuple[Deployment, list[Trial]]]) -> None:
    if not campaign.groups.has_cpu:
        campaign.tell("warning", "control groups are not writable here: recording without CPU quotas")
    if not real_time_prefix():
        campaign.tell("warning", "real-time priority is not allowed here: see the column lateness_p99_ms")
    for server in campaign.settings.servers:
        left = [(deployment, trials) for deployment, trials in plan if deployment.server == server
                and not all(campaign.raw.has(trial.identifier) for trial in trials)]
        if not left:
            continue
        campaign.tell("prepare", f"preparing {server}")
        home = prepare_state(campaign.guard, server, SERVERS[server].prepare, SERVERS[server].is_ready)
        stage = Stage(campaign.guard, campaign.groups, home, own_processors())
        demand_s = campaign.raw.demand_s(server)
        if demand_s is None:
            demand_s = _measure_demand(campaign, stage, server)
        for deployment, trials in left:
            _record_deployment(campaign, stage, deployment, trials, demand_s)


def _measure_demand(campaign: _Campaign, stage: Stage, server: str) -> float:
    """CPU seconds of a request, on one core."""
    with LiveDeployment(stage, Deployment(server, 1.0, 1, 1)) as live:
        live.start()
        demand_s, load = 1.0 / _FIRST_RATE, 1.0
        for number in range(3):
            trial = Trial(f"{server}-demand", "demand", live.deployment, ((load, _DEMAND_S),), (), 0.0, _DEMAND_S,
                          campaign.settings.seed + number)
            attempt = run_trial(live, trial, demand_s, campaign.settings.timeout_s)
            answered = int((attempt.result.status == ANSWERED).sum())
            if not answered:
                raise SourceError(f"server must answer requests, got no answer in {_DEMAND_S:g} s ({server})")
            used = attempt.samples[-1].server_cpu_s - attempt.samples[0].server_cpu_s
            demand_s, load = used / answered, _DEMAND_UTILISATION
    campaign.raw.write_demand(server, demand_s)
    campaign.tell("demand", f"{server}: {1000 * demand_s:.3f} ms of CPU a request")
    return demand_s


def _record_deployment(
    campaign: _Campaign, stage: Stage, deployment: Deployment, trials: list[Trial], demand_s: float
) -> None:
    with LiveDeployment(stage, deployment) as live:
        starts = live.start()
        if campaign.raw.has(trials[0].identifier):
            warm_up = Trial("warm-up", "warm-up", deployment, _WARM_UP, (), 0.0, 1.0, campaign.settings.seed)
            run_trial(live, warm_up, demand_s, campaign.settings.timeout_s)
        for trial in trials:
            if not campaign.raw.has(trial.identifier):
                _record_trial(campaign, live, trial, demand_s, starts if trial.kind == "start" else ())


def _record_trial(
    campaign: _Campaign, live: LiveDeployment, trial: Trial, demand_s: float, starts: tuple[Event, ...]
) -> None:
    """Records a trial, a point again and again while it is disturbed, and keeps the least disturbed attempt."""
    settings = campaign.settings
    most = settings.most_attempts if trial.kind == "point" else 1
    attempts: list[tuple[float, Attempt]] = []
    while not attempts or (len(attempts) < most and attempts[-1][0] > settings.most_disturbance_cores):
        attempt = run_trial(live, trial, demand_s, settings.timeout_s)
        undo_changes(live, trial)
        attempts.append((between(attempt.samples[0], attempt.samples[-1])["disturbance_cores"], attempt))
    disturbance, attempt = min(attempts, key=lambda one: one[0])
    started_unix_s = time.time() - (time.monotonic() - attempt.start_s)
    outcome = TrialOutcome(
        identifier=trial.identifier, started_unix_s=started_unix_s, start_s=attempt.start_s, demand_s=demand_s,
        quota_cores=live.quota_cores, attempts=len(attempts), events=(*starts, *attempt.events))
    campaign.raw.write(outcome, attempt.result, attempt.samples)
    again = f", {len(attempts)} attempts" if len(attempts) > 1 else ""
    campaign.tell("trial", f"{trial.identifier}: others used {disturbance:.2f} cores{again}")
