"""Finds the place in a model's JSON Schema that a pydantic error is about, and says in words what is expected there.

pydantic's `loc` has one part for each key and index on the way, and one more, a label, for each union that it passes.
The labels are dropped here: of a union's members the one is followed that takes the kind of value that the data have
at that place.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

Schema = Mapping[str, Any]
Path = tuple[str | int, ...]

KEY = "[key]"  # what pydantic ends a `loc` with that is about a key and not about its value
_KINDS = {"object": (Mapping,), "array": (list, tuple), "string": (str,), "integer": (int,), "number": (int, float),
          "boolean": (bool,), "null": (type(None),)}


@dataclass(frozen=True)
class Place:
    """A place in the data and in the schema.

    Attributes:
        path: keys and indices from the root of the data, without labels.
        schema: of what may stand there; {} where anything may.
        root: the whole schema, which holds the definitions.
        unions: paths of the unions on the way; the last may be `path` itself.
        siblings: names of the fields of the mapping that the place is in.
    """

    path: Path
    schema: Schema
    root: Schema
    unions: tuple[Path, ...]
    siblings: tuple[str, ...]

    def phrase(self) -> str:
        """What is expected there: "a whole number above 0"."""
        return phrase(self.schema, self.root)

    def choices(self) -> list[str]:
        """The texts that may stand there, where they are a few fixed ones."""
        return [value for member in members(self.schema, self.root) for value in _fixed(member)
                if isinstance(value, str)]


@functools.cache
def schema_of(model: type[BaseModel]) -> Schema:
    """The JSON Schema of what may be written."""
    return model.model_json_schema(mode="validation")


def follow(root: Schema, data: Any, loc: Sequence[str | int]) -> Place:
    """The place of an error with the location `loc`, in data that were held against the schema `root`."""
    schema, around, value = root, root, data
    path: list[str | int] = []
    unions: list[Path] = []
    siblings: tuple[str, ...] = ()
    for number, part in enumerate(loc):
        if part == KEY:
            schema = _key_schema(around)
            break
        options = members(schema, root)
        if len(options) > 1:  # this part is a label
            unions.append(tuple(path))
            if number < len(loc) - 1:
                schema = _member(options, str(part), value)
            continue
        around = options[0]
        siblings = tuple(around.get("properties", {}))
        schema, value = _schema_below(around, part), _value_below(value, part)
        path.append(part)
    return Place(tuple(path), schema, root, tuple(unions), siblings)


def members(schema: Schema, root: Schema) -> list[Schema]:
    """What a schema offers the choice of, without null; itself where it offers none."""
    schema = resolved(schema, root)
    options = schema.get("anyOf") or schema.get("oneOf")
    if not options:
        return [schema]
    return [resolved(option, root) for option in options if resolved(option, root).get("type") != "null"] or [{}]


def resolved(schema: Schema, root: Schema) -> Schema:
    """The schema with what it refers to in its place."""
    while "$ref" in schema:
        definition = root["$defs"][schema["$ref"].rpartition("/")[2]]
        schema = {**definition, **{key: value for key, value in schema.items() if key != "$ref"}}
    return schema


def phrase(schema: Schema, root: Schema) -> str:
    """What a schema takes, in words; a field's `expected` (json_schema_extra) overrules them."""
    schema = resolved(schema, root)
    if "expected" in schema:
        return str(schema["expected"])
    options = members(schema, root)
    if len(options) > 1:
        return listed(dict.fromkeys(phrase(option, root) for option in options))
    schema = options[0]
    if fixed := _fixed(schema):
        return listed(str(value).lower() if isinstance(value, bool) else str(value) for value in fixed)
    kind = schema.get("type")
    if kind in ("integer", "number"):
        return f"a {'whole ' if kind == 'integer' else ''}number{_limits(schema)}"
    if kind == "array":
        return f"a list{_count(schema)}"
    texts = {"object": "a mapping", "boolean": "true or false", "string": "a text"}
    text = texts.get(str(kind), "another value")
    return f"{text} that is not empty" if schema.get("minLength") or schema.get("minProperties") else text


def listed(texts: Any) -> str:
    """"a, b or c"."""
    texts = list(texts)
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}"


def _limits(schema: Schema) -> str:
    """" above 0 and below 1", " from 0 to 5", " from 0.8 to below 1"."""
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    lower = f"from {low:g}" if low is not None else f"above {above:g}" if above is not None else ""
    upper = f"{high:g}" if high is not None else f"below {below:g}" if below is not None else ""
    if not lower:
        return upper and f" {'' if high is None else 'of at most '}{upper}"
    if not upper:
        return f" {lower}"
    return f" {lower} {'to' if low is not None else 'and' if below is not None else 'up to'} {upper}"


def _count(schema: Schema) -> str:
    """" of 2 entries", " of at least 1 entry"."""
    least, most = schema.get("minItems"), schema.get("maxItems")
    if not least:
        return ""
    return f" of {'' if least == most else 'at least '}{least} {'entry' if least == 1 else 'entries'}"


def _fixed(schema: Schema) -> list[Any]:
    return [schema["const"]] if "const" in schema else list(schema.get("enum", []))


def _member(options: Sequence[Schema], label: str, value: Any) -> Schema:
    """Of a union's members the one that takes this kind of value; of several the one that the label names."""
    fitting = [option for option in options if _takes(option, value)] or list(options)
    return next((option for option in fitting if option.get("title") == label), fitting[0])


def _takes(schema: Schema, value: Any) -> bool:
    if isinstance(value, bool):
        return schema.get("type") in ("boolean", None)
    return isinstance(value, _KINDS.get(str(schema.get("type")), (object,)))


def _key_schema(schema: Schema) -> Schema:
    patterns = [{"type": "string", "pattern": pattern} for pattern in schema.get("patternProperties", {})]
    return schema.get("propertyNames") or (patterns[0] if patterns else {"type": "string"})


def _schema_below(schema: Schema, part: str | int) -> Schema:
    if isinstance(part, int) and "properties" not in schema:
        fixed = schema.get("prefixItems", [])
        return fixed[part] if 0 <= part < len(fixed) else schema.get("items", {})
    below = schema.get("properties", {}).get(part)
    if below is None:
        others = [schema.get("additionalProperties"), *schema.get("patternProperties", {}).values()]
        below = next((other for other in others if isinstance(other, Mapping)), {})
    return below


def _value_below(value: Any, part: str | int) -> Any:
    try:
        return value[part]
    except (LookupError, TypeError):
        return None
