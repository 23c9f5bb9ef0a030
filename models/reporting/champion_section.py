"""A version against the champion: each metric with its paired interval, what is promised otherwise, where they differ.

Flow: decision.py puts it into the first screen. The champion is that of evidence["champion"], as the gate step measured
it on the version's own cases (models/paired_cases.py), with `changes`: what its bundle promises otherwise
(serving/version_change.py).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from feature_store.errors import InputError
from models.metrics import SHARE_UNIT
from models.paired_comparison import MINIMUM_CASES, block_length, interval
from models.reporting.document import Cell, Fold, Lines, Note, Part, Table, Tone, figures, text
from models.reporting.formatting import count, number, percent
from models.reporting.gate_words import remark
from models.reporting.reading import at, items, mapping, mappings
from models.tasks.pages import Pages, Paired

Json = Mapping[str, Any]

CONFIDENCE = 0.99  # of each end of an interval; registration spends it over all attempts
MOST_CASES = 3  # of those in which the two differ most


def against_champion(contract: Json | None, evidence: Json | None, gates: Json | None,
                     pages: Pages) -> tuple[Part, ...]:
    """Whatever is known of the two beside each other, in words where nothing is."""
    if "champion" not in mapping(evidence):
        return (Note("Whether there was a champion is not in the evidence.", "missing"),)
    champion = mapping(evidence, "champion")
    if not champion:
        return (Note("There was no champion to be compared with."),)
    return (*_metrics(mapping(evidence), pages), *_changes(contract, gates, champion))


def _metrics(evidence: Json, pages: Pages) -> tuple[Part, ...]:
    why = at(evidence, "champion", "unclaimed") or at(evidence, "champion", "reason")
    if why:
        return (Note(f"Nothing is claimed about the two: {why}.", "missing"),)
    try:
        found = [one for one in pages.paired(evidence) if len(one.version) >= MINIMUM_CASES]
    except InputError as error:
        return (Note(f"The two cannot be compared: {error}.", "missing"),)
    if not found:
        return (Note(f"The two cannot be compared: there are fewer than {MINIMUM_CASES} cases.", "missing"),)
    compared = count(len(found[0].version), found[0].case)
    return (Table(("Mean", "This", "Champion", "Better by", "Result"),
                  tuple(_row(one) for one in found), "",
                  f"Over {compared} that the champion was not trained on; the first line decides. Better by: paired, "
                  "with its interval, each end at 99 %; of shares in percentage points."),
            _apart(found[0]))


def _row(one: Paired) -> tuple[Cell, ...]:
    gains = one.champion - one.version if one.better == "smaller" else one.version - one.champion
    low, high = interval(gains, block_length(gains, one.block), CONFIDENCE)
    outcome: tuple[str, Tone] = (("better", "good") if low > 0 else ("worse", "bad") if high < 0 else
                                 ("the same", "") if not gains.any() else ("unclear", "open"))
    if one.unit == SHARE_UNIT:
        shown = [percent(float(values.mean())) for values in (one.version, one.champion)]
        better = f"{100 * gains.mean():+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"
    else:
        shown = [number(float(values.mean())) for values in (one.version, one.champion)]
        better = f"{gains.mean():+.2g} [{low:+.2g}, {high:+.2g}]"
    unit = "" if one.unit == SHARE_UNIT or one.unit in one.name else f" ({one.unit})"
    return text(one.name + unit), *figures([*shown, better]), Cell(outcome[0], tone=outcome[1])


def _apart(one: Paired) -> Part:
    """The cases in which the two differ most."""
    apart = np.abs(one.version - one.champion)
    places = np.argsort(-apart, kind="stable")[:MOST_CASES]
    rows = tuple((text(f"{one.case} {place + 1:,} of {len(apart):,}"),
                  *figures([number(float(values[place]), one.unit) for values in (one.version, one.champion)]))
                 for place in places)
    return Fold(f"The {one.case}s on which the two differ most", (Table(
        ("", "This version", "Champion"), rows, f"{one.name[:1].upper()}{one.name[1:]}",
        "Counted in the order in which they are compared, of rows the order of time."),))


def _changes(contract: Json | None, gates: Json | None, champion: Json) -> tuple[Part, ...]:
    """In what the two differ, a line each, and last in what they do not."""
    changes = mapping(champion, "changes")
    if not changes:
        return (Note("In what its specification, box, data and gates differ was not recorded.", "missing"),)
    weaker, added, box = ([str(one) for one in items(changes, key)] for key in ("weaker", "added", "box"))
    limits = _limits(gates, mapping(changes, "gates"))
    data = [] if changes.get("data_version") == at(contract, "data_version") else ["It was made from other rows"]
    told: tuple[tuple[str, str, list[str], Tone], ...] = (
        ("specification", "Its specification asks less than the champion's", weaker, "bad"),
        ("specification", "Its specification asks what the champion's does not", added, ""),
        ("box", "Its box is another one", box, ""), ("gates", "Its gates are others", limits, ""),
        ("data", "Its data are others", data, ""))
    differ = {what for what, _, found, _ in told if found}
    same = list(dict.fromkeys(what for what, *_ in told if what not in differ))
    lines = [(title, tone) for _, title, found, tone in told if found]
    parts: list[Part] = [Lines((*lines, *(((f"The same as the champion's: {', '.join(same)}", ""),) if same else ())))]
    if differ:
        parts.append(Fold("In what the two differ", tuple(
            part for _, title, found, _ in told if found
            for part in (Note(f"{title}:"), Lines(tuple((one, "") for one in found))))))
    return tuple(parts)


def _limits(gates: Json | None, before: Json) -> list[str]:
    """Gates that the champion did not have or has beyond this version's, and those with another limit of their own."""
    own = {str(gate.get("name")): gate for gate in mappings(gates, "gates")}
    told = [f"`{name}` is new" for name in own if name not in before]
    told += [f"`{name}` is gone" for name in before if name not in own]
    for name, gate in own.items():
        known = items(before, name)
        relative = gate.get("threshold") is None or bool(remark(gate))  # its limit moves with what it is held to
        if len(known) == 2 and not relative and known != [gate.get("comparison"), gate.get("threshold")]:
            told.append(f"`{name}` {gate.get('comparison')} {number(gate.get('threshold'))}, was {known[0]} "
                        f"{number(known[1])}")
    return told
