"""Starts a controller as an operator asked for it, and runs it to its end: what every `assay control` does."""

import json
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from filelock import Timeout

from feature_store.errors import AssayError, InputError, RefusedError
from feature_store.file_lock import file_lock
from feature_store.names import check_task_name, check_workload_name
from models.configuration import Configuration
from serving.actuators.actuator import ActuatorError
from serving.actuators.actuators import actuator_kind, make_actuator
from serving.bundle import CheckedBundle, check_bundle
from serving.contract import Contract
from serving.control.champion import Champion, champion_of_ledger
from serving.control.checks import Distribution
from serving.control.control_step import ControlStep
from serving.control.controller_file import ControllerFile, read_controller_file
from serving.control.generic import generic_bundle, generic_task, require_own_settings
from serving.control.in_shadow import require_own_log, require_watchable, unknown_present, watched_target
from serving.control.kill_switch import KillSwitch, LedgerSwitch, by_ledger, stopped_in_ledger
from serving.control.last_good import LastGood
from serving.control.loop import LEAST_S, MOST_S
from serving.control.made import make_loop, with_settings
from serving.control.metrics import Metrics
from serving.control.run import run, stops_on_signals
from serving.control.seen_ledger import SeenLedger
from serving.control.side_by_side import Within
from serving.control.which_task import task_of_bundle, task_of_workload
from serving.state_folder import StateFolder

WITHIN_S = 20.0  # of each of these looks
POLL_S = 30.0  # between two looks at who is champion, and whether acting is stopped
LOOK_AGAIN_S = 1.0  # between two looks at a lease that is waited for
ENDS_WITHIN_S = 2.0  # such a look at the end; one that hangs is left behind
_LOCK = "lock"  # of a controller's folder; it stays


class NothingKnownError(RefusedError):
    """Nothing is known of what a controller found, so that nothing was given back. Exit code 1."""


@dataclass(frozen=True)
class ControlRequest:
    """What an operator asks for; see the options of `assay control`.

    Attributes:
        task: None: the bundle's, or that of the workload's one champion.
        every: seconds between two steps; None: as the policy was trained.
        give_back: None: as the kind of the actuator says.
        steps: None: until it is stopped.
        bundle: acts in place of the ledger's champion.
        public_key: None: the state folder's.
        folder: None: controllers/<task>/<workload> in the state folder; shadow/<task>/<workload> in shadow.
        metrics_port: None: /metrics is not served.
        shadow: decides beside whoever sets the target, and sets nothing.
        generic: folder of the policies that ship with Assay, one of which decides, in shadow alone.
    """

    workload: str
    controller: Path
    task: str | None = None
    actuator: str = "dry-run"
    every: float | None = None
    give_back: bool | None = None
    steps: int | None = None
    bundle: Path | None = None
    public_key: Path | None = None
    folder: Path | None = None
    metrics_port: int | None = None
    metrics_address: str = "127.0.0.1"
    shadow: bool = False
    generic: Path | None = None

    @property
    def needs_ledger(self) -> bool:
        """Whether the ledger says whose bundle it is."""
        return self.bundle is None and self.generic is None


def require_generic_alone(request: ControlRequest) -> None:
    """Raises InputError: a generic policy could act, or another bundle or key is named beside it."""
    if request.generic is not None and (not request.shadow or request.bundle or request.public_key):
        raise InputError("generic policy must be tried in shadow (--shadow), without --bundle and --public-key: no "
                         "gate has held it against this service")


def with_task(request: ControlRequest, state: Configuration | StateFolder) -> ControlRequest:
    """The same of a task that is known. Raises AssayError: nobody can say which one."""
    if request.task is not None:
        return request
    if request.bundle is not None:
        return replace(request, task=task_of_bundle(request.bundle))
    if request.generic is not None:
        return replace(request, task=generic_task(request.generic))
    return replace(request, task=task_of_workload(keyed(request, state), request.workload, request.folder, WITHIN_S))


def named_task(request: ControlRequest) -> str:
    """Of a request that has one. Raises InputError."""
    if request.task is None:
        raise InputError("task must be given (--task), got none")
    return request.task


def place_of(request: ControlRequest, home: Path) -> Path:
    """The folder of this controller alone. home: the state folder. Raises InputError: a name is none of a folder."""
    if request.folder is not None:
        return request.folder
    task, workload = check_task_name(named_task(request), "--task"), check_workload_name(request.workload, "--workload")
    return home / ("shadow" if request.shadow else "controllers") / task / workload


def _places(request: ControlRequest, home: Path) -> list[Path]:
    """That folder; where the task is not known, those of all tasks."""
    if request.folder is None and request.task is None:
        return sorted(home.glob(f"controllers/*/{check_workload_name(request.workload, '--workload')}"))
    return [place_of(request, home)]


