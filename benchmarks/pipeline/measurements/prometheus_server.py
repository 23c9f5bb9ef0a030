"""A real Prometheus server on loopback whose storage holds made-up series; nothing of it stays."""

import contextlib
import math
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import which

import requests

from recording.loopback import free_port

METRIC = "assay_benchmark"
STEP_S = 1.0
START_LIMIT_S = 60.0
# Far enough back that no block is still being written, whatever the time.
AGE_S = 2 * 86_400


@dataclass(frozen=True)
class Recorded:
    """What the server holds: METRIC{series=...}, `points` each, every STEP_S seconds from start_s (Unix)."""

    series: tuple[str, ...]
    points: int
    start_s: float


@contextmanager
def prometheus_server(folder: Path, series: int, points: int) -> Iterator[tuple[str, Recorded]]:
    """Address and content of a running server that scrapes nothing; ends with the block.

    Raises:
        FileNotFoundError: Debian's package prometheus is not installed. RuntimeError: it does not start.
    """
    for tool in ("prometheus", "promtool"):
        if which(tool) is None:
            raise FileNotFoundError(f"{tool} must be installed; apt-get install prometheus")
    recorded = Recorded(tuple(f"{number:03d}" for number in range(series)), points, float(int(time.time()) - AGE_S))
    _write_storage(folder, recorded)
    (folder / "prometheus.yml").write_text("global: {}\n")
    port = free_port()
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
             "--storage.tsdb.retention.time=10y", f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        _await_ready(server, url, folder / "log")
        yield url, recorded
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def server_version() -> str:
    done = subprocess.run(["prometheus", "--version"], capture_output=True, text=True, check=True)
    return (done.stdout or done.stderr).split()[2]


def _write_storage(folder: Path, recorded: Recorded) -> None:
    """Values as metrics have them: a level with a slow wave and a fast one, full float64."""
    metrics = folder / "metrics.txt"
    with metrics.open("w") as file:
        file.write(f"# TYPE {METRIC} gauge\n")
        for number, name in enumerate(recorded.series):
            file.writelines(
                f'{METRIC}{{series="{name}",instance="node"}} {_value(number, point)!r} '
                f"{recorded.start_s + STEP_S * point:.3f}\n" for point in range(recorded.points))
        file.write("# EOF\n")
    subprocess.run(["promtool", "tsdb", "create-blocks-from", "openmetrics", str(metrics), str(folder / "data")],
                   check=True, capture_output=True)
    metrics.unlink()


def _value(number: int, point: int) -> float:
    return number + math.sin(point / 600) + 0.1 * math.sin(point * (1 + number / 100))


def _await_ready(server: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    session = requests.Session()
    session.trust_env = False
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline and server.poll() is None:
        with contextlib.suppress(requests.RequestException):
            if session.get(f"{url}/-/ready", timeout=1).ok:
                return
        time.sleep(0.1)
    raise RuntimeError(f"Prometheus must start, got: {log.read_text(errors='replace')[-300:]}")
