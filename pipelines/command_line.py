"""The `assay` command."""

import os
from typing import Annotated

import typer

from feature_store.terminal import escape_what_python_says
from pipelines.commands import (
    acting_commands,
    bundle_commands,
    clean_command,
    compile_command,
    control_command,
    culprit_command,
    demo_command,
    init_command,
    key_commands,
    measurement_commands,
    monitor_command,
    record_command,
    registry_commands,
    schedule_commands,
    serve_command,
    shadow_command,
    train_commands,
    validate_command,
    verify_command,
)
from pipelines.console import CommandLine

# libraries read these when they are imported, some of them in the processes of the steps
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("GX_ANALYTICS_ENABLED", "False")

app = CommandLine(
    name="assay", no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False,
    help="Assay proves a learned cloud controller before it ships.\n\n"
         "Exit codes: 0 done, 1 the job said no, 2 bad usage or input, 75 other work holds the state folder.")

app.command("run")(train_commands.run)
app.command("validate")(validate_command.validate)
app.command("init")(init_command.init)
app.command("record")(record_command.record)
app.command("compile")(compile_command.compile_pipeline)
app.command("submit")(train_commands.submit)
app.add_typer(schedule_commands.app, name="schedule")
app.command("verify")(verify_command.verify)
app.command("check")(bundle_commands.check)
app.command("predict")(bundle_commands.predict)
app.command("serve")(serve_command.serve)
app.command("control")(control_command.control)
app.command("release")(control_command.release)
app.command("shadow-report")(shadow_command.shadow_report)
app.command("stop-acting")(acting_commands.stop_acting)
app.command("resume-acting")(acting_commands.resume_acting)
app.command("demo")(demo_command.demo)
app.command("recommend")(measurement_commands.recommend)
app.command("audit")(measurement_commands.audit)
app.command("culprit")(culprit_command.culprit)
app.command("monitor")(monitor_command.monitor)
app.command("promote")(registry_commands.promote)
app.command("rollback")(registry_commands.rollback)
app.command("retire")(registry_commands.retire)
app.command("audit-registry")(registry_commands.audit_registry)
app.command("history")(registry_commands.history)
app.add_typer(key_commands.app, name="keys")
app.command("clean")(clean_command.clean)
app.command("adopt")(registry_commands.adopt)
app.command("ui")(registry_commands.ui)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"assay {version('assay')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True,
                                          callback=_print_version)] = False,
) -> None:
    """Options before the command."""


def main() -> None:
    """Entry point of the installed command."""
    escape_what_python_says()
    app()
