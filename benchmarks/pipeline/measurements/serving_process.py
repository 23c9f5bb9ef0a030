"""One process of the measurement `serving`: request as JSON on stdin, times as one line of JSON on stdout."""

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any


def main() -> None:
    request = json.load(sys.stdin)
    imports_s, session = _timed(_import_session)
    folders, key = [Path(folder) for folder in request["bundles"]], Path(request["public_key"])
    loads_s, predictors = [], []
    for folder in folders:
        task, workload = folder.parts[-3:-1]  # <state>/bundles/<task>/<workload>/<version>
        seconds, predictor = _timed(partial(session.Predictor.from_folder, folder, key, task=task, workload=workload))
        loads_s.append(seconds)
        predictors.append(predictor)
    timings = {predictor.contract.workload: _time_one(predictor, request["repeats"]) for predictor in predictors}
    contract = predictors[0].contract
    registry_s, champion_s = _time_champion(request, contract.task, contract.workload)
    print(json.dumps({"imports_s": imports_s, "first_load_s": loads_s[0], "further_loads_s": loads_s[1:],
                      "registry_s": registry_s, "champion_s": champion_s, "timings": timings}))


def _import_session() -> Any:
    import serving.session

    return serving.session


def _time_one(predictor: Any, repeats: int) -> dict[str, float]:
    """The middle of the verified box: a row that passes every check and is not moved."""
    from benchmarks.pipeline.measurements.prediction_time import time_prediction

    row = {item.name: (item.minimum + item.maximum) / 2 for item in predictor.contract.inputs}
    timing = time_prediction(predictor, row, repeats)
    return {"checked_us": timing.checked_us, "plain_us": timing.plain_us}


def _time_champion(request: dict[str, Any], task: str, workload: str) -> tuple[float, float]:
    """Seconds of opening the registry, and of the champion after that."""
    from models.configuration import load_configuration
    from serving.registry import Registry
    from serving.session import Predictor

    configuration = load_configuration(Path(request["configuration"]), {"ASSAY_HOME": request["home"]})
    registry_s, registry = _timed(lambda: Registry(configuration))
    return registry_s, _timed(lambda: Predictor(registry.open_champion(task, workload)))[0]


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    clock = time.perf_counter()
    value = call()
    return time.perf_counter() - clock, value


if __name__ == "__main__":
    main()
