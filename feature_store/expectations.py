"""The data gate: Great Expectations judges a workload's telemetry against the schema.

Flow: `validate` calls it for all workloads after ingest and cleaning; a workload that fails is stopped with
messages that name column, rule, count and first offending row. Nothing is repaired: duplicated, unordered or
missing rows are failures, but for the few that a mapping lets be dropped beforehand (dropping.py). The HTML Data Docs
are kept as an artifact (data_docs.py).

    rules.py  what must hold  ->  one expectation each  ->  messages.py  what is wrong, what to do next

Great Expectations takes about 5 CPU s to import, so it is imported here inside the functions, without its
telemetry.
"""

import gc
import html
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from feature_store.data_docs import Page, write_data_docs
from feature_store.data_quality import summarise
from feature_store.dropping import BadRowsFound
from feature_store.errors import InputError
from feature_store.messages import Failure, Judged, describe
from feature_store.origin import Origin
from feature_store.rules import WINDOW, Rule, check_table, rules_for, workload_rows
from feature_store.schema import TelemetrySchema
from feature_store.sources.files import has_synthetic_time

NUMERIC_TYPES = ["float64", "float32", "int64", "int32"]  # asked only where pandas says that it is none
MANY_ROWS = 50_000  # of fewer, some tables that are no longer needed do not matter
SHOWN_VALUES = 10  # offending values that the Data Docs list for each rule


@dataclass(frozen=True)
class ValidationResult:
    """What the gate found.

    Attributes:
        failures: what stops the workload.
        warnings: for the report, such as a constant feature.
        checks: every rule that was asked, as {rule, column, statement, fatal, passed}: for quality.json.
        statistics: {rows, rules, broken, time, quality}: counts, whether time is measured, column statistics.
        bad_rows: BadRowsFound.to_dict() of what was dropped beforehand, or is too much to be dropped; None: the mapping
            lets nothing be dropped.
    """

    workload: str
    passed: bool
    failures: tuple[Failure, ...]
    warnings: tuple[Failure, ...]
    checks: tuple[Mapping[str, Any], ...]
    statistics: Mapping[str, Any]
    bad_rows: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


class DataGate:
    """Judges workloads one after the other, with one Great Expectations context and one site of Data Docs."""

    def __init__(self, origin: Origin = Origin()) -> None:
        """`origin`: of the tables, for messages."""
        self.origin = origin
        self._context = _great_expectations().get_context(mode="ephemeral")
        self._context.variables.progress_bars = {"globally": False}
        self._pages: list[Page] = []

    def judge(self, frame: pd.DataFrame, schema: TelemetrySchema, bad_rows: BadRowsFound | None = None,
              others: Sequence[str] = ()) -> ValidationResult:
        """Judges the rows of the schema's workload.

        Args:
            frame: telemetry as recorded, or what drop_bad_rows left of it; rows of other workloads in it are left out.
                Row numbers in messages are its index, or positions where that is no index of integers.
            bad_rows: what drop_bad_rows found; a workload with too many fails.
            others: workloads that have rows elsewhere, for the message of one that has none.

        Raises:
            InputError: the schema would check nothing. Bad data never raises: it fails.
        """
        name = re.sub("[^A-Za-z0-9_-]", "_", schema.workload)  # it becomes a path
        while any(page.name == name for page in self._pages):
            name += "_"
        result = _judged(self._context, name, frame, schema, self.origin, bad_rows, others)
        messages = [failure.message for failure in result.failures]
        messages += [f"warning: {failure.message}" for failure in result.warnings]
        self._pages.append(Page(name, schema.workload, result.statistics["rows"], len(result.checks), result.passed,
                                tuple(messages)))
        return result

    def write_docs(self, folder: Path) -> None:
        """Writes the HTML of everything judged (index.html)."""
        write_data_docs(self._context, folder, self._pages)


def _judged(context: Any, page: str, frame: pd.DataFrame, schema: TelemetrySchema, origin: Origin,
            bad_rows: BadRowsFound | None, others: Sequence[str]) -> ValidationResult:
    rows = frame[workload_rows(frame, schema.workload)]
    table = check_table(rows, schema)
    rules = rules_for(schema, table)
    if bad_rows is not None and not bad_rows.too_many and "time_gap" in bad_rows.by_rule:  # the holes are left open
        rules = tuple(replace(rule, fatal=False) if rule.kind == "time_gap" else rule for rule in rules)
    outcome = _run(context, page, table, rules)
    broken = {number: result for number, result in outcome.items() if not result["success"]}
    judged = Judged(table, rows, schema, origin, others or _workloads(frame))
    findings = [(rules[number], describe(rules[number], result, judged))
             for number, result in sorted(broken.items())]
    failures = tuple(failure for rule, failure in findings if rule.fatal)
    if bad_rows is not None and bad_rows.too_many:
        failures = (bad_rows.failure(schema.workload), *failures)
    synthetic = has_synthetic_time(rows)
    return ValidationResult(
        workload=schema.workload,
        passed=not failures,
        failures=failures,
        warnings=tuple(failure for rule, failure in findings if not rule.fatal),
        checks=tuple({"rule": rule.kind, "column": rule.column, "statement": rule.statement,
                      "fatal": rule.fatal, "passed": number not in broken}
                     for number, rule in enumerate(rules)),
        statistics={"rows": len(rows), "rules": len(rules), "broken": len(broken),
                    "time": "synthetic order, the file has none" if synthetic else "measured",
                    "quality": summarise(rows, tuple(schema.numeric)).to_dict()},
        bad_rows=None if bad_rows is None else bad_rows.to_dict(),
    )


