"""A reviewer decides in the registry, by a tag of the version that waits; `carry_out` does it, through the gates.

    assay.review = approve   promoted, as `assay promote` does it        serving/review_tags.py has all tags
    assay.review = reject    retired: it and its model do not come back by themselves

The version that waits is the challenger. Whoever can write to the registry can write the tag, and no more than this
comes of it: the version passed its gates and was signed; they are evaluated again on its signed evidence; and where
another champion stands than the one that it was compared with, it is compared with that one.

Each tag is answered once: its answer takes its place, a refused one's too. Only where the registry or the disk fails
it stays, for the next time. A crash between the ledger and the answer leaves a tag on a version that does not wait any
more, which is what it is told.
"""

from dataclasses import dataclass
from typing import Literal, Protocol, Self

from feature_store.errors import AssayError, InputError, RefusedError, nearest
from models.configuration import Configuration
from serving.admission import CHAMPION
from serving.ledger_chain import Pair
from serving.moves import Standing
from serving.outcomes import Promotion, Retirement
from serving.promotion import Promotions, RecordedError
from serving.review_tags import BY_TAG, COMMENT_TAG, DONE_TAG, REVIEW_TAG
from serving.store import Store
from serving.succession import decide
from serving.version_bundles import VersionBundles

Outcome = Literal["approved", "rejected", "refused", "postponed"]
_WORDS: dict[str, Outcome] = {"approve": "approved", "reject": "rejected"}
_LONGEST_NAME = 200  # characters
_LONGEST_TAG = 4000  # MLflow takes 5000 characters


class Mover(Protocol):
    """Who makes the moves: `serving.lifecycle.Lifecycle`, whose methods say what these do."""

    @property
    def actor(self) -> str:
        """Who is written beside every move."""

    def on_behalf_of(self, actor: str) -> Self:
        """The same, for somebody else."""

    def promote(self, task: str, workload: str, version: int | None = None, reason: str = "") -> Promotion:
        """Makes a version champion."""

    def retire(self, task: str, workload: str, version: int, reason: str = "") -> Retirement:
        """Takes a version out for good."""


@dataclass(frozen=True)
class Review:
    """What became of one tag.

    Attributes:
        word: the tag's value.
        by: who decided, as the tag beside it says; "" where there is none.
        outcome: "postponed": the registry or the disk failed, and the tag stays.
        message: what was done, or why not.
    """

    model: str
    version: int
    word: str
    by: str
    outcome: Outcome
    message: str


@dataclass(frozen=True)
class Waiting:
    """A version that waits for a review."""

    model: str
    version: int


