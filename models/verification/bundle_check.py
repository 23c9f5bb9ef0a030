"""What is checked of a bundle's model before it is signed, and by `assay check`: its certificate, and how it runs.

The certificate is about the network as model_file.py reads it; what answers is onnxruntime. So both must hold: the
independent checker proves the leaves again, and onnxruntime computes what was read. No torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from feature_store.errors import InputError
from models.verification.checker.check import CheckResult, check_certificate
from models.verification.checker.model_file import Array, read_model
from models.verification.network.runtime_agreement import chain_stages, require_agreement


@dataclass(frozen=True)
class _Box:
    lower: Array
    upper: Array


def check_exported(
    model_path: Path, contract: Mapping[str, Any], certificate: Mapping[str, Any], leaves_path: Path,
) -> CheckResult:
    """As `check_certificate`, and then the file in onnxruntime at points of the contract's box. Never raises."""
    result = check_certificate(model_path, contract, certificate, leaves_path)
    if not result.accepted:
        return result
    try:
        model = model_path.read_bytes()
        walls = np.array([[entry["minimum"], entry["maximum"]] for entry in contract["inputs"]], dtype=np.float64)
        network = read_model(model)
        require_agreement(model, certificate["model_sha256"], chain_stages(*network.chain),
                          [_Box(walls[None, :, 0], walls[None, :, 1])], model_path.name, np.dtype(network.dtype))
    except InputError as error:
        return CheckResult(False, str(error))
    except Exception as error:  # a malformed file of any kind is a refusal, not a crash
        return CheckResult(False, f"model must be one that onnxruntime runs, got {type(error).__name__}: {error}")
    return result
