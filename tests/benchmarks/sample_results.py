"""Small result files, as the benchmarks write them."""

from typing import Any

from benchmarks.harness.quantity import below, quantity

MACHINE: dict[str, Any] = {
    "cpu_model": "Example CPU", "cores": 2, "memory_gib": 8.0, "kernel": "6.1.0", "system": "Debian",
    "python": "3.11.2", "packages": {"pandas": "3.1.1", "a-peer": "not installed"}, "date": "2026-01-02T03:04:05+00:00"}


def pipeline_results() -> dict[str, Any]:
    stage = {"stage": "ingest", "processes": 1, "seconds": {"median": 0.05, "values": [0.05]},
             "start_seconds": {"median": 1.5, "values": [1.5]}, "peak_gb": {"median": 0.2, "values": [0.2]}}
    grown = {"stage": "validate", "seconds": [1.0, 4.0], "start_seconds": [1.0, 1.0], "peak_gb": [0.2, 0.25],
             "exponent": 1.0, "memory_exponent": 0.1}
    about = {"status": "done", "quick": False, "load_average_before": 0.1, "seconds": 1.0}
    return {"format": "assay-benchmark/1", "machine": MACHINE, "measurements": {
        "stages": {**about, "quantities": {
            "run": quantity("whole run", "s", [90.0, 100.0, 110.0]),
            "overhead": quantity("share of the run that is overhead", "share", [0.31, 0.3, 0.29], below(0.25))},
            "details": {"stages": [stage], "seconds_of_run": {
                "work": [70.0, 70.0], "great_expectations": [10.0, 10.0], "mlflow": [5.0, 5.0],
                "starts_and_imports": [10.0, 10.0], "orchestration": [5.0, 5.0]}}},
        "serving": {**about, "quantities": {
            "assay": quantity("one prediction with all checks", "s", [0.31, 0.3, 0.35], below(1.0)),
            "plain": quantity("plain onnxruntime", "s", [0.3], beside="assay")},
            "details": {"what": "rows", "not_installed": ["a peer"]}},
        "recorder": {**about, "status": "failed", "error": "FileNotFoundError: no card"},
        "scale": {**about, "quantities": {"exponent": quantity("exponent", "1", [0.5])}, "details": {
            "what": "copies", "workloads": [5, 20], "seconds": [10.0, 20.0], "exponent_of_last_two": 0.5,
            "fit": {"factor": 4.4721, "exponent": 0.5, "residual": 0.0}, "stages": [grown]}}}}


def performance_results() -> dict[str, Any]:
    settings = {"epochs": 120, "pretrain_epochs": 30, "batch_size": 64, "iterations": 5, "epochs_per_iteration": 10,
                "loop_verify_seconds": 5.0, "verify_seconds": 20.0}
    entries = [_entry("monotone", seed, workload, 0.9 + 0.01 * seed, 0.87) for seed in (0, 1)
               for workload in ("redis", "search")]
    entries += [_entry("monotone_not_pretrained", 0, "redis", 0.8, 0.8),
                _entry("counterexample_guided", 0, "search", 0.7, 0.87, verdict="REFUTED", own=0.125)]
    entries += [_entry("plain", seed, "search", 0.87, 0.87, verdict="REFUTED") for seed in (0, 1)]
    entries += [_entry("certified", 0, "linnos", 0.99, 0.992, data="linnos"),
                _entry("plain", 0, "linnos", 0.992, 0.992, verdict="REFUTED", data="linnos")]
    found = {"rows": 800, "features": {"queue_now": {"sign": -1, "rank_correlation": 0.5, "others_equal": 0.25}},
             "errors": {of: {"free": [0.1, 0.2], "as_specified": [0.3, 0.1], "reversed": [0.2, 0.2]}
                        for of in ("target", "ranks")}}
    methods = dict.fromkeys(("monotone", "counterexample_guided"), settings)
    return {"format": "assay-performance/2", "machine": MACHINE, "learning_code_version": "0123", "jobs": 2,
            "data": {"recorded": {"data_version": "0123456789abcdef", "task_version": "0123", "settings": methods,
                                  "directions": {}},
                     "linnos": {"data_version": "fedcba9876543210", "task_version": "0123", "settings": methods,
                                "directions": {"linnos": found}}},
            "entries": entries}


def peer_entry(seed: int, workload: str, accuracy: float) -> dict[str, Any]:
    """Of a learner that our verifier cannot read."""
    entry = _entry("lipschitz_monotone", seed, workload, accuracy, 0.0, verdict="by construction (not checked)")
    names = ("test_accuracy", "test_mse", "baseline_mse", "baseline_accuracy", "constant_mse", "constant_accuracy")
    return {**entry, "metrics": {name: entry["metrics"][name] for name in names}}


def _entry(method: str, seed: int, workload: str, accuracy: float, twin: float, verdict: str = "PROVED",
           own: float | None = None, data: str = "recorded") -> dict[str, Any]:
    metrics = {"test_accuracy": accuracy, "twin_test_accuracy": twin, "baseline_accuracy": 0.85, "test_mse": 0.0012,
               "twin_test_mse": 0.0015, "baseline_mse": 0.002, "counterexamples": 128, "counterexample_accuracy": 1.0,
               "twin_counterexample_accuracy": 0.25, "verification_iterations": 2, "verification_seconds": 1.5,
               "constant_mse": 0.012, "constant_accuracy": 0.3}
    if verdict == "PROVED":
        metrics["proved_seconds"] = 12.5
    if own is not None:
        metrics |= {"own_counterexamples": 100.0, "own_counterexample_accuracy": 0.9,
                    "own_twin_counterexample_accuracy": own}
    return {"data": data, "method": method, "seed": seed, "workload": workload, "status": "done", "seconds": 12.0,
            "verdict": verdict, "twin_verdict": "REFUTED", "metrics": metrics, "rows": {"train": 800, "test": 200}}
