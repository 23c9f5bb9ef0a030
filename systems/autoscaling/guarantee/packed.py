"""A guarantee as one file, which a bundle carries: what it is about, its document and its proofs, packed.

A NumPy archive: `about`, JSON in UTF-8, and the folder's document and proofs under their names, as bytes. Chains and
claims are left out: whoever checks makes them again.
"""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from models.verification.checker.archive import Rejected, require_limited
from systems.autoscaling.guarantee.check_scaler_guarantee import DOCUMENT

ABOUT = "about"
MOST_FILES = 1000
PROOFS = "replicas_*.npz"


def packed(folder: Path, about: Mapping[str, Any]) -> bytes:
    """The content of the file. folder: as `scaler_guarantee` left it; about: plain values."""
    parts = {path.name: path.read_bytes() for path in (folder / DOCUMENT, *sorted(folder.glob(PROOFS)))}
    parts[ABOUT] = json.dumps(about, allow_nan=False).encode()
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False,
                        **{name: np.frombuffer(content, dtype=np.uint8) for name, content in parts.items()})
    return file.getvalue()


def unpacked(content: bytes, folder: Path) -> dict[str, Any]:
    """Writes document and proofs to the folder, and returns what they are about.

    Raises Rejected where the file is no such archive, or holds anything else.
    """
    try:
        require_limited(content, "guarantee")
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            parts = {name: arrays[name] for name in arrays.files[:MOST_FILES]}
        about: dict[str, Any] = json.loads(parts.pop(ABOUT).tobytes())
        for name, part in parts.items():
            if not (name == DOCUMENT or Path(name).match(PROOFS)) or Path(name).name != name:
                raise Rejected(f"guarantee must hold {ABOUT}, {DOCUMENT} and {PROOFS}, got {name!r:.100}")
            (folder / name).write_bytes(part.tobytes())
    except Rejected:
        raise
    except Exception as error:  # a malformed file of any kind is a refusal, not a crash
        raise Rejected(f"guarantee must be readable, got {type(error).__name__}: {error}") from error
    return about
