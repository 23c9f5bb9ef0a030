"""The checkers of guarantees that bundles carry: one an environment, which knows the law that a guarantee is about.

An environment that comes with Assay may have a module `guarantee_check` with a function `check_shipped`, a
`GuaranteeChecker`. No torch: it runs beside a controller.
"""

import importlib
import importlib.util
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from feature_store.errors import InputError

NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Shipped:
    """A guarantee that goes with a bundle: the environment whose checker knows it, the file, and what it says."""

    environment: str
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


def guarantee_checker_of(environment: str) -> GuaranteeChecker:
    """The checker of an environment that comes with Assay. Raises InputError where there is none."""
    module = f"{__package__}.{environment}.guarantee_check"
    if not NAME.fullmatch(environment) or importlib.util.find_spec(f"{__package__}.{environment}") is None or \
            importlib.util.find_spec(module) is None:
        raise InputError("guarantee must be of an environment that comes with Assay and has a law, got "
                         f"{environment!r:.100}")
    checker: GuaranteeChecker = importlib.import_module(module).check_shipped
    return checker
