"""Who is to blame: localizers on incidents whose culprit is known, of applications and faults that they never saw.

    python -m benchmarks culprits [--recording FOLDER ...] [--nezha FOLDER] [--peers-python FILE] [--seeds 3]

Sets: recordings of ours (assay record --task microservices) and Nezha's public faults (culprits_data.py). What a
learner is asked about it has not seen, in four ways: a service, a kind of fault or a recording (another host or day) of
the same application, or the application (it learned from the others). Ours: the task `culprit` as it is trained,
exported and proved by the pipeline's code, and the simple score. Peers: the paper's SVM (on its two features, and on
all of ours), gradient boosting (free, and held monotone), and by an interpreter that has RCAEval BARO, CIRCA, MicroRank
and TraceRCA, which learn nothing. AC@k: share of incidents of which the culprit is among the first k; ties count as the
worst place among them. Resumable.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.entries import Entries
from benchmarks.harness.machine import describe_machine, now_utc
from benchmarks.harness.markdown import mean_and_spread, paragraph, table
from benchmarks.harness.result_file import RESULTS
from benchmarks.harness.task_digest import with_task
from feature_store.digests import content_digest
from feature_store.errors import InputError
from models.tasks.task import load_task
from systems.microservices.benchmarks import culprits_peers
from systems.microservices.benchmarks.culprits_data import Incident, of_nezha, of_recording, rows_of
from systems.microservices.traces.culprits import TARGET, TASK, WORKLOAD, simple_scores, telemetry
from systems.microservices.traces.windows import FEATURES

OUTPUT = RESULTS / "culprits.json"
FORMAT = "assay-culprits/1"
PAPER = ("relative_importance", "congestion_intensity")
HELD_OUT = {"service": "culprit", "kind": "kind", "recording": "recording", "application": "application"}
FALSE_POSITIVES = (0.12, 0.16)  # section 3.3.2
# Ordinary requests that RCAEval's methods get, and of the incident at most: MicroRank's time grows with their square.
ORDINARY_TRACES, INCIDENT_TRACES = 200, 200
SERIES_S = 5
Scores = tuple[np.ndarray, dict[str, Any]]


def run(options: argparse.Namespace) -> None:
    """Measures what is not there yet."""
    incidents, left_out = _incidents(options)
    rows = rows_of(incidents)
    known = set(rows["application"])
    code = with_task(load_task(TASK), code_digest("systems.microservices.benchmarks.culprits",
                                                  ("systems.", "models.training", "models.learners", "models.export")))
    entries = Entries(options.output, FORMAT, lambda entry: (entry["application"], entry["held_out"], entry["method"],
                                                             entry["seed"]),
                      lambda _, entry: entry["code"] == code and (
                          entry["application"] not in known
                          or entry["rows"] == _digest(rows, entry["application"], entry["held_out"])))
    entries.content |= {"machine": describe_machine(), "date": now_utc(),
                        "left_out": {**entries.content.get("left_out", {}), **left_out}}
    applications = sorted(known)
    for seed, application, held, method in _wanted(rows, options.seeds):
        if entries.has((application, held, method, seed)):
            continue
        own, began = rows[rows["application"] == application], time.perf_counter()
        scores, more = (simple_scores(own), {}) if method == "simple" else _held_out(rows, own, held, method, seed)
        entries.add({"application": application, "held_out": held, "method": method, "seed": seed, "code": code,
                     "rows": _digest(rows, application, held), "incidents": _count(own),
                     **measures(own.assign(score=scores)), **more, "seconds": round(time.perf_counter() - began, 2)})
        print(application, held, method, seed, file=sys.stderr, flush=True)
    for application in applications if options.peers_python else ():
        if not entries.has((application, "nothing", "tracerca", 0)):
            chosen = [one for one in incidents if one.application == application]
            own = rows[rows["application"] == application]
            entries.add(*({"application": application, "held_out": "nothing", "method": method, "seed": 0, "code": code,
                           "rows": _digest(rows, application, "nothing"), "incidents": _count(own), **found}
                          for method, found in _peers(chosen, own, options.peers_python)))


def _wanted(rows: pd.DataFrame, seeds: int) -> Iterator[tuple[int, str, str, str]]:
    """Seed, application, what is held out (of several), method; the first seed of everything first."""
    for seed in range(seeds):
        for application, own in rows.groupby("application"):
            if seed == 0:
                yield seed, str(application), "nothing", "simple"
            for held, column in HELD_OUT.items():
                if (rows if held == "application" else own)[column].nunique() > 1:
                    for method, (_, random) in LEARNED.items():
                        if random or seed == 0:
                            yield seed, str(application), held, method


def _incidents(options: argparse.Namespace) -> tuple[list[Incident], dict[str, int]]:
    found, left_out = list[Incident](), {}
    if options.nezha is not None:
        public, left_out["nezha"] = of_nezha(options.nezha)
        found += public
    names = [folder.resolve().name for folder in options.recording]
    if len(set(names)) < len(names) or "nezha" in names:
        raise InputError("--recording: expected folders of different names, none of them nezha, got "
                         f"{', '.join(names)}")
    first = 0
    for name, folder in zip(names, options.recording, strict=True):
        own, left_out[name] = of_recording(folder, first)
        found, first = found + own, 1 + max((one.number for one in own), default=first)
    if not found:
        raise InputError("--recording or --nezha must be given: there are no incidents")
    return found, left_out


def _digest(rows: pd.DataFrame, application: str, held: str) -> str:
    """Of all rows that an application is asked about or that are learned from."""
    return content_digest(rows if held == "application" else rows[rows["application"] == application])


def _count(own: pd.DataFrame) -> int:
    return int(own["incident"].nunique())


def _held_out(rows: pd.DataFrame, own: pd.DataFrame, held: str, method: str, seed: int) -> Scores:
    """Scores of an application's rows by learners that never saw their service, kind, recording or application."""
    learn, _ = LEARNED[method]
    scores, proved = pd.Series(0.0, own.index), []
    for name in sorted(set(own[HELD_OUT[held]])):
        asked = own[own[HELD_OUT[held]] == name]
        given = rows[rows["application"] != name] if held == "application" else own[own[HELD_OUT[held]] != name]
        scores[asked.index], more = learn(given, asked, seed)
        proved += more.get("proved", [])
    return scores.to_numpy(), {"proved": sum(proved), "proofs": len(proved)} if proved else {}


