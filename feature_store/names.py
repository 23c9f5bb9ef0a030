"""The rules for names, held wherever one comes in: from task files, mappings, requests, options, contracts, the ledger.

    task        letters, digits, _ and -; a leading - would be an option on a command line
    workload    the same, and single dots inside it; a leading _ is the pipeline's own
    label       name or unit of a column: any text on one line that shows what it is

Tasks and workloads name folders and models, so `inside` also holds every folder that is made of a name to where it
belongs. A task has no dot: "assay.{task}.{workload}" must never give two pairs one name. A label is only printed; what
could change how a line looks on a terminal (control characters, marks that reverse the direction of text) is refused,
and so is what no reader can tell from a space or from another character (fillers, characters without a meaning).
"""

import re
import unicodedata
from pathlib import Path

from feature_store.errors import InputError

LONGEST = 128  # characters: a file's name has 255 bytes on all common file systems, MLflow's models have 256
TASK = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_-]{{0,{LONGEST - 1}}}")
WORKLOAD = re.compile(rf"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?=[A-Za-z0-9_-])){{0,{LONGEST - 1}}}")
# Unicode's control characters, formats (zero width, direction), surrogates, separators of lines and paragraphs, private
# use and unassigned
_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp", "Co", "Cn")
# Letters and marks that are drawn as nothing: joiner, Hangul fillers, Khmer inherent vowels, the empty Braille pattern
_DRAWN_AS = str.maketrans("аеорсухіјѕһԛԝԁӏкмнвтгοανρτυκιχεγωμηβζ", "aeopcyxijshqwdlkmhbtroavptukixeywunbz")
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")


def is_task_name(name: object) -> bool:
    """Whether a task can be called so."""
    return isinstance(name, str) and TASK.fullmatch(name) is not None


def is_workload_name(name: object) -> bool:
    """Whether models and folders can be called after a workload."""
    return isinstance(name, str) and WORKLOAD.fullmatch(name) is not None


def check_task_name(name: object, where: str) -> str:
    """Returns the name of a task. Raises InputError where it is none."""
    if not is_task_name(name):
        raise InputError(f"task must hold only letters, digits, _ and -, up to {LONGEST}, and not begin with -, got "
                         f"{name!r} ({where})")
    return str(name)


def check_workload_name(name: object, where: str) -> str:
    """Returns the name of a workload. Raises InputError where it is none."""
    if not is_workload_name(name):
        raise InputError(f"workload must hold only letters, digits, _ and -, single dots inside it, up to {LONGEST}, "
                         f"and not begin with _ or -, got {name!r} ({where})")
    return str(name)


def check_label(label: object, what: str, where: str, empty: bool = False) -> str:
    """Returns the name or unit of a column. Raises InputError: no text, blank, or with characters that are not seen."""
    if not isinstance(label, str) or not (label.strip() or (empty and not label)):
        raise InputError(f"{what} must be a text that is not blank, got {label!r} ({where})")
    if printable(label) != label:
        raise InputError(f"{what} must hold no control characters, no marks that change the direction of text and no "
                         f"blank or private-use characters, got {label!a} ({where})")
    return label


def look(text: str) -> str:
    """The same for texts that a reader does not tell apart: by width, ligature, case, space or the script of a letter.

    Unicode Technical Standard 39 calls it a skeleton; of its tables here are the letters of Greek and Cyrillic that are
    drawn as Latin ones.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(folded.translate(_DRAWN_AS).split())


def printable(text: str, kept: str = "") -> str:
    """The text with every character that is not seen written as its escape, but for those in `kept`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(one.encode("unicode_escape").decode("ascii")
                   if one not in kept and (one in _BLANK or unicodedata.category(one) in _UNSEEN) else one
                   for one in text)


def as_utf8(text: str) -> str:
    """The text, with what no UTF-8 has (a byte of a terminal that speaks something else) written as its escape."""
    return text.encode(errors="backslashreplace").decode()


def inside(folder: Path, *names: str) -> Path:
    """The path of a file or folder below `folder`, which all links on the way lead to as well.

    Raises:
        InputError: it would lie elsewhere.
    """
    path = folder.joinpath(*names)
    if not path.resolve().is_relative_to(folder.resolve()) or path.resolve() == folder.resolve():
        raise InputError(f"path: expected one below {folder}, got {path}")
    return path


def is_sha256(value: object) -> bool:
    """Whether it is the text of a SHA-256: 64 hexadecimal digits."""
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None
