"""Digest of a measurement that depends on a task's file: of its code (code_digest.py) and all that the file says."""

import hashlib

from pydantic import BaseModel


def with_task(task: BaseModel, *codes: str) -> str:
    """The first 16 hex digits of digests of code, and of the task as it was read."""
    return hashlib.sha256("\0".join([*codes, task.model_dump_json()]).encode()).hexdigest()[:16]
