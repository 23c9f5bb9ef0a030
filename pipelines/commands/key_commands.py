"""`assay keys rotate | revoke | show`: the project's signing keys."""

from dataclasses import asdict
from typing import Annotated

import typer

from pipelines.commands.registry_commands import open_registry
from pipelines.console import (
    CommandLine,
    ConfigOption,
    JsonOption,
    configuration_from,
    out,
    print_json,
    print_line,
    reported,
    working,
)

app = CommandLine(no_args_is_help=True, help="Rotate, revoke and show the keys that sign bundles and the ledger.")
FingerprintArgument = Annotated[str, typer.Argument(help="Fingerprint of the key, or the beginning of it.")]


@app.command()
@reported
def rotate(config: ConfigOption = None, json_output: JsonOption = False) -> None:
    """Put a new private key in the place of the present one, whose signatures stay accepted.

    The old private key is kept beside it. Copy the file of public keys to every controller: one that has the old file
    alone refuses what the new key signs. Safe beside a run; after a kill the same command finishes it.

    Example: assay keys rotate
    """
    with working("rotating the key", json_output):
        old, new = open_registry(config, None, None).keys.rotate()
    public = configuration_from(config).public_key_path
    if json_output:
        print_json({"old": old, "new": new, "public_keys": str(public)})
        return
    print_line(f"{new} signs from now on; {old} stays accepted until `assay keys revoke`\n"
               f"copy {public} to every controller")


@app.command()
@reported
def revoke(
    fingerprint: FingerprintArgument,
    reason: Annotated[str, typer.Option(help="Why; goes into the ledger.")],
    sign_again: Annotated[bool, typer.Option(
        "--sign-again", help="Sign registered bundles of that key with the current one, each proved again.")] = False,
    config: ConfigOption = None, json_output: JsonOption = False,
) -> None:
    """Accept a key no more; the ledger up to here stays valid, by an entry that the current key signs.

    Bundles that the revoked key signed are refused, and controllers fall back, until they are signed again. Safe to
    repeat. The exit code is 1 where a bundle could not be signed again.

    Example: assay keys revoke 3f2a9c1d0b7e --reason "its laptop was stolen" --sign-again
    """
    with working("revoking the key", json_output):
        keys = open_registry(config, None, None).keys
        done = keys.revoke(fingerprint, reason)
        again = list(keys.sign_again()) if sign_again else []
    public = configuration_from(config).public_key_path
    if json_output:
        print_json({"fingerprint": done.fingerprint, "vouched_for": done.vouched_for, "public_keys": str(public),
                    "late": [entry.to_json() for entry in done.late], "signed_again": [asdict(one) for one in again]})
    else:
        print_line(f"{done.fingerprint} is accepted no more; the {done.vouched_for:,} entries before that stay valid")
        for entry in done.late:
            print_line(f"note: entry {entry.sequence} ({entry.move.action} {entry.move.model} version "
                       f"{entry.move.version}) was signed with it after it was replaced")
        for one in again:
            print_line(f"{one.model} version {one.version}: {one.problem or 'signed again'}")
        print_line(f"copy {public} to every controller")
    raise typer.Exit(int(any(one.problem for one in again)))


@app.command()
@reported
def show(
    pem: Annotated[str | None, typer.Option(metavar="FINGERPRINT", help="Print this key alone, as PEM, for other "
                                                                        "tools.")] = None,
    config: ConfigOption = None, json_output: JsonOption = False,
) -> None:
    """Show the keys whose signatures are accepted: since when, and how many bundles of the state folder each signed.

    Example: assay keys show --pem 3f2a9c1d0b7e > assay-3f2a.pub
    """
    from serving.project_keys import find_key, key_uses

    uses, unaccepted = key_uses(configuration_from(config))
    if pem is not None:
        accepted = {use.fingerprint: use.pem for use in uses if use.pem}
        out.print(accepted[find_key(pem, list(accepted))], end="", highlight=False, soft_wrap=True)
        return
    if json_output:
        print_json({"keys": [asdict(use) for use in uses], "bundles_of_no_accepted_key": unaccepted})
        return
    for use in uses:
        since = f"since {use.since}" if use.since else "in no entry of the ledger"
        print_line(f"{use.fingerprint}  {use.state:<8}  {since}  {use.bundles:,} bundles")
    if unaccepted:
        print_line(f"{unaccepted:,} registered bundles are signed by no accepted key; `assay keys revoke FINGERPRINT "
                   "--reason TEXT --sign-again`, with the revoked key, signs them again")
