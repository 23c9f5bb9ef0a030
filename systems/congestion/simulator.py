"""Packets as a fluid on one link with one queue: first in, first out, whatever is too much is lost.

    q' = x (1 - p) + y - b, from 0 to what the queue holds
    what is sent at s comes back at d + S^-1(S(s) + q(s)), which is s + d + q(s) / b while b stays

x is the sender's rate, p the share lost at random, y what others send, b the bandwidth, S what the link could have
carried until then, d the round trip without a queue. Between decisions x and y are constant and of b the mean counts,
so q has one bend at most, and what a sender hears in an interval are
differences of three curves over a: packets delivered, packets lost (heard of when they would have come back) and their
round trips. This is PCC-RL's law without single packets; half the least round trip is an interval.

Several senders on one link decide at the same moments, the longest of their intervals apart, and wait in its queue for
each other; y is then also what the others of them send.

Symbols: N senders, K intervals that are remembered, two segments of the curves each; tensors (N,) float32. What has
not come back is never forgotten: the longer ago it was sent, the longer are the intervals that it is remembered by.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from models.control.contract.environment import Outcome
from models.control.contract.signals import Anchor, Control
from models.control.simulation.scaling import Scaling
from models.control.simulation.tensors import TENSORS
from systems.congestion import equations as law
from systems.congestion.interface import ANCHORS, CONTROLS, FEATURES, PACKET_BYTES, SIGNALS, STEP_SECONDS
from systems.congestion.links import FAMILIES, Links, draw_links, shared

# K, of which 13 are kept one by one (a round trip without a queue is two). Of what waits longer two neighbours become
# one, from the oldest on the one at _JOINS[j] and the next where 2^j is the highest power of two that divides the step:
# so the lengths double with age, two of each length, and the oldest has all that is left.
INTERVALS, _JOINS = 24, (10, 8, 6, 4, 2, 0)
_TINY = 1e-6
_NAMES = tuple(signal.name for signal in SIGNALS)
_SCALING = Scaling(SIGNALS)


class Past(NamedTuple):
    """What a sender remembers, by the names of signals."""

    rate_pps: Tensor
    rate_before_pps: Tensor
    acked_pps: Tensor
    most_acked_pps: Tensor
    rtt_s: Tensor
    min_rtt_s: Tensor
    rtt_slope: Tensor
    mean_rtt_slope: Tensor
    loss_share: Tensor
    mean_loss_share: Tensor
    interval_s: Tensor
    probing_s: Tensor


class State(NamedTuple):
    """step: number of the next; time_s; queue: packets.

    window, since_cut_s, lost: of the rival: packets, seconds since it cut its window, packets lost since then.
    carried: (N, G + 1) float64, packets that the link can have carried until each place of its grid.
    curves: (2 K, 6, N) of each segment: when its first and its last packet come back, packets delivered and lost,
    round trips of the first and the last; from the oldest on.
    """

    links: Links
    carried: Tensor
    step: int
    time_s: Tensor
    queue: Tensor
    window: Tensor
    since_cut_s: Tensor
    lost: Tensor
    curves: Tensor
    past: Past


class Congestion:
    """Implements `Environment`, and `Grouped` where several send on a link.

    Args:
        agents: senders on each link.
    """

    signals, features, hidden = SIGNALS, FEATURES, ("bandwidth", "round trip", "queue", "loss")
    anchors: Mapping[str, Anchor] = ANCHORS
    cost_unit, step_seconds, steps = "reward below that of an empty link", STEP_SECONDS, 120
    scenarios: tuple[str, ...] = ("", *FAMILIES)

    def __init__(self, controls: tuple[Control, ...] = CONTROLS, agents: int = 1) -> None:
        self.controls, self.agents = controls, agents

    @property
    def measures(self) -> Mapping[str, str]:
        """See `Environment`; fairness: Jain's index of what gets through, from 1 / A to 1."""
        return {"utilization": "share", "queueing_s": "s", "loss_share": "share", "throughput_mbps": "Mbit/s",
                **({"fairness": "1"} if self.agents > 1 else {})}

    @property
    def differentiable(self) -> "Congestion":
        """Itself: nothing is rounded."""
        return self

    def draw(self, split: str, count: int, steps: int, seed: int, scenario: str = "",
             applications: Sequence[int] | None = None) -> Links:
        """See links.py."""
        links = draw_links(split, count, steps + 3, seed, scenario, applications)
        return links if self.agents == 1 else shared(links, self.agents, seed)

    def reset(self, episodes: Links) -> State:
        """Three round trips at the first rate, as PCC-RL begins."""
        zero = torch.zeros_like(episodes.base_s)
        low, high = self.controls[0].low, self.controls[0].high
        first = episodes.first_pps.clamp(low, high)
        past = Past(first, first, first, torch.full_like(zero, 0.25), episodes.base_s, torch.full_like(zero, 64.0),
                    zero, zero, zero, zero, 1.5 * episodes.base_s, zero)
        carried = (episodes.bandwidth_pps.double() * episodes.grid_s.double()).cumsum(0)
        carried = torch.cat([torch.zeros_like(carried[:1]), carried]).T.contiguous()
        # nothing comes back before a round trip is over
        nothing = torch.stack([zero, episodes.base_s, zero, zero, episodes.base_s, episodes.base_s])
        curves = nothing.repeat(2 * INTERVALS, 1, 1)
        state = State(episodes, carried, 0, zero, zero, torch.full_like(zero, 4.0), zero, zero, curves, past)
        for _ in range(2):
            state = self._after(state, first, 1.5 * episodes.base_s, _bandwidth(state, 1.5 * episodes.base_s))
        return state

    def observe(self, state: State) -> Tensor:
        """See `Environment`."""
        return _SCALING.clip(torch.stack(_signals(state.past, state.links), dim=1))

    def step(self, state: State, targets: Tensor) -> tuple[State, Outcome]:
        """See `Environment`."""
        (control,), past = self.controls, state.past
        rate = targets[:, 0].maximum((1 - control.most_down) * past.rate_pps)
        rate = rate.minimum((1 + control.most_up) * past.rate_pps).clamp(control.low, control.high)
        # its length follows from what is known before it
        seconds = law.interval(past.min_rtt_s, rate, TENSORS).detach()
        if self.agents > 1:
            seconds = self._each(self._of_links(seconds).amax(1))
        bandwidth = _bandwidth(state, seconds)
        after, fair = self._after(state, rate, seconds, bandwidth), bandwidth / self.agents
        seen = dict(zip(_NAMES, _signals(after.past, state.links), strict=True))
        came = law.outcome(seen, fair, TENSORS)
        measures = {"utilization": seen["acked_pps"] / fair, "queueing_s": seen["queueing_s"],
                    "loss_share": seen["loss_share"], "throughput_mbps": seen["acked_pps"] * PACKET_BYTES * 8e-6}
        outcome = Outcome(came["reward"], came["cost"], came["violation"], came["violated"].to(rate.dtype), measures)
        return after, outcome if self.agents == 1 else self._together(outcome, seen["acked_pps"], fair)

    def _together(self, one: Outcome, acked_pps: Tensor, fair_pps: Tensor) -> Outcome:
        """What came of links, the means over their senders; the reward is less where they got unequal shares."""
        acked, each = self._of_links(acked_pps), self._of_links(one.violation)
        unfair = law.unfairness(acked_pps, fair_pps, TENSORS)
        reward, cost, violated = (self._of_links(value).mean(1) for value in (
            one.reward - unfair, one.cost + unfair, one.violated))
        measures = {name: self._of_links(value).mean(1) for name, value in one.measures.items()}
        fairness = acked.mean(1).square() / acked.square().mean(1)
        return Outcome(reward, cost, each.mean(1), violated, {**measures, "fairness": fairness}, each)

    def _of_links(self, values: Tensor) -> Tensor:
        """(N / A, A) of the senders of each link."""
        return values.reshape(-1, self.agents)

    def _each(self, values: Tensor) -> Tensor:
        """(N,) of each sender its link's."""
        return values.repeat_interleave(self.agents)

    def hidden_parameters(self, state: State) -> Tensor:
        """See `Environment`."""
        links = state.links
        scaled = (_now(state)[0] / 250.0, links.base_s / 0.5, links.queue_packets / 50.0)
        return torch.stack([*(value.log() for value in scaled), 40.0 * links.loss - 1.0], dim=1)[::self.agents]

    def coming_load(self, state: State) -> Tensor:
        """The bandwidth of the next place of the grid over the present one."""
        later = state._replace(time_s=state.time_s + state.links.grid_s)
        return (_now(later)[0] / _now(state)[0]).log()[::self.agents, None]

    def _after(self, state: State, rate: Tensor, seconds: Tensor, bandwidth: Tensor) -> State:
        links, past, cross = state.links, state.past, _now(state)[1]
        begins, came = state.curves[-1, 1], state.curves[-1, 5]
        round_trip = came.detach()
        rival = links.rival * state.window / round_trip
        arriving = rate * (1 - links.loss)
        of_all = arriving if self.agents == 1 else self._each(self._of_links(arriving).sum(1))
        load = of_all + (cross + rival)
        net = load - bandwidth
        room = torch.where(net > 0, links.queue_packets - state.queue, state.queue)
        bend = (room / net.abs().clamp(min=_TINY)).clamp(min=0.0).minimum(seconds)
        # where less room is left than before, for the bandwidth fell or the queue was full
        at_bend = (state.queue + net * bend).clamp(min=0.0).minimum(links.queue_packets)
        too_much = net.clamp(min=0.0) / load.clamp(min=_TINY)  # share dropped by a full queue
        parts: list[Tensor] = []
        trips = links.base_s + _waits(state, torch.stack([bend, seconds]).detach(), at_bend)
        for length, until, trip, dropped in (
                (bend, bend, trips[0], None), (seconds - bend, seconds, trips[1], too_much)):
            ends = (state.time_s + until + trip).maximum(begins + _TINY)  # nobody overtakes
            delivered = arriving * length if dropped is None else arriving * (1 - dropped) * length
            parts.append(torch.stack([begins, ends, delivered, rate * length - delivered, came, trip]))
            begins, came = ends, trip
        curves = torch.cat([*_shorter(state), torch.stack(parts)])
        heard = _heard(curves, torch.stack([state.time_s, state.time_s + 0.5 * seconds, state.time_s + seconds]))
        lost_rival = torch.where(net > 0, too_much * (seconds - bend), 0.0).detach() * rival
        reno = _reno(state.window, state.since_cut_s, state.lost + lost_rival, round_trip, seconds)
        told = _told(past, heard, rate, seconds, links, state.step)
        return State(links, state.carried, state.step + 1, state.time_s + seconds, at_bend, *reno, curves, told)


