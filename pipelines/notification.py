"""Tells people what happened to their models: `notify` of mlflow.yaml, a program and a webhook.

    the ledger's new entries, and what a command says -> outbox -> the program's standard input, the webhook's body

A decorator of the commands, `notified`, is the one place of it: what a command, or anyone before it, has put into the
ledger is found by comparing its end with the one that was taken up last. So whatever was killed in between, the command
that comes next tells what is in the ledger by then.

    <state>/notifications/outbox.json   whether it has begun, ledger's end that was taken up, notices not told yet,
                                        oldest first; ids by day
    <state>/logs/notifications.log      what the program printed

A notice is in the outbox, on the disk, before anyone is told, and out of it afterwards: a kill, or a receiver that is
away, repeats it with the same `id` and loses none (at least once; a webhook that is away repeats it to itself alone).
Nothing of this fails a command: one line says it.
The first use begins with the ledger's end: what stands in it by then is told to nobody. It is the first use until the
ledger was read once. An outbox that cannot be read is set aside under another name, and begun anew in the same way.
"""

import functools
import hashlib
import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import typer

from feature_store.errors import AssayError, RefusedError
from feature_store.file_lock import file_lock
from feature_store.process_end import sigterm_as_exit
from feature_store.whole_files import read_regular, write_file
from models.configuration import Configuration, Event, NotificationRule
from pipelines.console import configuration_from, print_note
from pipelines.process_group import start_group, stop_group
from pipelines.run_lock import BusyError
from pipelines.webhook import post
from serving.canonical import canonical_json
from serving.ledger import Ledger
from serving.ledger_chain import Chain

FORMAT = "assay-notification/1"
SECRET_VARIABLE = "ASSAY_WEBHOOK_SECRET"
PATIENCE_S = 10.0  # of the program, and of the webhook
LOCK_PATIENCE_S = 60.0  # another command is telling; what it leaves, or what is ours, the next one tells
MOST_WAITING = 1000  # notices of a receiver that never answers; the oldest go first
_EVENTS: Mapping[str, Event] = {"champion": "promoted", "approve": "promoted", "rollback": "rolled_back",
                                "challenger": "waits_for_approval", "reject": "refused"}
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Notice:
    """What is told beside the ledger's moves.

    Attributes:
        once: of what equals it on one day (UTC), one is told; "" tells each.
        page: file that shows it, "" for none.
    """

    event: Event
    reason: str
    task: str = ""
    workload: str = ""
    version: int | None = None
    once: str = ""
    page: str = ""

    def document(self, actor: str, now: datetime) -> dict[str, Any]:
        """What the receiver gets, its id over what makes it this notice."""
        at = now.isoformat(timespec="microseconds")
        same = [self.event, self.task, self.workload, self.version, self.once or self.reason,
                at[:10] if self.once else at]
        return {"format": FORMAT, "id": hashlib.sha256(canonical_json(same)).hexdigest(), "event": self.event,
                "task": self.task, "workload": self.workload, "model": "", "version": self.version,
                "previous_version": None, "gates_passed": None, "reason": self.reason, "actor": actor, "at": at,
                "page": self.page}


def notified(failure: Event | None = None) -> Callable[[Function], Function]:
    """A decorator of a command, below `reported`: tells, once it is over, what it and others moved.

    A configuration without `notify`, or one that cannot be read, leaves the command as it is.

    Args:
        failure: what is told where the command ends by an error or by SIGTERM; None: nothing.
    """

    def decorate(command: Function) -> Function:
        @functools.wraps(command)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            configuration = _with_rule(kwargs.get("config"))
            if configuration is None:
                return command(*args, **kwargs)
            actor, notices = f"assay {command.__name__.replace('_', '-')}", list[Notice]()
            tell(configuration, actor, only_begin=True)
            try:
                with sigterm_as_exit() if failure else nullcontext():
                    return command(*args, **kwargs)
            except (typer.Exit, BusyError):
                raise  # the command said all, or began nothing
            except (Exception, SystemExit) as error:
                why = "ended by SIGTERM" if isinstance(error, SystemExit) else str(error) or type(error).__name__
                notices += [Notice(failure, why, _task_of(kwargs))] if failure else []
                raise
            finally:
                tell(configuration, actor, notices)

        return wrapper  # type: ignore[return-value]

    return decorate


