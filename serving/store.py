"""What the lifecycle of a model version needs of a model registry. MLflow's is serving/registry.py."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class StoredVersion:
    """A model version as the registry shows it; `stage` is "" where it has none."""

    tags: Mapping[str, str]
    description: str = ""
    stage: str = ""


@dataclass(frozen=True)
class StoredModel:
    """A registered model as the registry shows it.

    Attributes:
        head: its head tag, None where there is none.
        aliases: the version of every alias.
        versions: by number.
    """

    head: str | None = None
    aliases: Mapping[str, int] = field(default_factory=dict)
    versions: Mapping[int, StoredVersion] = field(default_factory=dict)


class Store(AliasStore, Protocol):
    """What the lifecycle needs of a model registry. Methods raise AssayError where the store fails."""

    def upload(self, bundle: Bundle, run_id: str | None, ticket: str, data_path: Path | None) -> Upload:
        """Uploads a bundle; everything made for it carries the ticket."""

    def fetched(self, location: str) -> AbstractContextManager[Path]:
        """The bundle folder at a location; a temporary copy where the store is not local."""

    def location(self, model: str, version: int) -> str:
        """Location of a version's bundle."""

    def served_model(self, location: str) -> bytes:
        """The registry's own copy of the ONNX file beside the bundle at a location, which its tools load."""

    def put_signature(self, location: str, signature: Path) -> None:
        """Replaces the signature of the bundle at a location by this file, perhaps the very one that lies there."""

    def copies(self, sha256: str) -> Sequence[str]:
        """Locations of uploaded bundles that claim this digest, whether a version is made of them or not."""

    def create_version(
        self, model: str, upload: Upload, tags: Mapping[str, str], description: str, above: int
    ) -> int:
        """Makes a model version whose number is larger than `above`."""

    def tags(self, model: str) -> dict[int, dict[str, str]]:
        """Tags of every version of a model, empty where there is no such model."""

    def models(self) -> dict[str, StoredModel]:
        """All of the project's registered models, by name, as they stand now."""

    def set_description(self, model: str, version: int, text: str) -> None:
        """Writes a version's description."""

    def clear_stage(self, model: str, version: int) -> None:
        """Takes a version out of every stage."""

    def discard(self, ticket: str, model: str, keep: Mapping[int, str]) -> None:
        """Removes what carries the ticket, unless its version is one to keep: number -> the bundle's digest."""
