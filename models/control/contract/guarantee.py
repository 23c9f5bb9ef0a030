"""Guarantees of the closed loop that bundles carry, and what checks them: their system, which knows the law."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from models.verification.checker.archive import Rejected


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


@dataclass(frozen=True)
class Judged:
    """Implements `Checked`."""

    accepted: bool
    reason: str = ""
    statement: str = ""
    leaves: int = 0


def judged(content: bytes, form: str, keys: Sequence[str], statement_of: Callable[[Mapping[str, Any]], str]) -> Judged:
    """Whether a guarantee follows that is a few numbers in JSON and has no leaves; never raises on a bad one.

    Args:
        form: its `format`.
        keys: all else that it holds.
        statement_of: a document of these keys -> what is guaranteed. Raises Rejected where it is not so.
    """
    try:
        document = json.loads(content)
        if set(document) != {"format", *keys} or document["format"] != form:
            raise Rejected(f"guarantee must be {form}, got {str(document)[:200]}")
        return Judged(True, statement=statement_of(document))
    except Rejected as error:
        return Judged(False, str(error))
    except Exception as error:  # a malformed file of any kind is a refusal, not a crash
        return Judged(False, f"guarantee must be readable, got {type(error).__name__}: {error}")
