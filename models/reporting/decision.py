"""The first screen of a version's page: may it ship, and if not why; what is guaranteed; how it stands to the champion.

Flow: report.py puts it above everything else. What registration decided is said in plain words; its sentence in the
ledger, with all numbers, is one fold away.
"""

from collections.abc import Mapping
from typing import Any

from models.reporting.champion_section import against_champion
from models.reporting.document import Beside, Decision, Fold, Note, Part
from models.reporting.formatting import count
from models.reporting.gate_words import failure
from models.reporting.promises import on_demand, open_claims, promised
from models.reporting.reading import at, mapping, mappings, role
from models.tasks.pages import Pages

Json = Mapping[str, Any]

# How registration says it (serving/registration.py, succession.py, specification_change.py).
WAITS = "waits for assay promote"
BETTER, WEAKER = "better_than_champion", "specification_not_weaker does not hold"
FIRST = "no champion yet"


def first_screen(contract: Json | None, evidence: Json | None, gates: Json | None, context: Json,
                 pages: Pages) -> tuple[Part, ...]:
    """The decision and the headline; guarantee and champion side by side, the worst cases in the shorter column."""
    version, ledger = at(evidence, "champion", "version"), str(context.get("decision") or "")
    before = " before it" if role(context) == "champion" else ""
    named = "" if version is None else f"{before}, version {version}"
    claims, worst = pages.claims(evidence), pages.worst(evidence)
    guaranteed = (*promised(evidence, open_claims(evidence, context.get("audit"), claims)),
                  *on_demand(contract, evidence, claims))
    against = against_champion(contract, evidence, gates, pages)
    if BETTER in ledger or WEAKER in ledger:
        against += (Fold("What registration wrote into the ledger", (Note(ledger),)),)
    return (decision(evidence, gates, context), pages.headline(evidence, gates), Beside((
        ("What is guaranteed, and what is not", guaranteed if version is None else (*guaranteed, *worst)),
        (f"Against the champion{named}", (*against, *worst) if version is None else against))))


def decision(evidence: Json | None, gates: Json | None, context: Json) -> Decision:
    """Whether the version ships, waits, or may not ship, and why."""
    results, version = mappings(gates, "gates"), context.get("version")
    named = "this version" if version is None else f"version {version}"
    if not results:
        return Decision("May not ship: its gates were not evaluated.", "bad",
                        ("There is no gate report; such a version is not promoted.",))
    failed = [gate for gate in results if gate.get("passed") is not True]
    if not failed and at(gates, "passed") is not True:
        return Decision("May not ship: its gate report does not say that the gates hold.", "bad")
    if failed:
        fails = f"{len(failed)} of {count(len(results), 'gate')} {'fails' if len(failed) == 1 else 'fail'}"
        return Decision(f"May not ship: {fails}.", "bad", tuple(failure(gate, evidence) for gate in failed))
    hold, ledger = f"all {count(len(results), 'gate')} hold", str(context.get("decision") or "")
    if role(context) == "champion":
        return Decision(f"Ships: {named} is the champion, {hold}.", "good", _reasons(ledger))
    if WAITS in ledger:
        return Decision(f"Waits for approval: {hold}.", "open", (*_reasons(ledger), _promote(evidence)))
    if role(context) == "challenger":
        return Decision(f"Does not ship by itself: {hold}, but it stays challenger.", "open",
                        (*_reasons(ledger), _promote(evidence)))
    if version is None:
        return Decision(f"May ship: {hold}. It is not registered yet.", "good", _reasons(ledger))
    return Decision(f"Does not ship: {hold}, but {named} is neither champion nor challenger.", "open",
                    _reasons(ledger))


def _promote(evidence: Json | None) -> str:
    where = mapping(evidence).get("workload", "WORKLOAD")
    return f"`assay promote --task {mapping(evidence).get('task', 'TASK')} --workload {where}` makes it champion."


def _reasons(ledger: str) -> tuple[str, ...]:
    """What registration decided by, in plain words; the numbers stand beside the champion's."""
    if ledger.startswith(FIRST):
        return ("There is no champion yet." if WAITS in ledger else "There was no champion before it.",)
    if BETTER not in ledger:
        plain = ledger.replace(f"; {WAITS}", "")
        return (f"At registration: {plain}.",) if plain else ()
    reasons = []
    if f"{BETTER} does not hold" in ledger:
        reasons.append("It is not better than the champion by more than luck explains.")
    if f"{BETTER} holds" in ledger:
        reasons.append("It is better than the champion by more than luck explains.")
    if WEAKER in ledger:
        reasons.append("It promises less than the champion.")
    reasons += [f"{part}." for part in ledger.split("; ") if part.startswith("model.onnx ")]
    return tuple(reasons)
