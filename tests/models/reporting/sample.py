"""Made-up evidence in the shape that the pipeline writes, for the tests of the reports."""

import copy
from typing import Any

import numpy as np

INPUTS = (("psi_cpu_some", "share", 0.02, 0.93, "time in which some task waited for a CPU"),
          ("psi_io_full", "share", 0.0, 0.41, "time in which all non-idle tasks waited for IO"),
          ("psi_io_some", "share", 0.0, 0.62, "time in which some task waited for IO"),
          ("disk_io_time", "share", 0.01, 0.99, "time in which the disk had requests in flight"),
          ("cpu_time", "share", 0.05, 1.0, "non-idle CPU time, mean over the CPUs"),
          ("cpu_quota_cores", "cores", 0.25, 2.0, "CPU quota of the workload's control group"),
          ("connections", "count", 1.0, 256.0, "concurrent connections or threads of the load generator"),
          ("payload_bytes", "bytes", 64.0, 65536.0, "size of a value or of a response"))
MONOTONE = ("psi_cpu_some", "psi_io_full", "psi_io_some")
METRICS = [name for name, *_ in INPUTS[:5]]
WORKLOADS = ["nginx", "redis", "mysql", "training", "search"]


def contract(workload: str = "redis") -> dict[str, Any]:
    inputs = [{"name": name, "unit": unit, "description": words, "minimum": low, "maximum": high,
               "physical_minimum": 0.0, "physical_maximum": 1.0 if unit == "share" else None}
              for name, unit, low, high, words in INPUTS]
    return {"format": "assay-bundle/2", "task": "performance", "workload": workload, "inputs": inputs,
            "outputs": [{"name": "latency_ms", "unit": "ms", "kind": "prediction", "minimum": 0.21, "maximum": 38.4,
                         "physical_minimum": 0.0, "physical_maximum": None}],
            "specification": {
                "file": "specification.yaml", "sha256": "ab" * 32,
                "statement": "The output is increasing in psi_cpu_some, psi_io_full, psi_io_some, for every input in "
                             "the box, with the other inputs equal: a pair may violate the order by at most 0.0115 ms "
                             "over the box (for each feature 0.00382 ms, 0.0001 of the training data's range). It is "
                             "proved for the network in real arithmetic with the weights stored in the model file; "
                             "execution adds at most 0.000382 ms, as the checker bounds it."},
            "model": {"file": "model.onnx", "sha256": "9f86d081884c7d659a2feaa0c55ad015" * 2, "opset": 18,
                      "input": "telemetry", "output": "latency_ms"},
            "code_version": "a41c9e0", "data_version": "5d41402abc4b2a76", "seed": 7}


def specification() -> dict[str, Any]:
    """Two properties, as a bundle has them."""
    return {"features": [name for name, *_ in INPUTS], "outputs": ["latency_ms"],
            "units": {**{name: unit for name, unit, *_ in INPUTS}, "latency_ms": "ms"},
            "box": {name: [low, high] for name, _, low, high, _ in INPUTS}, "tolerance": {"latency_ms": 0.00382},
            "rounding": {"latency_ms": 0.000382},
            "properties": [
                {"monotone": {"features": list(MONOTONE), "direction": "increasing", "output": "latency_ms"}},
                {"range": {"output": "latency_ms", "minimum": 0.001}}]}


def scaling() -> dict[str, Any]:
    return {"features": {name: [low, high] for name, _, low, high, _ in INPUTS}, "target": {"latency_ms": [0.21, 38.4]}}


def verdict(status: str = "PROVED") -> dict[str, Any]:
    """Of the file, with its counterexample in raw units."""
    low = {name: (a + b) / 2 for name, _, a, b, _ in INPUTS} | {"psi_io_full": 0.082}
    refuted = status == "REFUTED"
    witness = {"points": [{"inputs": low, "outputs": {"latency_ms": 19.3}},
                          {"inputs": {**low, "psi_io_full": 0.287}, "outputs": {"latency_ms": 9.758}}],
               "units": {"psi_io_full": "share", "latency_ms": "ms"}, "replayed_with": "onnxruntime"}
    return {"status": status, "reason": "a counterexample was found" if refuted else "every box is proved",
            "statement": "it holds", "execution": "", "parts": [], "proved_share": 0.0 if refuted else 1.0,
            "seconds": 0.84, "boxes": 1731, "leaves": 0 if refuted else 866, "witness": witness if refuted else None}