def network(given: pd.DataFrame, asked: pd.DataFrame, seed: int) -> Scores:
    """The task as the pipeline makes it: trained, written as a bundle, decided; run by onnxruntime."""
    import onnxruntime

    from models.export.bundle import write_bundle
    from models.export.product import Versions
    from models.tasks.kinds import kind_of

    task = load_task(TASK)
    kind = kind_of(task.kind, TASK)
    with TemporaryDirectory() as name:
        work = Path(name)
        numbered = given.assign(window=given["incident"])
        frame = pd.concat([telemetry(part, str(application), 1.0)
                           for application, part in numbered.groupby("application")])
        status = kind.featurize(task, {WORKLOAD: frame}, {WORKLOAD: []}, seed, work, work / "features", work)
        _require(status)
        kind.pretrain(task, [WORKLOAD], seed, work / "features", work / "pretrained", work, _nothing)
        (work / "learner").mkdir()
        kind.finetune(task, [WORKLOAD], seed, work / "features", work / "pretrained", {WORKLOAD: work / "learner"},
                      work, lambda _, message: status.update({WORKLOAD: message}), _nothing)
        _require(status)
        product = kind.product(task, WORKLOAD, Versions("", "", seed), work / "features", work / "learner")
        verdict = write_bundle(work / "bundle", product, seed)
        session = onnxruntime.InferenceSession(product.model)
        lower, upper = product.specification.lower, product.specification.upper
        inputs = np.clip(asked[list(FEATURES)].to_numpy(), lower, upper).astype(np.float32)
        scores = session.run(None, {session.get_inputs()[0].name: inputs})[0][:, 0]
        return scores, {"proved": [verdict.status == "PROVED"]}


def _require(status: Mapping[str, str]) -> None:
    if status[WORKLOAD]:
        raise InputError(status[WORKLOAD])


def _nothing(*_: object) -> None:
    """What progress is told to."""


def _svm(names: Sequence[str]) -> Callable[[pd.DataFrame, pd.DataFrame, int], Scores]:
    """Section 3.2.3: stochastic gradient descent, RBF kernel approximated, by scikit-learn."""
    def learn(given: pd.DataFrame, asked: pd.DataFrame, seed: int) -> Scores:
        from sklearn.kernel_approximation import RBFSampler
        from sklearn.linear_model import SGDClassifier
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        model = make_pipeline(StandardScaler(), RBFSampler(gamma=0.5, n_components=200, random_state=seed),
                              SGDClassifier(class_weight="balanced", random_state=seed))
        model.fit(given[list(names)], given[TARGET])
        return model.decision_function(asked[list(names)]), {}

    return learn


