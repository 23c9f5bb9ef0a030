"""The fluid against packets one by one, and what must hold of it on every link."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from feature_store.errors import InputError
from models.control.contract.derived_signals import NUMBERS
from models.control.contract.environment import Outcome
from models.control.simulation.rollout import acting_of
from models.control.simulation.tensors import TENSORS
from systems.congestion import equations as law
from systems.congestion.links import FAMILIES, Links, shared
from systems.congestion.simulator import Congestion, State, _chance, _reno
from tests.systems.congestion.packets import PacketLink

ENVIRONMENT = Congestion()


def plain(bandwidth: float, base_s: float, queue: float, loss: float, first: float, count: int = 1) -> Links:
    """Links without noise, whose bandwidth stays."""
    links = ENVIRONMENT.draw("train", count, 80, 0, "aurora")
    full = {"base_s": base_s, "queue_packets": queue, "loss": loss, "first_pps": first, "jitter_s": 0.0}
    return replace(links, bandwidth_pps=torch.full_like(links.bandwidth_pps, bandwidth),
                   noise=torch.zeros_like(links.noise),
                   **{name: torch.full((count,), value) for name, value in full.items()})


def seen(state: State) -> dict[str, float]:
    names = [signal.name for signal in ENVIRONMENT.signals]
    return dict(zip(names, ENVIRONMENT.observe(state)[0].tolist(), strict=True))


@pytest.mark.parametrize(("bandwidth", "base_s", "queue", "factors"), [
    (400.0, 0.1, 200.0, (0.5, 0.9, 1.2, 1.2, 0.7, 1.0)), (300.0, 0.4, 40.0, (0.6, 1.4, 1.4, 0.5, 0.8)),
    (500.0, 0.2, 2000.0, (1.3, 1.3, 0.6, 0.6))])
def test_round_trips_and_losses_are_those_of_packets(bandwidth: float, base_s: float, queue: float,
                                                     factors: tuple[float, ...]) -> None:
    """Interval by interval, the rate changing every five: round trips within 5 %, packets within two."""
    packets = PacketLink(bandwidth, base_s, queue, 0.0)
    state = ENVIRONMENT.reset(plain(bandwidth, base_s, queue, 0.0, 0.5 * bandwidth))
    for _ in range(2):
        packets.interval(0.5 * bandwidth, 1.5 * base_s)
    for step in range(60):
        wanted = torch.tensor([[bandwidth * factors[step // 5 % len(factors)]]])
        state, _ = ENVIRONMENT.step(state, wanted)
        own = seen(state)
        real = packets.interval(own["rate_pps"], own["interval_s"])
        total = own["acked_pps"] * own["interval_s"] / max(1 - own["loss_share"], 1e-6)
        assert total == pytest.approx(real["acked"] + real["lost"], abs=3.0)
        assert own["loss_share"] * total == pytest.approx(real["lost"], abs=3.0)
        assert own["rtt_s"] == pytest.approx(real["rtt_s"], rel=0.05)
        assert own["rtt_slope"] == pytest.approx(np.clip(real["slope"], -1, 1), abs=0.15)


@pytest.mark.parametrize(("base_s", "queue"), [(0.1, 200.0), (0.4, 40.0)])
@pytest.mark.parametrize("factor", [0.8, 1.2])
def test_the_first_packets_come_back_as_packets_do(base_s: float, queue: float, factor: float) -> None:
    """What is seen first, after three round trips at the first rate; and an interval later."""
    packets = PacketLink(400.0, base_s, queue, 0.0)
    state = ENVIRONMENT.reset(plain(400.0, base_s, queue, 0.0, 400.0 * factor))
    packets.interval(400.0 * factor, 1.5 * base_s)
    seconds = 1.5 * base_s
    for _ in range(2):
        own, real = seen(state), packets.interval(400.0 * factor, seconds)
        assert own["interval_s"] == pytest.approx(seconds)
        acked = own["acked_pps"] * seconds
        assert acked == pytest.approx(real["acked"], abs=3.0)
        assert acked * own["loss_share"] / (1 - own["loss_share"]) == pytest.approx(real["lost"], abs=3.0)
        assert own["rtt_s"] == pytest.approx(real["rtt_s"], rel=0.05)
        state, _ = ENVIRONMENT.step(state, torch.tensor([[400.0 * factor]]))
        seconds = float(state.past.interval_s)


@pytest.mark.parametrize(("bandwidth", "base_s", "queue", "factors"), [
    (1e6 / 12000, 0.05, 100.0, (1.2,)),  # a workload's slow link: 48 intervals
    (400.0, 0.1, 2000.0, (1.3,) * 20 + (0.5,) * 20), (400.0, 0.1, 1000.0, (1.6,) * 10 + (0.5,) * 15)])
def test_what_waits_for_many_intervals_comes_back_as_packets_do(bandwidth: float, base_s: float, queue: float,
                                                                factors: tuple[float, ...]) -> None:
    """As above, of 20 to 50 intervals in the queue; in all, packets within one in a hundred."""
    packets, first = PacketLink(bandwidth, base_s, queue, 0.0), 0.5 * bandwidth
    state, heard, real_heard = ENVIRONMENT.reset(plain(bandwidth, base_s, queue, 0.0, first)), np.zeros(2), np.zeros(2)
    for _ in range(2):
        packets.interval(first, 1.5 * base_s)
    longest = 0.0
    for step in range(400):
        state, _ = ENVIRONMENT.step(state, torch.tensor([[bandwidth * factors[step // 5 % len(factors)]]]))
        own = seen(state)
        real = packets.interval(own["rate_pps"], own["interval_s"])
        acked = own["acked_pps"] * own["interval_s"]
        heard += [acked, acked * own["loss_share"] / (1 - own["loss_share"])]
        real_heard += [real["acked"], real["lost"]]
        assert heard == pytest.approx(real_heard, abs=3.0 + 0.01 * real_heard.sum())
        assert acked == pytest.approx(real["acked"], abs=3.0)
        assert own["rtt_s"] == pytest.approx(real["rtt_s"], rel=0.05)
        longest = max(longest, (own["rtt_s"] - base_s) / own["interval_s"])
    assert longest > 18 and heard[0] == pytest.approx(real_heard[0], rel=0.01)


@pytest.mark.parametrize("outage_pps", [1.0, 100.0])
def test_what_waits_through_an_outage_comes_back_after_it(outage_pps: float) -> None:
    """Half a second of nearly nothing in every two seconds: sent and heard of as packets are, none is lost."""
    bandwidths, base_s, grid_s, rate = (400.0, 400.0, 400.0, outage_pps), 0.1, 0.5, 250.0
    links = plain(400.0, base_s, 1e4, 0.0, rate)
    links = replace(links, bandwidth_pps=torch.tensor(bandwidths).repeat(64)[:, None], grid_s=torch.tensor([grid_s]))
    packets = PacketLink(bandwidths * 64, base_s, 1e4, 0.0, grid_s=grid_s)
    state, trips, real_trips, heard, real_heard = ENVIRONMENT.reset(links), [], [], 0.0, 0.0
    for _ in range(2):
        packets.interval(rate, 1.5 * base_s)
    for _ in range(76):
        state, _ = ENVIRONMENT.step(state, torch.tensor([[rate]]))
        own = seen(state)
        real = packets.interval(own["rate_pps"], own["interval_s"])
        heard, real_heard = heard + own["acked_pps"] * own["interval_s"], real_heard + real["acked"]
        assert own["loss_share"] == pytest.approx(0.0, abs=1e-4) and real["lost"] == 0
        if real["acked"] > 5:
            trips.append(own["rtt_s"])
            real_trips.append(real["rtt_s"])
    assert heard == pytest.approx(real_heard, rel=0.02) and max(real_trips) > 0.3
    assert np.median(np.abs(np.array(trips) / real_trips - 1)) < 0.03 and max(trips) < 1.1 * max(real_trips)


SHARED = Congestion(agents=3)


def together(links: Links, rates: tuple[float, ...], rounds: int) -> list[tuple[State, Outcome]]:
    """Three senders of a link without noise, each at its rate."""
    group, found = shared(links, len(rates), 0), []
    group = replace(group, first_pps=torch.tensor(rates), noise=torch.zeros_like(group.noise))
    state = SHARED.reset(group)
    for _ in range(rounds):
        state, outcome = SHARED.step(state, torch.tensor(rates)[:, None])
        found.append((state, outcome))
    return found


@pytest.mark.parametrize(("queue", "rates"), [
    (200.0, (150.0, 60.0, 30.0)), (40.0, (300.0, 150.0, 75.0)), (1000.0, (300.0, 100.0, 50.0))])
def test_senders_of_one_link_wait_and_lose_as_packets_do(queue: float, rates: tuple[float, ...]) -> None:
    """400 packets a second; the second and the third loads are more. Each hears of what is its own."""
    packets = PacketLink(400.0, 0.2, queue, 0.0)
    packets.together(rates, 0.3)
    packets.together(rates, 0.3)
    acked, real = np.zeros(3), np.zeros(3)
    lost, really_lost, trips, real_trips = np.zeros(3), np.zeros(3), [], []
    for state, _ in together(plain(400.0, 0.2, queue, 0.0, 1.0), rates, 30):
        past = state.past
        came = packets.together(rates, float(past.interval_s[0]))
        acked += (past.acked_pps * past.interval_s).numpy()
        lost += (past.acked_pps * past.interval_s * past.loss_share / (1 - past.loss_share)).numpy()
        real += [one["acked"] for one in came]
        really_lost += [one["lost"] for one in came]
        trips.append(float(past.rtt_s.mean()))
        real_trips.append(np.nanmean([one["rtt_s"] for one in came]))
    assert acked.sum() == pytest.approx(real.sum(), rel=0.01)
    assert lost.sum() == pytest.approx(really_lost.sum(), abs=0.02 * real.sum())
    assert trips == pytest.approx(real_trips, rel=0.05)
    # at a full queue, of packets at fixed times those of who sends seldom are dropped more often
    assert acked == pytest.approx(real, rel=0.15)


def test_equal_senders_of_one_link_are_one_who_sends_it_all() -> None:
    """Round trips, losses and what gets through, interval by interval; together it is what the link carries."""
    links = plain(300.0, 0.1, 60.0, 0.01, 150.0)
    state = ENVIRONMENT.reset(replace(links, first_pps=torch.tensor([450.0])))
    for after, outcome in together(links, (150.0,) * 3, 20):
        state, alone = ENVIRONMENT.step(state, torch.tensor([[450.0]]))
        assert after.past.rtt_s.tolist() == pytest.approx([float(state.past.rtt_s)] * 3, rel=1e-4)
        assert float(after.past.acked_pps.sum()) == pytest.approx(float(state.past.acked_pps), rel=1e-4)
        assert after.past.loss_share.tolist() == pytest.approx([float(state.past.loss_share)] * 3, abs=1e-4)
        for name in ("utilization", "queueing_s", "loss_share"):
            assert float(outcome.measures[name]) == pytest.approx(float(alone.measures[name]), rel=1e-3, abs=1e-4)
        assert float(outcome.measures["fairness"]) == pytest.approx(1.0)
        assert outcome.each_violation is not None and outcome.each_violation.shape == (1, 3)


def test_who_shares_unequally_is_paid_less() -> None:
    """By hand: of 300 packets a second for three, 200, 50 and 50 for 100 each; at a fair share nothing is lacking."""
    shares = torch.tensor([2.0, 0.5, 0.5])
    lacks = law.unfairness(100.0 * shares, torch.full((3,), 100.0), TENSORS)
    assert lacks.tolist() == pytest.approx([1.0 - np.log(2.0), np.log(2.0) - 0.5, np.log(2.0) - 0.5])
    assert law.unfairness(100.0, 100.0, NUMBERS) == 0.0
    links = plain(300.0, 0.1, 600.0, 0.0, 100.0)
    fair, unfair = (together(links, rates, 20)[-1][1] for rates in ((99.0,) * 3, (197.0, 50.0, 50.0)))
    assert float(fair.reward - unfair.reward) == pytest.approx(float(lacks.mean()), rel=0.1)
    assert float(unfair.cost) > float(fair.cost)
    assert float(unfair.measures["fairness"]) == pytest.approx(4.0 / 3.0 / 2.0, rel=0.05)


def test_a_workload_of_links_that_are_shared_has_as_many_senders_on_each() -> None:
    from systems.congestion.shared import ENVIRONMENT as SHARING

    bandwidth = pd.DataFrame({"bandwidth_mbps": 4.0 + np.sin(np.arange(300) / 9), "window_s": 1.0})
    twin = SHARING.twin(bandwidth, {"base_rtt_ms": 80.0}, {"target_rate_pps": (4.0, 4000.0)})
    assert twin.agents == 2
    links = twin.draw("train", 5, 20, 0)
    assert len(links.base_s) == 10 and links.senders == 2 and twin.controls[0].high == 4000.0
    assert torch.equal(links.bandwidth_pps[:, ::2], links.bandwidth_pps[:, 1::2])
    state = twin.reset(links)
    assert twin.step(state, state.past.rate_pps[:, None])[1].reward.shape == (5,)


def test_of_links_that_are_shared_some_are_taken_with_all_of_their_senders() -> None:
    links = SHARED.draw("held_out", 4, 20, 0, "aurora")
    some = links.take(np.array([2, 0]))  # as rules are tuned; policies take tensors
    assert torch.equal(some.first_pps, links.take(torch.tensor([2, 0])).first_pps)
    assert torch.equal(some.first_pps, links.first_pps.reshape(4, 3)[[2, 0]].flatten())
    assert torch.equal(some.noise, links.noise.reshape(-1, 3, 4, 3)[:, :, [2, 0]].flatten(2))
    fair = links.bandwidth_pps[0] / 3
    assert bool((links.first_pps >= 0.09 * fair).all()) and bool((links.first_pps <= 2.01 * fair).all())
    assert len(set(links.base_s.reshape(4, 3)[0].tolist())) == 1 and len(links.first_pps.unique()) == 12
    one_gets_all = SHARED.step(SHARED.reset(replace(links, first_pps=torch.tensor([200.0, 4.0, 4.0] * 4))),
                               torch.tensor([[200.0], [4.0], [4.0]] * 4))[1]
    assert bool((one_gets_all.measures["fairness"] < 0.4).all())


@pytest.mark.parametrize("agents", [1, 2])
@pytest.mark.parametrize("family", FAMILIES)
def test_what_was_sent_comes_back_or_is_under_way(family: str, agents: int) -> None:
    """Of every sender, however long its packets wait: half more than the link carries, then a fifth of it."""
    environment = Congestion(agents=agents)
    links = environment.draw("train", 64, 120, 1, family)
    links = replace(links, noise=torch.zeros_like(links.noise))
    state, sent = environment.reset(links), 3 * links.base_s * links.first_pps
    heard = sent - under_way(state)
    told = torch.ones_like(heard, dtype=torch.bool)
    for step in range(120):
        wanted = (1.5 if step < 60 else 0.2) / agents * links.bandwidth_pps.mean(0)
        state, _ = environment.step(state, wanted[:, None])
        past = state.past
        sent += past.rate_pps * past.interval_s
        heard += past.acked_pps * past.interval_s / (1 - past.loss_share).clamp(min=1e-6)
        told &= (past.acked_pps > 0.25) & (past.loss_share < 0.999)  # else it is not told how many there were
        assert bool((state.queue >= 0).all()) and bool((state.queue <= links.queue_packets + 1e-3).all())
    assert float(told.float().mean()) > 0.8
    assert heard[told].tolist() == pytest.approx((sent - under_way(state))[told].tolist(), rel=2e-3, abs=0.1)


def under_way(state: State) -> torch.Tensor:
    """Packets of each sender that nothing was heard of yet."""
    begins, ends, delivered, lost, _, _ = state.curves.unbind(1)
    came = ((state.time_s - begins) / (ends - begins).clamp(min=1e-6)).clamp(0.0, 1.0)
    return ((1 - came) * (delivered + lost)).sum(0)


@pytest.mark.parametrize(("packets", "share"), [
    (1.0, 0.2), (2.0, 0.02), (2.0, 0.5), (4.3, 0.02), (4.3, 0.9), (50.0, 0.02), (500.0, 0.05), (4.0, 0.0), (4.0, 1.0)])
def test_few_packets_tell_of_loss_by_chance_and_right_in_the_mean(packets: float, share: float) -> None:
    """Mean and spread are a binomial's; nothing is drawn without noise, and the gradient is that of the mean."""
    noise = torch.randn(400_000, generator=torch.Generator().manual_seed(0))
    chance = _chance(torch.full_like(noise, share), torch.full_like(noise, packets**-0.5), noise)
    spread = (share * (1 - share) / packets) ** 0.5
    assert float(chance.double().mean()) == pytest.approx(0.0, abs=5 * spread / 400_000**0.5 + 1e-6)
    assert float(chance.double().std()) == pytest.approx(spread, rel=0.06)
    assert bool((chance >= -share - 1e-6).all()) and bool((chance <= 1 - share + 1e-6).all())
    assert _chance(torch.tensor([share]), torch.tensor([packets**-0.5]), torch.zeros(1)).tolist() == [0.0]


