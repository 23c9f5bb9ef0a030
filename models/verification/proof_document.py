"""The content of a proof's file: what it is about, and the split trees. Reads alone, in NumPy; checks nothing.

The file is a NumPy archive: `document`, JSON in UTF-8, and for part k of the property the split trees of its boxes,
one after the other in preorder: `dimension_k`, `value_k` (m,). The document:

    format, verdict                        "assay-proof/1", "PROVED"
    model_sha256, specification_sha256     hex digests of the two files that it is about
    statement, execution                   what was proved and what executing the file adds, in words
    parts                                  [{"name", "leaves"}, ...], in the order of the property's parts
    trees_sha256                           hex digest of the arrays, of type, shape and content of each in turn
"""

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feature_store.errors import RefusedError
from feature_store.strict_json import parse_json
from models.verification.checker.archive import Rejected, require_limited
from models.verification.verdict import BoxTree

FORMAT = "assay-proof/1"
PROVED = "PROVED"
KEYS = ("format", "verdict", "model_sha256", "specification_sha256", "statement", "execution", "parts", "trees_sha256")
MOST_SPLITS = 4_000_000  # proofs of two minutes' search have some 100,000 boxes


def read_document(content: bytes) -> dict[str, Any]:
    """The document alone. Raises Rejected where the file is no such archive."""
    try:
        require_limited(content, "proof")
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return parse_json(arrays["document"].tobytes(), "proof's document")
    except Rejected:
        raise
    except RefusedError as error:
        raise Rejected(str(error)) from error
    except Exception as error:  # a malformed file of any kind is a refusal, not a crash
        raise Rejected(f"proof must be readable, got {type(error).__name__}: {error}") from error


def read_trees(content: bytes, parts: int) -> Sequence[BoxTree]:
    """A tree for each part. Raises Rejected where there are others, or too many boxes."""
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        names = {f"{name}_{k}" for k in range(parts) for name in ("dimension", "value")}
        if set(arrays.files) != names | {"document"}:
            raise Rejected(f"proof must hold a tree for each part and nothing else, got {', '.join(arrays.files)}")
        trees = [BoxTree(arrays[f"dimension_{k}"], arrays[f"value_{k}"]) for k in range(parts)]
    if (splits := sum(tree.split_dimension.size for tree in trees)) > MOST_SPLITS:
        raise Rejected(f"proof must have at most {MOST_SPLITS:,} boxes, got {splits:,}")
    return trees


def trees_digest(trees: Sequence[BoxTree]) -> str:
    """Hex SHA-256 of split trees."""
    digest = hashlib.sha256()
    for tree in trees:
        for array in (tree.split_dimension, tree.split_value):
            digest.update(f"{array.dtype.str} {array.shape} ".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def proof_bytes(document: Mapping[str, Any], trees: Sequence[BoxTree]) -> bytes:
    """The file's content."""
    arrays: dict[str, NDArray[Any]] = {"document": np.frombuffer(json.dumps(document).encode(), dtype=np.uint8)}
    for k, tree in enumerate(trees):
        arrays |= {f"dimension_{k}": tree.split_dimension, f"value_{k}": tree.split_value}
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **arrays)
    return file.getvalue()