def _now(state: State) -> tuple[Tensor, Tensor]:
    """Bandwidth, and the traffic that heeds nobody."""
    links = state.links
    place = (state.time_s.detach() / links.grid_s).long() % len(links.bandwidth_pps)
    return (links.bandwidth_pps.gather(0, place[None])[0], links.cross_pps.gather(0, place[None])[0])


def _carried(state: State, after_s: Tensor) -> Tensor:
    """(..., N) float64, packets that the link can have carried by so many seconds after now; the grid goes round."""
    grid_s, places = state.links.grid_s.double(), state.carried.shape[1] - 1
    place = (state.time_s.detach().double() + after_s) / grid_s
    turn, within = place.div(places, rounding_mode="floor"), place.remainder(places)
    first = within.long().clamp(max=places - 1)
    before, beyond = _until(state, first), _until(state, first + 1)
    return turn * state.carried[:, -1] + before + (within - first) * (beyond - before)


def _until(state: State, place: Tensor) -> Tensor:
    """(..., N) of `carried` until a place of the grid."""
    return state.carried.gather(1, place.reshape(-1, place.shape[-1]).T).T.reshape(place.shape)


def _bandwidth(state: State, seconds: Tensor) -> Tensor:
    """Mean of the coming seconds."""
    return ((_carried(state, seconds) - _carried(state, torch.zeros_like(seconds))) / seconds).float()