def twin_verdict() -> dict[str, Any]:
    """Of the unverified twin, in scaled coordinates."""
    witness = {"feature": 1, "sign": 1, "low": [0.4, 0.2, 0.5, 0.5, 0.9, 0.5, 0.25, 0.1],
               "high": [0.4, 0.7, 0.5, 0.5, 0.9, 0.5, 0.25, 0.1], "output_low": 0.5, "output_high": 0.25,
               "excess": 0.24995}
    return {"status": "REFUTED", "reason": "a counterexample was found", "lower_bound": -3.2, "proved_share": 0.0,
            "seconds": 0.84, "boxes": 1731, "leaves": 0,
            "witnesses": [{**witness, "feature": 0, "excess": 0.001}, witness]}


def evidence(workload: str = "redis", rows: int = 420, seed: int = 7) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    measured = np.exp(random.normal(0.8, 0.9, rows)).clip(0.21, 38.4)
    epochs = np.arange(1, 151)
    loss = 0.06 * np.exp(-epochs / 25) + 0.0021 + 0.0006 * random.random(150)
    loss[60:] += 0.008 * np.exp(-(epochs[60:] - 60) / 10)
    twin_loss = 0.06 * np.exp(-epochs / 22) + 0.0019 + 0.0006 * random.random(150)
    x = {name: np.linspace(low, high, 60) for name, _, low, high, _ in INPUTS}
    curves = {name: {"x": x[name].tolist(), "verified": (2 + 9 * np.linspace(0, 1, 60) ** 1.5).tolist(),
                     "unverified": (2 + 9 * np.linspace(0, 1, 60) ** 1.5 + 0.8 * np.sin(7 * np.linspace(0, 1, 60) + k))
                     .tolist(), "direction": "increasing", "unit": "share"} for k, name in enumerate(MONOTONE)}
    metrics = {
        "test_mae": 0.02, "twin_test_mae": 0.03, "baseline_mae": 0.04, "train_mse": 0.00213, "test_mse": 0.00274,
        "train_accuracy": 0.881, "test_accuracy": 0.8642,
        "counterexample_accuracy": 1.0, "counterexamples": 312.0, "twin_train_mse": 0.00196, "twin_test_mse": 0.00281,
        "twin_train_accuracy": 0.886, "twin_test_accuracy": 0.8571, "twin_counterexample_accuracy": 0.125,
        "baseline_mse": 0.00302, "baseline_accuracy": 0.849, "parity_max_abs": 3.1e-7, "parity_points": 12000.0,
        "latency_us": 21.4, "verification_iterations": 3.0, "verification_seconds": 4.61, "training_seconds": 19.2,
        "twin_seconds": 17.9}
    return {
        "format": "assay-evidence/1", "task": "performance", "workload": workload, "seed": seed,
        "target": {"name": "latency_ms", "unit": "ms", "minimum": 0.21, "maximum": 38.4}, "metrics": metrics,
        "verdict": verdict(), "twin_verdict": twin_verdict(),
        "specification": specification(),
        "history": {"epochs": [{"epoch": int(e), "loss": float(a), "twin_loss": float(b)}
                               for e, a, b in zip(epochs, loss, twin_loss, strict=True)],
                    "rounds": [{"epoch": e, "seconds": s, "status": status, "lower_bound": b, "counterexamples": c,
                                "twin_counterexamples": t} for e, s, status, b, c, t in (
                        (60, 1.2, "REFUTED", float("nan"), 256, 64), (120, 1.4, "REFUTED", float("nan"), 56, 64),
                        (130, 0.9, "TIMEOUT", -0.03, 0, 64), (150, 1.1, "PROVED", 0.0, 0, 64))]},
        "data": {"train_rows": 1680, "test_rows": rows, "quality": {},
                 "files": {"train.parquet": "ab" * 32, "test.parquet": "cd" * 32}},
        "curves": {"partial_dependence": curves,
                   "predictions": {"measured": measured.tolist(),
                                   "verified": (measured * np.exp(random.normal(0, 0.15, rows))).tolist(),
                                   "unverified": (measured * np.exp(random.normal(0, 0.2, rows)) - 0.2).tolist()}},
        "reproduce": {"command": "assay run --task performance --workload redis --seed 7 --telemetry data/base.parquet",
                      "code_version": "a41c9e0", "data_version": "5d41402abc4b2a76", "seed": seed, "python": "3.11.2",
                      "packages": {"torch": "2.13.0", "onnxruntime": "1.31.1", "numpy": "2.4.6"}}}


