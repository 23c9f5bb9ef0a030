"""The contract of a kind of task: everything that differs between kinds, in the order of the pipeline's stages.

Steps, gates, registry and report know this contract and no kind. A kind is a folder with a module `kind` that holds
`KIND`, an object with these methods (kinds.py finds it; docs/recipes/add-a-kind-of-task.md makes one). Its modules may
import each other and `models/tasks/supervised`, never another kind.

Folders. Each stage reads folders that earlier ones wrote and writes one of its own:

    samples/              a row an observation, a file a workload (feature_store/samples.py); what else `ingest` keeps
    features/<workload>/  quality.json with `data_version`, and whatever the kind's later stages read; as Parquet
                          what the bundle's evidence shall name by its digest
    learner/<workload>/   what `finetune` made
    verified/<workload>/  the learner, product/ (the bundle without evidence), verdict.json: made by the pipeline

`features` is always the folder of all workloads; `learner` is that of one.

A stage that a kind does not need says why, in a sentence that the run's log shows; "" where it did its work.

An error that concerns one workload is an InputError, and costs that workload alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:  # the command line reads tasks, and needs none of these
    import pandas as pd

    from feature_store.schema import TelemetrySchema
    from feature_store.strict_yaml import Lines
    from feature_store.written.model import Written
    from models.audit.specification_audit import PropertyAudit
    from models.export.product import Product, Versions
    from models.tasks.pages import Pages
    from models.tasks.task_file import TaskFile

# Called with a flat mapping: an epoch's number and loss, the share of boxes proved, or `done` (0 to 1) and `said`.
OnProgress = Callable[[dict[str, Any]], None]
# Called with a workload, and "" or why it failed.
OnFinished = Callable[[str, str], None]


@dataclass(frozen=True)
class OwnTask:
    """The task that a mapping brings along.

    Attributes:
        data: the content of a task file; None: the mapping names no task.
        mapping_yaml: the mapping as it travels through the pipeline.
        where: file of the task, as errors name it.
        lines: of the task in that file; None: its content was made, not written.
    """

    data: Mapping[str, Any] | None
    mapping_yaml: str
    where: str = "mapping"
    lines: Lines | None = None


class Kind(Protocol):
    """All that differs between kinds of task. All methods are pure but for the folders that they are given."""

    @property
    def task_file(self) -> type[TaskFile[Any]]:
        """The model that reads its task files (task_file.py); what that makes of one is the `task` of all methods."""

    @property
    def other_files(self) -> Mapping[str, type[Written]]:
        """Models of further files, or parts of files, that people write for it, by name; {} for most kinds.

        Each gets a JSON Schema and a field table, as task files do.
        """

    def check(self, task: Any, workload: str, where: str, lines: Lines | None) -> None:
        """Refuses, before any work, what no data could fit: a specification of other features, say.

        Args:
            where: file of the task, as errors name it.
            lines: of the task in that file; None: its content was made, not written.

        Raises:
            InputError: with the place.
        """

    def default_telemetry(self, task: Any) -> Path:
        """The file that is read where a run names none. Raises InputError where none comes with the task."""

    def own_files(self, task: Any) -> tuple[Path, ...]:
        """Folders and files of code that the task names and that do not come with Assay, but for the kind's package."""

    def shape(self, task: Any, workload: str) -> tuple[int, ...]:
        """Widths of the layers of a workload's network; () where it has none. A shard holds equal ones together."""

    def recognises(self, mapping: Any) -> bool:
        """Whether a mapping file (parsed) is of this kind's own form. The kind of the `--task` file is asked
        first, then the kinds that come with Assay, by name."""

    def own_task(self, mapping: Path, telemetry: Path, workloads: Sequence[str], seed: int) -> OwnTask:
        """The task that a mapping file brings along, where it was recognised.

        Args:
            mapping: the file.
            telemetry: the file that it maps.
            workloads: those that were asked for; none: all.
            seed: of whatever is drawn.

        Raises:
            InputError: the files do not fit each other.
        """

    def ingest(self, task: Any, telemetry: str, mapping_yaml: str, output: Path) -> pd.DataFrame:
        """Telemetry as one table with the column `workload`, a row an observation.

        Args:
            telemetry: path of a file, or the address of a Prometheus server.
            mapping_yaml: how its columns map; "": not at all.
            output: a folder that is there, for what the table does not hold.

        Raises:
            InputError: the telemetry cannot be read, or is not of this kind.
        """

    def asked(self, task: Any, mapping_yaml: str) -> Mapping[str, set[str]]:
        """Workload -> columns that a metric map asks of a server. Raises InputError: it is malformed."""

    def schema(self, task: Any, workload: str) -> TelemetrySchema:
        """The columns that the data gate demands of a workload's rows."""

    def featurize(self, task: Any, samples: Mapping[str, pd.DataFrame],
                  checks: Mapping[str, Sequence[Mapping[str, Any]]], seed: int, validated: Path, output: Path,
                  state: Path) -> dict[str, str]:
        """Writes <output>/<workload>/ for each workload of `checks`, and what they share beside them.

        Args:
            samples: workload -> its rows (feature_store/samples.py), read when they are asked for.
            checks: workload -> results of the data gate, for quality.json.
            validated: the folder that `ingest` wrote into.
            state: folder that outlives the run, for searches that go on where they were.

        Returns:
            workload -> "" or why it has no features.
        """

    def correlated(self, task: Any) -> tuple[list[str], str]:
        """Names of columns of the samples, and of the one that they are correlated with in the report; [] for none."""

    def audit(self, task: Any, workload: str, features: Path) -> tuple[PropertyAudit, ...] | str:
        """Do the data obey what is demanded? () or a sentence where there is nothing to ask.

        Raises:
            InputError: the workload must not be trained whatever the data say.
        """

    def by_policy(self, task: Any, workload: str) -> bool:
        """Whether the specification is imposed even where the data contradict it."""

    def pretrain(self, task: Any, workloads: Sequence[str], seed: int, features: Path, output: Path,
                 checkpoints: Path, progress: OnProgress) -> str:
        """Writes the file `output`: what all workloads start from. Returns why there is nothing to pretrain, or "".

        Args:
            checkpoints: a folder that is there again when the very same work is begun again after a kill.
        """

    def finetune(self, task: Any, workloads: Sequence[str], seed: int, features: Path, pretrained: Path,
                 folders: Mapping[str, Path], checkpoints: Path, finished: OnFinished, progress: OnProgress) -> None:
        """Writes each workload's learner into its folder, which is there and empty.

        Args:
            workloads: a shard: those of equal shape may be trained as one tensor operation.
            folders: by workload.
            checkpoints: as of `pretrain`; each workload uses the folder of its name in it alone, which is there.
            finished: to be called once with each workload, as soon as its folder is whole or it is clear why it has no
                learner.
        """

    def product(self, task: Any, workload: str, versions: Versions, features: Path, learner: Path) -> Product:
        """What ships, and what is to be proved of it.

        Args:
            versions: of the code and data, and the seed, that it is made from.
            learner: what `finetune` made of the workload.
        """

    def evidence(self, task: Any, workload: str, seed: int, features: Path, verified: Path,
                 product: Path) -> dict[str, Any]:
        """What a reviewer and the gates want to know of the model, beside verdict, data and how to reproduce it.

        Args:
            verified: the workload's folder after `verify`.
            product: its product/.

        Returns:
            `metrics`: name -> number, what gates hold against their thresholds; `case_counts`: metric -> how many cases
            it is a mean of; `units`: metric -> unit, where models/metrics.py does not list it; `cases`: what it is
            compared with a champion by (models/paired_cases.py); `guarantee`: of the closed loop, which goes with the
            bundle (`Shipped` in models/control/contract/guarantee.py), or None; anything else that `pages` shows.
        """

    def champion(self, task: Any, workload: str, features: Path, bundle: Any) -> dict[str, Any]:
        """The standing champion on the cases that a new model is judged by: {"metrics", "cases"} as in `evidence`.

        Args:
            bundle: of the champion (serving/bundle.py).

        Returns:
            `metrics`: those that gates compare with a champion's; `cases`.

        Raises:
            InputError, KeyError: the champion cannot be run on these cases.
        """

    @property
    def pages(self) -> Pages:
        """Its sections of the reports, and its figures in the run's summary."""


@runtime_checkable
class ReadsApart(Protocol):
    """A `Kind` whose workloads have features of their own rows alone, so that shards may read a data set apart."""

    def workload_column(self, mapping_yaml: str) -> str | None:
        """Column of a file whose text is a row's workload; None: there is none."""


def workload_column(kind: Kind, mapping_yaml: str) -> str | None:
    """By what a data set of the kind may be cut (feature_store/sources/data_set.py); None: by nothing."""
    return kind.workload_column(mapping_yaml) if isinstance(kind, ReadsApart) else None


@runtime_checkable
class LearnsFromLogs(Protocol):
    """A `Kind` whose tasks may name further data to learn from; may be left out."""

    def logs(self, task: Any, workloads: Sequence[str]) -> tuple[Path, ...]:
        """Their files, which belong to the version of the data."""


@runtime_checkable
class PretrainsWithoutTelemetry(Protocol):
    """A `Kind` in whose pretraining telemetry plays no part, so that it need not be repeated for other data."""

    def pretrains_from(self, task: Any) -> str:
        """Everything of the task that pretraining depends on."""