def was_started(request: ControlRequest, home: Path) -> bool:
    """Whether a controller was ever started in a folder that may be its own.

    Then, whatever the ledger knows, `control` says what becomes of a start: the last good fallback acts, or limits are
    given back.

    Raises:
        InputError: a name is none of a folder.
    """
    return any(os.path.lexists(place / _LOCK) for place in _places(request, home))


@contextmanager
def own_folder(request: ControlRequest, home: Path) -> Iterator[Path]:
    """Holds the folder of this controller against every other one; it is made where it is missing, now or never: one
    that goes away later takes its stops with it.

    Args:
        home: the state folder.

    Raises:
        InputError: it cannot be made or written, or another controller runs in it.
        AssayError: it would lie in a state folder that is away.
    """
    place = place_of(request, home)
    lock = file_lock(place / _LOCK)
    try:
        if request.folder is None and request.needs_ledger and not home.is_dir():
            raise AssayError(f"ledger must be there to say who is champion, got no state folder ({home}); while it is "
                             "away, --folder names a controller's folder elsewhere")
        place.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout:
        raise InputError("folder must be of one controller alone, got one in which another one runs "
                         f"({place})") from None
    except OSError as error:
        raise InputError(f"folder must be one that a controller can write, got {error.strerror} ({place})") from error
    try:
        yield place
    finally:
        lock.release()


def keyed(request: ControlRequest, state: Configuration | StateFolder) -> Configuration | StateFolder:
    """The state folder with the operator's key, where one was named, for the ledger and all bundles."""
    return state if request.public_key is None else replace(state, public_key_path=request.public_key)


def champion_for(request: ControlRequest, state: Configuration | StateFolder) -> Champion:
    """Who acts: the one bundle of a folder, or the champion of the ledger, opened for the first time. In `own_folder`.

    Raises:
        InputError: the bundle is for another task or workload.
        AssayError: there is none that may act.
    """
    state, place = keyed(request, state), place_of(request, state.home)
    ledger, task = SeenLedger(state, place), named_task(request)

    def opened() -> CheckedBundle:
        if request.bundle is not None:
            return check_bundle(request.bundle, state.public_key_path)
        if request.generic is not None:
            return generic_bundle(request.generic, task, request.workload)
        return champion_of_ledger(state, task, request.workload, ledger)

    if not request.needs_ledger:
        champion = Champion(opened)
    else:
        looked_at = Within(opened, WITHIN_S, f"ledger {state.ledger_path}")
        last_good = LastGood(looked_at, place / "champion", state.public_key_path)
        champion = Champion(last_good, age_s=lambda: last_good.age_s, before=last_good.before)
    contract = champion.contract
    if (contract.task, contract.workload) != (task, request.workload):
        raise InputError(f"bundle must be for {task}, {request.workload}, got one for {contract.task}, "
                         f"{contract.workload} ({request.bundle})")
    return champion


def control(request: ControlRequest, state: Configuration | StateFolder, show: Callable[[ControlStep], None],
            tell: Callable[[str], None], loading: AbstractContextManager[object] | None = None) -> None:
    """Runs the controller until it is stopped, or for `steps`.

    A start that is refused leaves no limits of a killed controller in place: where the actuator gives back what it
    found, it does so then, and the error says what came of it.

    Args:
        state: whose ledger says who is champion, and may stop it.
        show: called with the record of each step.
        tell: called with each line about the start: what acts, on what, towards what, where the log is; what it lacks.
        loading: around what takes long before the first step.

    Raises:
        InputError: an option, the controller's file or its folder is unusable.
        RefusedError: what was found could not be given back at the end.
        AssayError: there is no champion that may act, nor one before it whose fallback could.
    """
    if request.every is not None and not LEAST_S <= request.every <= MOST_S:
        raise InputError(f"every must be {LEAST_S:g} to {MOST_S:g} seconds, got {request.every!r}")
    if request.shadow:
        require_watchable(request.actuator, request.give_back)
    require_generic_alone(request)
    written, stopped = read_controller_file(request.controller, request.actuator), stops_on_signals()
    started_before = was_started(request, state.home)
    gives_back = actuator_kind(request.actuator).gives_back if request.give_back is None else request.give_back
    gives_back = gives_back and not request.shadow
    with ExitStack() as stack:
        try:
            request = with_task(request, state)
            place = stack.enter_context(own_folder(request, state.home))
            require_own_log(place, request.shadow)  # first: a stop in another controller's folder is not this one's
            on_host, in_ledger = KillSwitch(place), _ledger_switch(request, keyed(request, state), place)
            with loading or nullcontext():
                champion = champion_for(request, state)
            if request.generic is not None:
                require_own_settings(champion.contract, written.settings)
            contract = with_settings(champion.contract, written.settings)
            every_s = _interval(request, contract)
            actuator = watched_target(request.actuator, contract, written) if request.shadow else make_actuator(
                request.actuator, contract, written.actuators, written.hold)
            loop = make_loop(contract, champion, written, actuator, lambda: on_host() or in_ledger(), place)
            # a bundle of a folder needs no ledger: then nobody waits for one
            metrics = Metrics(named_task(request), request.workload, champion.current,
                              lambda: in_ledger.unseen_s if request.needs_ledger else math.nan,
                              [] if contract.driving is None else contract.driving.current)
            if request.metrics_port is not None:
                metrics.serve(request.metrics_port, request.metrics_address)
        except Exception as error:
            if gives_back:
                said = limits_of_a_refused_start(request, written, state, started_before)
                if isinstance(error, AssayError):
                    error.args = (f"{error}; {said}",)
                else:
                    tell(said)
            raise
        for thread in (champion.follow(POLL_S, stopped), in_ledger.follow(POLL_S, stopped)):
            stack.callback(thread.join, ENDS_WITHIN_S)  # nothing is written in a folder that is the next one's
        stack.callback(stopped.set)

        def on_step(record: ControlStep) -> None:
            metrics.count(record)
            # a full disk, a closed pipe, where rich exits, or a terminal without a letter stops no controller
            with suppress(OSError, ValueError, SystemExit):
                show(record)

        due_s = loop.expect(every_s)
        metrics.expect(due_s)
        with suppress(OSError, ValueError, SystemExit):
            for line in filter(None, (first_line(champion, contract, actuator.name, due_s, place, request.shadow),
                                      unknown_present(actuator, contract, written) if request.shadow else "",
                                      unchecked(champion, written.distribution), never_measured(written),
                                      loop.without_rewards(due_s))):
                tell(line)
        if failure := run(loop, every_s, stopped, on_step, request.steps, gives_back):
            raise RefusedError(failure)


