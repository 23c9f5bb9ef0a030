"""A rule that drives the sender (sender.py), as in simulation: an interval, a decision, limits of change.

    python -m systems.congestion.benchmarks.driven HOST:PORT RULE SETTINGS-AS-JSON MOST-QUEUEING-S

RULE is one of rules.py, or `steady` with the setting `rate_pps`, which decides nothing. Until it is ended.
"""

import json
import sys
import time
from collections.abc import Mapping

import numpy as np

from feature_store.errors import SourceError
from systems.congestion.interface import CONTROLS
from systems.congestion.observer import CongestionObserver
from systems.congestion.receiver import address
from systems.congestion.rules import RULES
from systems.congestion.sender import Sender, Target

STEADY = "steady"
# ten packets in a tenth of a second: TCP's first window (RFC 6928) on a path whose round trip nobody knows
FIRST_PPS, PACKET_BYTES = 100.0, 1472


def drive(to: tuple[str, int], rule: str, settings: Mapping[str, float], most_queueing_s: float) -> None:
    """Sends and decides until the process ends."""
    steady = rule == STEADY
    sender = Sender(Target(to, settings["rate_pps"] if steady else FIRST_PPS, PACKET_BYTES))
    sender.acquire("")
    if steady:
        while True:
            time.sleep(1.0)
    (control,), observer, acting = CONTROLS, CongestionObserver(), RULES[rule].make(settings)
    acting.start(1)
    began = looked = due = time.monotonic()
    while True:
        due += sender.interval_s or 0.0
        now = time.monotonic()
        time.sleep(max(due - now, 0.0))
        due = max(due, now)
        now, rate = time.monotonic(), sender.present()["rate_pps"]
        try:
            measured = sender.read().values
        except SourceError:  # nothing came back yet; after a second without anything it slows down by itself
            continue
        row = observer.observe(measured, {"rate_pps": rate}, now - looked) | {"most_queueing_s": most_queueing_s}
        looked = now
        said = acting.act({name: np.array([value]) for name, value in row.items()}, now - began)
        wanted = float(said[control.name][0])
        least, most = max(control.low, (1 - control.most_down) * rate), min(control.high, (1 + control.most_up) * rate)
        sender.apply({control.name: min(max(wanted, least), most)})


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(str(__doc__))
    drive(address(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]), float(sys.argv[4]))
