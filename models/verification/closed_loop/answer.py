"""What the check of a guarantee of the closed loop answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class GuaranteeCheck:
    """Whether a guarantee holds, by every leaf of its proofs, and what it says.

    Attributes:
        reason: why not.
        leaves: boxes that were proved again.
        statement: what is guaranteed, in words that the checker makes.
        about: what another guarantee must be about, word for word, to be compared with this one by its numbers.
        at_most: what is counted, with its unit -> number; less is stronger. None where guarantees are equal or differ.
    """

    accepted: bool
    reason: str = ""
    leaves: int = 0
    statement: str = ""
    about: str = ""
    at_most: Mapping[str, float] = field(default_factory=dict)
