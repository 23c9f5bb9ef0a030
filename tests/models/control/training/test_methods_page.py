"""The reference page names every method and every setting with its default."""

from pathlib import Path

import pytest
from pydantic import BaseModel

from models.control.training.lifecycle import Profile
from models.control.training.methods import METHODS

PAGE = (Path(__file__).parents[4] / "docs/reference/training-by-acting.md").read_text(encoding="utf-8")


def shown(value: object) -> str:
    match value:
        case tuple():
            return ", ".join(map(str, value))
        case int() if not isinstance(value, bool):
            return f"{value:,}" if value >= 10_000 else str(value)
        case float():
            return f"{value:g}"
    return str(value)


@pytest.mark.parametrize("name", METHODS)
def test_every_setting_stands_there_with_its_default(name: str) -> None:
    method = METHODS[name]
    assert f"| `{name}` |" in PAGE
    nested = method.settings.model_fields["objective"].default
    assert isinstance(nested, BaseModel)
    for model in (method.settings, type(nested)):
        for field, described in model.model_fields.items():
            if field != "objective":
                row = f"| `{field}` | {shown(described.default)} |"
                assert row in PAGE and str(described.description) in PAGE, row


def test_every_threshold_of_a_profile_stands_there() -> None:
    assert all(f"| `{name}` |" in PAGE for name in Profile.__dataclass_fields__)