def test_a_sender_of_few_packets_is_told_what_is_lost_in_the_mean() -> None:
    """40 packets a second over 0.1 s, 2 % lost at random."""
    links = replace(plain(400.0, 0.1, 200.0, 0.02, 40.0, count=512), noise=torch.randn(
        83, 3, 512, generator=torch.Generator().manual_seed(1)))
    target, state, told = torch.full((512, 1), 40.0, requires_grad=True), ENVIRONMENT.reset(links), []
    for _ in range(80):
        state, _ = ENVIRONMENT.step(state, target)
        told.append(state.past.loss_share)
    assert torch.stack(told).mean().item() == pytest.approx(0.02, abs=0.001)
    (gradient,) = torch.autograd.grad(state.past.acked_pps.sum(), target)
    assert gradient.mean().item() == pytest.approx(0.98, abs=0.01)


@pytest.mark.parametrize("rule", ["bbr", "cubic"])
def test_senders_of_a_link_are_beside_one_reno(rule: str) -> None:
    """Its window is that of the link, whoever of them looks."""
    from systems.congestion.rules import RULES

    environment = Congestion(agents=2)
    links = environment.draw("train", 64, 120, 3, "rival")
    act, state = acting_of(environment, RULES[rule].make({})), environment.reset(links)
    for step in range(120):
        state, _ = environment.step(state, act(environment.observe(state), 0.1 * step))
        for of_the_link in (state.window, state.since_cut_s, state.lost, state.queue, state.time_s):
            assert torch.equal(of_the_link[::2], of_the_link[1::2])


