"""Senders without a network, by their published laws, as rates: a window is a rate times a round trip.

Each decides once an interval from what a sender measures; all applications at once. A setting that the source fixes is
its default and may be tuned. Where something is not measured the rate stays.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from models.control.contract.controller import Array, RuleFamily
from models.control.contract.one_target_rule import Decide, Memory, OneTargetRule, Seen
from models.control.contract.setting import Setting, Values
from systems.congestion.equations import LOSS, THROUGHPUT
from systems.congestion.interface import CONTROLS, MOST_PPS, PACKET_BYTES

Where = NDArray[np.bool_]
_NEEDED = ("rate_pps", "acked_pps", "most_acked_pps", "rtt_s", "min_rtt_s", "queueing_s", "rtt_slope", "loss_share",
           "mean_loss_share", "interval_s")
_MBPS = PACKET_BYTES * 8e-6  # of a packet a second


def _rule(name: str, declared: Sequence[Setting], decide: Decide,
          first: Mapping[str, float] = MappingProxyType({})) -> OneTargetRule:
    """`time_s` and `since_cut_s` are kept for every rule."""
    def timed(seen: Seen, memory: Memory, settings: Values) -> Array:
        for clock in ("time_s", "since_cut_s"):
            memory[clock] = memory[clock] + seen["interval_s"]
        return decide(seen, memory, settings)

    return OneTargetRule(name, declared, timed, CONTROLS[0], _NEEDED, {"time_s": 0.0, "since_cut_s": 1e9, **first})


def _cut(seen: Seen, memory: Memory, tolerated: Array) -> Where:
    """Where packets were lost, beyond what is tolerated, and the last cut is a round trip ago."""
    packets = seen["loss_share"] / np.maximum(1 - seen["loss_share"], 1e-3) * seen["acked_pps"] * seen["interval_s"]
    cut = (packets >= 0.5) & (seen["loss_share"] > tolerated) & (memory["since_cut_s"] > seen["rtt_s"])
    memory["since_cut_s"] = np.where(cut, 0.0, memory["since_cut_s"])
    return np.asarray(cut)


def _cubic(seen: Seen, memory: Memory, settings: Values) -> Array:
    """RFC 9438, equations 1, 2 and section 4.6, without the region that is Reno's."""
    window = seen["rate_pps"] * seen["rtt_s"]
    cut = _cut(seen, memory, settings["tolerated_loss_share"])
    memory["window"] = np.where(cut, window, memory["window"])
    memory["slow"] = np.where(cut, 0.0, memory["slow"])
    beta, scale = settings["beta"], settings["scale"]
    after = np.cbrt(memory["window"] * (1 - beta) / scale)
    wanted = scale * (memory["since_cut_s"] + seen["rtt_s"] - after) ** 3 + memory["window"]
    grown = np.where(memory["slow"] > 0, window * 2 ** (seen["interval_s"] / seen["rtt_s"]),
                     window + (np.clip(wanted, window, 1.5 * window) - window) * seen["interval_s"] / seen["rtt_s"])
    return np.asarray(np.where(cut, beta * window, grown) / seen["rtt_s"])


_STARTUP, _ROUNDS = 2.885, 3  # gain of the beginning; round trips without growth that end it
_CYCLE = 8  # round trips: one that probes, one that drains, six that cruise


def _bbr(seen: Seen, memory: Memory, settings: Values) -> Array:
    """BBR (Cardwell et al., CACM 2017): gains on the bandwidth, the most acknowledged of late.

    The bandwidth counts as full where it has not grown by a quarter for three round trips.
    """
    most, least = seen["most_acked_pps"], seen["min_rtt_s"]
    round_over = memory["time_s"] - memory["round_s"] > seen["rtt_s"]
    grew = most >= 1.25 * memory["full_pps"]
    memory["flat"] = np.where(round_over, np.where(grew, 0.0, memory["flat"] + 1), memory["flat"])
    memory["full_pps"] = np.where(round_over & grew, most, memory["full_pps"])
    memory["round_s"] = np.where(round_over, memory["time_s"], memory["round_s"])
    drained = (memory["flat"] >= _ROUNDS) & (seen["queueing_s"] < 0.1 * least)
    memory["drained"] = np.maximum(memory["drained"], drained)
    place = (memory["time_s"] / least) % _CYCLE
    probe = settings["probe_gain"]
    cruising = np.where(place < 1, probe, np.where(place < 2, 2 - probe, settings["cruise_gain"]))
    gain = np.where(memory["flat"] < _ROUNDS, _STARTUP, np.where(memory["drained"] > 0, cruising, 1 / _STARTUP))
    # no more in flight than so many products of bandwidth and least round trip, in the beginning as well
    in_flight = np.where(memory["flat"] < _ROUNDS, _STARTUP, settings["window_gain"]) * most * least / seen["rtt_s"]
    return np.asarray(np.minimum(gain * most, in_flight))


