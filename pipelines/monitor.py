"""`assay monitor`: looks at every champion of a task, decides what is to be done, and does it where asked to.

    ledger -> champions -> kind.watch (models/tasks/monitored_kind.py) -> decide (models/monitoring/findings.py)
    --act: `assay run`'s own pipeline for fine-tune (that workload) and retrain (all of them), the ledger's rollback

    <state>/monitor/<task>/<workload>/   memory.json: what was read up to where, and looks made; what a kind keeps
    <state>/monitor/<task>.html          the page

The folder of a workload is written whole after everything else (feature_store/whole_files.py): a monitor that is killed
at any point has read nothing, and the next one repeats that look with the same rows, the same chance of a false alarm
and the same outcome. Another champion begins anew. The run lock is held all the while, so that there is never a
second monitor, nor a scheduled run beside one.

No data is never `fine`: a server that does not answer or has nothing is something to be done at once, and so is a
champion of which too little arrived for a look in SILENCE.
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from feature_store.digests import content_digest
from feature_store.errors import AssayError, InputError, SourceError
from feature_store.names import inside
from feature_store.samples import Samples
from feature_store.whole_files import whole_folder
from models.configuration import Configuration
from models.monitoring.findings import Decision, Finding, Looked, decide, incidents
from models.tasks.monitored_kind import MonitoredKind, Watched
from serving.moves import Standing

FORMAT, MEMORY, TRAINING = "assay-monitor/1", "memory.json", "training.parquet"
KEYS = frozenset({"looks", "at", "choice", "acted", "kind"})  # of memory.json, beside the two that say whose it is
REST = timedelta(days=1)  # between two attempts to put one champion right: training on the same days repeats itself
SILENCE = timedelta(days=1)  # without enough for a look: longer than maintenance takes, shorter than a weekend
FINE, TO_DO, INCIDENT = 0, 1, 3  # exit codes; 2 is bad usage


@dataclass(frozen=True)
class MonitorRequest:
    """What a user asks for; see the options of `assay monitor`."""

    task: str
    telemetry: str | None = None
    mapping: Path | None = None
    workloads: tuple[str, ...] = ()
    act: bool = False
    seed: int = 0
    config: Path | None = None


@dataclass(frozen=True)
class Seen:
    """One workload, looked at.

    Attributes:
        version: of the champion; None: there is none.
        look: number of the look at it; 0: it was not looked at.
        done: what --act did, "" for nothing.
        failed: whether that, or the look, failed.
        memory: for the next look; {}: what the last one left stays.
    """

    workload: str
    version: int | None
    decision: Decision
    looked: Looked = field(default_factory=lambda: Looked(0, False))
    look: int = 0
    done: str = ""
    failed: bool = False
    memory: Mapping[str, Any] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """0 where nothing is left to do."""
        if incidents(self.looked.findings):
            return INCIDENT
        return TO_DO if self.failed or (self.decision.asks and not self.done) else FINE

    def to_json(self) -> dict[str, Any]:
        """As --json prints it."""
        return {"workload": self.workload, "version": self.version, "decision": self.decision.choice,
                "reasons": list(self.decision.reasons), "look": self.look, "rows": self.looked.rows,
                "findings": [asdict(one) for one in self.looked.findings],
                "before": self.looked.before and asdict(self.looked.before), "notes": list(self.looked.notes),
                "done": self.done, "exit_code": self.exit_code}


# Runs the train pipeline on these workloads (all where there are none); returns a sentence. Raises AssayError.
Train = Callable[[tuple[str, ...]], str]


def monitor(request: MonitorRequest, configuration: Configuration, now: datetime,
            train: Train) -> tuple[str, tuple[Seen, ...]]:
    """One check of every champion. In the run lock.

    Args:
        train: what --act trains with.

    Returns:
        Name of the task, and what was seen of each workload.

    Raises:
        InputError: the task is of a kind that is not monitored, or its telemetry is no telemetry.
        RefusedError: the ledger does not verify.
    """
    from models.tasks.task import load_task
    from pipelines.request import make_request
    from serving.ledger import Ledger

    task, made, samples, problem = load_task(request.task), None, None, ""
    if (kind := monitored(task, request.task)).watches_telemetry:
        try:
            made = make_request(request.task, request.telemetry, request.mapping, (), request.seed, "monitor")
            task, kind = made.task, monitored(made.task, request.task)  # a mapping may have a task of its own
        except SourceError as error:  # an object store is away
            if request.mapping is not None:  # whose champions are to be looked at is not known
                raise
            problem = _unread(error)
    standings = {workload: standing for (name, workload), standing in Ledger(
        configuration.ledger_path, configuration.public_key_path).standings().items() if name == task.name}
    asked = request.workloads or tuple(sorted(standings))
    champions = sum(standing.champion is not None for standing in standings.values())
    folders = {workload: inside(configuration.home / "monitor", task.name, workload) for workload in asked}
    with TemporaryDirectory(dir=_made(configuration.home / "monitor"), prefix=".look-") as place:
        if made is not None:
            try:
                samples = _samples(made, kind, Path(place) / "_samples")
            except SourceError as error:  # a server is away, or has nothing: of that no champion is fine
                problem = _unread(error)
        seen = [_look(configuration, task, kind, workload, standings.get(workload, Standing()), champions, samples,
                      folders[workload], _made(inside(Path(place), workload)), now, problem, request.act)
                for workload in asked]
        if request.act:
            seen = _acted(seen, configuration, task.name, now, train)
        for one in seen:
            if one.memory:
                with whole_folder(folders[one.workload]) as folder:
                    shutil.copytree(inside(Path(place), one.workload), folder, dirs_exist_ok=True)
                    (folder / MEMORY).write_text(json.dumps(one.memory))
    return task.name, tuple(seen)


def _unread(error: SourceError) -> str:
    return f"its telemetry could not be read: {error}"


def monitored(task: Any, where: str) -> MonitoredKind:
    """The kind of a task. Raises InputError: it is none that is monitored."""
    from models.tasks.kinds import kind_of

    kind: Any = kind_of(task.kind, where)
    if not isinstance(kind, MonitoredKind):
        raise InputError(f"task must be of a kind that is monitored, got one of the kind {task.kind} (--task)")
    return kind


def _samples(made: Any, kind: Any, folder: Path) -> Samples:
    """Telemetry of all workloads, which is written to `folder` and read from there."""
    from components.ingest import ingest_samples

    ingest_samples(made.task, kind, made.telemetry, made.mapping_yaml, folder)
    return Samples(folder)


def _look(configuration: Configuration, task: Any, kind: MonitoredKind, workload: str, standing: Standing,
          champions: int, samples: Samples | None, folder: Path, keep: Path, now: datetime, problem: str,
          act: bool) -> Seen:
    """One workload; what goes wrong costs it alone. problem: why there is no telemetry."""
    if standing.champion is None:
        return Seen(workload, None, Decision("no data", ("there is no champion: run the train pipeline, or promote a "
                                                         "challenger",)))
    if problem:
        return Seen(workload, standing.champion, Decision("no data", (problem,)), failed=True)
    try:
        bundle = _opened(configuration, task.name, workload, standing, standing.champion)
        memory = _memory(folder, bundle.sha256)
        look = int(memory.get("looks", 0)) + 1
        before, notes = _before(configuration, task.name, workload, standing)
        rows = None if samples is None else samples.to_judge(workload)
        rows = None if rows is None else rows[rows["workload"] == workload]
        training = _training(configuration.home, workload, bundle.evidence, folder if memory else None, rows)
        looked = kind.watch(task, workload, Watched(
            bundle, before, rows, training, configuration.home / "controllers" / task.name / workload, folder, keep,
            memory.get("kind", {}), look, champions, now))
    except (AssayError, OSError) as error:
        return Seen(workload, standing.champion, Decision("no data", (f"it could not be looked at: {error}",)),
                    failed=True)
    looked = replace(looked, notes=(*notes, *looked.notes))
    if not looked.enough:
        since = memory["at"] if memory else _champion_since(configuration, task.name, workload)
        is_silent = now - datetime.fromisoformat(since) > SILENCE
        said = f"the last look, {since}, said {memory['choice']}" if memory else f"no look since {since}"
        asks = ("that is more than a day ago: see to what measures it",) if is_silent else ()
        if memory and Decision(memory["choice"], ()).asks:  # until a look says otherwise
            shutil.copytree(folder, keep, dirs_exist_ok=True)
            waits = f"so said the last look, {since}; since then {decide(looked).reasons[0]}"
            return Seen(workload, standing.champion,
                        Decision(memory["choice"], (*memory.get("reasons", ()), waits, *asks)),
                        replace(looked, findings=tuple(Finding(**one) for one in memory.get("findings", ()))),
                        failed=is_silent, memory=memory if act else {})
        return Seen(workload, standing.champion, Decision("no data", (*decide(looked).reasons, said, *asks)), looked,
                    failed=is_silent)
    if training is not None:
        training.to_parquet(keep / TRAINING)
    decision = decide(looked)
    memory = {"format": FORMAT, "champion": bundle.sha256, "looks": look, "at": now.isoformat(timespec="seconds"),
              "choice": decision.choice, "reasons": list(decision.reasons),
              "findings": [asdict(one) for one in looked.findings], "acted": memory.get("acted"),
              "kind": dict(looked.memory)}
    return Seen(workload, standing.champion, decision, looked, look, memory=memory)


def _opened(configuration: Configuration, task: str, workload: str, standing: Standing, version: int) -> Any:
    from serving.control.champion import open_version

    return open_version(configuration, task, workload, version, standing.registered[version])


def _champion_since(configuration: Configuration, task: str, workload: str) -> str:
    """When the present champion was chosen: UTC, ISO 8601."""
    from serving.ledger import Ledger

    history = Ledger(configuration.ledger_path, configuration.public_key_path).history(task, workload)
    return max(entry.move.at for entry in history if entry.move.action in ("champion", "approve", "rollback", "retire"))


def _before(configuration: Configuration, task: str, workload: str, standing: Standing) -> tuple[Any, tuple[str, ...]]:
    """The champion before, and why it cannot be asked."""
    if standing.previous_champion is None:
        return None, ()
    try:
        return _opened(configuration, task, workload, standing, standing.previous_champion), ()
    except (AssayError, OSError) as error:
        return None, (f"the champion before cannot be opened: {error}",)


def _memory(folder: Path, champion: str) -> dict[str, Any]:
    """What the last look at this champion left; {} where there was none, or nothing that can be read is left of it."""
    try:
        found = json.loads((folder / MEMORY).read_bytes())
        known = (found["format"], found["champion"]) == (FORMAT, champion) and set(found) >= KEYS
        return dict(found) if known else {}
    except (OSError, ValueError, TypeError, KeyError):
        return {}


def _training(home: Path, workload: str, evidence: Mapping[str, Any], past: Path | None, rows: Any) -> Any:
    """The rows that a model was trained on: kept by the last look, left by its run, or found again in the telemetry by
    the digests that its bundle carries; None: they are nowhere, or its kind reads no telemetry.
    """
    import pandas as pd

    from feature_store.trained_rows import SEEN, TrainedRows

    if rows is None:
        return None
    if past is not None and (past / TRAINING).is_file():
        return pd.read_parquet(past / TRAINING)
    digest = evidence.get("data", {}).get("files", {}).get("train.parquet")
    for features in sorted(home.glob("runs/*/outputs/*/*/*")):
        found = features / workload / "train.parquet"
        if found.is_file() and content_digest(found) == digest:
            return pd.read_parquet(found)
    try:
        seen = replace(TrainedRows.from_json(evidence.get(SEEN)), split_by=())
        found_again = rows[seen.among(rows)]
    except InputError:
        return None
    return found_again if len(found_again) else None


def _acted(seen: Sequence[Seen], configuration: Configuration, task: str, now: datetime, train: Train) -> list[Seen]:
    """Carries out what was decided: roll back each, then one run for all that is to be trained."""
    done: dict[str, tuple[str, bool]] = {}
    asking = [one for one in seen if one.decision.asks and one.memory]
    due = [one for one in asking if _is_due(one.memory, now)]
    for one in asking:
        if one not in due:
            done[one.workload] = f"nothing was done: the last attempt was at {one.memory['acted']}", True
    for one in due:
        if one.decision.choice == "roll back":
            done[one.workload] = _attempt(partial(_rolled_back, configuration, task, one))
    rest = [one for one in due if one.decision.choice != "roll back"]
    if rest:
        whole = any(one.decision.choice == "retrain" for one in rest)
        said = _attempt(lambda: train(() if whole else tuple(one.workload for one in rest)))
        done |= {one.workload: said for one in rest}
    acted = now.isoformat(timespec="seconds")
    return [replace(one, done=done[one.workload][0], failed=done[one.workload][1],
                    memory={**one.memory, **({"acted": acted} if one in due else {})})
            if one.workload in done else one for one in seen]


def _is_due(memory: Mapping[str, Any], now: datetime) -> bool:
    """Not so soon after the last attempt; whatever way a clock jumped."""
    return memory.get("acted") is None or abs(now - datetime.fromisoformat(memory["acted"])) >= REST


def _attempt(act: Callable[[], str]) -> tuple[str, bool]:
    try:
        return act(), False
    except AssayError as error:
        return f"failed: {error}", True


def _rolled_back(configuration: Configuration, task: str, one: Seen) -> str:
    """Rolls back the champion that was looked at. Raises RefusedError: another one is champion by now."""
    from serving.registry import Registry

    made = Registry(configuration, actor="assay monitor").rollback(
        task, one.workload, f"monitor: {'; '.join(one.decision.reasons)}", expected=one.version)
    return f"rolled back: version {made.version} is champion again"


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
