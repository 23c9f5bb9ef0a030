"""A state folder with signed bundles, for measurements of what comes after a run."""

from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.isolation import ROOT, Context
from benchmarks.pipeline.assay_run import bundles, run_assay
from benchmarks.pipeline.measurements.task_file import write_open_gates, write_task


@dataclass(frozen=True)
class StateFolder:
    """A state folder that holds bundles.

    Attributes:
        home: what $ASSAY_HOME names.
        configuration: its mlflow.yaml.
        origin: how its bundles were made, in words.
    """

    home: Path
    configuration: Path
    origin: str

    @property
    def bundles(self) -> list[Path]:
        """Signed bundle folders, one or more."""
        return bundles(self.home)

    @property
    def public_key(self) -> Path:
        return self.home / "keys" / "assay.pub"


def state_folder(context: Context) -> StateFolder:
    """The folder of a run that the measurement `stages` made, else of a short run made now."""
    homes = context.work / "homes"
    for home in sorted(homes.glob("stages-*")):
        if bundles(home):
            return StateFolder(home, ROOT / "mlflow.yaml", "a whole run of the measurement `stages`")
    configuration, short = context.work / "open-gates.yaml", homes / "short"
    if not bundles(short):
        context.say("making bundles with a short run")
        task = write_task(write_open_gates(configuration).with_name("short.yaml"), epochs=2)
        run_assay(["--fresh", "--telemetry", str(context.telemetry), "--task", str(task)], short, configuration)
    return StateFolder(short, configuration, "a short run: the task's networks, hardly trained, accuracy gates open")