def _boosting(monotone: bool) -> Callable[[pd.DataFrame, pd.DataFrame, int], Scores]:
    def learn(given: pd.DataFrame, asked: pd.DataFrame, seed: int) -> Scores:
        from sklearn.ensemble import HistGradientBoostingClassifier

        model = HistGradientBoostingClassifier(max_iter=80, max_depth=3, learning_rate=0.08, min_samples_leaf=10,
                                               monotonic_cst=[int(monotone)] * len(FEATURES), random_state=seed)
        model.fit(given[list(FEATURES)], given[TARGET])
        return model.decision_function(asked[list(FEATURES)]), {}

    return learn


# Name -> how it learns, and whether seeds make a difference.
LEARNED: Mapping[str, tuple[Callable[[pd.DataFrame, pd.DataFrame, int], Scores], bool]] = {
    "network": (network, True), "svm_paper": (_svm(PAPER), True), "svm_all": (_svm(FEATURES), True),
    "boosting": (_boosting(False), False), "boosting_monotone": (_boosting(True), False)}


def measures(rows: pd.DataFrame) -> dict[str, Any]:
    """AC@1, AC@3, area under the ROC curve, true positives at 12 and 16 % false ones; AC@1 by kind of fault.

    Args:
        rows: incident, kind, to_blame, score.
    """
    from sklearn.metrics import roc_auc_score, roc_curve

    worst = rows.groupby("incident")["score"].rank(ascending=False, method="max")
    blamed = rows.assign(place=worst)[rows[TARGET] == 1]
    incidents = rows["incident"].nunique()
    found = {f"ac{k}": float((blamed["place"] <= k).sum() / incidents) for k in (1, 3)}
    false, true, _ = roc_curve(rows[TARGET], rows["score"])
    by_kind = {str(kind): float((part["place"] <= 1).sum() / rows.loc[rows["kind"] == kind, "incident"].nunique())
               for kind, part in blamed.groupby("kind")}
    return {**found, "roc_auc": float(roc_auc_score(rows[TARGET], rows["score"])), "ac1_by_kind": by_kind,
            "true_positives": [float(np.interp(share, false, true)) for share in FALSE_POSITIVES]}


