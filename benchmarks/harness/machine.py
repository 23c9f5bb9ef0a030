"""What a benchmark ran on: hardware, system and package versions; no host name, no path."""

import os
import platform
import re
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import psutil

from recording.data_card import cpu_model

PACKAGES = ("assay", "kfp", "mlflow", "great-expectations", "pandas", "numpy", "torch", "onnx", "onnxruntime",
            "scikit-learn", "requests", "prometheus-api-client")


def describe_machine() -> dict[str, Any]:
    """CPU model, cores, memory (GiB), kernel, system, Python, packages ("not installed" where missing)."""
    return {"cpu_model": cpu_model(), "cores": len(os.sched_getaffinity(0)),
            "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
            # the build's own suffix names an installation, not a kernel
            "kernel": platform.release().partition("-")[0], "system": _system(),
            "python": platform.python_version(), "packages": {name: package_version(name) for name in PACKAGES}}


def package_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def device_name(device: str) -> str:
    """"cpu", or the model of the GPU that torch calls `cuda`."""
    if device == "cpu":
        return device
    import torch

    return torch.cuda.get_device_name(device)


def now_utc() -> str:
    """Date and time, ISO, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def load_average() -> float:
    """Runnable processes over the last minute, other people's too: above 0.5 the machine was not idle."""
    return round(os.getloadavg()[0], 2)


def without_paths(text: str) -> str:
    """A message with every absolute path cut to its last part."""
    return re.sub(r"(?<![\w:/])/(?:[^\s/:,;'\")(]+/)+([^\s/:,;'\")(]*)", r"\1", text)


def _system() -> str:
    try:
        return str(platform.freedesktop_os_release()["PRETTY_NAME"])
    except (OSError, KeyError):
        return platform.system()
