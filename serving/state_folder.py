"""The state folder as whoever serves needs it: where the signed ledger, the public key and copies of bundles lie.

A controller's own machine has no mlflow.yaml and no pydantic to read it with: it names the folder, and what lies
elsewhere.
`models.configuration.Configuration`, which mlflow.yaml is read into, has the same three attributes.
"""

from dataclasses import dataclass
from pathlib import Path

LEDGER, PUBLIC_KEY = "ledger/promotions.jsonl", "keys/assay.pub"  # as in the project's mlflow.yaml


@dataclass(frozen=True)
class StateFolder:
    """Absolute paths, and perhaps an address.

    Attributes:
        home: bundles/<task>/<workload>/<version>/ lies below it, controllers/ and shadow/ for logs.
        ledger_path: the promotion ledger: its file, or as a text the address of its database.
        public_key_path: key that bundles and ledger are signed with (PEM).
    """

    home: Path
    ledger_path: Path | str
    public_key_path: Path


def state_folder(home: Path, ledger: Path | str | None = None, public_key: Path | None = None) -> StateFolder:
    """A state folder at `home`, or a copy of one; ledger and key at their places in it where they are not given."""
    home = home.absolute()
    ledger = ledger or home / LEDGER
    return StateFolder(home, ledger.absolute() if isinstance(ledger, Path) else ledger,
                       (public_key or home / PUBLIC_KEY).absolute())
