"""What registering, promoting and retiring a version return; made by serving/lifecycle.py."""

from dataclasses import dataclass

from serving.promotion import Drift, Role


@dataclass(frozen=True)
class Registration:
    """What became of a bundle.

    Attributes:
        alias: alias that the version got, None for a rejected one; a name of mlflow.yaml, to be shown, never compared.
        reason: why it got that alias and not the next.
        drifts: aliases that were not where the ledger says, before this registration or after it.
        is_new: False where the model is a registered version's, byte for byte: nothing was registered, and `version`,
            `alias` and `role` are that version's.
        role: what the version is by the ledger; None: neither.
    """

    model: str
    version: int
    run_id: str
    gates_passed: bool
    alias: str | None
    reason: str
    bundle_sha256: str
    drifts: tuple[Drift, ...] = ()
    is_new: bool = True
    role: Role | None = None


@dataclass(frozen=True)
class Promotion:
    """A champion that was moved: to `version`, from `previous_version`.

    Attributes:
        notes: in what the version is weaker than the champion before, and which gates were overridden, a line each;
            they are in the ledger too.
    """

    model: str
    version: int
    previous_version: int | None
    drifts: tuple[Drift, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Retirement:
    """A version that was taken out; `champion` is the champion now, None: there is none."""

    model: str
    version: int
    champion: int | None
    was_champion: bool
    drifts: tuple[Drift, ...] = ()