class Reviews:
    """Carries out what reviewers wrote."""

    def __init__(
        self, configuration: Configuration, store: Store, promotions: Promotions, bundles: VersionBundles, mover: Mover
    ) -> None:
        self._configuration = configuration
        self._store = store
        self._promotions = promotions
        self._bundles = bundles
        self._mover = mover

    def carry_out(self, task: str | None = None, workload: str | None = None) -> tuple[Review, ...]:
        """Answers the tags of a task and workload (None: of all), in order of models and versions.

        Raises:
            RefusedError: the ledger does not verify, or its end was cut off.
            AssayError: the registry cannot be listed.
        """
        reviews, stored = [], self._store.models()
        for pair in self._pairs(task, workload):
            model = self._configuration.model_name(*pair)
            versions = stored[model].versions if model in stored else {}
            for version in sorted(number for number, item in versions.items() if REVIEW_TAG in item.tags):
                with self._promotions.standing(*pair) as (standing, _):
                    tags = self._store.tags(model).get(version, {})
                    if REVIEW_TAG in tags:  # else another process has just answered it
                        reviews.append(self._answered(pair, version, standing, tags))
        return tuple(reviews)

    def waiting(self, task: str | None = None, workload: str | None = None) -> tuple[Waiting, ...]:
        """The versions that wait for a review, by model."""
        standings = self._promotions.ledger.standings()
        return tuple(Waiting(self._configuration.model_name(*pair), challenger) for pair in self._pairs(task, workload)
                     if (challenger := standings[pair].challenger) is not None)

    def _pairs(self, task: str | None, workload: str | None) -> list[Pair]:
        return sorted(pair for pair in self._promotions.ledger.standings()
                      if task in (None, pair[0]) and workload in (None, pair[1]))

    def _answered(self, pair: Pair, version: int, standing: Standing, tags: dict[str, str]) -> Review:
        """With the ledger held."""
        word, by = tags[REVIEW_TAG].strip(), tags.get(BY_TAG, "").strip()[:_LONGEST_NAME]
        outcome = _WORDS.get(word.lower(), "refused")
        try:
            message = self._decided(pair, version, standing, word, by, tags.get(COMMENT_TAG, "").strip())
        except RecordedError as error:
            message = str(error)  # the move is made; what did not follow is said
        except (RefusedError, InputError) as error:
            outcome, message = "refused", str(error)
        except AssayError as error:
            outcome, message = "postponed", str(error)
        model = self._configuration.model_name(*pair)
        if outcome != "postponed":
            message += self._answer(model, version, f"{outcome}{f', {by}' if by else ''}: {message}")
        return Review(model, version, word, by, outcome, message)

    def _decided(self, pair: Pair, version: int, standing: Standing, word: str, by: str, comment: str) -> str:
        if word.lower() not in _WORDS:
            raise RefusedError(f"{REVIEW_TAG} must be approve or reject, got {word!r}; {nearest(word, _WORDS)}")
        if version != standing.challenger:
            raise RefusedError(f"version must wait for a review, got one that {_why_not(standing, version)}")
        speaker = self._mover.on_behalf_of(f"{by or 'somebody'}, in the registry (by {self._mover.actor})")
        if word.lower() == "reject":
            speaker.retire(*pair, version, comment or "rejected in the registry")
            return "taken out" + (f": {comment}" if comment else "")
        self._require_comparison(pair, version, standing)
        made = speaker.promote(*pair, version, comment or "approved in the registry")
        before = "" if made.previous_version is None else f", before: version {made.previous_version}"
        return "; ".join([f"champion now{before}", *made.notes, *map(str, made.drifts)])

    def _require_comparison(self, pair: Pair, version: int, standing: Standing) -> None:
        """A reviewer saw a comparison with one champion: where another one stands by now, that one decides."""
        bundle = self._bundles.open(*pair, standing, version)
        compared = (bundle.evidence.get(CHAMPION) or {}).get("version")
        if standing.champion is None or str(compared) == str(standing.champion):  # MLflow writes text
            return
        decision = decide(bundle, standing.champion, None,
                          lambda champion: self._bundles.open(*pair, standing, champion),
                          self._configuration.promotion, standing.attempts)
        if not decision.wins:
            raise RefusedError(
                f"champion must be the one that version {version} was compared with, {compared}, got "
                f"{standing.champion}; compared again, {decision.reason}; `assay promote --task {pair[0]} --workload "
                f"{pair[1]} --version {version}` promotes it all the same")

    def _answer(self, model: str, version: int, text: str) -> str:
        """Puts the answer in the tags' place; says what did not work."""
        try:
            self._store.set_tag(model, version, DONE_TAG, " ".join(text.split())[:_LONGEST_TAG])
            for key in (BY_TAG, COMMENT_TAG, REVIEW_TAG):  # the last one last: with it, all is tried again
                self._store.set_tag(model, version, key, None)
        except AssayError as error:
            return f"; the tag could not be answered: {error}"
        return ""


def _why_not(standing: Standing, version: int) -> str:
    if version == standing.champion:
        return "is champion already"
    if version in standing.registered:
        instead = "" if standing.challenger is None else f"; version {standing.challenger} does"
        return f"waits no more{instead}"
    if version in standing.rejected:
        return "failed its gates"
    return "was retired" if version in standing.retired else "the ledger does not know"
