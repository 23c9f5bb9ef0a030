"""Which models are served now: the champions of a ledger, followed, or the bundles of folders.

    Served(predictor, version, reason)      by name, "<task>.<workload>": a task has no dot, so no two are called alike

A model comes only as a checked bundle. What follows from a look at the ledger (`reason` tells the last three):

    the ledger names another champion       it takes the place of the one before, once its bundle has been checked
    its bundle does not check, or is away   the one before goes on, unless it was retired or rolled back
    no champion, or acting is stopped       nothing is served
    the ledger is away, or does not verify  all go on as they are

At a start, "the one before" is the copy in the service's own folder (serving/predictions/last_good.py), with the
standing that the ledger had when it was seen last, where it is away. A ledger that does not verify starts nothing.

Unlike a controller's (serving/control/champion.py), who has a fallback to go to, whoever asks here has nothing but the
answer: so the last good model goes on answering.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from feature_store.errors import InputError, RefusedError
from models.configuration import Configuration
from serving.bundle import CheckedBundle, check_bundle
from serving.control.champion import open_version
from serving.control.seen_ledger import SeenLedger
from serving.control.side_by_side import Within
from serving.control.start import WITHIN_S
from serving.ledger_chain import Chain, Pair
from serving.moves import Standing
from serving.polling import poll_in_thread
from serving.predictions.last_good import LastGood
from serving.session import Predictor
from serving.state_folder import StateFolder

_NAME = 12  # characters of a digest


@dataclass(frozen=True)
class Served:
    """A model as it stands now.

    Attributes:
        predictor: None: it is not served.
        version: in the ledger, or the first digits of a folder's bundle; "" where nothing is served.
        reason: why it is not served, or why what the ledger names cannot take its place; "" where all is well.
        is_last_good: it was started from the service's own copy, as the ledger or its bundle was away.
    """

    predictor: Predictor | None
    version: str = ""
    reason: str = ""
    is_last_good: bool = False


Models = Callable[[], Mapping[str, Served]]  # asked once a request: a change never splits one


def name_of(task: str, workload: str) -> str:
    """Of the model, in addresses and metrics."""
    return f"{task}.{workload}"


def models_of_folders(folders: Iterable[Path], public_key: Path) -> Mapping[str, Served]:
    """The bundles of folders, checked once.

    Raises:
        InputError: two are for the same workload.
        RefusedError: one does not check.
    """
    models: dict[str, Served] = {}
    for folder in folders:
        bundle = check_bundle(folder, public_key)
        name = name_of(bundle.contract.task, bundle.contract.workload)
        if name in models:
            raise InputError(f"bundles must be of different workloads, got two of {name} ({folder})")
        models[name] = Served(Predictor(bundle), bundle.sha256[:_NAME])
    return models


class Champions:
    """Follows a ledger. Threads may share it."""

    def __init__(self, state: Configuration | StateFolder, tell: Callable[[str], None], task: str | None = None,
                 workloads: Iterable[str] = (), folder: Path | None = None,
                 clock: Callable[[], float] = time.monotonic) -> None:
        """Looks for the first time.

        Args:
            state: whose ledger, bundles and public key.
            tell: called with a line for every change.
            task: None: all.
            workloads: none: all.
            folder: where what was seen of the ledger is kept, so that after a restart an older one is refused too, and
                what was served, for a start while that is away; None: it is known to this process alone.
            clock: seconds, never going back.

        Raises:
            InputError: the folder cannot be this service's own.
            AssayError: the ledger is away and nothing was kept, or it does not verify.
            RefusedError: there is no champion that can be served.
        """
        self._state, self._tell, self._task, self._workloads = state, tell, task, frozenset(workloads)
        self._clock, self._models = clock, dict[str, Served]()
        self._last_good = None if folder is None else LastGood(folder, state, tell)
        self._ledger = SeenLedger(state) if self._last_good is None else SeenLedger(
            state, folder, self._last_good.keep_ledger)
        try:
            # only here does a file system that hangs keep somebody waiting
            self._take(self._looked(Within(self._ledger.chain, WITHIN_S, f"ledger {self._ledger.path}")))
        except RefusedError:
            raise
        except Exception as error:  # as in `look`
            self._take(self._restarted(error))
        if not any(one.predictor for one in self._models.values()):
            reasons = [one.reason for one in self._models.values()]
            raise RefusedError(f"a champion must be there to be served, got {reasons[0] if reasons else 'none'} "
                               f"({self._ledger.path})")

    def __call__(self) -> Mapping[str, Served]:
        """By name, in order."""
        return self._models

    @property
    def unseen_s(self) -> float:
        """Seconds since the ledger was looked at: what happened in them is not known."""
        return self._clock() - self._seen_at

    def look(self) -> None:
        """Looks once who is champion now. Raises nothing."""
        try:
            models = self._looked(self._ledger.chain)
        except Exception as error:  # whatever a file system or a registry's client raises: all go on as they are
            reason = f"ledger: {_line(error)}"
            models = {name: replace(one, reason=reason) if one.predictor else one for name, one in self._models.items()}
        self._take(models)

    def follow(self, every_s: float, stopped: threading.Event) -> threading.Thread:
        """Looks in a thread of its own until `stopped`: a check or a registry that hangs delays no answer."""
        return poll_in_thread(self.look, every_s, stopped, "champions")

    def _looked(self, seen: Callable[[], Chain]) -> dict[str, Served]:
        chain = seen()
        self._seen_at = self._clock()
        served = self._each(dict(chain.standings), self._served)
        if self._last_good is not None:
            self._last_good.delete_others(dict(chain.standings), {pair: one.version for pair, one in served.items()})
        return _named(served)

    def _restarted(self, away: Exception) -> dict[str, Served]:
        """What was kept, as the ledger was seen last. Raises: nothing was, or it does not verify."""
        standings, age_s = ({}, 0.0) if self._last_good is None else self._last_good.standings()
        if not standings:
            raise away
        self._seen_at, reason = self._clock() - age_s, f"ledger: {_line(away)}"
        return _named(self._each(standings, lambda pair, standing: self._kept(pair, standing, reason)))

    def _each(self, standings: Mapping[Pair, Standing],
              served: Callable[[Pair, Standing], Served]) -> dict[Pair, Served]:
        """Of those that were asked for, `served` is called with each that has a champion and is not stopped."""
        return {pair: _barred(pair, standings[pair]) or served(pair, standings[pair]) for pair in sorted(standings)
                if self._task in (None, pair[0]) and (not self._workloads or pair[1] in self._workloads)}

    def _served(self, pair: Pair, standing: Standing) -> Served:
        version = standing.champions[-1]
        before = self._models.get(name_of(*pair), Served(None))
        is_served = before.predictor is not None and not before.is_last_good and (
            before.version, before.predictor.sha256) == (str(version), standing.registered[version])
        if is_served and (self._last_good is None or self._last_good.has(pair, version)):
            return replace(before, reason="")
        try:
            bundle = self._opened(self._state, pair, version, standing)
            served = replace(before, reason="") if is_served else Served(Predictor(bundle), str(version))
        except Exception as error:  # as in `look`
            if is_served:  # it could not be kept before, and not now
                return replace(before, reason="")
            reason = f"version {version} cannot be served: {_line(error)}"
            goes_on = before.predictor and int(before.version) in standing.champions
            return replace(before, reason=reason) if goes_on else self._kept(pair, standing, reason)
        if self._last_good is not None:
            self._last_good.keep_bundle(pair, version, bundle)
        return served

    def _kept(self, pair: Pair, standing: Standing, reason: str) -> Served:
        """The copy of what was served last. reason: why nothing better is."""
        if self._last_good is None:
            return Served(None, reason=reason)
        try:
            version = self._last_good.version(pair, standing)
            bundle = self._opened(self._last_good.state, pair, version, standing)
            return Served(Predictor(bundle), str(version), reason, is_last_good=True)
        except Exception as error:  # as in `look`
            return Served(None, reason=f"{reason}; {_line(error)}")

    def _opened(self, state: Configuration | StateFolder, pair: Pair, version: int,
                standing: Standing) -> CheckedBundle:
        sha256 = standing.registered[version]
        bundle = open_version(state, *pair, version, sha256)
        if bundle.sha256 != sha256 or (bundle.contract.task, bundle.contract.workload) != pair:
            raise RefusedError(f"bundle must be {sha256} of {', '.join(pair)} as the ledger says, got {bundle.sha256} "
                               f"of {bundle.contract.task}, {bundle.contract.workload} ({bundle.folder})")
        return bundle

    def _take(self, models: dict[str, Served]) -> None:
        before, self._models = self._models, models
        for name, one in models.items():
            if one != before.get(name):
                does = f"version {one.version} is served" if one.predictor else "is not served"
                does += ", the last good one, from this service's copy" if one.is_last_good else ""
                self._tell(f"{name}: {does}{f'; {one.reason}' if one.reason else ''}")


def _barred(pair: Pair, standing: Standing) -> Served | None:
    """Why none is served, whatever there is; None: nothing speaks against it."""
    if standing.stopped:
        return Served(None, reason=f"acting is stopped ({standing.stopped})")
    if standing.champion is None:
        return Served(None, reason=f"workload must have a champion, got none for {', '.join(pair)}")
    return None


def _named(served: Mapping[Pair, Served]) -> dict[str, Served]:
    return {name_of(*pair): one for pair, one in served.items()}


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
