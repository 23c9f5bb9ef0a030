"""Whether a version that passed its gates replaces the standing champion by itself. Pure.

Flow: `register` asks with the ledger held, so that it is the champion of this instant that is compared. Two conditions,
both of them of mlflow.yaml's `promotion`; else the version stays challenger until a person promotes it:

    better_than_champion        on the same cases, by more than luck explains (models/paired_comparison.py)
    specification_not_weaker    specification_change.py

Many versions that are no better would win now and then, if each were let in on the same confidence: so the k-th attempt
against one champion gets its share of what may go wrong in all of them (ComparisonRule.at_attempt). Attempts are all
versions that were made beside it, as the signed ledger counts them (serving/moves.py); also those that failed their
gates, which see the same cases: who passes them is chosen by luck already.

Cases (models/paired_cases.py) of both models were measured alike, on the files that ship: test rows in order of time,
or episodes with the same seeds. They are the same cases where their digests are equal; others are never compared. Nor
are cases whose mean is not the metric that the gates saw: evidence that contradicts itself makes no champion.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from feature_store.errors import AssayError, InputError, UnavailableError
from models.configuration import PromotionRule
from models.paired_cases import LEFT_OUT, UNCLAIMED, Cases, measured_cases, same_cases, unseen_cases
from models.paired_comparison import compare
from serving.bundle import Bundle
from serving.specification_change import GATE, weaker_in

BETTER = "better_than_champion"


@dataclass(frozen=True)
class Decision:
    """Whether a version becomes champion by itself, and why (one sentence for the ledger)."""

    wins: bool
    reason: str


def bundle_cases(bundle: Bundle) -> Cases:
    """A bundle's cases, from its evidence.

    Raises:
        InputError: it has none, or they contradict its metric.
    """
    if bundle.evidence.get("cases") is None:
        raise InputError(f"cases: expected one value for each test row or episode, got none ({bundle.folder})")
    return unseen_cases(bundle.evidence, None)


def decide(
    bundle: Bundle,
    standing: int | None,
    measured: Mapping[str, Any] | None,
    opened: Callable[[int], Bundle],
    rule: PromotionRule,
    attempt: int = 1,
) -> Decision:
    """Decides about a version whose gates hold.

    Args:
        bundle: the version.
        standing: the champion's version, None where there is none.
        measured: the champion as the gates measured it on the bundle's cases: {"version", "metrics", "cases"}; None
            where there was none at that time.
        opened: opens a version's checked bundle; raises AssayError where it cannot be had.
        rule: `promotion` of mlflow.yaml.
        attempt: the how many-th version this is that is held to this champion, from 1.

    Raises:
        UnavailableError: as `opened` did.
    """
    if standing is None:
        return Decision(True, "no champion yet")
    try:
        champion = opened(standing)
    except UnavailableError:  # a challenger for that would wait for a person
        raise
    except AssayError as error:
        return Decision(False, f"champion version {standing} cannot be compared: {error}")
    is_better, reason = _better(bundle, champion, standing, measured, rule, attempt)
    weaker = weaker_in(bundle.promise, champion.promise, rule.specification_leeway)
    if weaker:
        reason += f"; {GATE} does not hold: {'; '.join(weaker)}"
    return Decision(is_better and not weaker, reason)


def _better(
    bundle: Bundle, champion: Bundle, version: int, measured: Mapping[str, Any] | None, rule: PromotionRule,
    attempt: int,
) -> tuple[bool, str]:
    try:
        new = bundle_cases(bundle)
        if measured is not None and str(measured.get("version")) == str(version):  # MLflow writes text
            if isinstance(why := measured.get(UNCLAIMED), str):
                return False, f"nothing is claimed about champion version {version}: {why}"
            new = unseen_cases(bundle.evidence, measured.get(LEFT_OUT))
            old = measured_cases(measured, bundle.evidence)
        else:  # another process has moved the champion since the gates ran
            old = bundle_cases(champion)
        if not same_cases(new, old):
            return False, f"{BETTER} does not hold: champion version {version} was not measured on the same cases"
        found = compare(new.values, old.values, new.better, rule.comparison.at_attempt(attempt), new.metric, new.block)
    except InputError as error:
        return False, f"{BETTER} does not hold: {error}"
    verb = "holds" if found.wins else "does not hold"
    said = f"{BETTER} {verb} against version {version}, attempt {attempt}: {found.sentence(new.quantity, new.unit)}"
    left_out = len(bundle.evidence["cases"]["values"]) - found.cases
    return found.wins, said + (f"; {left_out:,} cases that version {version} was trained on are left out" if left_out
                               else "")
