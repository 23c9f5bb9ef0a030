"""Sections about the data and how to do it again: quality, validation, correlation, reproduction.

Flow: as sections.py. The data quality is free in form: a list or mapping of columns is shown as a table, numbers
beside it as facts, whatever keys they have (feature_store/data_quality.py and quality.json are the usual sources).
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from models.reporting import plots
from models.reporting.document import Cell, Code, Fold, Note, Part, Plot, Table, Tone, figures, text
from models.reporting.formatting import coefficient, count, number, percent, words
from models.reporting.reading import at, floats, items, mapping, mappings

Json = Mapping[str, Any]

COLUMN_KEYS = (("Minimum", ("minimum", "min")), ("Median", ("median",)), ("Maximum", ("maximum", "max")),
               ("Missing", ("missing",)), ("Distinct", ("distinct",)))
AUDIT_NOTE = ("Pairs of rows that differ in the feature and are equal in all other inputs (exact), or near in them "
              "(matched). Interval: of the share that obeys or is within the noise. Obeyed or contradicted: with the "
              "whole interval; undecided: anything else, or too few pairs.")
SHOWN_ELSEWHERE = ("columns", "checks", "failures", "warnings", "files", "quality", "data", "bad_rows")


def data_quality(contract: Json | None, evidence: Json | None, context: Json) -> tuple[Part, ...]:
    """Facts, bad rows and columns of the data, then whether it passed the data gate."""
    quality = mapping(context, "data_quality") or mapping(evidence, "data", "quality")
    parts: list[Part] = []
    facts = [*_facts({key: value for key, value in mapping(evidence, "data").items() if key not in quality}),
             *_facts(quality)]
    for nested in ("data", "quality"):
        facts += [fact for fact in _facts(mapping(quality, nested)) if fact not in facts]
    if facts:
        parts.append(Table(("", ""), tuple((text(label), text(value)) for label, value in facts), "Rows"))
    parts += _bad_rows(mapping(evidence, "data", "bad_rows"))
    columns = _columns(quality) or _columns(at(quality, "data")) or _columns(at(quality, "quality"))
    if columns:
        parts.append(_column_table(contract, columns))
    if not parts:
        parts.append(Note("No data quality was recorded.", "missing"))
    checks = mappings(quality, "checks")
    if checks:
        parts.append(_checks(checks))
    return (*parts, *validation(at(context, "validation")))


# keys of quality.json that do not say by themselves what they count
LABELS = {"first": "first window", "last": "last window", "data version": "SHA-256 of the rows",
          "train groups": "groups of the training side", "test groups": "groups of the test side",
          "test share": "test share asked for", "dropped": "rows left out as copies or failed runs"}


def _label(key: str) -> str:
    return LABELS.get(words(key), words(key))


def _facts(quality: Json) -> list[tuple[str, str]]:
    """(label, value) of what is a number, text, list or small mapping of them."""
    facts = []
    for key, value in quality.items():
        if key in SHOWN_ELSEWHERE or value is None or key in ("folder", "workload"):
            continue
        if isinstance(value, Mapping):
            shown = ", ".join(f"{words(k)}: {number(v)}" for k, v in value.items()) or "none"
        elif isinstance(value, list | tuple):
            shown = ", ".join(number(item) for item in value) or "none"
        else:
            shown = _fact(key, value)
        facts.append((_label(key), shown))
    return facts


def _fact(key: str, value: Any) -> str:
    if key == "seed":
        return str(value)
    if key.endswith("share"):
        return percent(value)
    if key in ("first", "last"):
        return _time(str(value))
    return number(value)


def _bad_rows(found: Json) -> Iterator[Part]:
    """What was dropped by the policy of the mapping (feature_store/dropping.py), and the first of it row by row."""
    if not found:
        return
    allowed = f"the mapping allows up to {number(found.get('allowed'))} ({percent(found.get('at_most'))})"
    by_rule = mapping(found, "by_rule")
    if not by_rule:
        yield Note(f"None of {number(found.get('rows'))} rows is bad; {allowed}.")
        return
    holes = by_rule.get("time_gap")
    said = f"{number(found.get('dropped'))} of {number(found.get('rows'))} rows were bad and are left out; "
    said += f"{count(holes, 'hole')} in time {'is' if holes == 1 else 'are'} left open; " if holes else ""
    rules = ", ".join(f"{number(rows)} {rule}" for rule, rows in by_rule.items())
    listed = mappings(found, "first")
    rows = tuple((*figures([str(bad.get("row"))]), Cell(str(bad.get("column")), code=True),
                  Cell(str(bad.get("rule")), code=True), text(bad.get("value"))) for bad in listed)
    more = sum(by_rule.values()) - len(listed)
    said += f"{allowed}. By rule: {rules}." + (f" {number(more)} more not shown." if more else "")
    yield Table((str(found.get("unit")).capitalize(), "Column in the file", "Rule", "Value"), rows, "Bad rows", said)


def _time(text: str) -> str:
    """An ISO time to the second; as it is where it is none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    zone = " UTC" if moment.utcoffset() == timedelta(0) else moment.strftime(" %z").rstrip()
    return f"{moment:%Y-%m-%d %H:%M:%S}{zone}"


