"""The configuration as inputs of a model: what a controller sets, in raw units.

A number is one input; a category is one input a value, 1 where it is that value and 0 elsewhere; a column that the
mapping makes as a product of others is none, for it says nothing beside them and could not move alone.

Symbols as in models/adaptation/learner.py; n inputs.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from feature_store.mapping import DEFAULT_ENVIRONMENT, UNKNOWN_COMBINATION
from feature_store.measurement_mapping import ColumnRule, MeasurementMapping
from feature_store.measurements import Measurements
from feature_store.sources.files import SYNTHETIC_EPOCH
from models.adaptation.learner import FloatArray


@dataclass(frozen=True)
class Input:
    """One input: its name and unit, its column of the configuration, and the value it stands for (of a category)."""

    name: str
    unit: str
    column: str
    value: str | None = None


def inputs_of(mapping: MeasurementMapping, configurations: pd.DataFrame) -> tuple[Input, ...]:
    """In the order of the mapping; a category's values in alphabetical order."""
    inputs: list[Input] = []
    for rule in _settable(mapping):
        if rule.kind == "number":
            inputs.append(Input(rule.name, rule.unit or "1", rule.name))
        else:
            values = sorted(set(configurations[rule.name].astype(str)))
            inputs += [Input(f"{rule.name}={value}", "0 or 1", rule.name, value) for value in values]
    return tuple(inputs)


def input_values(inputs: tuple[Input, ...], configurations: pd.DataFrame) -> FloatArray:
    """(C, n) of configurations, a row each. A value of a category that no input stands for has zeros."""
    columns = []
    for one in inputs:
        column = configurations[one.column]
        if one.value is None:
            columns.append(column.to_numpy(dtype=np.float64))
        else:
            columns.append((column.astype(str) == one.value).to_numpy(dtype=np.float64))
    return np.column_stack(columns)


def samples_of(measurements: Measurements) -> pd.DataFrame:
    """Measurements as telemetry in the schema: a row a run, its inputs, and the target as `log_<target>`.

    `configuration` names what was chosen; the time is a made-up order, for measurements have none.
    """
    frame, mapping = measurements.frame, measurements.mapping
    names = [rule.name for rule in mapping.configuration]
    inputs = inputs_of(mapping, frame)
    made = pd.DataFrame({
        "workload": frame["workload"].astype("str"), "environment": DEFAULT_ENVIRONMENT,
        "combination": UNKNOWN_COMBINATION,
        "window_start": SYNTHETIC_EPOCH + pd.to_timedelta(np.arange(len(frame)), unit="s"), "window_s": 0.0,
        "configuration": frame[names].drop_duplicates().apply(label, axis=1).reindex(
            frame.groupby(names, sort=False)[names[0]].transform(lambda part: part.index[0])).to_numpy()})
    values = pd.DataFrame(input_values(inputs, frame), columns=[one.name for one in inputs])
    target = np.log(frame[measurements.target].to_numpy(dtype=np.float64))
    return pd.concat([made, values, pd.Series(target, name=f"log_{measurements.target}")], axis=1)


def label(configuration: pd.Series) -> str:
    """One configuration in a line, for people."""
    return ", ".join(f"{name} {value if isinstance(value, str) else format(value, 'g')}"
                     for name, value in configuration.items())


def _settable(mapping: MeasurementMapping) -> list[ColumnRule]:
    return [rule for rule in mapping.configuration if not rule.product]
