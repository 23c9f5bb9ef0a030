"""JSON Schemas of the files that people write, which editors complete and check by.

A YAML file names its schema in its first line, relative to itself:

    # yaml-language-server: $schema=docs/schemas/mlflow.schema.json
"""

import json
from typing import Any

from feature_store.written.schema_place import schema_of
from pipelines.documents.written_files import FILES

FOLDER = "docs/schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_files() -> dict[str, str]:
    """Path from the project's root -> text, of every schema."""
    return {f"{FOLDER}/{name}.schema.json": json.dumps(schema(name), indent=1, ensure_ascii=False) + "\n"
            for name in FILES}


def schema(name: str) -> dict[str, Any]:
    """The schema of a kind of file, by its name in FILES."""
    return {"$schema": DIALECT, **_for_editors(schema_of(FILES[name].model)), "title": FILES[name].title}


def _for_editors(part: Any, named: bool = False) -> Any:
    """Without what only our own errors use, and without the titles that pydantic makes of the names.

    Args:
        part: of a schema.
        named: whether its keys are names of fields or definitions, and not words of JSON Schema.
    """
    if isinstance(part, list):
        return [_for_editors(entry) for entry in part]
    if not isinstance(part, dict):
        return part
    return {key: _for_editors(value, key in ("properties", "$defs", "patternProperties") and not named)
            for key, value in part.items() if named or key not in ("expected", "title")}
