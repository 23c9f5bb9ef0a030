"""A queue that stays short and a link that stays used, for ever: what follows of the rate of a step in the fluid law.

    w' = x / b - 1, not below 0;   what is sent at s is acknowledged from s + d + w(s) to s + d + w(s) + J

x is the rate, b the link's, w the queueing in seconds, d the round trip without a queue, J the jitter: any delay of any
acknowledgement up to that, in order, as in CCAC (Arun et al., SIGCOMM 2021). One sender, nothing lost. A decision ends
an interval of h seconds (equations.py); what is observed are means over it. Proved of the file are `Rules`. They say:

    Acknowledged is at most rho b, rho = 1 + J / h, and so is the most of late. Where that is at most `until` of x
    nothing is added: x never exceeds R b, R = (1 + up) rho / until, once it is there.
    A queue above theta = objective + J is seen d + theta + J and two intervals later at the latest. From then on, as
    long as it is above theta, x falls by `retreat` an interval while it is above b (for rho is below `draining`), and
    never rises, so that the queue grows no more once x is below b:
        Q = theta + (R - 1) (d + theta + J + 2 h) + h sum of (R / retreat^k - 1) over the k for which it is positive.
    A queue that empties is seen d later; until then sigma b is acknowledged, sigma = 1 - J / h. x falls only where less
    than `start` of it is acknowledged, so to kappa = (1 - down) sigma / start of what is at least. The first interval
    that sees a queue sees what was sent just before it, b / (1 + up) or more: x >= kappa b / (1 + up) until it is
    empty. Two intervals at most see both a queue and none, for they all touch the J seconds after the first that shows
    it gone; what is acknowledged in them was sent before either of them (h + J <= d), so x falls by kappa once more.
    After that no queue is seen, and x does not fall until d after there is one again:
        u = kappa^2 / (1 + up).

Each step may also go MARGIN_PPS the wrong way; how often it can is counted (`creep`). The least round trip stays within
J of d: it is forgotten at the end of a probe alone, by when a queue of Q is gone. No torch, no onnx.
"""

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from feature_store.finite_numbers import is_finite_number
from models.control.contract.guarantee import Shipped, judged
from models.verification.checker.archive import Rejected
from models.verification.closed_loop.answer import GuaranteeCheck
from models.verification.language.amounts import amount, plain
from systems.congestion.equations import (
    LEAST_INTERVAL_S,
    LEAST_PACKETS,
    LEAST_QUEUEING_S,
    MOST_INTERVAL_S,
    PROBE_PACKETS,
    PROBE_ROUND_TRIPS,
    PROBE_S,
)
from systems.congestion.interface import CONTROLS, SIGNALS

FORMAT = "assay-congestion-loop/1"
ASSUMED = ("One sender on a link whose bandwidth stays, packets as a fluid, nothing lost, acknowledgements late "
           "by any part of the jitter; a packet once found no queue; the policy decides, and when it is due. It rests "
           "on what is proved of the file itself.")
WORDS = {"change": "Jitter at most", "bound": "Queueing at most", "caption": "For ever, as follows of what is proved"}
MOST_JITTER_MS = 50.0  # that is claimed, of a round trip of a second
MOST_WAITING_S = 1.0  # of a queue that it starts from
SURE = 0.99  # of what counts as no queue: a jitter of all of it would be one for any rounding
MOST_STEPS = 100_000
MARGIN_PPS = 0.0125  # that a property may leave, with what execution adds to it
_RATE, _TARGET = "rate_pps", CONTROLS[0].name
_SIGNALS = {signal.name: signal for signal in SIGNALS}


class Rules(NamedTuple):
    """What is proved of a step, of the rate x that is sent now and the next one.

    Attributes:
        least: no rate is below; most: none above.
        retreat: where the objective is missed the next is at most x, and at most x / retreat where acknowledged is at
            most `draining` of x and x is `low` at least.
        until: where the most acknowledged of late is at most this share of x, the next is at most x.
        up: the next is at most (1 + up) x.
        down: the next is at least (1 - down) x.
        start: where acknowledged is at least this share of x, the next is at least x.
        calm_s: where queueing is at most that and nothing is lost, the next is at least x.
        advance: and at least `advance` x, where the most acknowledged of late is at least `delivered` of x, which is at
            most `grows`.
    """

    least: float
    most: float
    retreat: float
    draining: float
    low: float
    until: float
    up: float
    down: float
    start: float
    calm_s: float
    advance: float
    delivered: float
    grows: float


