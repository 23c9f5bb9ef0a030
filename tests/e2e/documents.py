"""The commands in the documents, as a shell takes them apart.

Blocks of code, indented or fenced, and code within a sentence that has options. A block is given to bash itself, with
programs on its PATH that write down how they were called: quotes, line breaks and comments mean what they mean to a
user who pastes them.
"""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.tiny import ROOT

DOCUMENTS = ("README.md", "docs/tutorial.md", "docs/tutorial-my-service.md", *sorted(
    path.relative_to(ROOT).as_posix() for path in (ROOT / "docs" / "recipes").glob("*.md")))
PROGRAMS = ("assay", "make", "model_signing", "python", "sudo")
STARTS = re.compile(rf"^(?:\.venv/bin/)?(?:{'|'.join(PROGRAMS)})\s")
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?<=\n\n)(?: {4,}\S.*\n)+")
INLINE = re.compile(r"`((?:assay [^`]* -|make \w)[^`]+)`")

SHIM = """#!{python} -S
import json, os, sys
with open(os.environ["CALLS"], "a") as file:
    file.write(json.dumps(["{name}", *sys.argv[1:]]) + "\\n")
"""


@dataclass(frozen=True)
class Command:
    """One command of a document: its words, the program's first, without its folder."""

    document: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.document}: {' '.join(self.words)[:60]}"


def commands_of(document: str, folder: Path) -> list[Command]:
    """Every command of a document, in order; `folder` is new."""
    shims = _shims(folder)
    found = []
    for block in _blocks((ROOT / document).read_text(encoding="utf-8")):
        calls = folder / "calls.jsonl"
        calls.write_text("")
        subprocess.run(["bash", "-e", "-c", block], cwd=folder, check=True, stdin=subprocess.DEVNULL, timeout=60,
                       env={**os.environ, "PATH": f"{shims}:/usr/bin:/bin", "CALLS": str(calls)})
        found += [Command(document, tuple(json.loads(line))) for line in calls.read_text().splitlines()]
    return found


def _blocks(text: str) -> list[str]:
    fenced = [(found.start(), found[2]) for found in FENCE.finditer(text) if found[1] in ("", "sh", "bash")]
    without = FENCE.sub(lambda found: re.sub(r"\S", " ", found[0]), text)
    indented = [(found.start(), found[0]) for found in INDENTED.finditer(without)]
    inline = [(found.start(), found[1]) for found in INLINE.finditer(without)]
    blocks = [_unindented(block) for _, block in sorted(fenced + indented + inline)]
    return [block for block in blocks if STARTS.match(block)]


def _unindented(block: str) -> str:
    lines = block.splitlines()
    depth = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "\n".join(line[depth:] for line in lines).strip()


def _shims(folder: Path) -> Path:
    """Programs that only write down their names and arguments, on the PATH and where the Makefile puts them."""
    shims = folder / "bin"
    for place in (shims, folder / ".venv" / "bin"):
        place.mkdir(parents=True)
        for name in PROGRAMS:
            program = place / name
            program.write_text(SHIM.format(python=sys.executable, name=name))
            program.chmod(0o755)
    return shims
