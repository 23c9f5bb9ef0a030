"""What is guaranteed, and what is not: a line for each property, the exact sentence, the box and the proof on demand.

Flow: decision.py puts `promised`, `open_claims` and `on_demand` into the first screen. The names of signals are written
as words; the sentence that was proved, to the letter, is one fold away.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from feature_store.errors import InputError
from models.metrics import finite_number
from models.reporting.document import Cell, Fold, Lines, Note, Part, Table, Tone, figures, text
from models.reporting.formatting import count, duration, number, percent, said, titled
from models.reporting.reading import at, items, mapping, mappings
from models.tasks.pages import Claim
from models.verification.language.amounts import asked
from models.verification.language.properties import Monotonicity, Property, where
from models.verification.language.specification_language import parse_file

Json = Mapping[str, Any]

PROVED, REFUTED = "PROVED", "REFUTED"
MOST_TEXT = 420  # characters of properties before the rest is folded, so that one screen holds the decision


def tone_of(status: Any) -> Tone:
    """Of a verdict."""
    return "good" if status == PROVED else "bad" if status in (REFUTED, "ERROR") else "open"


def promised(evidence: Json | None, others: Sequence[Part]) -> tuple[Part, ...]:
    """The properties, a line each, under what the verdict says of them; `others` before those that are folded."""
    status, reason = (at(evidence, "verdict", key) for key in ("status", "reason"))
    why = "there is no verdict" if status is None else f"the verdict is {status} ({reason or 'no reason was given'})"
    lead = (Note("Proved for every input in the box, the range of each input:") if status == PROVED else
            Note(f"Nothing is guaranteed: {why}. What was to be proved:", "bad"))
    lines = properties(evidence)
    tone: Tone = "good" if status == PROVED else ""
    kept = sum(end <= MOST_TEXT for end in accumulate(map(len, lines)))
    shown = lines if len(lines) <= kept + 1 else lines[:max(kept, 1)]
    parts: list[Part] = [lead]
    if lines:
        parts.append(Lines(tuple((line, tone) for line in shown)))
    parts += others
    if rest := lines[len(shown):]:
        parts.append(Fold(f"{count(len(rest), 'more property', 'more properties')}",
                          (Lines(tuple((line, tone) for line in rest)),)))
    return tuple(parts)


def on_demand(contract: Json | None, evidence: Json | None, claims: Sequence[Claim]) -> tuple[Part, ...]:
    """The sentences to the letter, the box and the proof, in a fold."""
    parts = (*_sentences(contract, at(evidence, "verdict", "status"), claims), _box(contract, evidence),
             _proof(evidence))
    missing = tuple(part for part in parts if isinstance(part, Note) and part.kind == "missing")
    inputs = count(len(items(contract, "inputs")), "input")
    return (*missing, Fold(f"The exact sentence, the box of {inputs}, the proof",
                           tuple(part for part in parts if part not in missing)))


def properties(evidence: Json | None) -> list[str]:
    """The specification's properties in plain words; none where it is missing or cannot be read."""
    written = mapping(evidence, "specification")
    features, outputs = ([str(name) for name in items(written, side)] for side in ("features", "outputs"))
    try:
        found = parse_file(written, len(features), len(outputs), "evidence") if written else None
    except (InputError, TypeError, ValueError, AttributeError):  # whatever a broken file holds
        return []
    units = {str(name): str(unit) for name, unit in mapping(written, "units").items()}
    return [] if found is None else [_line(rule, features, outputs, units) for rule in found.properties]


def _line(rule: Property, features: Sequence[str], outputs: Sequence[str], units: Mapping[str, str]) -> str:
    plain = [said(name, units.get(name, "")) for name in features]
    if isinstance(rule, Monotonicity):
        verb = "falls" if rule.direction == "increasing" else "rises"
        risen = [plain[place] for place in rule.features]
        listed = " or ".join(filter(None, (", ".join(risen[:-1]), risen[-1])))
        output = outputs[rule.output]
        return f"{said(output, units.get(output, ''))} never {verb} when {listed} rises{where(rule.when, plain)}"
    return rule.statement(plain, [titled(name, units.get(name, "")) for name in outputs])