@pytest.mark.parametrize("intervals", [2, 10])
@pytest.mark.parametrize("share", [0.02, 0.01, 1e-3, 2e-4])
def test_the_mean_window_of_a_reno_follows_from_the_share_that_it_loses(intervals: int, share: float) -> None:
    """sqrt(1.5 / p) packets (Mathis and others 1997), also where an interval loses far less than one; a little more of
    small windows, for what is lost in the round trip after a cut is no loss of its own."""
    one, seconds, windows = torch.ones(1), torch.full((1,), 1.0 / intervals), []
    window, since, lost = torch.full((1,), 4.0), torch.zeros(1), torch.zeros(1)
    for _ in range(600 * intervals):
        window, since, lost = _reno(window, since, lost + share * window * seconds, one, seconds)
        windows.append(float(window))
    assert np.mean(windows[100 * intervals:]) == pytest.approx((1.5 / share) ** 0.5, rel=0.1)


def test_a_reno_beside_who_keeps_the_queue_full_takes_what_its_losses_leave_it() -> None:
    """Two senders send what the link carries: of a round trip of its own packets it loses 0.15, and the queue stays."""
    links = shared(replace(plain(400.0, 0.5, 400.0, 0.0, 1.0), rival=torch.ones(1)), 2, 0)
    links = replace(links, first_pps=torch.tensor([200.0, 200.0]), noise=torch.zeros_like(links.noise))
    environment = Congestion(agents=2)
    state, windows, lost = environment.reset(links), [], []
    for step in range(900):
        state, outcome = environment.step(state, torch.tensor([[200.0], [200.0]]))
        if step >= 300:
            windows.append(float(state.window[0]))
            lost.append(float(outcome.measures["loss_share"]))
    assert min(windows) < 0.6 * max(windows)
    assert np.mean(windows) == pytest.approx((1.5 / np.mean(lost)) ** 0.5, rel=0.15)


