"""What RCAEval packages, on the same incidents, by an interpreter that has it: a program that imports nothing of ours.

    PEERS_PYTHON culprits_peers.py FOLDER

FOLDER/<incident>/ holds spans.parquet (ordinary requests, then those of the incident, in RCAEval's columns),
series.parquet (made of the spans: a service's latency and calls every five seconds) and metrics.parquet (where there
are any); request.json says when it began. Answers are written to FOLDER/answers.json: for each method the services in
its order and its seconds, or why it has none. RCAEval: https://github.com/phamquiluan/RCAEval, version 1.8.1.
"""

import json
import signal
import sys
import time
import warnings
from importlib import import_module
from pathlib import Path

METHODS = {  # name -> module and function, and what it reads
    "baro_metrics": ("baro", "metrics"), "baro_traces": ("baro", "series"), "circa": ("circa", "latencies"),
    "microrank": ("microrank", "spans"), "tracerca": ("tracerca", "spans")}
LIMIT_S = 30


def main(folder: Path) -> None:
    import pandas as pd

    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _too_long)
    answers = {}
    for incident in sorted(one for one in folder.iterdir() if one.is_dir()):
        request = json.loads((incident / "request.json").read_text())
        answers[incident.name] = {}
        for name, (function, table) in METHODS.items():
            path = incident / f"{'series' if table == 'latencies' else table}.parquet"
            if not path.is_file():
                continue
            data, began = pd.read_parquet(path), time.perf_counter()
            if table == "latencies":  # calls of services that always call each other are one series: no graph of both
                data = data[[name for name in data if not name.endswith("_calls") and data[name].nunique() > 1]]
            signal.alarm(LIMIT_S)
            try:
                run = getattr(import_module(f"RCAEval.e2e.{function}"), function)
                if run.__name__ == "wrapper":  # which answers the order of the columns where its method fails
                    run = run.__closure__[0].cell_contents
                ranks = run(data, request["start_us" if table == "spans" else "start_s"], dataset="ob")["ranks"]
                found = {"services": list(dict.fromkeys(_service(str(one), request["services"]) for one in ranks))}
            except Exception as error:
                found = {"services": [], "error": f"{type(error).__name__}: {error}"[:200]}
            signal.alarm(0)
            answers[incident.name][name] = {**found, "seconds": time.perf_counter() - began}
        (folder / "answers.json").write_text(json.dumps(answers))


def _service(rank: str, services: list[str]) -> str:
    """"service_operation" or "service_metric" -> service, the longest that fits."""
    return max((one for one in services if rank.startswith(f"{one}_")), key=len, default=rank)


def _too_long(*_: object) -> None:
    raise TimeoutError(f"longer than {LIMIT_S} s")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