def tell(configuration: Configuration, actor: str, notices: Sequence[Notice] = (), page: str = "",
         only_begin: bool = False) -> None:
    """Tells these notices, the ledger's new entries and what is left from before. Never raises an error.

    Args:
        actor: command that says the notices.
        page: file that shows what was moved, such as the run's report.
        only_begin: where the ledger's end was never taken up, take it up; else do nothing.
    """
    rule, folder = configuration.notify, configuration.home / "notifications"
    path = folder / "outbox.json"
    if rule is None:
        return
    try:
        if only_begin and _has_begun(_content(path)):
            return
        folder.mkdir(parents=True, exist_ok=True)
        with file_lock(folder / "outbox.lock").acquire(timeout=LOCK_PATIENCE_S):
            outbox = _Outbox(path)
            now = datetime.now(UTC)
            outbox.collect([one.document(actor, now) for one in notices], rule)
            try:
                outbox.collect(_new_moves(configuration, outbox, page), rule)
            finally:  # a ledger that does not verify keeps nobody from being told of what failed
                outbox.deliver(rule, configuration.home / "logs" / "notifications.log")
    except Exception as error:  # whatever it is: it must not take the place of the command's own error
        print_note("note: nobody could be notified, the next command tries again: "
                   f"{str(error) or type(error).__name__}")


class _Outbox:
    """What is still to be told, as its file has it.

    Attributes:
        head: of the ledger's entry that was taken up last; "": of none.
        has_begun: whether the ledger's end was taken up once; what stands in the ledger before that is not told.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        content = _content(path)
        self.has_begun = _has_begun(content)
        if content is None:
            aside = path.with_name(f"outbox-unreadable-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}.json")
            path.replace(aside)
            print_note(f"note: {path} could not be read and is set aside as {aside.name}: what waited in it is not "
                       "told, nor what is in the ledger by now")
        found = content or {"head": "", "waiting": [], "said": {}}
        self.head: str = found["head"]
        self._waiting: list[dict[str, Any]] = found["waiting"]
        self._said: dict[str, str] = found["said"]
        self._told_program = str(found.get("told_program", ""))  # id of the notice that waits for the webhook alone

    def collect(self, documents: Sequence[dict[str, Any]], rule: NotificationRule) -> None:
        """Takes up, and keeps on the disk, what is wanted and was not taken up today."""
        for document in documents:
            if document["event"] in rule.events and document["id"] not in self._said:
                self._waiting.append(document)
                self._said[document["id"]] = document["at"][:10]
        today = datetime.now(UTC).date().isoformat()
        self._said = {one: day for one, day in self._said.items() if day >= today}
        self._waiting = self._waiting[-MOST_WAITING:]
        self._write()

    def deliver(self, rule: NotificationRule, log: Path) -> None:
        """Tells one after another, in order. Raises what a receiver does; it and those after it wait."""
        while self._waiting:
            body = json.dumps(self._waiting[0]).encode()
            if rule.command and self._waiting[0]["id"] != self._told_program:
                _run(rule.command, body, log)
                self._told_program = self._waiting[0]["id"]
                self._write()
            if rule.webhook:
                post(rule.webhook, self._waiting[0]["id"], body, os.environ.get(SECRET_VARIABLE, ""), PATIENCE_S)
            del self._waiting[0]
            self._write()

    def _write(self) -> None:
        content = {"begun": self.has_begun, "head": self.head, "waiting": self._waiting, "said": self._said,
                   "told_program": self._told_program}
        write_file(self._path, json.dumps(content), mode=0o600)


def _content(path: Path) -> dict[str, Any] | None:
    """What the outbox's file holds: nothing where there is no file, None where it is no outbox. Raises OSError."""
    try:
        found = json.loads(read_regular(path))
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError):
        return None
    match found:
        case {"head": str(), "waiting": list(waiting), "said": dict(said)}:
            documents = all(isinstance(one, dict) and isinstance(one.get("id"), str) for one in waiting)
            known = documents and isinstance(found.get("begun", True), bool)
            return found if known and all(isinstance(day, str) for day in said.values()) else None
    return None