class Found(NamedTuple):
    """For ever, after `after_s`: queueing of `queueing_s` at most, `used` of the link's rate sent at least."""

    queueing_s: float
    used: float
    after_s: float


def rules_of(properties: Sequence[Mapping[str, Any]], most_queueing_s: float) -> Rules | None:
    """What they say of one objective; None: too little.

    Args:
        properties: as specification.yaml has them, proved.
    """
    missed = {"queueing_s": "most_queueing_s"}
    if not any(factor >= 1.0 for factor, _ in _orders(properties, _RATE, _TARGET, missed, set())):
        return None
    slower = [(factor, *_span(when, "acked_share"), *_span(when, _RATE)) for factor, when in
              _orders(properties, _RATE, _TARGET, missed, {"acked_share", _RATE}) if factor > 1.0]
    ceilings = [_span(when, "most_acked_share") for factor, when in
                _orders(properties, _RATE, _TARGET, None, {"most_acked_share"}) if factor >= 1.0]
    ups = [1.0 / factor - 1.0 for factor, _ in _orders(properties, _RATE, _TARGET, None, set())]
    downs = [1.0 - factor for factor, _ in _orders(properties, _TARGET, _RATE, None, set())]
    floors = [_span(when, "acked_share") for factor, when in
              _orders(properties, _TARGET, _RATE, None, {"acked_share"}) if factor >= 1.0]
    seen = {"queueing_s", "most_queueing_s", "mean_loss_share", "most_acked_share", _RATE}
    calm = [(when, factor) for factor, when in _orders(properties, _TARGET, _RATE, None, seen) if factor >= 1.0
            and _holds(when, "most_queueing_s", most_queueing_s) and _holds(when, "queueing_s", LEAST_QUEUEING_S)
            and _holds(when, "mean_loss_share", 0.0) and _span(when, "mean_loss_share")[1] > 0.0]
    still = [_span(when, "queueing_s")[1] for when, _ in calm if not {"most_acked_share", _RATE} & set(when)]
    faster = [(factor, *_span(when, "most_acked_share"), _span(when, "queueing_s")[1], *_span(when, _RATE))
              for when, factor in calm if factor > 1.0]
    bottom, top = _SIGNALS["acked_share"].low, _SIGNALS["acked_share"].high  # of the most as well
    slower = [one for one in slower if one[1] <= bottom]
    ceilings = [one for one in ceilings if one[0] <= bottom]
    floors = [one for one in floors if one[1] >= top]
    ranges = [one["range"] for one in properties if "range" in one]
    least, largest = (max((one[side] * sign for one in ranges if set(one) <= {"output", "minimum", "maximum"} and
                           one["output"] == _TARGET and one.get(side) is not None), default=-math.inf) * sign
                      for side, sign in (("minimum", 1.0), ("maximum", -1.0)))
    # what is set keeps the control's limits, which `range` says but for a margin
    slower = [one for one in slower if one[-1] >= largest - MARGIN_PPS]
    faster = [one for one in faster if one[2] >= top and one[-2] <= least + MARGIN_PPS]
    if not all((slower, ceilings, ups, downs, floors, still, faster)):
        return None
    retreat, _, draining, low, _ = max(slower)
    advance, delivered, _, calm_s, _, grows = max(faster)
    return Rules(least, largest, retreat, draining, low, max(until for _, until in ceilings), min(ups), min(downs),
                 min(start for start, _ in floors), min(max(still), calm_s), advance, delivered, grows)