def _sentences(contract: Json | None, status: Any, claims: Sequence[Claim]) -> tuple[Part, ...]:
    statement = at(contract, "specification", "statement")
    if not isinstance(statement, str):
        return (Note("The contract with the statement and the box is missing.", "missing"),)
    more = tuple(Note(f"{one.name}: {one.status}. {one.sentence}", "statement") for one in claims if one.sentence)
    return (Note(statement if status == PROVED else asked(statement), "statement"), *more)


def _box(contract: Json | None, evidence: Json | None) -> Part:
    inputs = mappings(contract, "inputs")
    if not inputs:
        return Note("The box of inputs is missing.", "missing")
    required = directions(evidence)
    rows = tuple((Cell(str(item.get("name")), code=True), text(item.get("unit")),
                  *figures([number(item.get("minimum")), number(item.get("maximum"))]),
                  Cell(required.get(str(item.get("name")), ""), strong=True), text(_physical(item)),
                  text(item.get("description"))) for item in inputs)
    return Table(("Input", "Unit", "From", "To", "Output is", "Possible", "Meaning"), rows, "The box")


def directions(evidence: Json | None) -> dict[str, str]:
    """Feature -> increasing or decreasing, for the features of a monotonicity property without conditions.

    Where there are several outputs, of each that is asked for: "p50 increasing, rate decreasing".
    """
    several = len(items(evidence, "specification", "outputs")) > 1
    found: dict[str, list[str]] = {}
    for rule in mappings(evidence, "specification", "properties"):
        direction, output = (str(at(rule, "monotone", key)) for key in ("direction", "output"))
        for feature in items(rule, "monotone", "features") if not at(rule, "monotone", "when") else ():
            found.setdefault(str(feature), []).append(f"{output} {direction}" if several else direction)
    return {feature: ", ".join(dict.fromkeys(required)) for feature, required in found.items()}


def _physical(item: Json) -> str:
    """The physical bounds in words."""
    low, high = finite_number(item.get("physical_minimum")), finite_number(item.get("physical_maximum"))
    if low is None and high is None:
        return "any"
    if high is None:
        return f"from {number(low)}"
    return f"up to {number(high)}" if low is None else f"{number(low)} to {number(high)}"


def _proof(evidence: Json | None) -> Part:
    rows = []
    for label, key in (("This model", "verdict"), ("Unverified twin", "twin_verdict")):
        verdict = mapping(evidence, key)
        if verdict:
            rows.append((text(label), Cell(str(verdict.get("status")), tone=tone_of(verdict.get("status"))),
                         text(verdict.get("reason")),
                         *figures([percent(verdict.get("proved_share")), number(verdict.get("leaves")),
                                   number(verdict.get("boxes")), duration(verdict.get("seconds"))])))
    if not rows:
        return Note("No verdict of the verifier is in the evidence.", "missing")
    return Table(("Model", "Verdict", "Reason", "Proved", "Leaves", "Boxes", "Time"), tuple(rows), "The proof",
                 "Unverified twin: the same network trained without the verifier. Proved: share of the box's volume; "
                 "leaves: boxes of the proof; boxes: what the search looked at.")


def open_claims(evidence: Json | None, audit: Any, claims: Sequence[Claim]) -> tuple[Part, ...]:
    """What holds beside the specification, then everything that is not guaranteed or that the data could not decide.

    Args:
        audit: of the context.
        claims: of the kind.
    """
    lines: list[tuple[str, Tone]] = [
        (f"{one.name}: {one.text}" if one.status == PROVED else
         f"NOT guaranteed: {one.name} ({one.status}). {one.text}", tone_of(one.status)) for one in claims]
    for part in mappings(evidence, "verdict", "parts"):
        status = str(part.get("verdict"))
        if status != PROVED:
            lines.append((f"Part `{part.get('name')}` of the specification: {status}, {part.get('reason')}",
                          tone_of(status)))
    for one in mappings(audit):
        if one.get("verdict") in ("undecided", "contradicted"):
            what = "contradict" if one["verdict"] == "contradicted" else "cannot decide"
            line: tuple[str, Tone] = (
                f"The data {what} that the target is {one.get('direction')} in {said(str(one.get('feature')))} "
                f"({one.get('kind')}, {number(one.get('pairs'))} pairs)", "bad" if what == "contradict" else "open")
            lines += [line] if line not in lines else []  # of several outputs the data know the same
    return (Lines(tuple(lines)),) if lines else ()
