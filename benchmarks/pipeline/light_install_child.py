"""Measures one installation from inside, in a process of its own; prints JSON.

The standard library alone, for it runs where nothing but the light install is:

    python light_install_child.py sizes DISTRIBUTION [EXTRA]     installed bytes of it and of all that it needs, by name
    python light_install_child.py predictor BUNDLE PUBLIC_KEY    seconds of the import and of the load, memory of both
    python light_install_child.py module NAME                    seconds and memory of an import
"""

import importlib
import json
import re
import sys
import time
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

MIB = 2**20


def sizes(root: str, extra: str = "") -> dict[str, int]:
    """Bytes by distribution; `root` itself is among them."""
    from packaging.requirements import Requirement  # of onnxruntime, which every installation has

    found, open_names = {}, [(root, extra)]
    while open_names:
        name, wanted = open_names.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in found:
            continue
        installed = distribution(name)
        found[key] = installed_bytes(installed)
        for line in installed.requires or ():
            needed = Requirement(line)
            if needed.marker is None or any(needed.marker.evaluate({"extra": one}) for one in {"", wanted}):
                open_names += [(needed.name, one) for one in needed.extras or {""}]
    return found


def installed_bytes(installed: Distribution) -> int:
    """Of its files, compiled ones too; 0 where it is there only as a link to its sources."""
    files = [Path(str(file.locate())) for file in installed.files or ()]
    compiled = [cached for file in files if file.suffix == ".py"
                for cached in (file.parent / "__pycache__").glob(f"{file.stem}.cpython-*.pyc")]
    return sum(path.stat().st_size for path in {*files, *compiled} if path.is_file())


def predictor(folder: str, public_key: str) -> dict[str, float]:
    """Of a bundle folder below <task>/<workload>/<version>; one row is predicted."""
    began = time.perf_counter()
    from serving.session import Predictor

    imported = time.perf_counter()
    task, workload = Path(folder).parts[-3:-1]
    made = Predictor.from_folder(Path(folder), Path(public_key), task=task, workload=workload)
    made.predict({item.name: item.minimum for item in made.contract.inputs})
    return {"import_s": imported - began, "load_s": time.perf_counter() - imported, "memory_mib": resident_mib()}


def module(name: str) -> dict[str, float]:
    """Of one import."""
    began = time.perf_counter()
    importlib.import_module(name)
    return {"import_s": time.perf_counter() - began, "memory_mib": resident_mib()}


def resident_mib() -> float:
    """Memory of this process now."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))) * 1024 / MIB


if __name__ == "__main__":
    jobs: dict[str, Any] = {"sizes": sizes, "predictor": predictor, "module": module}
    print(json.dumps(jobs[sys.argv[1]](*sys.argv[2:])))
