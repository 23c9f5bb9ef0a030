"""What the checker asks of an archive before it reads on, and the numbers and types that its modules share."""

import io
import zipfile

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
    """Raises Rejected where a NumPy archive would unfold to more than MOST_BYTES; looks at its directory alone."""
    with zipfile.ZipFile(io.BytesIO(archive)) as content:
        if (size := sum(entry.file_size for entry in content.infolist())) > MOST_BYTES:
            raise Rejected(f"{what} must unfold to at most {MOST_BYTES:,} bytes, got {size:,}")
