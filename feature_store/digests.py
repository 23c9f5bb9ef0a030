"""Content digests: the name of a version of data, equal for equal content.

Flow: ingest and featurize pass them on as `data_version`; cached pipeline steps and bundles record them.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import pandas as pd


def content_digest(content: pd.DataFrame | Path) -> str:
    """SHA-256 (hex) of a frame's columns and values, or of a file's bytes.

    A frame's digest does not depend on its index, on the resolution of its times or on the version of the
    Parquet writer; it does depend on the order of rows and columns.
    """
    if isinstance(content, Path):
        with content.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    digest = hashlib.sha256()
    for name in content.columns:
        values = content[name]
        if pd.api.types.is_numeric_dtype(values.dtype):
            numbers = values.to_numpy(dtype=np.float64, na_value=np.nan) + 0.0  # one zero
            kind, data = "number", np.where(np.isnan(numbers), np.nan, numbers).tobytes()  # one NaN
        else:
            kind, data = "text", _lengths_and_bytes(canonical_texts(values))
            if values.isna().any():  # which of the empty texts are none
                kind, data = "text with gaps", data + np.packbits(values.isna().to_numpy()).tobytes()
        digest.update(json.dumps([str(name), kind, len(values)]).encode() + data)
    return digest.hexdigest()


def _lengths_and_bytes(texts: pd.Series) -> bytes:
    """Lengths of the texts in UTF-8, and the texts one behind the other."""
    import pyarrow as pa

    array = pa.array(texts.to_numpy(dtype=object), type=pa.large_string())
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int64, count=len(array) + 1)
    return np.diff(offsets).tobytes() + bytes(array.buffers()[2] or b"")[:offsets[-1]]


def canonical_texts(values: pd.Series) -> pd.Series:
    """One text for each value, equal for equal values however they are stored (times: ns since 1970, UTC)."""
    if pd.api.types.is_datetime64_any_dtype(values.dtype):
        return values.dt.as_unit("ns").astype("int64").astype("str")
    if pd.api.types.is_numeric_dtype(values.dtype):
        numbers = values.to_numpy(dtype=np.float64, na_value=np.nan) + 0.0
        return pd.Series([repr(number) for number in numbers.tolist()], index=values.index, dtype="str")
    return values.astype("str").fillna("")
