"""A model, its specification and the proof, as a value that can be tampered with.

`rehashed` does what an attacker does who can compute SHA-256 and knows this project's code: it makes every digest,
sentence, name and count fit again, so that nothing but the proof itself stands in the way.
"""

import contextlib
import copy
import hashlib
import io
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import yaml
from numpy.typing import ArrayLike, NDArray

from feature_store.errors import InputError
from models.verification.execution import execution_of
from models.verification.language.claim import read_claim
from models.verification.network.onnx_reader import read_onnx
from models.verification.proof_document import FORMAT, PROVED, proof_bytes, read_document, trees_digest
from models.verification.proof_file import ProofCheck, check_proof
from models.verification.verdict import BoxTree


@dataclass(frozen=True)
class Proof:
    """The content of the three files that a stranger needs."""

    model: bytes
    specification: bytes
    proof: bytes

    @classmethod
    def read(cls, folder: Path) -> "Proof":
        """The files of a bundle that is proved."""
        return cls(*((folder / name).read_bytes() for name in ("model.onnx", "specification.yaml", "proof.npz")))

    def write(self, folder: Path) -> tuple[Path, Path, Path]:
        """The files, in the order that `check_proof` takes them: proof, model, specification."""
        paths = folder / "proof.npz", folder / "model.onnx", folder / "specification.yaml"
        for path, content in zip(paths, (self.proof, self.model, self.specification), strict=True):
            path.write_bytes(content)
        return paths

    def check(self, folder: Path) -> ProofCheck:
        """The independent checker's answer; what no proof can be about counts as refused."""
        try:
            return check_proof(*self.write(folder))
        except InputError as error:
            return ProofCheck(False, str(error))

    def rehashed(self) -> "Proof":
        """With everything that an attacker can compute anew: digests, sentences, names and leaves of the parts."""
        document: dict[str, Any] = {"format": FORMAT, "verdict": PROVED, "statement": "", "execution": "", "parts": []}
        with contextlib.suppress(Exception):
            document |= {key: value for key, value in self.document.items() if key in document}
        document |= {"model_sha256": hashlib.sha256(self.model).hexdigest(),
                     "specification_sha256": hashlib.sha256(self.specification).hexdigest()}
        with contextlib.suppress(Exception), tempfile.TemporaryDirectory() as temporary:  # what cannot be read
            path = Path(temporary) / "specification.yaml"
            path.write_bytes(self.specification)
            network = read_onnx(self.model)
            claim = read_claim(path, network.graph, network.number)
            document |= {"statement": claim.statement, "parts": [
                {"name": part.name, "leaves": int((dimension == -1).sum())}
                for part, (dimension, _) in zip(claim.parts, self.trees, strict=True)]}
            document["execution"] = execution_of(self.model, network.graph, claim).sentence
        with contextlib.suppress(Exception):
            document["trees_sha256"] = trees_digest(_trees(self.trees))
            return replace(self, proof=_archive(document, self.trees))
        return self  # the archive cannot be read: there is nothing to keep

    @property
    def graph(self) -> onnx.ModelProto:
        """A fresh copy of the parsed model."""
        return onnx.load_model_from_string(self.model)

    @property
    def claim(self) -> dict[str, Any]:
        """A fresh copy of the parsed specification."""
        parsed: dict[str, Any] = yaml.safe_load(self.specification)
        return parsed

    @property
    def document(self) -> dict[str, Any]:
        """What the proof says of itself."""
        return read_document(self.proof)

    @property
    def leaves(self) -> int:
        """Boxes of all parts."""
        return sum(part["leaves"] for part in self.document["parts"])

    @property
    def trees(self) -> list[tuple[NDArray[Any], NDArray[Any]]]:
        """split_dimension and split_value of each part."""
        with np.load(io.BytesIO(self.proof), allow_pickle=False) as arrays:
            count = sum(name.startswith("dimension_") for name in arrays.files)
            return [(arrays[f"dimension_{k}"].copy(), arrays[f"value_{k}"].copy()) for k in range(count)]

    @property
    def tree(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Those of the first part."""
        return self.trees[0]

    def with_graph(self, model: onnx.ModelProto) -> "Proof":
        """With another graph, digests as they were."""
        return replace(self, model=model.SerializeToString())

    def with_tree(self, dimension: ArrayLike, value: ArrayLike) -> "Proof":
        """With another split tree in the first part, digests as they were."""
        return replace(self, proof=_archive(self.document, [(np.asarray(dimension), np.asarray(value)),
                                                            *self.trees[1:]]))

    def with_claim(self, path: tuple[Any, ...], value: Any) -> "Proof":
        """With another value at this place of the specification."""
        return self.claiming(changed(self.claim, *path, to=value))

    def claiming(self, claim: Any) -> "Proof":
        """With another specification."""
        return replace(self, specification=yaml.safe_dump(claim, sort_keys=False).encode())

    def saying(self, document: Any) -> "Proof":
        """With another document in the proof."""
        return replace(self, proof=_archive(document, self.trees))


def changed(value: Any, *path: Any, to: Any) -> Any:
    """A deep copy with one entry replaced."""
    if not path:
        return to
    value = copy.deepcopy(value)
    place = value
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = to
    return value


Arrays = list[tuple[NDArray[Any], NDArray[Any]]]


def _trees(arrays: Arrays) -> list[BoxTree]:
    return [BoxTree(dimension, value) for dimension, value in arrays]


def _archive(document: Any, arrays: Arrays) -> bytes:
    return proof_bytes(document, _trees(arrays))
