"""The one reader of YAML that people write: specifications, tasks, mappings, mlflow.yaml, metric maps.

It takes less than YAML allows, because each of these files decides what is proved or promoted:

- a key that is repeated in a mapping is refused with its line, where PyYAML silently keeps the last one;
- a document holds at most `MAX_VALUES` values with every alias written out, so that 500 bytes of aliases of aliases
  (an "alias bomb") do not unfold to 10^9 values; an alias to a list that it stands in is refused;
- numbers that mean something else than they look like are refused: `010`, which is 8, and `1:30`, which is 90;
- lists and mappings are nested at most `MAX_DEPTH` deep, a file has at most `MAX_BYTES`;
- every error is one line, an `InputError` with the file and the line.

`Lines` keeps where each value stood, for errors about its content (feature_store/written).
"""

import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from feature_store.errors import InputError

MAX_BYTES = 4_000_000
MAX_VALUES = 1_000_000  # a task of 10,000 workloads has some 300,000
MAX_DEPTH = 64
MAX_NUMBER = 4_300  # characters: Python's own limit for an integer's digits, here for 1:59:59 too

MISREAD = re.compile(r"[-+]?(0[0-9_]+$|[^:]*:)")  # 010 is read in base 8, 1:30 in base 60


@dataclass(frozen=True)
class Lines:
    """Where the values of a document stand in its text. root: the document as PyYAML's nodes; None: it is empty."""

    root: yaml.Node | None = None

    def line(self, path: Sequence[str | int], of_key: bool = False) -> int:
        """The line (from 1) of the value at a path of keys and indices, or of what there is nearest above it.

        A list or mapping that begins in a line below its key has the line of the key.

        Args:
            path: from the root of the document.
            of_key: the line of the value's key, where it has one.
        """
        node, mark = self.root, self.root.start_mark if self.root else None
        for number, part in enumerate(path):
            found = _child(node, part)
            if found is None:
                break
            key, node = found
            last = number == len(path) - 1
            in_text = isinstance(node, yaml.ScalarNode) and not (of_key and last)
            mark = node.start_mark if key is None or in_text else key.start_mark
        return mark.line + 1 if mark else 1

    def below(self, *path: str | int) -> "Lines":
        """The lines of the value at a path, for what is read from there on."""
        node = self.root
        for part in path:
            found = _child(node, part)
            node = found[1] if found else None
        return Lines(node)


def _child(node: yaml.Node | None, part: str | int) -> tuple[yaml.Node | None, yaml.Node] | None:
    """Key and value of a mapping, None and an entry of a list; None: there is no such part."""
    if isinstance(node, yaml.MappingNode):
        for key, value in reversed(node.value):  # what a merge key brought in stands before what overrules it
            if isinstance(key, yaml.ScalarNode) and key.value == str(part):
                return key, value
    elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and 0 <= part < len(node.value):
        return None, node.value[part]
    return None


def read_yaml(path: Path, what: str, seconds: float = math.inf) -> Any:
    """The plain values in a YAML file.

    Args:
        what: what the file is, as errors name it: "mapping file".
        seconds: refuse the file if reading takes longer.

    Raises:
        InputError: the file cannot be read, is not UTF-8 or not YAML, or breaks a rule of the module docstring.
    """
    return read_located_yaml(path, what, seconds)[0]


def parse_yaml(text: str, what: str, where: str, seconds: float = math.inf) -> Any:
    """The plain values in a text of YAML; `where` names its source in errors. The rest as in `read_yaml`."""
    return parse_located_yaml(text, what, where, seconds)[0]


