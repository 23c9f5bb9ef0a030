"""What monotonicity comes down to: signs of partial derivatives."""

from dataclasses import dataclass

from models.verification.network.graph import FloatArray


@dataclass(frozen=True)
class Slopes:
    """Must hold: rows[f] @ dy/dx[features[f]] >= -allowed[f]. features (F,), rows (F, o), allowed (F,)."""

    features: tuple[int, ...]
    rows: FloatArray
    allowed: FloatArray
