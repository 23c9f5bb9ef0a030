"""The signing key of a step that gets it from a Kubernetes Secret: put where mlflow.yaml says, for its owner alone.

The files of a Secret's volume can be read by every user of the container (mode 0644; kfp sets no other), and a private
key that others can read is refused (serving/keys.py).
"""

import os
from collections.abc import Mapping
from pathlib import Path

from feature_store.errors import InputError
from feature_store.whole_files import read_regular, write_file
from models.configuration import Configuration

SIGNING_KEY_VARIABLE = "ASSAY_SIGNING_KEY_FILE"


def take_signing_key(configuration: Configuration, environment: Mapping[str, str] = os.environ) -> None:
    """Copies the key that $ASSAY_SIGNING_KEY_FILE names; does nothing without that variable.

    Raises:
        InputError: the file cannot be read, or the key would lie in the state folder, which every step sees.
    """
    given, private = environment.get(SIGNING_KEY_VARIABLE), configuration.private_key_path
    if not given:
        return
    if private.resolve().is_relative_to(configuration.home.resolve()):
        raise InputError("keys.private: expected a path outside of the state folder, which every step sees, got "
                         f"{private} (mlflow.yaml of the cluster)")
    try:
        key = read_regular(Path(given).resolve())  # a Secret's files are links
    except OSError as error:
        raise InputError(f"signing key: expected a readable file, got {error.strerror} ({given}); "
                         f"does the Secret hold {Path(given).name}?") from error
    private.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_file(private, key, mode=0o600)
