"""The tables of docs/reference/fallback-rules.md, made from what is declared.

    python -m systems.autoscaling.rules.reference
"""

from collections.abc import Iterable
from pathlib import Path

from models.control.contract.setting import Setting
from systems.autoscaling.rules.part import Part
from systems.autoscaling.rules.rules import RULES

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "fallback-rules.md"
MARK = "<!-- made by python -m systems.autoscaling.rules.reference; all below it -->\n"


def tables() -> str:
    """Rules by their parts, then the settings of each part."""
    parts: dict[str, type[Part]] = {}
    lines = ["| rule | replicas | CPU limit | memory limit | estimate |", "| --- | --- | --- | --- | --- |"]
    for name, family in RULES.items():
        parts |= {part.__name__: part for part in family.parts.values()}
        columns = (family.replicas, family.cpu, family.memory, family.demand)
        named = ["" if part is None else f"[{part.__name__}](#{part.__name__.lower()})" for part in columns]
        lines.append(f"| `{name}` | {' | '.join(named)} |")
    for name, part in parts.items():
        first_line = (part.__doc__ or "").splitlines()[0]
        lines += ["", f"### {name}", "", f"{first_line} Source: {part.source}.", "",
                  "| setting | default | unit | allowed | tuning tries | meaning |",
                  "| --- | --- | --- | --- | --- | --- |", *map(_row, part.declared)]
    return "\n".join(lines) + "\n"


def _row(setting: Setting) -> str:
    if setting.choices:
        allowed, tried = ", ".join(setting.choices), "all" if setting.searched else "the default"
        default = str(setting.default)
    else:
        allowed = _range((setting.low, setting.high))
        tried = _range(setting.search) if setting.search else "the default"
        default = f"{float(setting.default):,.10g}"
    return f"| `{setting.name}` | {default} | {setting.unit} | {allowed} | {tried} | {setting.meaning} |"


def _range(ends: Iterable[float]) -> str:
    return " to ".join(f"{end:,.10g}" for end in ends)


if __name__ == "__main__":
    head = PAGE.read_text().split(MARK)[0]
    PAGE.write_text(head + MARK + "\n" + tables())
