"""One run over a real link: who sends, for how long, and what the relay has seen of it.

Controllers: the kernel's TCP (bulk_tcp.py), a signed bundle under `assay control`, and our rules (driven.py), the last
two by sender.py over UDP. Packets, delays and losses are the relay's, alike for all: bytes of IP packets, headers,
acknowledged or not, sent again or not.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any

import numpy as np

from feature_store.errors import AssayError
from systems.congestion import receiver, sender
from systems.congestion.benchmarks import bulk_tcp, driven
from systems.congestion.benchmarks.real_link import RealLink, Report, real_link
from systems.congestion.benchmarks.relay import DROPPED, MTU, RECEIVER
from systems.congestion.benchmarks.relay import Path as LinkPath

TASK, WORKLOAD = "congestion", "uplink"
KERNEL, RULES, POLICY = ("cubic", "bbr"), ("bbr rule", "headroom rule"), "policy"
WARM_UP_SHARE = 0.25  # of a run, which does not count
PROBE_S = 5.0
_FIRST_PORT = 9001
_START_S = 60.0  # until every flow has sent something
_PROBED = LinkPath(1e8, 0.01, 1000)


@dataclass(frozen=True)
class Link:
    """rtt_ms: without a queue; queue: in products of bandwidth and round trip; loss: share, at random, forward."""

    name: str
    mbps: float
    rtt_ms: float
    queue: float
    loss: float = 0.0

    def path(self, seed: int) -> LinkPath:
        """As the relay takes it."""
        product = self.mbps * 1e6 / (8 * MTU) * 1e-3 * self.rtt_ms
        return LinkPath(self.mbps * 1e6, 0.5e-3 * self.rtt_ms, max(4, round(self.queue * product)), self.loss, seed)


@dataclass(frozen=True)
class Ours:
    """What acts of ours.

    Attributes:
        work: a folder for what controllers write.
        bundle, key: a signed bundle, and the public key.
        rules: settings by name of RULES.
        objective_s: of queueing, told to whoever asks.
    """

    work: Path
    bundle: Path
    key: Path
    rules: Mapping[str, Mapping[str, float]]
    objective_s: float

    def start(self, link: RealLink, controller: str, port: int) -> "Popen[str]":
        """One flow, to a receiver that is there."""
        to = f"{RECEIVER}:{port}"
        if controller in KERNEL:
            return link.start("sender", ["-m", bulk_tcp.__name__, "send", RECEIVER, str(port), controller])
        if controller != POLICY:
            return link.start("sender", ["-m", driven.__name__, to, controller.split()[0],
                                         json.dumps(self.rules[controller]), str(self.objective_s)])
        file = self.work / f"sender-{port}.yaml"
        file.write_text(json.dumps({"sender": {"to": to, "first_rate_pps": driven.FIRST_PPS},
                                    "settings": {"most_queueing_s": self.objective_s}}))
        folder = self.work / f"controller-{time.monotonic_ns()}"  # it remembers nothing of another link
        with self.steps(port).open("w") as steps:
            return link.start("sender", [
                "-m", "assay", "control", "--task", TASK, "--workload", WORKLOAD, "--bundle", str(self.bundle),
                "--public-key", str(self.key), "--actuator", sender.__name__, "--controller", str(file),
                "--folder", str(folder), "--json"], cwd=self.work, stdout=steps)

    def steps(self, port: int) -> Path:
        """What a controller said of its steps, a line of JSON each."""
        return self.work / f"steps-{port}.jsonl"


def measured(link: Link, seed: int, arm: Sequence[str], ours: Ours, seconds: float) -> dict[str, Any]:
    """Flows of some controllers side by side.

    Args:
        seed: of the random loss.
        arm: a controller for each flow.
        seconds: from the moment on at which all of them send.

    Raises:
        AssayError: a flow sends nothing, or ends before its time.
    """
    ports = [_FIRST_PORT + place for place in range(len(arm))]
    path = link.path(seed)
    with real_link(path) as carried:
        for port, controller in zip(ports, arm, strict=True):
            carried.start("receiver", ["-m", bulk_tcp.__name__, "take", str(port)] if controller in KERNEL
                          else ["-m", receiver.__name__, "--bind", f"0.0.0.0:{port}"])
        # the kernel's begin at once, and would have the link to themselves until a controller has started
        senders: list[Popen[str]] = []
        for slow in (True, False):
            waits = [port for port, one in zip(ports, arm, strict=True) if (one not in KERNEL) is slow]
            senders += [ours.start(carried, arm[port - _FIRST_PORT], port) for port in waits]
            began_s = _all_send(carried, waits, senders)
        time.sleep(seconds)
        report = carried.report()
        if any(sender.poll() is not None for sender in senders):
            raise AssayError(f"senders must send until the end, got one of {', '.join(arm)} that ended before")
    window = (began_s + WARM_UP_SHARE * seconds, began_s + seconds)
    flows = [_flow(report, port, path, window) for port in ports]
    for flow, controller, port in zip(flows, arm, ports, strict=True):
        if controller == POLICY:
            flow["steps"] = _steps(ours.steps(port))
    return {"flows": flows, "used": round(sum(one["mbps"] for one in flows) / link.mbps, 5),
            "late_us": _lateness(report), "real_time": carried.real_time}


def _all_send(carried: RealLink, ports: Sequence[int], senders: "Sequence[Popen[str]]") -> float:
    """Waits for the first packet of each; when that was."""
    until = time.monotonic() + _START_S
    while True:
        report = carried.report()
        if all(port in report.flows for port in ports):
            return report.now_s
        if time.monotonic() > until or any(one.poll() is not None for one in senders):
            raise AssayError(f"senders must begin within {_START_S:g} s, got nothing to port "
                             f"{', '.join(str(port) for port in ports if port not in report.flows)}")
        time.sleep(0.05)


def _flow(report: Report, port: int, path: LinkPath, window: tuple[float, float]) -> dict[str, Any]:
    """What came of one flow in that time: bytes by when they left the queue, the rest by when it came."""
    whole = report.flows[port]
    left_s = whole.at_s + whole.wait_s + 8 * whole.size / path.bits_s
    sent = whole.arrives & (left_s >= window[0]) & (left_s < window[1])
    flow = whole.between(*window)
    waits = 1e3 * flow.wait_s[flow.arrives]
    quantiles = np.quantile(waits, [0.5, 0.95, 0.99]) if len(waits) else [0.0] * 3
    return {"mbps": round(8e-6 * float(whole.size[sent].sum()) / (window[1] - window[0]), 5),
            "wait_ms": {"mean": round(float(waits.mean()) if len(waits) else 0.0, 4),
                        **{name: round(float(one), 4) for name, one in zip(("p50", "p95", "p99"), quantiles,
                                                                            strict=True)}},
            "packets": len(flow.at_s), "lost": round(float(1 - flow.arrives.mean()) if len(flow.at_s) else 0.0, 6),
            "dropped": round(float((flow.wait_s == DROPPED).mean()) if len(flow.at_s) else 0.0, 6)}


def _steps(file: Path) -> dict[str, Any]:
    """Who acted in a controller's steps, and how long they took. Its last line may be half a line."""
    lines = [line for line in file.read_text().splitlines() if line.startswith("{") and line.endswith("}")]
    steps = [json.loads(line) for line in lines]
    took = [1e3 * sum(one["took_s"].values()) for one in steps if one["took_s"]]
    actors = [one["actor"] for one in steps]
    return {"count": len(steps), "by_policy": round(actors.count("policy") / max(1, len(steps)), 4),
            "shielded": round(sum(bool(one["changes"]) and one["actor"] == "policy" for one in steps)
                              / max(1, len(steps)), 4),
            "took_ms": {"p50": round(float(np.median(took)), 3), "p99": round(float(np.quantile(took, 0.99)), 3)}}


def _lateness(report: Report) -> dict[str, float]:
    """In us: how much later than due packets were handed over."""
    quantiles = np.quantile(report.late_s, [0.5, 0.99, 0.999, 1.0])
    return {name: round(1e6 * float(one), 1) for name, one in zip(("p50", "p99", "p999", "most"), quantiles,
                                                                 strict=True)}


def probed(rate_pps: float) -> dict[str, Any]:
    """The relay alone: a link without a queue, packets at a steady rate."""
    with real_link(_PROBED) as carried:
        carried.start("receiver", ["-m", receiver.__name__, "--bind", f"0.0.0.0:{_FIRST_PORT}"])
        steady = carried.start("sender", ["-m", driven.__name__, f"{RECEIVER}:{_FIRST_PORT}", driven.STEADY,
                                          json.dumps({"rate_pps": rate_pps}), "1"])
        began_s = _all_send(carried, [_FIRST_PORT], [steady])
        time.sleep(PROBE_S)
        report = carried.report()
    came = report.flows[_FIRST_PORT].between(began_s, report.now_s)
    return {"asked_pps": rate_pps, "packets_s": round(len(came.at_s) / (report.now_s - began_s), 1),
            "longest_bytes": report.longest_bytes, "late_us": _lateness(report)}