def _vegas(seen: Seen, memory: Memory, settings: Values) -> Array:
    """Brakmo and Peterson, JSAC 1995, section IV: alpha to beta packets of its own in the queue."""
    window, passed = seen["rate_pps"] * seen["rtt_s"], seen["interval_s"] / seen["rtt_s"]
    queued = seen["rate_pps"] * seen["queueing_s"]
    cut = _cut(seen, memory, settings["tolerated_loss_share"])
    memory["slow"] = np.where(cut | (queued > settings["alpha"]), 0.0, memory["slow"])
    step = settings["step_packets"] * passed
    steady = window + np.where(queued < settings["alpha"], step, 0.0) - np.where(
        queued > settings["alpha"] * settings["beta_over_alpha"], step, 0.0)
    grown = np.where(memory["slow"] > 0, window * 2 ** (0.5 * passed), steady)
    return np.asarray(np.where(cut, 0.75 * window, grown) / seen["rtt_s"])


def _copa(seen: Seen, memory: Memory, settings: Values) -> Array:
    """Arun and Balakrishnan, NSDI 2018, section 2: towards 1 / (delta queueing), faster while it goes one way."""
    window = seen["rate_pps"] * seen["rtt_s"]
    up = 1.0 / (settings["delta"] * seen["queueing_s"]) > seen["rate_pps"]
    same = up == (memory["up"] > 0)
    round_over = memory["time_s"] - memory["round_s"] > seen["rtt_s"]
    memory["rounds"] = np.where(same, memory["rounds"] + round_over, 0.0)
    faster = np.where(round_over & (memory["rounds"] >= 3), 2 * memory["velocity"], memory["velocity"])
    memory["velocity"] = np.clip(np.where(same, faster, 1.0), 1.0, np.maximum(0.5 * window, 1.0))
    memory["round_s"] = np.where(round_over, memory["time_s"], memory["round_s"])
    memory["slow"] = np.where(up, memory["slow"], 0.0)
    memory["up"] = up.astype(np.float64)
    change = memory["velocity"] / (settings["delta"] * window) * seen["acked_pps"] * seen["interval_s"]
    steady = window + np.where(up, change, -change)
    grown = window * 2 ** (seen["interval_s"] / seen["rtt_s"])
    return np.asarray(np.where(memory["slow"] > 0, grown, steady) / seen["rtt_s"])


_PHASES = 5  # intervals: a little more, a little less, and three until both are heard of


def _vivace(seen: Seen, memory: Memory, settings: Values) -> Array:
    """PCC Vivace (Dong et al., NSDI 2018): equation 1 and section 4.1, by trials of a little more and a little less."""
    sent = seen["acked_pps"] / np.maximum(1 - seen["loss_share"], 1e-3) * _MBPS
    utility = (sent ** 0.9 - settings["latency"] * sent * np.maximum(seen["rtt_slope"], 0.0)
               - settings["loss"] * sent * seen["loss_share"])
    phase, share = memory["phase"], settings["trial_share"]
    base = np.where(memory["base_pps"] > 0, memory["base_pps"], seen["rate_pps"])
    slow = memory["slow"] > 0
    worse = slow & (utility < memory["utility"])
    memory["utility"] = utility
    more = np.where(phase == 3, utility, memory["more"])
    slope = (more - utility) / (2 * share * base * _MBPS)
    again = np.sign(slope) == np.sign(memory["slope"])
    done = ~slow & (phase == 4)
    memory["amplifier"] = np.where(done, np.where(again, memory["amplifier"] + 1, 1.0), memory["amplifier"])
    memory["slope"] = np.where(done, slope, memory["slope"])
    most = settings["most_change"] * memory["amplifier"]
    change = np.clip(memory["amplifier"] * slope * settings["step"] / (base * _MBPS), -most, most)
    base = np.where(done, base * (1 + change), base)
    base = np.where(slow, np.where(worse, 0.5 * base, base * 2 ** (seen["interval_s"] / seen["rtt_s"])), base)
    memory["base_pps"] = np.clip(base, 1.0, MOST_PPS)
    memory["slow"] = np.where(worse, 0.0, memory["slow"])
    memory["more"] = more
    memory["phase"] = np.where(slow, 0.0, (phase + 1) % _PHASES)
    trial = np.select([memory["phase"] == 1, memory["phase"] == 2], [1 + share, 1 - share], 1.0)
    return np.asarray(memory["base_pps"] * np.where(memory["slow"] > 0, 1.0, trial))