def _columns(quality: Any) -> list[Json]:
    """The described columns, as a list of mappings with a name."""
    described = at(quality, "columns")
    if isinstance(described, Mapping):
        return [{"name": name, **entry} for name, entry in described.items() if isinstance(entry, Mapping)]
    return mappings(quality, "columns")


def _column_table(contract: Json | None, columns: list[Json]) -> Table:
    units = {str(item.get("name")): str(item.get("unit") or "")
             for side in ("inputs", "outputs") for item in mappings(contract, side)}
    used = [(label, keys) for label, keys in COLUMN_KEYS if any(key in item for item in columns for key in keys)]
    rows = tuple((Cell(str(item.get("name")), code=True),
                  text(item.get("unit") or units.get(str(item.get("name")), "")),
                  *figures([number(next((item[key] for key in keys if key in item), None)) for _, keys in used]))
                 for item in columns)
    return Table(("Column", "Unit", *(label for label, _ in used)), rows, "Columns")


def _checks(checks: list[Json]) -> Part:
    broken = sum(check.get("passed") is not True for check in checks)
    rows = tuple((Cell(str(check.get("column") or "table"), code=True),
                  text(check.get("statement") or check.get("rule")),
                  Cell("holds", tone="good") if check.get("passed") is True else Cell("broken", tone="bad"))
                 for check in checks)
    title = f"{count(len(checks), 'rule')} checked, {broken} broken"
    return Fold(title, (Table(("Column", "Rule", ""), rows),))


def validation(result: Any) -> tuple[Part, ...]:
    """Whether the data passed, and the table of what it broke."""
    if not isinstance(result, Mapping) or not isinstance(result.get("passed"), bool):
        return (Note("The result of the validation is missing.", "missing"),)
    parts: list[Part] = [Note("The data passed the validation.", "good") if result["passed"] else
                         Note("The data did not pass the validation.", "bad")]
    for key, title in (("failures", "Broken rules"), ("warnings", "Warnings")):
        found = mappings(result, key)
        if found:
            rows = tuple((Cell(str(item.get("column") or "table"), code=True), text(words(item.get("rule") or "")),
                          *figures([number(item.get("count")), _row_number(item.get("first_row"))]),
                          text(item.get("message"))) for item in found)
            parts.append(Table(("Column", "Rule", "Rows", "First row", "Message"), rows, title))
    return tuple(parts)


def _row_number(row: Any) -> str:
    return "none" if row is None else number(row)


def audit(found: Any) -> tuple[Part, ...]:
    """An audit in whatever form it comes: text, facts, or a list of either."""
    if isinstance(found, Mapping):
        facts = _facts(found)
        return (Table(("", ""), tuple((text(label), text(value)) for label, value in facts)),) if facts else ()
    if isinstance(found, str):
        return (Note(found),)
    properties = mappings(found)
    if properties and all("verdict" in one and "feature" in one for one in properties):
        return _audited(properties)
    return tuple(part for item in items(found) for part in audit(item))