def _interval(request: ControlRequest, contract: Contract) -> float:
    """Seconds between two steps: as asked for, else as the policy was trained. Raises InputError."""
    if request.every is not None:
        return request.every
    trained = math.nan if contract.driving is None else contract.driving.step_s
    if not LEAST_S <= trained <= MOST_S:
        raise InputError(f"bundle must say {LEAST_S:g} to {MOST_S:g} seconds between two decisions (driving.step_s), "
                         f"got {trained:g}; --every says another time")
    return trained


def limits_of_a_refused_start(request: ControlRequest, written: ControllerFile,
                              state: Configuration | StateFolder, started_before: bool) -> str:
    """Gives back what a killed controller took away, unless acting is stopped; says what came of it. What it had given
    stays: nobody has looked whether it is needed.

    started_before: whether a controller of this name ever was. If not, the name may be mistyped and the limits those
    of another one: then a stop of any counts.
    """
    if stopped := _stopped(request, state, started_before):
        return f"limits stay as they are set ({stopped}); `assay release` gives back what was found"
    try:
        return release(request.actuator, written, lowering=False)
    except NothingKnownError as error:
        return str(error)
    except AssayError as error:
        return f"limits may not be as they were found: {error}"


def _stopped(request: ControlRequest, state: Configuration | StateFolder, started_before: bool) -> str:
    """Why nobody may act, by a folder that may be the controller's own or by the ledger, whatever the task; "": no one
    says so.
    """
    others = () if started_before else sorted(state.home.glob("controllers/*/*"))
    for place in (*_places(request, state.home), *others):
        if known := KillSwitch(place)() or LedgerSwitch(lambda: "", place)():
            return known
    with suppress(Exception):  # a ledger that is away says nothing
        standings = Within(SeenLedger(keyed(request, state)).standings, WITHIN_S, f"ledger {state.ledger_path}")()
        for (task, workload), standing in standings.items():
            named = workload == request.workload and request.task in (None, task)
            if (named or not started_before) and standing.stopped:
                return by_ledger(standing.stopped)
    return ""


