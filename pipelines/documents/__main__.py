"""Makes the JSON Schemas in docs/schemas and the field tables in README.md and docs/, or says what is not up to date.

    python -m pipelines.documents [--check]
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from feature_store.errors import InputError
from pipelines.documents.field_tables import fill
from pipelines.documents.schemas import schema_files

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Exit code 0; 1 with --check if a file is not up to date; 2 if a page is unusable."""
    parser = argparse.ArgumentParser(prog="python -m pipelines.documents", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; exit code 1 if a file is not up to date")
    options = parser.parse_args(arguments)
    try:
        made = made_files(root)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    stale = {path: text for path, text in made.items() if not path.is_file() or path.read_text("utf-8") != text}
    for path, text in stale.items():
        if options.check:
            print(f"{path.relative_to(root)} is not up to date: run `make tables`", file=sys.stderr)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(root)}")
    return int(options.check and bool(stale))


def made_files(root: Path) -> dict[Path, str]:
    """Every schema, and every page with field tables, with its text as it should be.

    Raises:
        InputError: a page asks for a table that there is none of, or leaves one open.
    """
    files = {root / path: text for path, text in schema_files().items()}
    for page in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        text = page.read_text(encoding="utf-8") if page.is_file() else ""
        if "<!-- fields: " in text:
            try:
                files[page] = fill(text)
            except InputError as error:
                raise InputError(f"{error} ({page.relative_to(root)})") from error
    return files


if __name__ == "__main__":
    sys.exit(main())
