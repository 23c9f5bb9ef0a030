"""The programs that a campaign runs, the Debian packages they come from, and their versions."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable

from feature_store.errors import MissingToolError

# Program -> Debian package that ships it (deploy/install-debian-packages.sh installs them all).
PACKAGES: dict[str, str] = {
    "nginx": "nginx-light",
    "haproxy": "haproxy",
    "wrk": "wrk",
    "redis-server": "redis-server",
    "redis-benchmark": "redis-tools",
    "mariadbd": "mariadb-server",
    "sysbench": "sysbench",
    "groonga": "groonga-bin",
    "stress-ng": "stress-ng",
    "prometheus": "prometheus",
    "prometheus-node-exporter": "prometheus-node-exporter",
}
MONITORING_TOOLS = ("prometheus", "prometheus-node-exporter")
INTERFERENCE_TOOLS = ("stress-ng",)

# Debian keeps servers in folders that an ordinary user's search path lacks.
SEARCH_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])

# What every program of a campaign finds: one thread for each numeric library (parallelism is the workload's
# to configure), and numbers and messages as the parsers expect them.
ENVIRONMENT = {"PATH": SEARCH_PATH, "OMP_NUM_THREADS": "1", "LC_ALL": "C"}

_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)?")
_VERSION_OPTION = {"nginx": "-v", "wrk": "-v", "haproxy": "-v"}


def require_tools(names: Iterable[str]) -> None:
    """Checks that every program is installed.

    Raises:
        MissingToolError: naming the Debian package of the first one that is not.
    """
    for name in names:
        if shutil.which(name, path=SEARCH_PATH) is None:
            raise MissingToolError(
                f"program {name} must be installed, got none: apt-get install {PACKAGES[name]} "
                "(or deploy/install-debian-packages.sh)"
            )


def tool_versions(names: Iterable[str]) -> dict[str, str]:
    """Version of each program, as the program prints it ("unknown" where it prints none)."""
    versions = {}
    for name in names:
        option = _VERSION_OPTION.get(name, "--version")
        done = subprocess.run(
            [shutil.which(name, path=SEARCH_PATH) or name, option],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
        version = _VERSION.search(done.stdout + done.stderr)
        versions[name] = version.group() if version else "unknown"
    return versions