def _waits(state: State, after_s: Tensor, queue: Tensor) -> Tensor:
    """(M, N) seconds until the link has carried `queue` packets, from so many seconds after now on, (M, N) too."""
    grid_s, places, all_of_it = state.links.grid_s.double(), state.carried.shape[1] - 1, state.carried[:, -1]
    wanted = _carried(state, after_s) + queue
    turn = wanted.detach().div(all_of_it, rounding_mode="floor")
    rest = wanted - turn * all_of_it
    first = (torch.searchsorted(state.carried, rest.detach().T.contiguous(), right=True) - 1).T.clamp(0, places - 1)
    before, beyond = _until(state, first), _until(state, first + 1)
    place = turn * places + first + (rest - before) / (beyond - before)
    return (place * grid_s - state.time_s.detach() - after_s).clamp(min=0.0).float()


def _shorter(state: State) -> tuple[Tensor, Tensor, Tensor]:
    """The curves in three parts; the middle one is two intervals as one, of all of them that has not come back."""
    step, curves, now = state.step + 1, state.curves, state.time_s
    power = (step & -step).bit_length() - 1
    at = 2 * _JOINS[min(power, len(_JOINS) - 1)]
    before, four, after = curves.split([at, 4, len(curves) - at - 4])
    older, newer = four[::2], four[1::2]
    begins, ends, delivered, lost, first, last = older.unbind(1)
    share = ((now - begins) / (ends - begins).clamp(min=_TINY)).clamp(0.0, 1.0)
    one = torch.stack([begins.maximum(now), newer[:, 1], (1 - share) * delivered + newer[:, 2],
                       (1 - share) * lost + newer[:, 3], torch.lerp(first, last, share), newer[:, 5]], dim=1)
    one = torch.where((ends <= now)[:, None], newer, one)
    return before, one, after


