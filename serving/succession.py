"""Whether a version that passed its gates replaces the standing champion by itself. Pure.

Flow: `register` asks with the ledger held, so that it is the champion of this instant that is compared. Two conditions,
both of them of mlflow.yaml's `promotion`; else the version stays challenger until a person promotes it:

    better_than_champion        on the same test rows, by more than luck explains (models/paired_comparison.py)
    specification_not_weaker    specification_change.py

Residuals (prediction - measured, in the target's own unit) of both models were made alike: by onnxruntime on the files
that ship, on the rows of the challenger's test set in order of time. They are the same rows where the digests of the
test sets are equal; others are never compared. Nor are residuals whose mean square is not the test_mse that the gates
saw: evidence that contradicts itself makes no champion.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from feature_store.errors import AssayError, InputError
from models.configuration import PromotionRule
from models.paired_comparison import compare
from models.recorded_errors import checked_residuals
from serving.bundle import Bundle
from serving.specification_change import GATE, weaker_in

BETTER = "better_than_champion"


@dataclass(frozen=True)
class Decision:
    """Whether a version becomes champion by itself, and why (one sentence for the ledger)."""

    wins: bool
    reason: str


@dataclass(frozen=True)
class RowErrors:
    """What one model's errors were on one test set: its digest, and a residual a row, target's unit."""

    test_set: str
    residuals: tuple[float, ...]


def own_errors(bundle: Bundle) -> RowErrors:
    """A bundle's own, from its evidence. Raises InputError where it does not say, or contradicts itself."""
    metric = bundle.evidence["metrics"].get("test_mse")
    return _errors(_digest_of_test_set(bundle), bundle.evidence.get("test"), metric, bundle)


def measured_errors(measured: Mapping[str, Any], bundle: Bundle) -> RowErrors:
    """A champion's on the test set of `bundle`, as the gates measured them. Raises InputError as `own_errors`."""
    return _errors(measured.get("test_sha256"), measured, measured.get("test_mse"), bundle)


def decide(
    bundle: Bundle,
    standing: int | None,
    measured: Mapping[str, Any] | None,
    opened: Callable[[int], Bundle],
    rule: PromotionRule,
) -> Decision:
    """Decides about a version whose gates hold.

    Args:
        bundle: the version.
        standing: the champion's version, None where there is none.
        measured: the champion as the gates measured it on the bundle's test set: {"version", "residuals",
            "test_sha256", ...}; None where there was none at that time.
        opened: opens a version's checked bundle; raises AssayError where it cannot be had.
    """
    if standing is None:
        return Decision(True, "no champion yet")
    try:
        champion = opened(standing)
    except AssayError as error:
        return Decision(False, f"champion version {standing} cannot be compared: {error}")
    is_better, reason = _better(bundle, champion, standing, measured, rule)
    weaker = weaker_in(bundle.promise, champion.promise, rule.specification_leeway)
    if weaker:
        reason += f"; {GATE} does not hold: {'; '.join(weaker)}"
    return Decision(is_better and not weaker, reason)


def _better(
    bundle: Bundle, champion: Bundle, version: int, measured: Mapping[str, Any] | None, rule: PromotionRule
) -> tuple[bool, str]:
    try:
        own = own_errors(bundle)
        if measured is not None and str(measured.get("version")) == str(version):  # MLflow writes text
            digest, other_errors = measured.get("test_sha256"), lambda: measured_errors(measured, bundle)
        else:  # another process has moved the champion since the gates ran
            digest, other_errors = _digest_of_test_set(champion), lambda: own_errors(champion)
        if digest != own.test_set:
            return False, f"{BETTER} does not hold: champion version {version} was not measured on this test set"
        squared, other_squared = ([value * value for value in one.residuals] for one in (own, other_errors()))
        found = compare(squared, other_squared, "smaller", rule.comparison)
    except InputError as error:
        return False, f"{BETTER} does not hold: {error}"
    verb = "holds" if found.wins else "does not hold"
    return found.wins, f"{BETTER} {verb} against version {version}: mean squared error, {found}"


def _errors(digest: Any, found: Any, test_mse: Any, bundle: Bundle) -> RowErrors:
    """Raises InputError: there are none, or they are not of the bundle's test set or do not bear `test_mse`."""
    if not isinstance(digest, str) or not digest:
        raise InputError("errors of single test rows must name their test set, got none")
    residuals = found.get("residuals") if isinstance(found, Mapping) else None
    return RowErrors(digest, checked_residuals(residuals, test_mse, bundle.evidence))


def _digest_of_test_set(bundle: Bundle) -> Any:
    """Content digest of test.parquet, as `export` writes it."""
    data = bundle.evidence.get("data")
    files = data.get("files") if isinstance(data, Mapping) else None
    return files.get("test.parquet") if isinstance(files, Mapping) else None
