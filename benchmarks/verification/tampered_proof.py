"""A model, what is claimed about it and the certificate, as a value that can be tampered with.

`rehashed` does what an attacker does who can compute SHA-256: it makes every digest fit again, so that nothing but the
proof itself stands in the way.
"""

import contextlib
import copy
import hashlib
import io
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike, NDArray

from models.export.bundle import specification_digest
from models.verification.checker.check import CheckResult, check_certificate


@dataclass(frozen=True)
class Proof:
    """What check_certificate takes."""

    model: bytes
    contract: dict[str, Any]
    certificate: dict[str, Any]
    leaves: bytes

    @classmethod
    def read(cls, folder: Path) -> "Proof":
        """The files of a bundle that is proved."""
        contract, certificate = (json.loads((folder / f"{name}.json").read_text())
                                 for name in ("contract", "certificate"))
        return cls((folder / "model.onnx").read_bytes(), contract, certificate,
                   (folder / "certificate.npz").read_bytes())

    def check(self, folder: Path) -> CheckResult:
        """The independent checker's answer."""
        model, leaves = folder / "model.onnx", folder / "certificate.npz"
        model.write_bytes(self.model)
        leaves.write_bytes(self.leaves)
        return check_certificate(model, self.contract, self.certificate, leaves)

    def rehashed(self) -> "Proof":
        """With everything that an attacker can compute anew: digests, number of leaves, what the contract repeats."""
        contract, certificate = copy.deepcopy(self.contract), copy.deepcopy(self.certificate)
        contract["model"]["sha256"] = certificate["model_sha256"] = hashlib.sha256(self.model).hexdigest()
        certificate["leaves_sha256"] = hashlib.sha256(self.leaves).hexdigest()
        certificate["specification_sha256"] = specification_digest(contract)
        certificate |= {key: contract["specification"][key] for key in ("tolerance", "statement")}
        certificate |= {"lower_bound": -1e300, "rounding": 1e300}  # claims nothing beyond the tolerance
        with contextlib.suppress(Exception):  # the leaves are no archive: nothing to count
            certificate["leaves"] = int((self.tree[0] == -1).sum())
        return replace(self, contract=contract, certificate=certificate)

    @property
    def graph(self) -> onnx.ModelProto:
        """A fresh copy of the parsed model."""
        return onnx.load_model_from_string(self.model)

    @property
    def tree(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """split_dimension and split_value."""
        with np.load(io.BytesIO(self.leaves), allow_pickle=False) as arrays:
            return arrays["split_dimension"].copy(), arrays["split_value"].copy()

    def with_graph(self, model: onnx.ModelProto) -> "Proof":
        """With another graph, digests as they were."""
        return replace(self, model=model.SerializeToString())

    def with_tree(self, dimension: ArrayLike, value: ArrayLike) -> "Proof":
        """With another split tree, digests as they were."""
        file = io.BytesIO()
        np.savez_compressed(file, split_dimension=np.asarray(dimension), split_value=np.asarray(value))
        return replace(self, leaves=file.getvalue())

    def with_contract(self, path: tuple[Any, ...], value: Any) -> "Proof":
        """With another value at this place of the contract."""
        contract = copy.deepcopy(self.contract)
        place: Any = contract
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        return replace(self, contract=contract)
