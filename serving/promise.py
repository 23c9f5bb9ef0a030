"""What a bundle promises: its contract, and the specification that was proved, read from the bundle's own files.

The specification is read by the code that the proof was made with (models/verification/language); what the contract
repeats of it must be the same. No torch, no ONNX.
"""

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from feature_store.errors import InputError, RefusedError
from models.verification.language.specification import Specification
from models.verification.network.fed_numbers import as_fed
from serving.contract import SPECIFICATION_FILE, Contract

FED = np.dtype(np.float32)  # what a controller feeds a model with
_REQUIRED = ("features", "outputs", "box", "tolerance", "properties")  # nothing may be left to what a reader measures


@dataclass(frozen=True)
class Promise:
    """What goes in and comes out, and what holds of it."""

    contract: Contract
    specification: Specification


def read_promise(contract: Contract, content: bytes, where: str) -> Promise:
    """The promise of a contract and of the content of specification.yaml.

    Raises:
        RefusedError: the file is another one than the contract's, cannot be read, or says something else.
    """
    digest = hashlib.sha256(content).hexdigest()
    if digest != contract.specification.sha256:
        raise RefusedError(f"contract's specification sha256 must be {digest}, got {contract.specification.sha256} "
                           f"({where})")
    place = f"{where}/{SPECIFICATION_FILE}"
    try:
        specification = _specification(content, len(contract.inputs), len(contract.outputs), place)
        _require_same(contract, specification, where)
    except UnicodeDecodeError as error:
        raise RefusedError(f"specification must be UTF-8, got {error} ({place})") from error
    except InputError as error:
        # The caller's input is a folder; a bundle with a broken file in it is refused, not mistyped.
        raise RefusedError(str(error)) from error
    return Promise(contract, specification)


@lru_cache(maxsize=16)  # registering opens one bundle several times
def _specification(content: bytes, inputs: int, outputs: int, place: str) -> Specification:
    # PyYAML, which takes longer to import than all else that a check needs
    from feature_store.strict_yaml import parse_yaml
    from models.verification.language.specification_language import parse_file

    data = parse_yaml(content.decode("utf-8"), "specification", place)
    missing = [key for key in _REQUIRED if not isinstance(data, dict) or key not in data]
    if missing:
        raise InputError(f"specification of a bundle must give {', '.join(missing)}, got none ({place})")
    return parse_file(data, inputs, outputs, place)


def _require_same(contract: Contract, specification: Specification, where: str) -> None:
    """What the contract repeats of the specification."""
    names, units = specification.feature_names, specification.units
    boxes = zip(specification.lower.tolist(), specification.upper.tolist(), strict=True)
    facts: dict[str, tuple[Any, Any]] = {
        "inputs": ([item.name for item in contract.inputs], list(names)),
        "outputs": ([item.name for item in contract.outputs], list(specification.output_names)),
        "units": ({**{item.name: item.unit for item in contract.inputs if item.unit},
                   **{item.name: item.unit for item in contract.outputs if item.unit}}, dict(units)),
        "box": ([(item.minimum, item.maximum) for item in contract.inputs], list(boxes)),
        "values": ({i: item.values for i, item in enumerate(contract.inputs) if item.values is not None},
                   dict(specification.choices)),
        "one_hot": (contract.one_hot, tuple(tuple(names[i] for i in group) for group in specification.one_hot)),
        "statement": (contract.specification.statement, as_fed(specification, FED).statement)}
    for what, (said, proved) in facts.items():
        if said != proved:
            raise RefusedError(f"contract's {what} must be the specification's, {proved}, got {said} ({where})")