def _peers(incidents: Sequence[Incident], rows: pd.DataFrame, python: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Measures of each of RCAEval's methods."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        for incident in incidents:
            _write_request(folder / str(incident.number), incident)
        subprocess.run([python, culprits_peers.__file__, folder], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        answers = json.loads((folder / "answers.json").read_text())
    for method in culprits_peers.METHODS:
        found = {int(number): one[method] for number, one in answers.items() if method in one}
        if not found:
            continue
        place = [(found.get(row.incident, {}).get("services", []), row.service) for row in rows.itertuples()]
        # what a method does not name stands behind all that it names
        score = [-float(named.index(service)) if service in named else -1000.0 for named, service in place]
        seconds = [one["seconds"] for one in found.values()]
        yield method, {**measures(rows.assign(score=score)), "seconds_per_incident": float(np.median(seconds)),
                       "failed": sum("error" in one for one in found.values()),
                       "errors": sorted({one["error"] for one in found.values() if "error" in one})[:3]}


def _write_request(folder: Path, incident: Incident) -> None:
    folder.mkdir()
    traces = incident.ordinary["trace"].drop_duplicates()
    kept = traces.sample(min(ORDINARY_TRACES, len(traces)), random_state=incident.number)
    ordinary = incident.ordinary[incident.ordinary["trace"].isin(kept)]
    # RCAEval's trace methods tell the incident by time: the ordinary ones are moved before it, in their order
    last = int((ordinary["start_us"] + ordinary["duration_us"]).max())
    moved = ordinary.assign(start_us=ordinary["start_us"] - last + incident.start_us - 1_000_000)
    own = incident.spans["trace"].drop_duplicates()
    own = own.sample(min(INCIDENT_TRACES, len(own)), random_state=incident.number)
    both = pd.concat([moved, incident.spans[incident.spans["trace"].isin(own)]], ignore_index=True)
    known = set(zip(ordinary["service"], ordinary["operation"], strict=True))  # the methods fail on any other
    seen = [pair in known for pair in zip(both["service"], both["operation"], strict=True)]
    spans = both[seen].astype({"trace": str, "span": str, "parent": str, "service": str, "operation": str})
    pd.DataFrame({"traceID": spans["trace"], "spanID": spans["span"], "parentSpanID": spans["parent"],
                  "serviceName": spans["service"], "methodName": spans["operation"],
                  "operationName": spans["operation"], "startTime": spans["start_us"],
                  "duration": spans["duration_us"]}).to_parquet(folder / "spans.parquet")
    _series(both, incident.start_us).to_parquet(folder / "series.parquet")
    if not incident.metrics.empty:
        incident.metrics.to_parquet(folder / "metrics.parquet")
    services = sorted({str(one) for one in both["service"]})
    (folder / "request.json").write_text(json.dumps({
        "start_us": incident.start_us, "start_s": incident.start_us / 1e6, "services": services}))


def _series(spans: pd.DataFrame, start_us: int) -> pd.DataFrame:
    """Mean latency and calls of each service, every SERIES_S seconds, gaps closed up before the incident."""
    bin_ = (spans["start_us"] - start_us) // (SERIES_S * 1_000_000)
    groups = spans.groupby([bin_, spans["service"].astype(str)])["duration_us"]
    parts = {"latency": groups.mean(), "calls": groups.size()}
    wide = pd.concat({name: part.unstack() for name, part in parts.items()}, axis=1)
    wide.columns = [f"{service}_{name}" for name, service in wide.columns]
    calls = [name for name in wide if name.endswith("_calls")]
    wide[calls] = wide[calls].fillna(0.0)
    wide = wide.ffill().bfill()
    return wide.assign(time=start_us / 1e6 + wide.index.to_numpy() * SERIES_S).reset_index(drop=True)


NAMES = {"network": "ours: network, proved monotone", "simple": "ours: simple score, no learning",
         "svm_paper": "SVM of the paper, its two features", "svm_all": "the same on all features",
         "boosting": "gradient boosting, all features", "boosting_monotone": "the same, held monotone",
         "baro_metrics": "BARO on metrics", "baro_traces": "BARO on latencies and calls", "circa": "CIRCA on latencies",
         "microrank": "MicroRank", "tracerca": "TraceRCA"}


def accuracy_table(results: Mapping[str, Any]) -> str:
    """Everything of each application, learners with what was held out."""
    rows = []
    for application in sorted({entry["application"] for entry in results["entries"]}):
        for held in ("nothing", *HELD_OUT):
            for method in NAMES:
                found = [entry for entry in results["entries"] if (entry["application"], entry["held_out"],
                                                                   entry["method"]) == (application, held, method)]
                if found:
                    rows.append([application, "learns nothing" if held == "nothing" else held, NAMES[method],
                                 *(mean_and_spread([one[key] for one in found], 1, 100) for key in ("ac1", "ac3")),
                                 mean_and_spread([one["roc_auc"] for one in found], 3),
                                 *(mean_and_spread([one["true_positives"][place] for one in found], 0, 100)
                                   for place in (0, 1))])
    header = ["application", "held out", "method", "AC@1, %", "AC@3, %", "ROC AUC", "true at 12 % false, %",
              "at 16 %, %"]
    count = {entry["application"]: entry["incidents"] for entry in results["entries"]}
    proofs = [(entry["proved"], entry["proofs"]) for entry in results["entries"] if "proofs" in entry]
    note = paragraph("Incidents: " + ", ".join(f"{name} {number}" for name, number in sorted(count.items())) + ".",
                     f"Networks proved: {sum(a for a, _ in proofs)} of {sum(b for _, b in proofs)}.",
                     "Means and standard deviations over the seeds, where seeds make a difference.")
    return f"{table(header, rows, range(3, 8))}\n\n{note}"


def kinds_table(results: Mapping[str, Any]) -> str:
    """AC@1 by kind of fault."""
    rows = []
    for application in sorted({entry["application"] for entry in results["entries"]}):
        own = [entry for entry in results["entries"] if entry["application"] == application
               and entry["held_out"] in ("nothing", "service")]
        for kind in sorted({kind for entry in own for kind in entry["ac1_by_kind"]}):
            cells = [[entry["ac1_by_kind"][kind] for entry in own if entry["method"] == method] for method in NAMES]
            rows.append([application, kind.replace("_", " "),
                         *(mean_and_spread(cell, 0, 100) if cell else "" for cell in cells)])
    return table(["AC@1, %, of", "kind of fault", *NAMES.values()], rows, range(2, 2 + len(NAMES)))


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--recording", type=Path, nargs="+", default=[], metavar="FOLDER",
                        help="recordings of the application; default: none")
    parser.add_argument("--nezha", type=Path, metavar="FOLDER", help="checkout of IntelligentDDS/Nezha; default: none")
    parser.add_argument("--seeds", type=int, default=3, help="default: 3")
    named = os.environ.get("PEERS_PYTHON")
    parser.add_argument("--peers-python", type=Path, default=Path(named) if named else None,
                        help="interpreter that has RCAEval; default: the variable PEERS_PYTHON; none: no RCAEval")
