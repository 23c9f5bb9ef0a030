"""What a reviewer of a few-shot model wants to know: errors beside simpler predictions, intervals, a recommendation.

Read from the files that features.py describes; predictions are the exported network's own. An interval lies
width * deviation to each side of the network's mean in logarithms, both of the pool's (conformal.py); `crossing` is the
proof that the ends never cross: a network with both ends as outputs, verified like any other.

Symbols as in models/adaptation/learner.py.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from feature_store.scaling import FeatureScaling
from feature_store.trained_rows import TrainedRows
from models.adaptation.learner import FloatArray
from models.tasks.few_shot.features import OWN_PREFIX as OWN
from models.training.evaluation import accuracy, mean_squared_error
from models.verification.language.properties import OutputOrder
from models.verification.language.specification import Specification
from models.verification.network.fully_connected import ReluNetwork
from models.verification.network.graph import dense_graph
from models.verification.obligations.compile import obligations
from models.verification.search.branch_and_bound import Budget
from models.verification.search.prove import prove_outputs

SHOWN = 10
FEW_SHOT_BASELINE = "the mean of the workload's runs"


def few_shot_metrics(folder: Path, network: ReluNetwork, scaling: FeatureScaling,
                     tolerance: float) -> dict[str, float]:
    """test_mape of the network, of the closed form that it was trained on, and of the mean of the support; and the
    baseline's error and accuracy, which are of that mean: what a prediction has to beat, and the only mean of measured
    targets that the workload's training knows (mean_mse).

    Args:
        tolerance: of the accuracy, in units of the scaled target.
    """
    facts = json.loads((folder / "few_shot.json").read_text())
    test = pd.read_parquet(folder / "test.parquet")
    measured = test.iloc[:, -1].to_numpy(dtype=np.float64)
    predicted = _predict(network, scaling, test.iloc[:, :-1].to_numpy(dtype=np.float64))
    constant, wanted = (scaling.target.scale(values[:, None])[:, 0] for values in
                        (np.full(len(measured), facts["support_mean"]), measured))
    return {"test_mape": float(np.mean(np.abs(np.exp(predicted - measured) - 1))),
            "closed_form_mape": facts["closed_form_mape"], "baseline_mape": facts["support_mean_mape"],
            "baseline_mse": mean_squared_error(constant, wanted), "mean_mse": mean_squared_error(constant, wanted),
            "baseline_accuracy": accuracy(constant, wanted, tolerance), "similarity": facts["similarity"]}


def few_shot_facts(folder: Path, pool: Path, network: ReluNetwork, scaling: FeatureScaling,
                   specification: Specification, seed: int) -> dict[str, Any]:
    """The `few_shot` part of evidence.json: support, similarity, pool, recommendation, options, crossing, coverage."""
    facts = json.loads((folder / "few_shot.json").read_text())
    options = pd.read_parquet(folder / "options.parquet")
    columns = [name for name in options if str(name).startswith("input:")]
    embedding = np.tile(facts["embedding"], (len(options), 1))
    predicted = _predict(network, scaling, np.column_stack([options[columns].to_numpy(dtype=np.float64), embedding]))
    mean, deviation, rate, runs, measured = (options[f"{OWN}{name}"].to_numpy(dtype=np.float64) for name in
                                             ("mean", "deviation", "rate", "runs", "measured"))
    reach = facts["width"] * deviation
    plain = [str(name) for name in options.columns[: options.columns.get_loc(columns[0])]]
    # the point lies a variance below the mean (combination.py), around which the widths are calibrated; where the
    # network is off the closed form, the interval holds both
    middle = predicted + deviation**2
    lower, upper = np.minimum(np.minimum(middle, mean) - reach, predicted), np.maximum(middle, mean) + reach
    table = pd.DataFrame({"predicted": np.exp(predicted), "lower": np.exp(lower), "upper": np.exp(upper),
                          "cost": np.exp(predicted) * rate, "runs": runs})
    judged = ~np.isnan(measured) & ~options[f"{OWN}support"].to_numpy(dtype=bool)
    limit = np.inf if facts["deadline"] is None else facts["deadline"]
    meets = (table["upper"] <= limit) & table["cost"].notna()
    order = table["cost"].where(meets).sort_values(kind="stable").index
    best = int(order[0]) if meets.any() else None
    priced = bool(table["cost"].notna().any())
    shown = table.sort_values("cost" if priced else "predicted", kind="stable").head(SHOWN)
    test = pd.read_parquet(folder / "test.parquet").iloc[:, -1].to_numpy(dtype=np.float64)
    return {
        **{key: facts[key] for key in ("runs", "bases", "support", "similarity", "threshold", "out_of_distribution",
                                       "coverage", "deadline", "embedding", "hull")},
        "pool": json.loads((pool / "pool.json").read_text()),
        "priced": priced,
        "recommendation": None if best is None else _records(options[plain], table.loc[[best]])[0],
        "options": _records(options[plain], shown),
        "interval_coverage": float(((lower <= measured) & (measured <= upper))[judged].mean()),
        "interval_reach": float(reach.max()),
        # of the narrowest interval: any other has its ends further apart
        "crossing": interval_crossing(network, scaling, specification, float(reach.min()), seed),
        "judged_configurations": len(test),
    }


def seen_support(folder: Path, inputs: Sequence[str]) -> TrainedRows:
    """The configurations whose runs the model was given, by their inputs: measured again they are the same ones."""
    options = pd.read_parquet(folder / "options.parquet")
    given = options[options[f"{OWN}support"].to_numpy(dtype=bool)]
    return TrainedRows.of(given[[f"input:{name}" for name in inputs]].set_axis(list(inputs), axis=1), inputs)


def interval_crossing(network: ReluNetwork, scaling: FeatureScaling, specification: Specification, reach: float,
                      seed: int) -> dict[str, Any]:
    """Verdict and reason on upper >= lower over the whole box, of the network with the interval's ends as its outputs.

    Args:
        reach: half the interval's length, log units; specification: for its box, scaled.
    """
    half = reach / (scaling.target.maximum[0] - scaling.target.minimum[0])
    last, bias = network.weights[-1], network.biases[-1]
    graph = dense_graph((*network.weights[:-1], np.concatenate([last, last])),
                        (*network.biases[:-1], np.concatenate([bias - half, bias + half]).astype(bias.dtype)))
    asked = Specification(specification.feature_names, specification.lower, specification.upper,
                          (OutputOrder(upper=1, lower=0),), output_names=("lower", "upper"))
    unsafe = obligations(graph, asked).unsafe
    assert unsafe is not None
    result, _ = prove_outputs(graph, unsafe, Budget(seconds=20.0), seed=seed)
    return {"status": str(result.status), "reason": result.reason, "statement": asked.statement}


def _predict(network: ReluNetwork, scaling: FeatureScaling, rows: FloatArray) -> FloatArray:
    """(C,): log targets of rows in raw units."""
    return scaling.target.unscale(network.value(scaling.features.scale(rows)).reshape(-1, 1))[:, 0]


def _records(configurations: pd.DataFrame, table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as plain values, each with its configuration; None for what is not known."""
    sides = [json.loads(side.to_json(orient="records", double_precision=15))
             for side in (configurations.loc[table.index], table)]
    return [{"configuration": chosen, **said} for chosen, said in zip(*sides, strict=True)]
