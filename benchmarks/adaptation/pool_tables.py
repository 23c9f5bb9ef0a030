"""Tables of what a pool's size brings and costs: benchmarks/adaptation/metrics.py and adaptation/scale.py."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.adaptation.intervals import difference, joined
from benchmarks.adaptation.methods import DEFAULT
from benchmarks.harness.columns import columns_table, right
from benchmarks.harness.markdown import mean_and_spread, median_and_range, number, paragraph, table

Results = Mapping[str, Any]
Entry = Mapping[str, Any]
CHOSEN = "chosen"
TITLES = {f"{DEFAULT}_without_metrics": "default, without metrics", DEFAULT: "default, with metrics",
          "hierarchical": "hierarchical, with metrics", "nearest": "nearest, with metrics",
          "hierarchical_without_metrics": "hierarchical, without metrics",
          "nearest_without_metrics": "nearest, without metrics",
          "boosted_ratios": "gradient-boosted ratios, with metrics",
          "meta_network": "network that corrects hierarchical Bayes, with metrics"}


def metrics_table(results: Results) -> str:
    """Every method on pools of every size, and its distance to the default with metrics on the same workloads."""
    rows = []
    for workloads in sorted({entry["workloads"] for entry in results["entries"]}):
        default = _by_seed(results, workloads, DEFAULT)
        for method in (*TITLES, CHOSEN):
            by_seed = _by_seed(results, workloads, method)
            if not by_seed:
                continue
            mape = np.array([entry["mape"] for entry in by_seed.values()], dtype=float)
            paired = np.array([np.subtract(entry["mape"], default[seed]["mape"]).mean()
                               for seed, entry in by_seed.items() if seed in default])
            rows.append([str(workloads), _title(method, list(by_seed.values())), str(len(mape)),
                         joined(mape.mean(axis=0)), joined(mape.std(axis=0, ddof=1)) if len(mape) > 1 else "",
                         "" if method == DEFAULT or not len(paired) else difference(paired),
                         _seconds(by_seed.values())])
    return table(["workloads of the pool", "learner", "seeds", "MAPE, 1 / 2 / 3 runs", "standard deviation over seeds",
                  "minus the default's with metrics, mean over runs, 95 % interval", "fit, s of CPU time"], rows,
                 right=(0, 2, 6))


def candidates_table(results: Results) -> str:
    """What every candidate's error was on the pool's own held-out workloads, where the choice is made."""
    chosen = [entry for entry in results["entries"] if entry["method"] == CHOSEN]
    sizes = sorted({entry["workloads"] for entry in chosen})
    rows = []
    for name, title in TITLES.items():
        cells = []
        for size in sizes:
            errors = [entry["pool_errors"][name][0] for entry in chosen
                     if entry["workloads"] == size and name in entry["pool_errors"]]
            cells.append(mean_and_spread(errors, 3) if errors else "")
        if any(cells):
            rows.append([title, *cells])
    return table(["candidate", *(f"{size} workloads" for size in sizes)], rows)


def metrics_conditions_line(results: Results) -> str:
    """How large, and what was chosen at what cost."""
    chosen = [entry for entry in results["entries"] if entry["method"] == CHOSEN]
    costs = [f"{number(float(np.median([entry['choice_cpu_s'] for entry in chosen if entry['workloads'] == size])))} s "
             f"at {size}" for size in sorted({entry["workloads"] for entry in chosen})]
    return paragraph(
        f"{results['new_workloads']} unseen workloads, {results['configurations']} configurations, "
        f"{results['draws']} random supports a workload.",
        *([f"Choosing takes, in CPU time, {', '.join(costs)} workloads (medians)."] if costs else []))


def scale_table(results: Results) -> str:
    """Costs by size."""
    return columns_table(
        results["entries"], right("workloads", "workloads", ","), right("configurations", "configurations"),
        right("samples", "samples", ","),
        right("fit, s of CPU time (least to most)", "fit_cpu_s_values", median_and_range),
        right("with calibration, s", "pretrain_cpu_s", number), right("memory, MiB", "memory_mib", ",.0f"))


def scale_conditions_line(results: Results) -> str:
    """Exponents, and what was not measured."""
    of, most = results["exponents"], results["most_calibrated"]
    repeats = sorted({entry["repeats"] for entry in results["entries"]})
    slopes = [f"to the {value:.2f} with {size}" for size in ("workloads", "configurations", "samples")
              if (value := of[size]["fit_cpu_s"]) is not None]
    memory = of["workloads"]["memory_mib"]
    calibrated = of["workloads"]["pretrain_cpu_s"]
    return paragraph(
        *([f"The fit's seconds grow {', '.join(slopes)} (log-log slopes by least squares)."] if slopes else []),
        *([f"Those with calibration grow to the {calibrated:.2f} with workloads."] if calibrated is not None else []),
        *([f"Memory grows to the {memory:.2f} with workloads."] if memory is not None else []),
        f"Medians of {' or '.join(map(str, repeats))} processes on one thread; memory is the peak of the fit above "
        f"what the libraries hold. Calibration, 15 more fits, was measured once and only up to {most:,} workloads.")


def _by_seed(results: Results, workloads: int, method: str) -> dict[int, Entry]:
    return {int(entry["seed"]): entry for entry in results["entries"]
            if entry["workloads"] == workloads and entry["method"] == method}


def _title(method: str, entries: Sequence[Entry]) -> str:
    if method != CHOSEN:
        return TITLES[method]
    counts = Counter(entry["choice"] for entry in entries).most_common()
    return f"chosen on the pool: {', '.join(f'{TITLES[name]} ({count})' for name, count in counts)}"


def _seconds(entries: Any) -> str:
    return number(float(np.median([entry["fit_cpu_s"] for entry in entries])))
