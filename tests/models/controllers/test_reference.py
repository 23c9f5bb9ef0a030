"""The page of reference says what the code declares."""

from models.controllers.reference import MARK, PAGE, tables
from models.controllers.rules import RULES


def test_the_page_is_up_to_date():
    assert PAGE.read_text().split(MARK)[1] == "\n" + tables()  # else: python -m models.controllers.reference


def test_every_rule_and_setting_stands_on_it():
    text = tables()
    for name, family in RULES.items():
        assert f"`{name}`" in text
        assert all(f"| `{setting.name}` |" in text for part in family.parts.values() for setting in part.declared)
