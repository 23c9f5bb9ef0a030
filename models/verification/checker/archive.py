"""What the checker asks of a file before it reads on, and the numbers and types that its modules share."""

import io
import zipfile
from collections.abc import Iterable

import numpy as np
import onnx
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
# Unit roundoff of float64, and more than any sum of underflows here comes to.
UNIT, TINY = 2.0**-53, 1e-290
# What an archive of leaves may unfold to: 0.8 MB of zeros are 4 GB.
MOST_BYTES = 128_000_000


class Rejected(Exception):
    """The proof does not hold; the message says why."""


def require_limited(archive: bytes, what: str) -> None:
    """Raises Rejected where a NumPy archive would unfold to more than MOST_BYTES; looks at its directory alone."""
    with zipfile.ZipFile(io.BytesIO(archive)) as content:
        if (size := sum(entry.file_size for entry in content.infolist())) > MOST_BYTES:
            raise Rejected(f"{what} must unfold to at most {MOST_BYTES:,} bytes, got {size:,}")


def require_plain(model: onnx.ModelProto, inputs: Iterable[onnx.ValueInfoProto]) -> None:
    """One meaning a name, and nothing outside of the file: no functions, no sparse and no external weights.

    Raises Rejected where it is not so.
    """
    graph = model.graph
    names = [item.name for item in (*graph.initializer, *inputs)]
    names += [name for node in graph.node for name in node.output]
    if "" in names or len(set(names)) < len(names):
        raise Rejected("every input, weight and node output must have a name of its own")
    elsewhere = any(tensor.data_location or tensor.external_data for tensor in graph.initializer)
    if elsewhere or model.functions or graph.sparse_initializer:
        raise Rejected("weights must stand in the file itself, as dense tensors, and operators must be ONNX's own")
    onnx.checker.check_model(model)
