"""Telemetry in an object store that speaks S3: read as the file that it holds.

    s3://bucket/folder/telemetry.parquet       s3://bucket/folder/ is a data set of many (data_set.py)

Where the store is and who asks say the usual variables: $AWS_ENDPOINT_URL (none: Amazon's), $AWS_ACCESS_KEY_ID,
$AWS_SECRET_ACCESS_KEY, $AWS_DEFAULT_REGION, or what else the AWS clients know.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from feature_store.errors import AssayError, SourceError


def is_object(telemetry: str) -> bool:
    """Whether a telemetry address is that of an object, or of a folder of them."""
    return telemetry.startswith("s3://")


@contextmanager
def as_local(telemetry: str) -> Iterator[str]:
    """What can be read here: of an object a copy, which is gone after the block; anything else, folders too, as it is.

    Messages of errors that the block raises name the object, not the copy.

    Raises:
        SourceError: the store does not answer, or has no such object.
    """
    if not is_object(telemetry) or telemetry.endswith("/"):
        yield telemetry
        return
    with TemporaryDirectory(prefix="assay-telemetry-") as folder:
        copy = Path(folder) / telemetry.removeprefix("s3://")  # whole: folders may name columns (data_set.py)
        copy.parent.mkdir(parents=True)
        _download(telemetry, copy)
        try:
            yield str(copy)
        except AssayError as error:
            error.args = (str(error).replace(str(copy), telemetry),)
            raise


def _download(address: str, copy: Path) -> None:
    from pyarrow import ArrowException
    from pyarrow.fs import FileSystem

    try:
        system, key = FileSystem.from_uri(address)
        with system.open_input_stream(key) as read, copy.open("wb") as write:
            shutil.copyfileobj(read, write)
    except (ArrowException, OSError) as error:
        raise SourceError(f"telemetry must be an object that can be read, got {error} ({address}); are "
                          "$AWS_ENDPOINT_URL and the keys those of its store?") from error
