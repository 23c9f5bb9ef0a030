"""What the checker asks of an archive before it reads on, and the numbers and types that its modules share."""

import io
import zipfile
from collections import Counter

import numpy as np
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
    """Raises Rejected where a NumPy archive would unfold to more than MOST_BYTES, or has two files of one name, of
    which two readers could take either; looks at its directory alone."""
    with zipfile.ZipFile(io.BytesIO(archive)) as content:
        entries = content.infolist()
    if (size := sum(entry.file_size for entry in entries)) > MOST_BYTES:
        raise Rejected(f"{what} must unfold to at most {MOST_BYTES:,} bytes, got {size:,}")
    if repeated := [name for name, count in Counter(entry.filename for entry in entries).items() if count > 1]:
        raise Rejected(f"{what} must hold each file once, got {repeated[0]} twice")