def test_more_than_the_link_carries_fills_the_queue_and_the_gradient_says_so() -> None:
    links = plain(200.0, 0.1, 500.0, 0.0, 220.0, count=4)
    targets = torch.full((4, 1), 260.0, requires_grad=True)
    state, total = ENVIRONMENT.reset(links), torch.zeros(())
    for _ in range(10):
        state, outcome = ENVIRONMENT.step(state, targets)
        total = total + outcome.reward.sum()
    (gradient,) = torch.autograd.grad(total, targets)
    assert bool((gradient < 0).all())
    own = seen(state)
    assert own["queueing_s"] > 0.05 and own["rtt_slope"] > 0.1 and own["acked_pps"] == pytest.approx(200.0, rel=0.02)


def test_the_reward_is_that_of_pcc_rl() -> None:
    """Its `Network`: 0.001 * (10 * packets/s - 1e3 * latency - 2e3 * loss)."""
    told = {"acked_pps": 300.0, "rtt_s": 0.2, "loss_share": 0.03, "queueing_s": 0.1, "most_queueing_s": 0.05}
    came = law.outcome(told, 400.0, NUMBERS)
    assert came["reward"] == pytest.approx(0.001 * (3000 - 200 - 60))
    assert came["cost"] == pytest.approx(4.0 - came["reward"])
    assert came["violation"] == pytest.approx(np.log(2.0))