def _audited(audits: list[Json]) -> tuple[Part, ...]:
    """How often the data obey each direction of the specification, and the worst pairs of what they contradict."""
    tones: dict[str, Tone] = {"obeyed": "good", "contradicted": "bad"}
    rows = tuple((Cell(str(one["feature"]), code=True), text(one.get("direction")), text(one.get("kind")),
                  *figures([number(one.get("pairs")), percent(one.get("obeys")), percent(one.get("within_noise"))]),
                  text(_interval(one.get("within_noise_interval"))),
                  Cell(str(one["verdict"]), tone=tones.get(str(one["verdict"]), "")))
                 for one in audits)
    parts: list[Part] = [Table(("Feature", "Target must be", "Pairs", "Number", "Obey", "Obey or within noise",
                                "95 % interval", "Verdict"), rows, "Do the data obey the specification?",
                                AUDIT_NOTE)]
    against = [one for one in audits if one["verdict"] == "contradicted"]
    for one in against:
        worst = tuple(tuple(figures([number(pair.get(key)) for key in ("low_value", "low_target", "high_value",
                                                                        "high_target")]))
                      for pair in mappings(one, "worst"))
        parts.append(Table((f"{one['feature']}", "Target", f"{one['feature']}", "Target"), worst,
                           f"Worst pairs: {one['feature']} {one.get('direction')}"))
    if any(one.get("by_policy") is True for one in against):
        parts.append(Note("The specification is wished for by policy, so that this stops nothing.", "missing"))
    return tuple(parts)


def _interval(interval: Any) -> str:
    low, high = (*items(interval), None, None)[:2]
    return "" if low is None or high is None else f"{percent(low)} to {percent(high)}"

MOST_CORRELATED = 24  # workloads in one heat map


def correlation(context: Json, workload: str, page: str) -> tuple[Part, ...]:
    """Heat map and table of the Pearson coefficients; `workload` is set apart in the table.

    A page must not grow with the run: of more than MOST_CORRELATED workloads the page of one shows its row alone,
    which is drawn in a tenth of the time, and the run's page the first of them.
    """
    found = mapping(context, "correlation")
    names, metrics = ([str(name) for name in items(found, key)] for key in ("workloads", "metrics"))
    rows = [floats(row) for row in items(found, "pearson")]
    if not rows or not metrics:
        return (Note("The correlation of the target with the metrics was not computed.", "missing"),)
    if len(rows) != len(names) or any(len(row) != len(metrics) for row in rows):
        return (Note(f"The correlation table must have {len(names)} rows of {len(metrics)} numbers, one a workload, "
                     "and has another shape.", "missing"),)
    shown = list(range(len(names)))[:MOST_CORRELATED]
    if len(names) > MOST_CORRELATED and workload in names:
        shown = [names.index(workload)]
    left_out = len(names) - len(shown)
    pearson, names = np.stack(rows)[shown], [names[k] for k in shown]
    pearson[np.abs(pearson) > 1 + 1e-9] = np.nan
    markup = plots.correlation_heat_map(names, metrics, pearson, f"{page}-correlation")
    table = Table(("Workload", *metrics), tuple(
        (Cell(name, strong=name == workload),
         *(Cell(coefficient(value), numeric=True, strong=bool(abs(value) >= 0.5))
           for value in row)) for name, row in zip(names, pearson, strict=True)))
    return (Plot(markup, plots.heat_map_width(len(metrics)),
                 "Pearson coefficient of the target with each metric, over all rows of a workload; bold from 0.5."
                 + (f" {count(left_out, 'other workload is', 'other workloads are')} left out." if left_out else "")),
            table)


def reproduce(contract: Json | None, evidence: Json | None) -> tuple[Part, ...]:
    """The command, then versions, seeds and hashes."""
    recorded = mapping(evidence, "reproduce")
    command = recorded.get("command")
    parts: list[Part] = [Note("The command was not recorded.", "missing")]
    if isinstance(command, str) and command:
        parts = [Note("Relative paths count from the folder in which the command was given. With --fresh every step is "
                      "computed again, nothing is taken from the cache."), Code(command)]
    rows = [("code version", at(recorded, "code_version") or at(contract, "code_version")),
            ("data version", at(recorded, "data_version") or at(contract, "data_version")),
            ("seed", next((str(s) for s in (recorded.get("seed"), at(contract, "seed"), at(evidence, "seed"))
                           if s is not None), None)),
            ("Python", recorded.get("python")),
            ("SHA-256 of model.onnx", at(contract, "model", "sha256")),
            ("ONNX opset", at(contract, "model", "opset"))]
    rows += [(f"SHA-256 of {name}", digest) for name, digest in mapping(evidence, "data", "files").items()]
    parts.append(Table(("", ""), tuple((text(label), Cell(number(value), code=True)) for label, value in rows)))
    packages = mapping(recorded, "packages")
    if packages:
        parts.append(Fold(f"{count(len(packages), 'package')} and their versions", (Table(
            ("Package", "Version"), tuple((text(name), Cell(str(packages[name]), code=True))
                                          for name in sorted(packages))),)))
    else:
        parts.append(Note("The versions of the packages were not recorded.", "missing"))
    return tuple(parts)
