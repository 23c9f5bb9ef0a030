"""`assay run` and `submit`: the train pipeline here, and on a cluster."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from feature_store.errors import InputError
from models.reporting.formatting import count
from models.training.methods import METHODS, POLICY_METHODS
from pipelines.commands.compile_command import ValuesOption, read_values
from pipelines.console import (
    ConfigOption,
    JsonOption,
    configuration_from,
    out,
    print_json,
    print_line,
    print_note,
    reported,
    working,
)
from pipelines.notification import Notice, notified, tell
from pipelines.request import Fanout, check_run_name, make_request

TaskOption = Annotated[str, typer.Option(help="Name of a task, or the path of its YAML.")]
TelemetryOption = Annotated[
    str | None, typer.Option(help="Parquet or CSV file, folder of Parquet files, the s3:// address of one, or the http "
                                  "address of a Prometheus server; default: what comes with the task.")]
MappingOption = Annotated[
    Path | None, typer.Option(help="For a file: how its columns map. For Prometheus: the metric map.")]
WorkloadOption = Annotated[list[str] | None, typer.Option("--workload", "-w", help="Only this workload; repeatable.")]
SeedOption = Annotated[int, typer.Option(help="Seed of weights and batches.", min=0)]
MethodOption = Annotated[
    str | None, typer.Option(help=f"Overrules the task. Of predictors: {', '.join(METHODS)}; of policies: "
                                  f"{', '.join(POLICY_METHODS)}.")]
BudgetOption = Annotated[
    float | None, typer.Option(help="Of policies: overrules the task's training budget; 4 trains four times as long.",
                               min=1e-3)]
ShardsOption = Annotated[
    int | None, typer.Option(help="Groups of workloads; default: as many as are at work at once.", min=1)]
ParallelismOption = Annotated[
    int | None, typer.Option(help="Shards at work at once; default: the cores of this machine, for a cluster too (kfp "
                                  "runs at most 2 here).", min=1)]
EndpointOption = Annotated[
    str | None, typer.Option(help="Address of the KFP API; default: $ASSAY_KFP_ENDPOINT. Token, a user's namespace and "
                                  "a CA file: $ASSAY_KFP_TOKEN, $ASSAY_KFP_NAMESPACE, $ASSAY_KFP_CA_FILE.")]


@reported
@notified("run_failed")
def run(
    task: TaskOption = "performance", telemetry: TelemetryOption = None,
    mapping: MappingOption = None, workload: WorkloadOption = None, seed: SeedOption = 0, method: MethodOption = None,
    name: Annotated[str | None, typer.Option(help="Name of the run; default: the time.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Compute every step again, use nothing cached.")] = False,
    scheduled: Annotated[bool, typer.Option("--scheduled", help="Do nothing if there is no new data.")] = False,
    shards: ShardsOption = None, parallelism: ParallelismOption = None, budget: BudgetOption = None,
    config: ConfigOption = None, json_output: JsonOption = False,
) -> None:
    """Run the whole train pipeline on this machine.

    A killed run resumes where it was when the command is given again. It waits for no other one, and says who is at
    work; with --scheduled it does nothing beside another scheduled one, with exit code 75.

    Example: assay run --telemetry mine.parquet --mapping mapping.yaml
    """
    from contextlib import ExitStack

    from pipelines.local_run import run_local
    from pipelines.run_display import RunDisplay
    from pipelines.run_lock import LOCK_NAME, PATIENCE_S, acquire_run_lock, beside_others
    from pipelines.run_summary import run_exit_code, summary_notes, summary_table
    from pipelines.schedules.freshness import STATE_NAME, digest_of, is_new, record
    from serving.relocation import require_own_home

    configuration = configuration_from(config)
    require_own_home(configuration)  # not after an hour of training
    run_name = check_run_name(name or datetime.now(UTC).strftime("%Y%m%d-%H%M%S-") + f"{os.getpid():05d}")
    if (configuration.home / "runs" / run_name).exists():
        raise InputError(f"run name must be new, got {run_name!r}; leave it out or choose another")
    with working("reading task and telemetry", json_output):
        request = make_request(task, telemetry, mapping, workload or (), seed, run_name, method, scheduled, config,
                               Fanout(shards, parallelism), budget)
    gates = configuration.gates[request.task.name]  # a task without gates is refused before hours of training
    with ExitStack() as held:
        if scheduled:
            held.enter_context(acquire_run_lock(configuration.home / LOCK_NAME, patience_s=PATIENCE_S))
        elif other := held.enter_context(beside_others(configuration.home)):
            print_note(f"{other} is at work, too; this run goes on beside it")
        state = configuration.home / STATE_NAME
        digest = digest_of(request, gates)
        if scheduled and not is_new(state, request.command, digest):
            message = (f"no new data since the last run (data {request.data_version[:12]}), and the same code, task "
                       "and gates: nothing was registered")
            print_json({"status": "no new data", "message": message}) if json_output else print_line(message)
            return
        if not json_output:
            counts = f"{count(len(request.workloads), 'workload')}, {count(len(gates), 'gate')}"
            print_line(f"task {request.task.name}: {counts}, run {run_name}")
        with RunDisplay(out, request.workloads, quiet=json_output) as display:
            outcome = run_local(request, configuration.home, display.show, resume=not fresh)
        # what failed or could not be registered is tried again; what the gates refused would be refused again
        if scheduled and not any(entry["status"] in ("failed", "error") for entry in outcome.summary["entries"]):
            record(state, request.command, digest)
    tell(configuration, "assay run",
         [Notice("run_failed", entry["message"], request.task.name, entry["workload"], page=outcome.summary["report"])
          for entry in outcome.summary["entries"] if entry["status"] in ("failed", "error")],
         page=outcome.summary["report"])
    if json_output:
        print_json({**outcome.summary, "run": run_name, "seconds": outcome.seconds})
    else:
        out.print(summary_table(outcome.summary))
        for line in summary_notes(outcome.summary):
            print_line(line)
        took = f"{outcome.seconds:.0f} s" if outcome.seconds < 120 else f"{outcome.seconds / 60:.0f} min"
        print_line(f"{took} in all; the steps' own output: {outcome.folder / 'kfp.log'}")
    raise typer.Exit(run_exit_code(outcome.summary))


@reported
def submit(
    task: TaskOption = "performance", telemetry: TelemetryOption = None,
    mapping: MappingOption = None, workload: WorkloadOption = None, seed: SeedOption = 0, method: MethodOption = None,
    endpoint: EndpointOption = None, shards: ShardsOption = None, parallelism: ParallelismOption = None,
    budget: BudgetOption = None, name: Annotated[str | None, typer.Option(help="Name of the run.")] = None,
    values: ValuesOption = None, json_output: JsonOption = False,
) -> None:
    """Submit one run of the train pipeline to a Kubeflow Pipelines cluster.

    The telemetry's path must be the same in the cluster's containers (a mounted volume).

    Example: assay submit --telemetry /data/base/samples.parquet --endpoint http://127.0.0.1:8888
    """
    import tempfile

    from pipelines.cluster import submit as submit_run
    from pipelines.compiled import compile_train
    from pipelines.kfp_connection import resolve_endpoint

    run_name = check_run_name(name or datetime.now(UTC).strftime("train-%Y%m%d-%H%M%S"))
    placed = read_values(values)
    with working("reading task and telemetry", json_output):
        request = make_request(task, telemetry, mapping, workload or (), seed, run_name, method,
                               fanout=Fanout(shards, parallelism), budget=budget)
    with working("submitting the run", json_output), tempfile.TemporaryDirectory() as folder:
        package = compile_train(Path(folder) / "train.yaml", request.parallelism, values=placed)
        submitted = submit_run(package, request.arguments(), resolve_endpoint(endpoint, os.environ), run_name=run_name,
                               service_account=placed.service_account if placed else None)
    if json_output:
        print_json(vars(submitted))
    else:
        print_line(f"submitted {submitted.name}: {submitted.run_id}\n{submitted.url}")