def found(rules: Rules, base_s: float, jitter_s: float, most_queueing_s: float, slowest_pps: float,
          fastest_pps: float) -> Found | None:
    """Of every link of such a round trip and of a rate between the two; None: it does not follow."""
    wait_s = max(0.5 * (base_s + jitter_s), LEAST_INTERVAL_S, LEAST_PACKETS / slowest_pps)  # h at its longest
    shortest_s = max(0.5 * base_s, LEAST_INTERVAL_S)
    over, under = 1.0 + jitter_s / shortest_s, 1.0 - jitter_s / shortest_s
    most = (1.0 + rules.up) * over / rules.until
    seen_s = base_s + jitter_s + 2.0 * wait_s  # and theta: until a queue is seen
    theta = most_queueing_s + jitter_s

    creep = MARGIN_PPS / slowest_pps  # of an interval

    def peak(starts_s: float, rate: float) -> tuple[float, int]:
        """The longest queue of one that is seen late, and the intervals in which it still grows."""
        queue, steps = starts_s + max(rate - 1.0, 0.0) * (seen_s + starts_s), 0
        while (rate := (rate + creep) / rules.retreat) > 1.0:
            queue, steps = queue + wait_s * (rate - 1.0), steps + 1
            if steps > MOST_STEPS:
                return math.inf, steps
        return queue, steps

    if most <= 1.0:
        return None
    # in which what is not to rise may: until a queue of so much too much has come and is seen
    most += creep * math.ceil((theta / (most - 1.0) + seen_s + theta) / shortest_s + 2.0)
    kappa = (1.0 - rules.down) * under / rules.start
    queueing_s, drains = peak(theta, most)[0], 1.0 - over / rules.draining
    lag = math.ceil((base_s + jitter_s) / shortest_s) + 2  # intervals in which a rate is surely acknowledged
    # in which what is not to fall may: until a queue is gone at what is not enough, and is seen to be
    follows = kappa < 1.0 and math.isfinite(queueing_s) and over < rules.start
    used = kappa**2 / (1.0 + rules.up) - creep * math.ceil(
        queueing_s / (1.0 - over / rules.start) / shortest_s + lag + 4.0) if follows else 0.0
    follows = (
        follows and under >= rules.delivered and jitter_s <= SURE * rules.calm_s and rules.calm_s < most_queueing_s
        and drains > 0.0 and over / rules.draining * rules.retreat < 1.0
        # what two intervals acknowledge that see both a queue and none was sent before either
        and used > 0.0 and LEAST_PACKETS / (used * slowest_pps) + jitter_s <= base_s and wait_s + jitter_s <= base_s
        # with no queue what is added is more than what may be lost meanwhile
        and (rules.advance - 1.0) * used > 2.0 * lag * creep
        # a probe sends at half the link's rate at most, and lasts until the queue is gone
        and slowest_pps * base_s >= 2.0 * PROBE_PACKETS
        and 3.0 * queueing_s + 2.0 * base_s <= PROBE_S + PROBE_ROUND_TRIPS * base_s and base_s <= MOST_INTERVAL_S
        and rules.low <= used * slowest_pps and fastest_pps * most <= rules.most and fastest_pps <= rules.grows)
    if not follows:
        return None
    start_s = max(MOST_WAITING_S, theta)
    longest_s, steps = peak(start_s, rules.most / slowest_pps)
    steps += math.ceil(math.log(rules.draining / over) / math.log(rules.retreat))  # until it drains at that rate
    after_s = seen_s + start_s + steps * wait_s + longest_s / drains
    sent = rules.least
    while sent < fastest_pps:
        after_s += lag * max(wait_s, LEAST_PACKETS / sent)
        sent = rules.advance * sent - MARGIN_PPS
        if sent <= rules.least:
            return None
    return Found(queueing_s, used, after_s)


def statement(of: Found, document: Mapping[str, float]) -> str:
    """What is guaranteed, in words."""
    known = {name: plain(value) for name, value in document.items()}
    return (f"In the fluid law, one sender on a link of {known['slowest_pps']} to {known['fastest_pps']} packets a "
            f"second, a round trip of {known['base_s']} s and jitter of at most {known['jitter_s']} s, whose "
            f"objective is {known['most_queueing_s']} s of queueing, waits "
            f"{amount(of.queueing_s, 's')} at most in its queue, for ever, and sends at least "
            f"{plain(math.floor(1000 * of.used) / 10)} % of what the link carries: from any rate and a queue of up to "
            f"{plain(MOST_WAITING_S)} s after {math.ceil(of.after_s)} s; the first from the start, if that is an empty "
            "queue and no more than the link carries.")


