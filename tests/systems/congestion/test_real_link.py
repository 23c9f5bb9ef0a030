"""The real link: its rate, delay, queue and loss, the kernel's TCP over it, and that nothing of it is left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from feature_store.errors import AssayError
from systems.congestion.benchmarks import bulk_tcp, driven
from systems.congestion.benchmarks.real_link import ROOT, RealLink, Report, real_link
from systems.congestion.benchmarks.relay import DROPPED, LOST, RECEIVER
from systems.congestion.benchmarks.relay import Path as LinkPath

PORT = 9001


pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module", autouse=True)
def usable() -> None:
    """Skips where no link can be made."""
    try:
        with real_link(LinkPath(1e6, 0.001, 10)):
            pass
    except (AssayError, OSError) as error:
        pytest.skip(f"no real link here: {error}")


def sends(link: RealLink, rate_pps: float, packets: int) -> Report:
    """What became of at least so many packets at a steady rate."""
    link.start("sender", ["-m", driven.__name__, f"{RECEIVER}:{PORT}", driven.STEADY,
                          json.dumps({"rate_pps": rate_pps}), "1"])
    wait_for(lambda: PORT in (flows := link.report().flows) and len(flows[PORT].at_s) >= packets)
    return link.report()


def wait_for(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.05)


TAKES = """
import json, socket, sys, time
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taking:
    taking.bind(("", int(sys.argv[1])))
    taking.recv(2000)
    began, count = time.perf_counter(), 0
    while count < 700:
        taking.recv(2000)
        count += 1
    print(json.dumps(count / (time.perf_counter() - began)), flush=True)
"""


def test_packets_arrive_at_its_rate_and_what_is_too_much_is_dropped() -> None:
    with real_link(LinkPath(4e6, 0.02, 20)) as link:  # 333 packets of 1,500 bytes a second
        taking = link.start("receiver", ["-c", TAKES, str(PORT)], stdout=subprocess.PIPE)
        report = sends(link, 600.0, 1300)
        said, _ = taking.communicate(timeout=20)
    assert float(json.loads(said)) == pytest.approx(4e6 / 12000, rel=0.05), "as its receiver counts them"
    flow = report.flows[PORT]
    asked = len(flow.at_s) / (flow.at_s[-1] - flow.at_s[0])
    assert report.longest_bytes == 1500
    assert max(flow.wait_s) == pytest.approx(20 * 0.003, abs=0.0035), "a full queue is 20 packets of 3 ms"
    assert (flow.wait_s == DROPPED).mean() == pytest.approx(1 - 333.3 / asked, abs=0.05)


def test_the_round_trip_is_what_was_asked_for() -> None:
    with real_link(LinkPath(1e8, 0.03, 100)) as link:
        link.start("receiver", ["-m", "systems.congestion.receiver", "--bind", f"0.0.0.0:{PORT}"])
        asking = link.start("sender", ["-c", ASKS, RECEIVER, str(PORT)], stdout=subprocess.PIPE)
        said, _ = asking.communicate(timeout=20)
    # the least: what others do on the machine only makes it longer
    assert min(json.loads(said)) == pytest.approx(0.06, abs=0.002)


ASKS = """
import json, socket, sys, time
trips = []
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
    asking.settimeout(0.5)
    asking.connect((sys.argv[1], int(sys.argv[2])))
    until = time.monotonic() + 15
    while len(trips) < 20 and time.monotonic() < until:
        began = time.perf_counter()
        try:
            asking.send(bytes(100))
            asking.recv(2000)
            trips.append(time.perf_counter() - began)
        except OSError:
            time.sleep(0.1)
print(json.dumps(trips))
"""


def test_a_share_is_lost_at_random_and_equal_seeds_lose_the_same() -> None:
    lost = []
    for seed in (1, 1, 2):
        with real_link(LinkPath(1e8, 0.001, 100, 0.2, seed)) as link:
            flow = sends(link, 1500.0, 500).flows[PORT]
        lost.append((flow.wait_s[:500] == LOST).tolist())
        assert len(lost[-1]) == 500 and 0.13 < np.mean(lost[-1]) < 0.27
    assert lost[0] == lost[1] != lost[2]


def test_the_kernel_s_congestion_controls_fill_it() -> None:
    path = LinkPath(8e6, 0.01, 30)
    for control in ("cubic", "bbr"):
        with real_link(path) as link:
            link.start("receiver", ["-m", bulk_tcp.__name__, "take", str(PORT)])
            link.start("sender", ["-m", bulk_tcp.__name__, "send", RECEIVER, str(PORT), control])
            wait_for(lambda link=link: PORT in link.report().flows)  # type: ignore[misc]
            time.sleep(3.0)
            report = link.report()
        flow = report.flows[PORT].between(report.now_s - 2.0, report.now_s)
        assert report.longest_bytes == 1500, "the kernel must leave no packets together for a device to cut"
        assert 8 * flow.size[flow.arrives].sum() / 2.0 > 0.8 * path.bits_s, control


def alive(numbers: Iterable[int]) -> list[int]:
    """Of some processes, those that there are, without those that nobody has waited for."""
    found = []
    for number in numbers:
        with suppress(OSError):
            if Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
                found.append(number)
    return found


HOLDS = """
import os, time
from systems.congestion.benchmarks.real_link import real_link
from systems.congestion.benchmarks.relay import Path
with real_link(Path(1e6, 0.001, 10)) as link:
    ends = [link.start(end, ["-c", "import time; time.sleep(100)"]) for end in ("sender", "receiver")]
    print(link._relay.pid, *(one.pid for one in ends), flush=True)
    time.sleep(100)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_where_whoever_made_it_ends(number: signal.Signals) -> None:
    made = subprocess.Popen([sys.executable, "-c", HOLDS], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert made.stdout is not None
    numbers = [int(one) for one in made.stdout.readline().split()]
    namespaces = {os.stat(f"/proc/{one}/ns/net").st_ino for one in numbers}
    assert len(alive(numbers)) == 3 and len(namespaces) == 2 and os.stat("/proc/self/ns/net").st_ino not in namespaces
    made.send_signal(number)
    made.wait(20)
    made.stdout.close()
    wait_for(lambda: not alive(numbers))
    assert not namespaces & held()


def held() -> set[int]:
    """Network namespaces that some process is in."""
    found = set()
    for place in Path("/proc").glob("[0-9]*/ns/net"):
        with suppress(OSError):
            found.add(place.stat().st_ino)
    return found
