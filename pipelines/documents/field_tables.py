"""Field tables of the files that people write, for docs/reference.

A page gets one by the two lines `<!-- fields: NAME -->` and `<!-- end fields -->`; what stands between them is
replaced. `<!-- fields: NAME PATH -->` is the table of the fields below one field alone (`mlflow promotion`);
`without PATH PATH` behind either leaves out what stands below some of its fields.

    workloads.*.hidden    `*` stands for a name that the writer chooses
    failed[].column       `[]` for the entries of a list
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from feature_store.errors import InputError, nearest
from feature_store.written.schema_place import Schema, members, phrase, resolved, schema_of
from pipelines.documents.written_files import FILES

MARKED = re.compile(r"^<!-- fields: (?P<name>[^\n]*?) -->\n(?P<body>.*?)^<!-- end fields -->$",
                    re.MULTILINE | re.DOTALL)
OPENING = re.compile(r"^\s*<!-- fields: ", re.MULTILINE)
NOTHING: tuple[object, ...] = (None, [], {}, "")  # defaults that a table shows as "none"


@dataclass(frozen=True)
class Row:
    """A field as the table shows it."""

    field: str
    type: str
    default: str
    unit: str
    meaning: str


def fill(page: str) -> str:
    """A page with every field table made again.

    Raises:
        InputError: a table is unknown or has no end.
    """
    if len(MARKED.findall(page)) != len(OPENING.findall(page)):
        raise InputError("expected a line `<!-- end fields -->` after every `<!-- fields: NAME -->`")
    return MARKED.sub(lambda match: f"<!-- fields: {match['name']} -->\n{field_table(match['name'])}\n"
                                    "<!-- end fields -->", page)


def field_table(name: str) -> str:
    """The table of a file, or of a part of it ("mlflow promotion", "mlflow without promotion"), in Markdown."""
    shown, _, hidden = name.partition(" without ")
    file, _, below = shown.partition(" ")
    if file not in FILES:
        raise InputError(f"fields: expected the name of a written file, got {file!r}; {nearest(file, FILES)}")
    root = schema_of(FILES[file].model)
    rows = list(_rows(root, root, ""))
    if below:
        rows = [replace(row, field=row.field.removeprefix(f"{below}.")) for row in rows
                if row.field.startswith(f"{below}.")]
    rows = [row for row in rows if not row.field.startswith(tuple(f"{each}{end}" for each in hidden.split()
                                                                  for end in (".", "[")))]
    if not rows:
        raise InputError(f"fields: expected a field with fields below it, got {below!r} (fields: {name})")
    has_unit = any(row.unit for row in rows)
    header = ["field", "type", "default", *(["unit"] if has_unit else []), "meaning"]
    cells = [[f"`{row.field}`", row.type, row.default, *([row.unit] if has_unit else []), row.meaning] for row in rows]
    lines = [header, ["---"] * len(header), *cells]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _rows(schema: Schema, root: Schema, above: str) -> Iterator[Row]:
    required = schema.get("required", [])
    for name, given in schema.get("properties", {}).items():
        path, field = f"{above}{name}", resolved(given, root)
        yield Row(path, _type(given, root), _default(field, root, name in required), str(field.get("unit", "")),
                  str(field.get("description", "")))
        yield from _rows_inside(given, root, path)


def _rows_inside(schema: Schema, root: Schema, path: str) -> Iterator[Row]:
    for member in members(schema, root):
        if member.get("properties"):
            yield from _rows(member, root, f"{path}.")
        values = member.get("additionalProperties")
        if isinstance(values, Mapping):
            yield from _rows_inside(values, root, f"{path}.*")
        if isinstance(member.get("items"), Mapping):
            yield from _rows_inside(member["items"], root, f"{path}[]")


def _type(schema: Schema, root: Schema) -> str:
    """What the field takes: the words of the errors, without the article, and what a list or mapping holds."""
    texts = []
    for member in [schema] if "expected" in resolved(schema, root) else members(schema, root):
        fixed = [member["const"]] if "const" in member else member.get("enum", [])
        if fixed:
            texts += [f"`{json.dumps(value).strip(chr(34))}`" for value in fixed]
            continue
        text = phrase(member, root).removeprefix("a ").replace(" or a ", " or ").removesuffix(" that is not empty")
        inner = member.get("items") or member.get("additionalProperties")
        if isinstance(inner, Mapping) and inner and "expected" not in member:
            inner_type = _type(inner, root)
            text = f"list of {_plural(inner_type)}" if "items" in member else f"mapping of name to {inner_type}"
        texts.append(text)
    return ", ".join(dict.fromkeys(texts[:-1])) + (" or " if len(texts) > 1 else "") + texts[-1]


def _plural(text: str) -> str:
    first, *rest = text.split(" or ", 1)
    many = re.sub(r"^(whole number|number|text|mapping|list|column)\b", r"\1s", first)
    return " or ".join([many, *(_plural(other) for other in rest)])


def _default(field: Schema, root: Schema, required: bool) -> str:
    if required:
        return "required"
    default = field.get("default")
    if default in NOTHING:
        return "none"
    below = {name: resolved(each, root).get("default") for name, each in field.get("properties", {}).items()}
    same = isinstance(default, Mapping) and _without_nothing(default) == _without_nothing(below)
    return "as below" if same else _flow(default, outermost=True)


def _without_nothing(values: Mapping[str, Any]) -> dict[str, Any]:
    """A mapping that is made anew for each file has no default in the schema, and an empty one in its parent's."""
    return {name: value for name, value in values.items() if value not in NOTHING}


def _flow(value: Any, outermost: bool = False) -> str:
    """A value as YAML has it in a line, without what was left out of it."""
    if isinstance(value, Mapping):
        text = "{" + ", ".join(f"{key}: {_flow(entry)}" for key, entry in value.items() if entry is not None) + "}"
    elif isinstance(value, list):
        text = "[" + ", ".join(_flow(entry) for entry in value) + "]"
    else:
        text = value if isinstance(value, str) else json.dumps(value)
    return f"`{text}`" if outermost else text