def _has_begun(content: Mapping[str, Any] | None) -> bool:
    """Whether an outbox has taken up the ledger's end; one from before this was written down has."""
    return bool(content and content.get("begun", True))


def _new_moves(configuration: Configuration, outbox: _Outbox, page: str) -> list[dict[str, Any]]:
    """Documents of the entries after the one that was told last, which moves on to the ledger's end.

    On the first use there are none. Raises RefusedError: the ledger does not verify, or is another one.
    """
    ledger = Ledger(configuration.ledger_path, configuration.public_key_path)
    chain = ledger.chain() if ledger.is_there() else Chain()
    if outbox.head and not chain.holds(outbox.head):
        raise RefusedError(f"ledger must hold the entry that was taken up last, {outbox.head}, got none; after a "
                           f"change of ledgers delete {configuration.home / 'notifications'}")
    first = int(outbox.head.partition(":")[0]) + 1 if outbox.head else 0
    outbox.head = chain.entries[-1].head if chain.entries else ""
    is_first, outbox.has_begun = not outbox.has_begun, True
    if is_first:
        return []
    challengers = {pair: standing.challenger for pair, standing in chain.standings}
    return [{"format": FORMAT, "id": entry.hash, "event": _EVENTS[entry.move.action], "task": entry.move.task,
             "workload": entry.move.workload, "model": entry.move.model, "version": entry.move.version,
             "previous_version": entry.move.previous_version, "gates_passed": entry.move.gates_passed,
             "reason": entry.move.reason, "actor": entry.move.actor, "at": entry.move.at, "page": page}
            for entry in chain.entries[first:] if entry.move.action in _EVENTS
            # one that became champion in the same breath waits for nobody
            and (entry.move.action != "challenger"
                 or challengers[entry.move.task, entry.move.workload] == entry.move.version)]


def _run(command: Sequence[str], body: bytes, log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    log.touch(mode=0o600)
    environment = {name: value for name, value in os.environ.items() if name != SECRET_VARIABLE}
    with log.open("ab") as output, start_group(list(command), env=environment, stdin=subprocess.PIPE, stdout=output,
                                               stderr=subprocess.STDOUT) as child:
        try:
            child.communicate(body, timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise RefusedError(f"notify.command must end within {PATIENCE_S:g} s, got no end ({command[0]}; its "
                               f"output: {log})") from None
        finally:
            if child.returncode is None:  # also after Ctrl-C, which a group of its own does not get from the terminal
                stop_group(child)
    if child.returncode:
        raise RefusedError(f"notify.command must end with 0, got {child.returncode} ({command[0]}; its output: {log})")


def _task_of(options: Mapping[str, Any]) -> str:
    """Name of the task of a command: the mapping's own, or that of --task; as it was given where it cannot be read."""
    from feature_store.strict_yaml import read_yaml
    from models.tasks.task import load_task

    given, mapping = str(options.get("task") or ""), options.get("mapping")
    with suppress(AssayError, AttributeError, KeyError, TypeError):
        own = read_yaml(mapping, "mapping").get("task") if mapping else None
        return str(own["name"]) if isinstance(own, Mapping) else load_task(
            str(mapping.parent / own) if mapping and own else given).name
    return given


def _with_rule(path: Path | None) -> Configuration | None:
    """None also where it cannot be read: the command itself says why."""
    try:
        configuration = configuration_from(path)
    except AssayError:
        return None
    return None if configuration.notify is None else configuration