def _heard(curves: Tensor, times: Tensor) -> Tensor:
    """(3, 2, N) delivered, lost and summed round trips of what came back in both halves of an interval.

    Args:
        times: (3, N) its beginning, middle and end.
    """
    begins, ends, delivered, lost, first, last = curves.unbind(1)
    share = ((times[:, None] - begins) * (ends - begins).clamp(min=_TINY).reciprocal()).clamp(0.0, 1.0)  # (3, 2 K, N)
    trips = torch.addcmul(delivered * first, 0.5 * delivered * (last - first), share) * share
    sums = torch.stack([(delivered * share).sum(1), (lost * share).sum(1), trips.sum(1)])
    return sums[:, 1:] - sums[:, :-1]


def _told(past: Past, heard: Tensor, rate: Tensor, seconds: Tensor, links: Links, step: int) -> Past:
    """What a sender makes of an interval, with the noise of few packets."""
    (acked, lost, trips), noise = heard, links.noise[min(step, len(links.noise) - 1)]
    packets = (acked.sum(0) + lost.sum(0)).clamp(min=_TINY)
    share = lost.sum(0) / packets
    few = packets.detach().clamp(min=1.0).rsqrt()
    loss = torch.where(packets > 1e-3, share + _chance(share.detach(), few, noise[0]), past.loss_share)
    known = acked > 1e-4
    means = torch.where(known, trips / acked.clamp(min=_TINY), past.rtt_s)
    rtt = torch.where(known.any(0), trips.sum(0) / acked.sum(0).clamp(min=_TINY), past.rtt_s)
    rtt = (rtt + links.jitter_s * few * noise[1]).clamp(min=2.0**-10)
    slope = torch.where(known.all(0), (means[1] - means[0]) / seconds, 0.0)
    slope = (slope + 2.0 * links.jitter_s * few * noise[2] / seconds).clamp(-1.0, 1.0)
    acked_pps = (packets * (1 - loss) / seconds).clamp(min=0.25)
    least, probing_s = law.least_round_trip(past.min_rtt_s, past.probing_s, rtt, rate.detach(), seconds, TENSORS)
    return Past(
        rate, past.rate_pps, acked_pps,
        law.faded_maximum(past.most_acked_pps, acked_pps, seconds, rtt, TENSORS), rtt, least, slope,
        torch.lerp(past.mean_rtt_slope, slope, law.SLOPE_WEIGHT), loss,
        torch.lerp(past.mean_loss_share, loss, law.LOSS_WEIGHT), seconds,
        probing_s.detach())


def _chance(share: Tensor, few: Tensor, noise: Tensor) -> Tensor:
    """How far the share lost of so few packets is from that of many: 0 in the mean, with a binomial's spread.

    Of what happens to fewer of them, lost or delivered: none with a binomial's probability, else a normal about the
    mean of those cases, cut off equally far on both sides so that it is a share and keeps its mean.

    Args:
        few: 1 / sqrt(packets).
        noise: standard normal; 0: none.
    """
    rare = share.minimum(1 - share).clamp(min=0.0)
    any_of_it = (-torch.expm1(torch.log1p(-rare) / few.square())).clamp(min=1e-9)
    mean = (rare / any_of_it).clamp(max=1.0)
    spread = (rare * ((1 - rare) * few.square() - mean + rare) / any_of_it).clamp(min=0.0).sqrt()
    more = torch.special.ndtr(-noise)  # the probability of more than was drawn
    most = mean.minimum(1 - mean)
    beyond = (-spread * torch.special.ndtri((more / any_of_it).clamp(max=1.0))).maximum(-most).minimum(most)
    drawn = torch.where(more < any_of_it, mean + beyond, 0.0) - rare
    return torch.where(noise == 0.0, 0.0, torch.where(share > 0.5, -drawn, drawn))


def _signals(past: Past, links: Links) -> list[Tensor]:
    known = past._asdict() | {"queueing_s": law.queueing(past.rtt_s, past.min_rtt_s, TENSORS),
                              "acked_share": law.of_rate(past.acked_pps, past.rate_pps, TENSORS),
                              "most_acked_share": law.of_rate(past.most_acked_pps, past.rate_pps, TENSORS),
                              "most_queueing_s": links.most_queueing_s}
    return [known[name] for name in _NAMES]


def _reno(window: Tensor, since_s: Tensor, lost: Tensor, round_trip: Tensor,
          seconds: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A window that grows by a packet a round trip, and halves where one was lost, once a round trip at most.

    Args:
        lost: packets since it was cut last; of less than one in an interval, many intervals make one. What is lost in
            the round trip after a cut is lost of what was sent before it.

    Returns:
        The window, and both counts since it was cut.
    """
    since = since_s + seconds
    lost = torch.where(since > round_trip, lost, 0.0)
    cut = lost >= 1.0
    grown = window + seconds / round_trip
    after = torch.where(cut, 0.5 * grown, grown).clamp(min=2.0)
    return after.detach(), torch.where(cut, 0.0, since).detach(), torch.where(cut, 0.0, lost).detach()