def test_a_tcp_beside_takes_a_share_and_heedless_traffic_what_it_wants() -> None:
    for family, most in (("rival", 0.95), ("cross", 0.99)):
        episodes = ENVIRONMENT.draw("held_out", 64, 120, 0, family)
        state, used = ENVIRONMENT.reset(episodes), []
        for _ in range(120):
            state, outcome = ENVIRONMENT.step(state, state.past.most_acked_pps[:, None])
            used.append(outcome.measures["utilization"])
        assert 0.1 < float(torch.stack(used[40:]).mean()) < most


@pytest.mark.parametrize("family", ["", *FAMILIES])
def test_equal_draws_are_equal_and_splits_share_no_link(family: str) -> None:
    first, again = (ENVIRONMENT.draw("train", 64, 20, 5, family) for _ in range(2))
    other = ENVIRONMENT.draw("held_out", 64, 20, 5, family)
    assert torch.equal(first.bandwidth_pps, again.bandwidth_pps) and torch.equal(first.noise, again.noise)
    assert not set(first.base_s.tolist()) & set(other.base_s.tolist())
    with pytest.raises(InputError, match="expected train or held_out and one of aurora"):
        ENVIRONMENT.draw("train", 4, 10, 0, "moon")


@pytest.mark.parametrize("rule", ["cubic", "bbr", "vegas", "copa", "vivace", "headroom"])
def test_every_rule_uses_a_clean_link_and_holds_its_rate_where_nothing_is_known(rule: str) -> None:
    from systems.congestion.rules import RULES

    controller = RULES[rule].make({})
    links = plain(300.0, 0.05, 60.0, 0.0, 100.0, count=8)
    act, state, used = acting_of(ENVIRONMENT, controller), ENVIRONMENT.reset(links), []
    for step in range(70):
        state, outcome = ENVIRONMENT.step(state, act(ENVIRONMENT.observe(state), 0.1 * step))
        used.append(float(outcome.measures["utilization"].mean()))
    assert np.mean(used[35:]) > 0.6
    unknown = {signal.name: np.full(8, np.nan) for signal in ENVIRONMENT.signals} | {"rate_pps": np.full(8, 77.0)}
    assert controller.act(unknown, 99.0)["target_rate_pps"].tolist() == [77.0] * 8