def _workloads(frame: pd.DataFrame) -> tuple[str, ...]:
    return tuple(map(str, frame["workload"].dropna().unique())) if "workload" in frame else ()


def _run(context: Any, page: str, table: pd.DataFrame, rules: tuple[Rule, ...]) -> dict[int, dict[str, Any]]:
    """Runs one expectation for each rule; the result of each, by the rule's number.

    Raises:
        InputError: a rule was not evaluated, since Great Expectations passes what it does not evaluate.
    """
    gx = _great_expectations()
    expectations = [_expectation(rule, number) for number, rule in enumerate(rules)]
    suite = gx.ExpectationSuite(page, expectations=expectations)
    asset = context.data_sources.add_pandas(page).add_dataframe_asset(page)
    batch = asset.add_batch_definition_whole_dataframe(page)
    table = _escaped(table)
    definition = context.validation_definitions.add(
        gx.ValidationDefinition(name=page, data=batch, suite=context.suites.add(suite)))
    result = definition.run(batch_parameters={"dataframe": table}, run_id=gx.RunIdentifier(run_name="gate"),
                            result_format={"result_format": "SUMMARY",
                                           "partial_unexpected_count": SHOWN_VALUES})
    context.data_sources.delete(page)  # each keeps its table
    if len(table) > MANY_ROWS:  # objects that point at each other keep it as well, until they are collected
        gc.collect()
    outcome = {int(item.expectation_config.meta["number"]): item.to_json_dict() for item in result.results}
    missed = [rule.statement for number, rule in enumerate(rules) if number not in outcome]
    if missed or not rules:
        raise InputError(f"every rule must be evaluated, got none for {missed or 'an empty suite'} ({page})")
    return outcome


def _escaped(table: pd.DataFrame) -> pd.DataFrame:
    """The table with names and texts as HTML: Great Expectations' pages show both as they are."""
    table = table.rename(columns=lambda name: html.escape(str(name)))
    for name in (name for name in table if pd.api.types.is_string_dtype(table[name].dtype)
                 or table[name].dtype == object):
        values = table[name].unique() if isinstance(table[name].dtype, pd.StringDtype) else table[name]
        escaped = {text: html.escape(text) for text in values if isinstance(text, str)}
        if any(text != shown for text, shown in escaped.items()):
            table[name] = [escaped[value] if isinstance(value, str) else value for value in table[name]]
    return table


def _expectation(rule: Rule, number: int) -> Any:
    """The expectation that asks for a rule; `number` comes back in its result."""
    gxe = _great_expectations().expectations
    common = {"meta": {"number": number, "rule": rule.kind}, "description": html.escape(rule.statement),
              "severity": "critical" if rule.fatal else "warning"}
    rule = replace(rule, column=html.escape(rule.column))
    match rule.kind:
        case "row_count":
            return gxe.ExpectTableRowCountToBeBetween(min_value=int(rule.minimum or 1), **common)
        case "column_present":
            return gxe.ExpectColumnToExist(column=rule.column, **common)
        case "numeric":
            return gxe.ExpectColumnValuesToBeInTypeList(column=rule.column, type_list=NUMERIC_TYPES, **common)
        case "not_null":
            return gxe.ExpectColumnValuesToNotBeNull(column=rule.column, **common)
        case "variation":
            return gxe.ExpectColumnUniqueValueCountToBeBetween(column=rule.column, min_value=2, **common)
        case "unique_windows":
            return gxe.ExpectCompoundColumnsToBeUnique(column_list=list(WINDOW), **common)
        case _:
            return gxe.ExpectColumnValuesToBeBetween(column=rule.derived or rule.column, **common,
                                                     min_value=rule.minimum, max_value=rule.maximum)


def _great_expectations() -> Any:
    os.environ["GX_ANALYTICS_ENABLED"] = "False"  # it would send usage events; read once, at import
    with warnings.catch_warnings():  # 1.24.1 imports sre_constants, which Python 3.11 deprecates
        warnings.simplefilter("ignore", DeprecationWarning)
        import great_expectations
    return great_expectations