def _headroom(seen: Seen, memory: Memory, settings: Values) -> Array:
    """What came through, and more or less of it by how far queueing is from a goal: ours."""
    came_through = seen["acked_pps"] / np.maximum(1 - seen["loss_share"], 0.1)
    distance = np.clip(np.log(settings["goal_s"] / seen["queueing_s"]), -1.0, 1.0)
    earned = THROUGHPUT * (1 - seen["mean_loss_share"]) * came_through
    worth = earned > LOSS * settings["loss_weight"] * seen["loss_share"]
    return np.asarray(came_through * (1 + settings["gain"] * np.where(worth, distance, -1.0)))


_LOSS = Setting("tolerated_loss_share", 0.0, "share", 0.0, 1.0, (0.0, 0.12), meaning="loss that is taken for chance")
_CUBIC = _rule("cubic", (
    Setting("beta", 0.7, low=0.1, high=0.99, search=(0.5, 0.95), meaning="of the window, after a loss"),
    Setting("scale", 0.4, "packets/s^3", 1e-3, 100.0, (0.05, 10.0), log=True, meaning="C of RFC 9438"), _LOSS),
    _cubic, {"window": 0.0, "slow": 1.0})
_BBR = _rule("bbr", (
    Setting("probe_gain", 1.25, low=1.0, high=2.0, search=(1.02, 1.5), meaning="of the round trip that probes"),
    Setting("cruise_gain", 1.0, low=0.1, high=1.5, search=(0.8, 1.05), meaning="of those that cruise"),
    Setting("window_gain", 2.0, low=0.5, high=10.0, search=(0.9, 3.0), meaning="most in flight, of what a link holds")),
    _bbr, {"round_s": 0.0, "flat": 0.0, "full_pps": 0.0, "drained": 0.0})
_VEGAS = _rule("vegas", (
    Setting("alpha", 2.0, "packets", 1e-2, 1e3, (0.2, 40.0), log=True, meaning="least in the queue"),
    Setting("beta_over_alpha", 2.0, low=1.0, high=100.0, search=(1.0, 4.0), meaning="most over least"),
    Setting("step_packets", 1.0, "packets", 1e-2, 1e3, (0.5, 32.0), log=True, meaning="a round trip"), _LOSS),
    _vegas, {"slow": 1.0})
_COPA = _rule("copa", (
    Setting("delta", 0.5, "1/packet", 1e-4, 100.0, (0.01, 2.0), log=True, meaning="price of delay"),),
    _copa, {"slow": 1.0, "up": 1.0, "velocity": 1.0, "rounds": 0.0, "round_s": 0.0})
_VIVACE = _rule("vivace", (
    Setting("latency", 900.0, low=0.0, search=(1.0, 2000.0), log=True, meaning="price of a growing round trip"),
    Setting("loss", 11.35, low=0.0, search=(0.5, 30.0), log=True, meaning="price of loss"),
    Setting("trial_share", 0.05, low=1e-3, high=0.5, search=(0.01, 0.15), log=True, meaning="a little more, less"),
    Setting("step", 1.0, low=1e-3, high=1e3, search=(0.02, 20.0), log=True, meaning="of the gradient"),
    Setting("most_change", 0.05, low=1e-3, high=1.0, search=(0.02, 0.3), log=True, meaning="of the rate at once")),
    _vivace, {"slow": 1.0, "phase": 0.0, "base_pps": 0.0, "utility": -1e9, "more": 0.0, "slope": 0.0,
              "amplifier": 1.0})
_HEADROOM = _rule("headroom", (
    Setting("goal_s", 0.01, "s", 1e-4, 10.0, (1e-3, 0.2), log=True, meaning="of queueing"),
    Setting("gain", 0.25, low=0.0, high=1.0, search=(0.02, 0.5), log=True, meaning="of the rate, a round trip"),
    Setting("loss_weight", 1.0, low=0.0, high=100.0, search=(0.0, 4.0), meaning="of loss against what comes through")),
    _headroom)
RULES: Mapping[str, RuleFamily] = {rule.name: rule for rule in (_CUBIC, _BBR, _VEGAS, _COPA, _VIVACE, _HEADROOM)}
