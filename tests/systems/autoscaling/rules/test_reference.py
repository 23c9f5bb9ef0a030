"""The page of reference says what the code declares."""

from systems.autoscaling.rules.reference import MARK, PAGE, tables
from systems.autoscaling.rules.rules import RULES


def test_the_page_is_up_to_date():
    assert PAGE.read_text().split(MARK)[1] == "\n" + tables()  # else: python -m systems.autoscaling.rules.reference


def test_every_rule_and_setting_stands_on_it():
    text = tables()
    for name, family in RULES.items():
        assert f"`{name}`" in text
        assert all(f"| `{setting.name}` |" in text for part in family.parts.values() for setting in part.declared)
