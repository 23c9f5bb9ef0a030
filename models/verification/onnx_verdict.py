"""What was decided of a file and a specification: the verdict, its parts, and the counterexample."""

import math
from dataclasses import dataclass
from typing import Any

from models.verification.language.amounts import asked
from models.verification.verdict import Status


@dataclass(frozen=True)
class PartVerdict:
    """One kind of obligation and how its proof ended."""

    name: str
    status: Status
    reason: str
    seconds: float
    boxes: int
    proved_share: float
    lower_bound: float

    def to_json(self) -> dict[str, Any]:
        """Plain values; a lower bound that is no finite number is null."""
        bound = self.lower_bound if math.isfinite(self.lower_bound) else None
        return {"name": self.name, "verdict": str(self.status), "reason": self.reason, "seconds": self.seconds,
                "boxes": self.boxes, "proved_share": self.proved_share, "lower_bound": bound}


@dataclass(frozen=True)
class OnnxVerdict:
    """The verdict on a file and a property.

    statement: what a proof says; documents say of what is not proved that it is asked.
    witness: None, or {"points": [{"inputs", "outputs"}, ...], "units", "replayed_with"}, plain values by name; of a
    pair the lower value comes first. Outputs that are no finite numbers are "Infinity", "-Infinity" and "NaN".
    certificate: None where none was asked for or nothing is proved; {"file", "leaves"}.
    execution: what executing the file adds to the statement, in words (execution.py).
    """

    status: Status
    parts: tuple[PartVerdict, ...]
    statement: str
    witness: dict[str, Any] | None
    seconds: float
    model_sha256: str
    specification_sha256: str
    certificate: dict[str, Any] | None = None
    execution: str = ""

    @property
    def verdict(self) -> str:
        """PROVED, REFUTED, UNKNOWN or TIMEOUT."""
        return str(self.status)

    @property
    def reason(self) -> str:
        """How it ended, in words."""
        if len(self.parts) <= 1:
            return self.parts[0].reason if self.parts else "no two inputs of the box can be compared"
        return f"{sum(part.status is Status.PROVED for part in self.parts)} of {len(self.parts)} parts proved"

    def evidence(self) -> dict[str, Any]:
        """What a bundle's evidence keeps of it: strict JSON."""
        document = self.to_json()
        told = ("reason", "statement", "execution", "seconds", "boxes", "proved_share", "parts", "witness")
        return {"status": self.verdict, **{key: document[key] for key in told},
                "leaves": 0 if self.certificate is None else self.certificate["leaves"]}

    def to_json(self) -> dict[str, Any]:
        """The document that --json prints: strict JSON."""
        statement = self.statement if self.status is Status.PROVED else asked(self.statement)
        return {"verdict": self.verdict, "reason": self.reason, "statement": statement, "seconds": self.seconds,
                "boxes": sum(part.boxes for part in self.parts),
                "proved_share": min((part.proved_share for part in self.parts), default=1.0),
                "parts": [part.to_json() for part in self.parts], "witness": self.witness,
                "model_sha256": self.model_sha256, "specification_sha256": self.specification_sha256,
                "certificate": self.certificate, "execution": self.execution}
