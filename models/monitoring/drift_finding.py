"""What the drift tests of one look (drift.py) come to: a finding, and a note of what could not be judged."""

from collections.abc import Mapping

import pandas as pd

from models.monitoring.drift import drifts, references
from models.monitoring.findings import Finding
from models.reporting.formatting import count, significant

NAMED = 5  # features in a sentence


def drift_finding(before: pd.DataFrame, recent: pd.DataFrame, units: Mapping[str, str], level: float, has_truth: bool,
                  reference: str = "training") -> tuple[Finding, tuple[str, ...]]:
    """The newest rows held against those before, feature by feature, and the notes on it.

    Args:
        before, recent: rows in order of time.
        units: of the features that are looked at, by name.
        level: chance of a false alarm that all of them together may have.
        has_truth: whether errors or rewards show if it matters.
        reference: what `before` is, in words.
    """
    known = references(before, tuple(units))
    tested = drifts(known, recent)
    found = [one for one in tested if one.chance <= level]
    said = [f"{one.feature} (median {significant(one.now)}, was {significant(one.before)}"
            f"{f' {units[one.feature]}' if units[one.feature] else ''})" for one in found[:NAMED]]
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    sentence = f"none of {count(len(tested), 'feature')} differs from {reference} by more than luck does"
    if found:
        sentence = f"{len(found)} of {count(len(known), 'feature')} differ from {reference}: {', '.join(said)}{more}"
    slow = ", ".join(name for name, one in known.items() if not one.worth)
    notes = (f"{reference}: too short to say how it varies, so that its drift is not judged: {slow}",) if slow else ()
    return Finding("drift" if has_truth else "drift, no truth", bool(found), sentence,
                   {"level": level, "reference": reference, "features": [vars(one) for one in tested]}), notes
