"""What the lifecycle of a model version needs of a model registry. MLflow's is serving/registry.py."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from serving.bundle import Bundle
from serving.promotion import AliasStore


@dataclass(frozen=True)
class Upload:
    """Where an uploaded bundle lies.

    Attributes:
        run_id: run that it belongs to.
        source: what a model version is made from.
        location: what `Store.fetched` reads the bundle from.
    """

    run_id: str
    source: str
    location: str


class Store(AliasStore, Protocol):
    """What the lifecycle needs of a model registry. Methods raise AssayError where the store fails."""

    def upload(self, bundle: Bundle, run_id: str | None, ticket: str, data_path: Path | None) -> Upload:
        """Uploads a bundle; everything made for it carries the ticket."""

    def fetched(self, location: str) -> AbstractContextManager[Path]:
        """The bundle folder at a location; a temporary copy where the store is not local."""

    def location(self, model: str, version: int) -> str:
        """Location of a version's bundle."""

    def copies(self, sha256: str) -> Sequence[str]:
        """Locations of uploaded bundles that claim this digest, whether a version is made of them or not."""

    def create_version(
        self, model: str, upload: Upload, tags: Mapping[str, str], description: str, above: int
    ) -> int:
        """Makes a model version whose number is larger than `above`."""

    def tags(self, model: str) -> dict[int, dict[str, str]]:
        """Tags of every version of a model, empty where there is no such model."""

    def discard(self, ticket: str, model: str, keep: Collection[int]) -> None:
        """Removes what carries the ticket, unless its version is one to keep."""
