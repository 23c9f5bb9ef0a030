"""What the check of a guarantee of the closed loop asks of its document. No code of the search."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from feature_store.errors import InputError
from models.verification.checker.archive import Rejected
from models.verification.checker.chain import Chain
from models.verification.closed_loop.answer import GuaranteeCheck
from models.verification.verdict import Status


def policy_digest(policy: Chain) -> str:
    """Hex SHA-256 of a policy's weights, ReLUs and types. Raises InputError: a weight of it is rounded."""
    if not policy.exact:
        raise InputError("policy must have the file's own weights, got a division: multiply by the inverse instead")
    digest = hashlib.sha256(repr((policy.relus, policy.fed.str, policy.executed.str)).encode())
    for array in (*policy.weights, *policy.biases):
        digest.update(f"{array.shape} ".encode() + np.ascontiguousarray(array, dtype=np.float64).tobytes())
    return digest.hexdigest()


def require_said(document: Mapping[str, Any], statement: str) -> None:
    """Raises Rejected unless the document's sentence is this one."""
    if document["statement"] != statement:
        raise Rejected(f"statement must be what was proved, {statement!r}, got {str(document['statement'])[:500]!r}")


def checked_document(path: Path, keys: Sequence[str], policy: Chain, given: Mapping[str, Any],
                     derived: Callable[[Mapping[str, Any]], GuaranteeCheck]) -> GuaranteeCheck:
    """Whether a guarantee's document is of this policy and PROVED, and what it claims is. Never raises: refuses.

    Args:
        keys: what the document holds, all of it.
        given: what it must say word for word: the law, the observation.
        derived: checks what the document claims, its statement too, and every leaf of its proofs, and says what
            follows; raises whatever it likes.
    """
    try:
        document = json.loads(path.read_text())
        if document["status"] != str(Status.PROVED):
            raise Rejected(f"guarantee must be PROVED, got {document['status']!r:.40}")
        if set(document) != set(keys):
            raise Rejected(f"guarantee must hold {', '.join(keys)}, got {', '.join(sorted(document))[:500]}")
        if document["policy_sha256"] != policy_digest(policy):
            raise Rejected("policy must be the one that the guarantee is about, its SHA-256 differs")
        for name, value in given.items():
            if document[name] != value:
                raise Rejected(f"{name} must be the one that is asked about, got {str(document[name])[:500]}")
        return derived(document)
    except (Rejected, InputError) as error:
        return GuaranteeCheck(False, str(error))
    except Exception as error:  # a malformed folder of any kind is a refusal, not a crash
        return GuaranteeCheck(False, f"guarantee must be readable, got {type(error).__name__}: {error}")