def test_cubic_cuts_once_a_round_trip_and_vegas_keeps_its_packets() -> None:
    """One update of each by hand (RFC 9438, section 4.6; Vegas, section IV)."""
    from systems.congestion.rules import RULES

    row = {"rate_pps": 100.0, "acked_pps": 90.0, "most_acked_pps": 100.0, "rtt_s": 0.2, "min_rtt_s": 0.1,
           "queueing_s": 0.1, "rtt_slope": 0.0, "loss_share": 0.1, "mean_loss_share": 0.0, "interval_s": 0.1}
    lossy = {name: np.array([value]) for name, value in row.items()}
    clean = lossy | {"loss_share": np.array([0.0])}
    cubic = RULES["cubic"].make({})
    cubic.start(1)
    assert cubic.act(lossy, 0.0)["target_rate_pps"][0] == pytest.approx(70.0)
    assert cubic.act(lossy, 0.1)["target_rate_pps"][0] >= 100.0, "the second loss is of the same round trip"
    vegas = RULES["vegas"].make({})
    vegas.start(1)
    assert vegas.act(clean, 0.0)["target_rate_pps"][0] == pytest.approx((20.0 - 0.5) / 0.2), "ten packets are too many"
    few = clean | {"queueing_s": np.array([0.01])}
    assert vegas.act(few, 0.1)["target_rate_pps"][0] == pytest.approx((20.0 + 0.5) / 0.2)