def gates(passed: bool = True) -> dict[str, Any]:
    rows = [("specification", "verdict", "PROVED", "PROVED", "==", "", None, True, "the verdict is PROVED"),
            ("test_accuracy", "test_accuracy", 0.8642, 0.5, ">=", "share", 420, True,
             "test_accuracy 0.8642 >= 0.5 holds over 420 cases"),
            ("champion_mse", "test_mse", 0.00274, None, "<=", "scaled²", 420, True, "no champion yet"),
            ("baseline_mse", "test_mse", 0.00274, 0.00453, "<=", "scaled²", 420, True,
             "test_mse 0.00274 <= 0.00453 holds over 420 cases; baseline_mse is 0.00302, times 1.5"),
            ("counterexample_accuracy", "counterexample_accuracy", 1.0, 1.0, ">=", "share", 312, True,
             "counterexample_accuracy 1 >= 1 holds over 312 cases"),
            ("parity", "parity_max_abs", 3.1e-7, 1e-4, "<=", "scaled", 10_000, True,
             "parity_max_abs 3.1e-07 <= 0.0001 holds over 10,000 cases"),
            ("latency", "latency_us", 21.4 if passed else None, 500.0, "<=", "µs", None, passed,
             "latency_us 21.4 <= 500 holds" if passed else "latency_us must be in the evidence, it is missing")]
    keys = ("name", "metric", "value", "threshold", "comparison", "unit", "cases", "passed", "reason")
    return {"passed": passed, "gates": [dict(zip(keys, row, strict=True)) for row in rows]}


def context() -> dict[str, Any]:
    columns = [{"name": name, "minimum": low, "median": (low + high) / 3, "maximum": high, "missing": 0,
                "distinct": 873}
               for name, _, low, high, _ in INPUTS]
    columns.append({"name": "latency_ms", "minimum": 0.21, "median": 2.24, "maximum": 38.4, "missing": 3,
                    "distinct": 2090})
    pearson = np.random.default_rng(1).uniform(-0.3, 0.95, (len(WORKLOADS), len(METRICS))).round(3).tolist()
    return {"version": 4, "alias": "champion", "scaling": scaling(),
            "correlation": {"workloads": WORKLOADS, "metrics": METRICS, "pearson": pearson},
            "data_quality": {"rows": 2103, "windows": 702, "combinations": 64, "environments": ["base"],
                             "first": "2024-05-02T10:00:00+00:00", "last": "2024-05-02T12:10:00+00:00",
                             "dropped": {"warm-up": 130, "workload absent": 41}, "columns": columns},
            "validation": {"passed": True, "failures": []}}


def run_context() -> dict[str, Any]:
    names = ["ingest", "validate", "featurize", "pretrain"]
    names += [f"{stage} {workload}" for workload in WORKLOADS for stage in ("finetune", "verify", "export")]
    names += ["gate", "register", "report"]
    seconds = np.random.default_rng(2).uniform(0.8, 45, len(names))
    return {**context(), "run_id": "2024-05-02-1214-a41c9e0", "started": "2024-05-02 12:14:07 UTC", "seconds": 412.7,
            "stages": [{"name": name, "seconds": float(s), "peak_mb": float(200 + 20 * s)}
                       for name, s in zip(names, seconds, strict=True)]}


def entries() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for k, workload in enumerate(WORKLOADS):
        found.append({"workload": workload, "contract": contract(workload), "evidence": evidence(workload, seed=k),
                      "gates": gates(), "version": k + 1, "alias": "champion", "status": "registered", "message": "",
                      "scaling": scaling(), "report_path": f"performance/{workload}/report.html"})
    refused = copy.deepcopy(found[1])
    refused["evidence"]["verdict"] = verdict("REFUTED")
    refused.update(gates=gates(False), alias=None, status="rejected", message="The specification was refuted.")
    found[1] = refused
    found[3] = {"workload": "training", "contract": None, "evidence": None, "gates": None, "version": None,
                "alias": None, "status": "bad_data", "report_path": None,
                "message": "column 'psi_cpu_some' must be in 0..1 share, got 41 (workload training: 1,204 of 2,011 "
                           "rows, first at row 3); it looks like percent: divide by 100, or set unit: percent in the "
                           "mapping"}
    return found


def compared(worse: float = 2.0) -> dict[str, Any]:
    """Evidence with a champion whose errors are so many times as large, on the same rows."""
    found, span = evidence(), 38.19
    curves = found["curves"]["predictions"]
    squares = (np.array(curves["verified"]) - np.array(curves["measured"])) ** 2
    cases = {"quantity": "squared error", "metric": "test_mse", "better": "smaller", "unit": "ms²",
             "values": squares.tolist(), "sha256": "0" * 64, "scale": span**2, "block": 1}
    found["metrics"]["test_mse"] = float(squares.mean()) / span**2
    found |= {"cases": cases, "case_counts": {"test_mse": len(squares)}}
    held = contract()
    found["champion"] = {
        "version": 3, "metrics": {"test_mse": found["metrics"]["test_mse"] * worse**2},
        "cases": {**cases, "values": (squares * worse**2).tolist()},
        "changes": {"weaker": [], "added": [], "box": [], "data_version": held["data_version"],
                    "gates": {gate["name"]: [gate["comparison"], gate["threshold"]] for gate in gates()["gates"]}}}
    return found
