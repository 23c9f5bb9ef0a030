"""Guarantees of the closed loop that bundles carry, and what checks them: their system, which knows the law."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Shipped:
    """A guarantee that goes with a bundle: its file, and what it says."""

    content: bytes
    statement: str


class Checked(Protocol):
    """What a checker answers."""

    @property
    def accepted(self) -> bool:
        """Whether the guarantee holds, by every leaf of its proofs."""

    @property
    def reason(self) -> str:
        """Why not."""

    @property
    def statement(self) -> str:
        """What is guaranteed, in words that the checker makes."""

    @property
    def leaves(self) -> int:
        """Boxes that were proved again."""


class GuaranteeChecker(Protocol):
    """Checks a guarantee of a policy, and never raises on a bad one."""

    def __call__(self, content: bytes, model: bytes, properties: Sequence[Mapping[str, Any]],
                 settings: Mapping[str, float], seconds: float) -> Checked:
        """Args:
        content: of the guarantee's file; model: of the policy's.
        properties: what is proved of the model itself, as specification.yaml has it.
        settings: inputs of the policy that never change.
        seconds: limit.
        """