def release(actuator: str, written: ControllerFile, *, lowering: bool = True,
            tell: Callable[[str], None] | None = None) -> str:
    """Sets what a controller found before its first step, without a controller. Safe to repeat: then nothing is set.

    A lease that nobody renews runs out, but whoever looks for the first time cannot know how old it is: a whole
    duration of it is waited for.

    Args:
        actuator: that carried its targets out.
        written: its file.
        lowering: also what was found below what is set.
        tell: called with a line that says that it waits; None: it does not wait.

    Returns:
        What is set now.

    Raises:
        InputError: the actuator keeps nothing that could be given back.
        NothingKnownError: nothing is known of what was found, in the state folder that the file names; all stays.
        ActuatorError: another controller has the lease, or something could not be set, or was set by someone else.
    """
    kind, holder = actuator_kind(actuator), f"release, process {os.getpid()}"
    if not kind.keeps:
        raise InputError(f"actuator must be one that keeps what it found, got {actuator}, which sets nothing")
    target = make_actuator(actuator, None, written.actuators, written.hold)
    other = target.acquire(holder)
    if other and tell is not None and kind.lease_s is not None:
        lease_s = kind.lease_s(written.actuators[kind.section])
        until_s = time.monotonic() + lease_s
        tell(f"{other} has the lease of {target.name}; waiting {lease_s:g} s, in which it runs out unless that "
             "controller still acts")
        while other and (left_s := until_s - time.monotonic()) > 0:
            time.sleep(min(LOOK_AGAIN_S, left_s))
            other = target.acquire(holder)
    if other:
        raise ActuatorError("conflict", f"limits must be those of no controller that acts, got a lease of {other} "
                                        f"({target.name})")
    try:
        known = target.restore(lowering=lowering)
        present = target.present()
    finally:
        target.release(holder)
    stands = ", ".join(f"{name} {value:g}" for name, value in present.items())
    if known is False:
        where = "" if kind.kept is None else f" in {kind.kept(written.actuators[kind.section])}"
        raise NothingKnownError(f"nothing is known{where} of what was found of {target.name}, which stays as it is "
                                f"set: {stands}; a controller that changed it gave it back, or keeps that elsewhere: "
                                "then its own file is needed")
    return f"{target.name} is set as it was found: {stands}"


def _ledger_switch(request: ControlRequest, state: Configuration | StateFolder, place: Path) -> LedgerSwitch:
    """The ledger's stops, looked at once."""
    ledger = SeenLedger(state, place)
    task = named_task(request)
    switch = LedgerSwitch(Within(lambda: stopped_in_ledger(state, task, request.workload, ledger), WITHIN_S,
                                 f"ledger {state.ledger_path}"), place)
    switch.poll()
    return switch


def first_line(champion: Champion, contract: Contract, target: str, every_s: float, place: Path,
               shadow: bool = False) -> str:
    """What acts, on what, towards which objective, where the log is. shadow: it sets nothing."""
    model = champion.current()
    units = {item.name: item.unit for item in contract.inputs}
    assert contract.driving is not None and contract.fallback is not None
    aims = ", ".join(f"{name} {value:g} {units[name]}".rstrip() for name, value in contract.driving.settings.items())
    who = f"the fallback alone ({contract.fallback.rule}; {model.refused})" if model.refused else "the policy"
    does = f"watches {target}, every {every_s:g} s, sets nothing" if shadow else f"acts on {target} every {every_s:g} s"
    return (f"{who} of bundle {model.version} ({contract.task}, {contract.workload}) {does}"
            f"{f', objective: {aims}' if aims else ''}; log: {place / 'steps'}")


def never_measured(written: ControllerFile) -> str:
    """Which inputs an operator has fixed in place of measuring them, "" for none: nobody sees them change."""
    fixed = ", ".join(f"{name} {value:g}" for name, value in written.fixed.items())
    return f"fixed in the controller file, and so never measured: {fixed}" if fixed else ""


def unchecked(champion: Champion, distribution: Distribution) -> str:
    """Which checks of what training saw an operator's margin switches off, "" for none."""
    if (familiar := champion.current().familiar) is None or distribution.margin is None:
        return ""
    inputs = champion.contract.inputs
    lows, highs = (np.array([end if (value := getattr(item, name)) is None else value for item in inputs])
                   for name, end in (("physical_minimum", -math.inf), ("physical_maximum", math.inf)))
    own = familiar.unreachable(lows, highs)
    off = [name for name in familiar.unreachable(lows, highs, distribution.margin) if name not in own]
    return (f"out_of_distribution.margin {distribution.margin:g} switches the check off of {', '.join(off)}: no "
            "observation counts as beyond what training saw" if off else "")


def line_of(record: ControlStep) -> str:
    """What a step came to, on one line: when, who, what is set (in shadow: would be), why."""
    done: Any = record.done if record.done is not None and not record.shadow else record.targets
    said = ", ".join(f"{name.removeprefix('target_')} {value:.4g}{_beside(record, name)}"
                     for name, value in done.items())
    parts = [record.at[11:19], record.actor.ljust(8),
             f"would set {said}" if said and record.shadow else said or "unchanged"]
    why = [record.reason, *(f"shield: {change}" for change in record.changes), record.failure, *record.notes]
    return "  ".join(parts) + "".join(f"; {one}" for one in why if one)


def _beside(record: ControlStep, name: str) -> str:
    """In shadow, what is set instead."""
    present = (record.done or {}).get(name)
    return f" (is {present:.4g})" if record.shadow and present is not None else ""


def json_of(record: ControlStep) -> str:
    """The same as JSON, on one line and in ASCII: what a terminal may take for a command is escaped. NaN is null."""
    return json.dumps(orjson.loads(orjson.dumps(vars(record))))
