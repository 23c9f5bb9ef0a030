"""What a reviewer sees of a model version in the registry: its tags and its gate table. Pure."""

from models.gates import PROVED
from models.verification.language.amounts import asked
from serving.bundle import Bundle
from serving.model_function import function_digest

# Marks everything that one registration has made, so that a later process can find what it left.
TICKET_TAG = "assay.ticket"
FUNCTION_TAG = "function_sha256"
LONGEST_TAG = 4000  # MLflow takes 5000 characters


def version_tags(
    bundle: Bundle, gates_passed: bool, reason: str, command: str = "", ticket: str = ""
) -> dict[str, str]:
    """Tags of the model version: what it is, what it was made from, how to make it again.

    Args:
        reason: why it became what it is, as the ledger says.
        command: command line that reproduces the version.
        ticket: id of the registration.
    """
    contract = bundle.contract
    verdict = bundle.evidence.get("verdict")
    status = verdict.get("status") if isinstance(verdict, dict) else None
    tags = {
        "task": contract.task,
        "workload": contract.workload,
        "verdict": str(status),
        "gates_passed": str(gates_passed).lower(),
        "gates": _gates(bundle),
        "decision": reason,
        "data_version": contract.data_version,
        "code_version": contract.code_version,
        "seed": str(contract.seed),
        "model_sha256": contract.model.sha256,
        FUNCTION_TAG: function_digest(bundle.model),
        "bundle_sha256": bundle.sha256,
        "reproduce": command,
        TICKET_TAG: ticket,
    }
    return {key: value[:LONGEST_TAG] for key, value in tags.items() if value}


def _gates(bundle: Bundle) -> str:
    gates = bundle.gates.gates
    failed = [gate.name for gate in gates if not gate.passed]
    return f"{len(gates) - len(failed)} of {len(gates)}" + (f", failed: {', '.join(failed)}" if failed else "")


def gate_table(bundle: Bundle) -> str:
    """The version's description: statement and gates as Markdown."""
    statement, proved = bundle.contract.specification.statement, bundle.proof.get("verdict") == PROVED
    lines = [
        f"**{statement if proved else asked(statement)}**",
        "",
        "| gate | passed | metric | value | | threshold | unit | cases | reason |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for gate in bundle.gates.gates:
        cells = [gate.name, "yes" if gate.passed else "NO", gate.metric, _cell(gate.value), gate.comparison,
                 _cell(gate.threshold), gate.unit, _cell(gate.cases), gate.reason]  # fmt: skip
        lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    return "\n".join(lines)


def _cell(value: float | str | None) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, (int, float)) else value