def guarantees(properties: Sequence[Mapping[str, Any]], settings: Mapping[str, float | str]) -> Mapping[str, Any]:
    """See `GuaranteedSystem.guarantees`. settings: of the workload, none left out."""
    began = time.monotonic()
    base_s, most_queueing_s = 1e-3 * float(settings["base_rtt_ms"]), float(settings["most_queueing_s"])
    rules = rules_of(properties, most_queueing_s)
    one: dict[str, Any] = {
        "change": MOST_JITTER_MS * base_s, "change_unit": "ms", "status": "UNKNOWN", "statement": "", "bound": None,
        "bound_unit": "ms", "steps": None, "growth": None, "leaves": 0, "seconds": 0.0,
        "reason": "Too little is proved of a step: the rate must fall while the objective is missed, rise where there "
                  "is no queue, and keep to what is acknowledged."}
    shipped = None
    if rules is not None:
        one["reason"] = "What is proved of a step bounds no queue on such a path."
        for document in _tried(rules, base_s, most_queueing_s):
            if (of := found(rules, **document)) is None:
                continue
            content = json.dumps({"format": FORMAT, **document}).encode()
            checked = check(content, properties, settings)
            assert checked.accepted, checked.reason
            shipped = Shipped(content, checked)
            one |= {"change": 1e3 * document["jitter_s"], "status": "PROVED", "statement": checked.statement,
                    "reason": "", "bound": 1e3 * of.queueing_s, "steps": math.ceil(2.0 * of.after_s / base_s)}
            break
    one["seconds"] = time.monotonic() - began
    return {"assumed": ASSUMED, "words": WORDS, "found": [one], "shipped": shipped}


def check(content: bytes, properties: Sequence[Mapping[str, Any]],
          settings: Mapping[str, float | str]) -> GuaranteeCheck:
    """Whether a shipped guarantee follows of what is proved, for the objective that the policy is told; never raises on
    a bad one."""
    return judged(content, FORMAT, ("base_s", "jitter_s", "most_queueing_s", "slowest_pps", "fastest_pps"),
                  partial(_says, properties, settings))


def _says(properties: Sequence[Mapping[str, Any]], settings: Mapping[str, float | str],
          document: Mapping[str, Any]) -> str:
    numbers = {name: value for name, value in document.items() if name != "format"}
    if not all(is_finite_number(value) and value > 0 for value in numbers.values()):
        raise Rejected(f"guarantee must have numbers above 0, got {str(numbers)[:200]}")
    if numbers["slowest_pps"] > numbers["fastest_pps"]:
        raise Rejected(f"slowest_pps must be at most fastest_pps, got {numbers['slowest_pps']:g} and "
                       f"{numbers['fastest_pps']:g}")
    if numbers["most_queueing_s"] != settings["most_queueing_s"]:
        raise Rejected(f"most_queueing_s must be the objective that the policy is told, {settings['most_queueing_s']}, "
                       f"got {numbers['most_queueing_s']:g}")
    rules = rules_of(properties, numbers["most_queueing_s"])
    of = None if rules is None else found(rules, **numbers)
    if of is None:
        raise Rejected("every step must be bounded so that a queue ends and a link is used, got properties of which "
                       "that does not follow")
    return statement(of, numbers)


def _tried(rules: Rules, base_s: float, most_queueing_s: float) -> Iterator[dict[str, float]]:
    """Documents, the slowest links first."""
    jitter_s = math.floor(1e4 * min(SURE * rules.calm_s, 1e-3 * MOST_JITTER_MS * base_s)) / 1e4
    for packets in range(8, 400, 2):
        most = (1.0 + rules.up) * (1.0 + jitter_s / max(0.5 * base_s, LEAST_INTERVAL_S)) / rules.until
        slowest, fastest = math.ceil(packets / base_s), math.floor(min(0.98 * rules.most / most, rules.grows))
        if slowest < fastest:
            yield {"base_s": base_s, "jitter_s": jitter_s, "most_queueing_s": most_queueing_s,
                   "slowest_pps": float(slowest), "fastest_pps": float(fastest)}


def _orders(properties: Sequence[Mapping[str, Any]], upper: str, lower: str, at_least: Mapping[str, str] | None,
            conditions: set[str]) -> Iterator[tuple[float, Mapping[str, Any]]]:
    """(factor, when) of each that says upper >= factor lower - MARGIN_PPS under no other conditions than these."""
    for one in (one["order"] for one in properties if "order" in one):
        when = one.get("when") or {}
        if (one["upper"], one["lower"]) == (upper, lower) and one.get("margin", 0.0) >= -MARGIN_PPS and \
                (one.get("at_least") or None) == (at_least or None) and set(when) <= conditions and \
                set(one) <= {"upper", "lower", "factor", "margin", "when", "at_least"}:
            yield one.get("factor", 1.0), when


def _span(when: Mapping[str, Any], name: str) -> tuple[float, float]:
    """Of a condition; the whole range where there is none."""
    low, high = when.get(name, (_SIGNALS[name].low, _SIGNALS[name].high))
    return low, high


def _holds(when: Mapping[str, Any], name: str, value: float) -> bool:
    low, high = _span(when, name)
    return bool(low <= value <= high)
