"""`python -m recording`: records a campaign; every option is a field of CampaignSettings."""

import argparse
import shlex
import sys
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path

from feature_store.errors import AssayError
from feature_store.names import printable
from recording.campaign import ProgressEvent, record_campaign
from recording.settings import CampaignSettings


def show(event: ProgressEvent) -> None:
    """Prints one line."""
    now = datetime.now(UTC).strftime("%H:%M:%S")
    print(printable(f"{now} [{event.finished}/{event.total}] {event.kind}: {event.message}"), flush=True)


def main(arguments: list[str]) -> int:
    """Runs the command and returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m recording", description=__doc__)
    parser.add_argument("destination", type=Path)
    parser.add_argument("--raw", type=Path)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--scratch", type=Path)
    for field in fields(CampaignSettings):
        option = "--" + field.name.replace("_", "-")
        if field.type is bool:
            parser.add_argument(option, action=argparse.BooleanOptionalAction, default=field.default)
        elif field.name == "workloads":
            parser.add_argument(option, type=lambda text: tuple(text.split(",")), default=field.default)
        else:
            parser.add_argument(option, type=field.type, default=field.default)
    options = parser.parse_args(arguments)
    given = {field.name: getattr(options, field.name) for field in fields(CampaignSettings)}
    try:
        settings = CampaignSettings(**given)
        record_campaign(
            settings,
            options.destination,
            show,
            raw=options.raw,
            resume=options.resume,
            scratch=options.scratch,
            command=shlex.join(["assay", "record", str(options.destination), *settings.options()]),
        )
    except AssayError as error:
        print(f"error: {printable(str(error))}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
