"""The registry against the promotion ledger: every alias, version, tag and bundle. Reads alone, but for `heal`.

    ledger, held for one listing of the registry  ->  pointers, heads, versions  ->  tags and bundles of each version

What the ledger says about a version is its actions, its reason and its bundle's digest; what the bundle with that
digest says is all else on the version's page. Nothing here decides what is served: controllers ask the ledger. People
and tools that look at the registry alone are deceived by what this finds.

The ledger is held for the listing, so that no registration is seen half-way, and not while bundles are opened, which
takes as long as their downloads.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from feature_store.errors import AssayError
from models.configuration import Configuration
from serving.bundle import Bundle
from serving.card import LONGEST_TAG, gate_table, version_tags
from serving.ledger_chain import Pair
from serving.ledger_entry import Entry
from serving.ledger_heads import HEAD_TAG
from serving.model_function import function_digest
from serving.moves import Move, Standing
from serving.promotion import Aliases, Promotions, named_version
from serving.review_tags import WAITS_FOR, WAITS_TAG
from serving.store import Store, StoredModel, StoredVersion
from serving.version_bundles import VersionBundles

_LONGEST = 400  # characters of a text in a finding
_OF_A_REJECTED = "nothing is served of a rejected version: put it back from a backup, or delete the version in MLflow"
_HEALED = "assay audit-registry --heal sets it right"


@dataclass(frozen=True)
class Change:
    """What sets a finding right in the registry; `value` None: takes it away."""

    what: Literal["alias", "tag", "description", "stage"]
    name: str = ""
    value: str | None = None


@dataclass(frozen=True)
class Finding:
    """Something of the registry that is not as ledger and bundles say.

    Attributes:
        version: None: of the model as a whole.
        what: such as "alias champion", "tag verdict", "bundle".
        remedy: what to do.
        change: what `heal` does; None: nothing that it may do, or what following the ledger does.
    """

    model: str
    version: int | None
    what: str
    expected: str
    found: str
    remedy: str
    change: Change | None = field(default=None, compare=False)

    def __str__(self) -> str:
        where = self.model if self.version is None else f"{self.model} version {self.version}"
        return f"{where}: {self.what} must be {self.expected}, got {self.found}; {self.remedy}"


@dataclass(frozen=True)
class Healing:
    """What `heal` set right, and what is left."""

    healed: tuple[Finding, ...]
    left: tuple[Finding, ...]


class RegistryAudit:
    """Compares a store with a ledger."""

    def __init__(
        self, configuration: Configuration, store: Store, promotions: Promotions, aliases: Aliases,
        bundles: VersionBundles,
    ) -> None:
        self._configuration = configuration
        self._store = store
        self._promotions = promotions
        self._aliases = aliases
        self._bundles = bundles

    def audit(self) -> tuple[Finding, ...]:
        """Everything that is not as it should be, by model and version.

        Raises:
            RefusedError: the ledger does not verify, or its end was cut off: then nothing can be held against it.
            AssayError: the registry cannot be listed.
        """
        return self._audit()[0]

    def heal(self) -> Healing:
        """Sets aliases, tags, descriptions and stages to what ledger and bundles say. Touches no artifact or version.

        Of a model about which the ledger went on meanwhile, only the aliases: the rest is left to the next time.

        Raises:
            RefusedError, AssayError: see `audit`.
        """
        before, seen = self._audit()
        if not before:
            return Healing((), ())
        self._promotions.reconcile()
        with self._promotions.ledger.locked():
            now = self._last(self._promotions.history(None, None))
            for finding in before:
                if seen.get(finding.model) == now.get(finding.model):
                    with contextlib.suppress(AssayError):  # it is among what is left
                        self._apply(finding)
        left = self._audit()[0]
        return Healing(tuple(one for one in before if one not in left), left)

    def _audit(self) -> tuple[tuple[Finding, ...], dict[str, Entry]]:
        with self._promotions.ledger.locked():
            entries = self._promotions.history(None, None)
            standings = self._promotions.ledger.standings()
            stored = self._store.models()
        last = self._last(entries)
        moves: dict[Pair, dict[int, Move]] = {}
        for entry in entries:  # the first about a version says what it was registered as and why
            move = entry.move
            if move.action in ("register", "reject"):
                moves.setdefault((move.task, move.workload), {})[move.version] = move
        findings: list[Finding] = []
        for pair, standing in sorted(standings.items()):
            model = self._configuration.model_name(*pair)
            found = stored.pop(model, StoredModel())
            findings += self._pointers(model, standing, found)
            findings += _head(model, found, last[model])
            findings += self._versions(pair, model, standing, found, moves.get(pair, {}))
        for model, found in sorted(stored.items()):
            findings += [_unknown(model, version) for version in sorted(found.versions)]
        return tuple(findings), last

    def _pointers(self, model: str, standing: Standing, found: StoredModel) -> Iterator[Finding]:
        """Aliases and stages: ours are the ledger's; nobody's may be on a version that did not pass its gates."""
        ours = {self._aliases.champion: standing.champion, self._aliases.challenger: standing.challenger}
        for alias, expected in ours.items():
            if (version := found.aliases.get(alias)) != expected:
                is_there = expected is None or expected in found.versions
                yield Finding(model, None, f"alias {alias}", f"{named_version(expected)} as the ledger says",
                              named_version(version), _HEALED if is_there else f"version {expected} is gone, see there")
        for alias, version in sorted(found.aliases.items()):
            if alias not in ours and version not in standing.registered:
                yield Finding(model, version, f"alias {alias}", "on a version that passed its gates",
                              f"one that {_why_not(standing, version)}", _HEALED, Change("alias", alias))
        for version, item in sorted(found.versions.items()):
            if item.stage and version not in standing.registered:
                yield Finding(model, version, f"stage {item.stage}", "that of a version that passed its gates",
                              f"one that {_why_not(standing, version)}", _HEALED, Change("stage"))

    def _versions(
        self, pair: Pair, model: str, standing: Standing, found: StoredModel, moves: Mapping[int, Move]
    ) -> Iterator[Finding]:
        for version in sorted(standing.known | found.versions.keys()):
            if version not in standing.known:
                yield _unknown(model, version)
            elif version in standing.retired:
                continue  # its bundle may be lost: that is what versions are retired for
            elif version in found.versions:
                yield from self._version(pair, model, standing, version, found.versions[version], moves[version])
            elif version in standing.registered:
                yield self._deleted(pair, model, version, moves[version].bundle_sha256)
            if version in standing.registered:
                yield from self._kept(pair, model, version, moves[version].bundle_sha256)

    def _version(
        self, pair: Pair, model: str, standing: Standing, version: int, item: StoredVersion, move: Move
    ) -> Iterator[Finding]:
        try:
            bundle, served = self._bundles.examine(*pair, version, move.bundle_sha256, move.gates_passed)
        except AssayError as error:
            remedy = self._way_out(pair, version, move.bundle_sha256) if move.gates_passed else _OF_A_REJECTED
            yield Finding(model, version, "bundle", "the one that the ledger names", _short(str(error)), remedy)
            known = {"task": move.task, "workload": move.workload, "gates_passed": str(move.gates_passed).lower(),
                     "bundle_sha256": move.bundle_sha256, "decision": move.reason[:LONGEST_TAG]}
            yield from _tags(model, version, item, known, "ledger")
        else:
            if not _is_served(served, bundle):
                yield Finding(model, version, "model that MLflow serves", "that of its bundle", "another",
                              "do not serve it; train and register anew, or put model.onnx of the bundle in its place")
            yield from _tags(model, version, item, version_tags(bundle, move.gates_passed, move.reason), "bundle")
            if gate_table(bundle) not in item.description:
                yield Finding(model, version, "description", "the gate table of its bundle", _short(item.description),
                              _HEALED, Change("description", value=gate_table(bundle)))
        waits = WAITS_FOR if version == standing.challenger else None
        if item.tags.get(WAITS_TAG) != waits:
            yield _tag(model, version, WAITS_TAG, waits, item.tags.get(WAITS_TAG), "ledger")

    def _deleted(self, pair: Pair, model: str, version: int, sha256: str) -> Finding:
        return Finding(model, version, "version", "in the registry", "none", self._way_out(pair, version, sha256))

    def _way_out(self, pair: Pair, version: int, sha256: str) -> str:
        retire = f"assay retire --task {pair[0]} --workload {pair[1]} --version {version}"
        try:
            self._bundles.open_digest(*pair, version, sha256)
        except AssayError:
            return f"put it back from a backup, or take the version out with `{retire}`"
        return f"controllers use a copy of its bundle; to take the version out, `{retire}`"

    def _kept(self, pair: Pair, model: str, version: int, sha256: str) -> Iterator[Finding]:
        try:
            self._bundles.examine_kept(*pair, version, sha256)
        except AssayError as error:
            yield Finding(model, version, "copy in the state folder", "the one that the ledger names",
                          _short(str(error)), "delete the copy: nothing needs it while the registry has the bundle")

    def _apply(self, finding: Finding) -> None:
        change, version = finding.change, finding.version
        if change is None or version is None:
            return
        match change.what:
            case "alias":
                self._store.set_alias(finding.model, change.name, None)
            case "stage":
                self._store.clear_stage(finding.model, version)
            case "description":
                self._store.set_description(finding.model, version, change.value or "")
            case "tag":
                self._store.set_tag(finding.model, version, change.name, change.value)

    def _last(self, entries: tuple[Entry, ...]) -> dict[str, Entry]:
        """The last entry about each model."""
        return {self._configuration.model_name(entry.move.task, entry.move.workload): entry for entry in entries
                if entry.move.task}


def _head(model: str, found: StoredModel, last: Entry) -> Iterator[Finding]:
    """Without it, or with an older one, a ledger whose end is cut off is noticed by fewer."""
    if found.head != last.head:
        yield Finding(model, None, f"tag {HEAD_TAG}", repr(last.head), _short(repr(found.head)), _HEALED)


def _tags(
    model: str, version: int, item: StoredVersion, expected: Mapping[str, str], who: str
) -> Iterator[Finding]:
    for key, value in expected.items():
        if item.tags.get(key) != value:
            yield _tag(model, version, key, value, item.tags.get(key), who)


def _tag(model: str, version: int, key: str, expected: str | None, found: str | None, who: str) -> Finding:
    says = "unset" if expected is None else _short(repr(expected))
    return Finding(model, version, f"tag {key}", f"{says} as the {who} says",
                   "none" if found is None else _short(repr(found)), _HEALED, Change("tag", key, expected))


def _unknown(model: str, version: int) -> Finding:
    return Finding(model, version, "version", "one that the ledger knows", "one that no entry names",
                   "nobody checked it: delete it in MLflow (what a killed run left, the next run removes)")


def _is_served(served: bytes, bundle: Bundle) -> bool:
    """Whether the registry's own ONNX file computes what the bundle's does."""
    try:
        return served == bundle.model or function_digest(served) == function_digest(bundle.model)
    except Exception:  # not even an ONNX file: what protobuf and onnx raise is no family
        return False


def _why_not(standing: Standing, version: int) -> str:
    if version in standing.rejected:
        return "was rejected"
    return "was retired" if version in standing.retired else "the ledger does not know"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
