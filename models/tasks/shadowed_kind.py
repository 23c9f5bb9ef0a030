"""What a kind of task offers whose policies can be watched in shadow (`assay control --shadow`); may be left out."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable


@dataclass(frozen=True)
class ShadowedPolicy:
    """Of a checked bundle. rule, settings: of its fallback."""

    model: bytes
    version: str
    rule: str
    settings: Mapping[str, float | str]


@runtime_checkable
class ShadowedKind(Protocol):
    """A `Kind` that can say what a shadow would have come to."""

    def shadow_report(self, task: Any, workload: str, folder: Path, policy: ShadowedPolicy,
                      task_path: str) -> tuple[dict[str, Any], str]:
        """Numbers and sentences as JSON (`verdict`, `doubts`, `next` among them), and one page as HTML.

        Args:
            folder: of the shadow; its log is in `steps`.
            policy: whose replay is asked for.
            task_path: as the user named the task.

        Raises:
            InputError: there is no log of a shadow of this task and workload, or the system lacks the fallback.
        """