def read_located_yaml(path: Path, what: str, seconds: float = math.inf) -> tuple[Any, Lines]:
    """The plain values in a YAML file and their lines. The rest as in `read_yaml`."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"{what} must be a readable file, got {error.strerror} ({path})") from error
    if len(content) > MAX_BYTES:
        raise InputError(f"{what} must have at most {MAX_BYTES:,} bytes, got more ({path})")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"{what} must be YAML in UTF-8, got the byte 0x{content[error.start]:02x} "
                         f"({path}, line {line})") from error
    return parse_located_yaml(text, what, str(path), seconds)


def parse_located_yaml(text: str, what: str, where: str, seconds: float = math.inf) -> tuple[Any, Lines]:
    """The plain values in a text of YAML and their lines. The rest as in `parse_yaml`."""
    try:
        loader = _Loader(text, what, where, time.monotonic() + seconds)
        node = loader.get_single_node()
        return (None if node is None else loader.construct_document(node)), Lines(node)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise InputError(f"{what} must be YAML, got {error.reason} ({where}, line {line})") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InputError(f"{what} must be YAML, got {error.problem} ({where}, line {line})") from error


class _Loader(yaml.SafeLoader):
    """SafeLoader that judges a document before it makes values of it."""

    def __init__(self, text: str, what: str, where: str, deadline: float) -> None:
        super().__init__(text)
        self.what, self.where, self.deadline = what, where, deadline
        self.depth = 0
        self.sizes: dict[int, int] = {}  # by id of a node: values in it, aliases written out; 0: not yet known

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """As in PyYAML; stops at a document that is too deep, or takes too long."""
        if time.monotonic() > self.deadline:
            raise InputError(f"{self.what} must be read within the time limit, got no further than "
                             f"{self._line(self.peek_event())}")
        if self.depth > MAX_DEPTH:
            raise InputError(f"{self.what} must nest lists and mappings at most {MAX_DEPTH} deep, got more "
                             f"{self._line(self.peek_event())}")
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def get_single_node(self) -> yaml.Node | None:
        """The document as nodes, if all rules hold."""
        node = super().get_single_node()
        if node is not None:
            self._judge(node)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """As in PyYAML; a value without a meaning is an error with its line."""
        number = node.tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
        if number and isinstance(node, yaml.ScalarNode) and len(node.value) > MAX_NUMBER:
            raise InputError(f"number must have at most {MAX_NUMBER} digits, got {len(node.value)} "
                             f"{self._line(node)}")
        if node.tag == "tag:yaml.org,2002:set":  # it has no order, so what is made of one could differ between runs
            raise InputError(f"list must be written as [a, b], got a !!set {self._line(node)}")
        try:
            value = super().construct_object(node, deep)
        except (ValueError, LookupError, ArithmeticError, AttributeError) as error:  # 2020-13-45, !!bool maybe
            known = isinstance(error, ValueError)  # of the others only PyYAML's programmers know what they say
            reason = error if known else f"{node.value!r:.40} as {node.tag.rpartition(':')[2]}"
            raise InputError(f"value must be readable, got {reason} {self._line(node)}") from error
        if number and isinstance(node, yaml.ScalarNode) and MISREAD.match(node.value):
            raise InputError(f"number must be written in decimal digits, got {node.value!r:.40}, which YAML reads as "
                             f"{value!r:.40}: write it without leading 0 or colon, a text in quotes {self._line(node)}")
        return value

    def _line(self, place: yaml.Node | yaml.Event) -> str:
        return f"({self.where}, line {place.start_mark.line + 1 if place.start_mark else 1})"

    def _judge(self, node: yaml.Node) -> int:
        """The number of values in a node, aliases written out. Raises InputError: too many, or a repeated key."""
        if isinstance(node, yaml.ScalarNode):
            return 1
        size = self.sizes.get(id(node))
        if size is not None:
            if size == 0:
                raise InputError(f"list or mapping must not hold itself, got an alias to one around it "
                                 f"{self._line(node)}")
            return size
        self.sizes[id(node)] = 0
        if isinstance(node, yaml.MappingNode):
            self._refuse_repeated(node)
            children = [child for pair in node.value for child in pair]
        else:
            children = node.value
        size = 1 + sum(self._judge(child) for child in children)
        if size > MAX_VALUES:
            raise InputError(f"{self.what} must hold at most {MAX_VALUES:,} values with its aliases written out, got "
                             f"more {self._line(node)}")
        self.sizes[id(node)] = size
        return size

    def _refuse_repeated(self, node: yaml.MappingNode) -> None:
        """Keys are compared as texts and as values: `1` and `"1"` are one key, `yes` and `true` too."""
        seen: set[object] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                names: set[object] = {key.value}
                if key.tag != "tag:yaml.org,2002:merge":
                    names.add(("value", self.construct_object(key)))
                if names & seen:
                    raise InputError(f"key must be given once, got {key.value!r} twice {self._line(key)}")
                seen |= names
