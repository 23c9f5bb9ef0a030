"""SmartOverclock's Q-learning against exact values, and what trains apart from what is unseen."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from systems.cpu_frequency import simulator
from systems.cpu_frequency.benchmarks import adaptation
from systems.cpu_frequency.benchmarks.adaptation_services import (
    FIRST_HELD_OUT,
    POOL,
    PRICE,
    PaidFrequency,
    choice_of,
    draw,
    processor_of,
)
from systems.cpu_frequency.benchmarks.adaptation_tables import adapted_table, episodes_needed, lost_table
from systems.cpu_frequency.benchmarks.q_learning import Agents, Settings, state_of, td_targets, train
from systems.cpu_frequency.environment import ENVIRONMENT
from systems.cpu_frequency.processors import LEVELS, PROCESSORS

FLOAT = 2e-5  # float32, some hundred sums of numbers about 1


def test_the_target_is_the_reward_and_the_best_value_that_follows() -> None:
    following = torch.tensor([[[1.0, 3.0, 2.0], [-1.0, -4.0, -2.0]]])
    assert td_targets(torch.tensor([[0.5, 0.25]]), following, 0.5).tolist() == [[2.0, -0.25]]


def plain_network(agents: Agents, member: int) -> nn.Sequential:
    """One of them, as torch writes it."""
    layers: list[nn.Module] = []
    for weight, bias in zip(agents.weights[::2], agents.weights[1::2], strict=True):
        layer = nn.Linear(weight.shape[1], weight.shape[2])
        with torch.no_grad():
            layer.weight.copy_(weight[member].T)
            layer.bias.copy_(bias[member, 0])
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def test_every_agent_learns_as_one_that_torch_trains_alone() -> None:
    """Q'(s') of the networks at the last renewal, Huber loss, norm of 10, Adam: three steps, the rewards large, so that
    gradients are cut, and one agent's rewards no other's."""
    generator, settings = torch.Generator().manual_seed(3), Settings(rate=1e-2)
    agents = Agents(2, 5, actions=3)
    alone = [plain_network(agents, member) for member in range(2)]
    fixed = [plain_network(agents, member) for member in range(2)]
    optimisers = [torch.optim.Adam(one.parameters(), lr=1e-2) for one in alone]
    cut = []
    for _ in range(3):
        states, following = (40.0 * torch.rand((2, 8, 4), generator=generator) for _ in range(2))
        actions = torch.randint(3, (2, 8), generator=generator)
        reward = torch.tensor([[1.0], [200.0]]) * torch.rand((2, 8), generator=generator)
        losses = agents.learn(states, actions, reward, following, settings)
        for member, (own, target, optimiser) in enumerate(zip(alone, fixed, optimisers, strict=True)):
            wanted = reward[member] + 0.99 * target(following[member]).max(dim=1).values.detach()
            error = own(states[member])[torch.arange(8), actions[member]] - wanted
            loss = torch.where(error.abs() < 1.0, 0.5 * error**2, error.abs() - 0.5).mean()
            assert float(losses[member]) == pytest.approx(loss.item(), rel=1e-4)
            optimiser.zero_grad()
            loss.backward()
            cut.append(float(nn.utils.clip_grad_norm_(own.parameters(), 10.0)) > 10.0)
            optimiser.step()
    assert any(cut), "else the cut is not tried"
    probe = 40.0 * torch.rand((2, 8, 4), generator=generator)
    for member, own in enumerate(alone):
        torch.testing.assert_close(agents.values(probe)[member], own(probe[member]), rtol=1e-3, atol=1e-3)


def test_values_come_to_those_of_a_decision_process_that_is_solved_by_hand() -> None:
    """State 0: stay for 0, or go to state 1 for 1; state 1: back for 2, or stay for 0. Best: to and fro, for ever;
    Q(0, go) = (1 + 2 d) / (1 - d^2), Q(1, back) = 2 + d Q(0, go), the others d times the best of where they stay."""
    discount = 0.5
    go = (1.0 + 2.0 * discount) / (1.0 - discount**2)
    back = 2.0 + discount * go
    exact = torch.tensor([[discount * go, go], [back, discount * back]])
    states = torch.eye(4)[[0, 0, 1, 1]][None]
    following = torch.eye(4)[[0, 1, 0, 1]][None]
    actions, reward = torch.tensor([[0, 1, 0, 1]]), torch.tensor([[0.0, 1.0, 2.0, 0.0]])
    agents = Agents(1, 0, actions=2)
    for step in range(3000):
        agents.learn(states, actions, reward, following, Settings(rate=3e-3 if step < 2000 else 1e-4,
                                                                  discount=discount))
        if step % 50 == 0:
            agents.renew()
    torch.testing.assert_close(agents.values(torch.eye(4)[[0, 1]][None])[0], exact, rtol=0.0, atol=0.01)


def test_the_state_is_that_of_table_a4_within_its_ranges() -> None:
    state = ENVIRONMENT.reset(draw([0, 801], 3, 1))
    observation = ENVIRONMENT.observe(state)
    found = state_of(observation)
    seen = {name: value.numpy() for name, value in state.seen.items()}
    assert found.shape == (2, 4) and bool(((found >= 0) & (found <= 1)).all())
    np.testing.assert_allclose(found[:, 0], (np.log2(seen["ips_1e9"]) + 8.0) / 11.0, rtol=FLOAT)
    np.testing.assert_allclose(found[:, 1], seen["usage"], rtol=FLOAT)
    np.testing.assert_allclose(found[:, 2], (np.log2(seen["delivered_ghz"]) + 1.0) / 3.0, rtol=FLOAT)
    np.testing.assert_allclose(found[:, 3], np.minimum(1.0, seen["most_latency_ms"] / seen["latency_ms"]), rtol=FLOAT)


@pytest.mark.parametrize("price", [0.0, PRICE])
def test_what_is_paid_is_the_reward_of_table_a4_less_the_price_of_power(price: float) -> None:
    paid, episodes = PaidFrequency(price), draw([0, 1, 2, 803], 3, 1)
    targets = torch.full((4, 1), 2.5)
    _, plain = ENVIRONMENT.step(ENVIRONMENT.reset(episodes), targets)
    _, outcome = paid.step(paid.reset(episodes), targets)
    torch.testing.assert_close(outcome.reward, plain.reward - price * plain.cost)
    assert torch.equal(outcome.cost, plain.cost)


def test_a_service_is_the_same_in_whatever_company_it_is_drawn() -> None:
    numbers = [805, 4, 4, 999, 0]
    together = draw(numbers, 3, 1)
    alone = torch.cat([draw([one], 3, 9).work for one in numbers])
    assert torch.equal(together.work, alone)
    assert together.processor.tolist() == [processor_of(one) for one in numbers]
    assert together.work[1] == together.work[2] and not torch.equal(together.rate_rps[:, 1], together.rate_rps[:, 2])


def test_no_unseen_service_and_no_processor_that_is_left_out_is_in_a_pool() -> None:
    choice = choice_of(3, 5, 2)
    trained = {one for pool in choice.pools.values() for one in pool} | {one for own in choice.sources for one in own}
    assert min(choice.targets) >= FIRST_HELD_OUT > max(trained) and len(set(choice.targets)) == 15
    assert [sum(processor_of(one) == number for one in choice.targets) for number in range(3)] == [5, 5, 5]
    for number, one in enumerate(PROCESSORS):
        assert {processor_of(service) for service in choice.pools[one.name]} == {0, 1, 2} - {number}
    assert len(choice.pools[""]) == POOL and len({*map(len, choice.sources)}) == 1


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> adaptation.Bench:
    """A benchmark that lasts seconds."""
    for name, value in {"TARGETS": 1, "SOURCES": 1, "JUDGED_EPISODES": 1, "STEPS": 40, "EACH": 2, "ROUNDS": 1,
                        "SCRATCH_JUDGED": (0, 2), "Q_JUDGED": (0, 2), "POLICY_JUDGED": (0, 1), "ITERATIONS": 1,
                        "META_ITERATIONS": 1, "APPLICATIONS": 2, "EPISODE": 20, "LOOKS": 1, "WARM_UP": 2}.items():
        monkeypatch.setattr(adaptation, name, value)
    return adaptation.Bench("with power", 2)


@pytest.mark.parametrize("part", ["q", "generic", "embedding"])
def test_what_trains_before_adaptation_draws_no_unseen_service(
        part: str, small: adaptation.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """All draws of the simulator are looked at: unseen services come with looking, judging and fine-tuning alone."""
    seen: list[tuple[str, int, set[int]]] = []
    plain = simulator.draw_programs

    def spied(split: str, count: int, steps: int, seed: int, scenario: str, numbers: list[int]) -> Any:
        seen.append((split, seed, set(numbers) if numbers is not None else set()))
        return plain(split, count, steps, seed, scenario, numbers)

    monkeypatch.setattr(simulator, "draw_programs", spied)
    made = adaptation.PARTS[part](small)
    held_out = {seed for split, seed, _ in seen if split == "held_out"}
    if part == "q":  # the agents of the unseen services themselves are trained beside
        assert set(small.services(0, 5, small.trained_on)) <= set(range(POOL))
        held_out -= {0}
    assert held_out and all(seed >= 500_000 for seed in held_out), "seeds of looking and of fine-tuning"
    assert set().union(*(numbers for split, _, numbers in seen if split == "train")) <= set(range(POOL))
    rows = 2 * len(small.choice.pools) + (0 if part == "embedding" else 2 * 3)
    assert np.shape(made["everywhere"]) == (rows, 3) and np.isfinite(made["everywhere"]).all()
    assert all(np.shape(one["rewards"]) == (2, 2, 3) for one in made["curves"].values())


def test_services_of_a_member_are_its_own(small: adaptation.Bench) -> None:
    drawn = torch.tensor(small.services(7, 50, small.trained_on)).view(len(small.trained_on), 50)
    for services, own, name in zip(drawn, small.trained_on, small.names, strict=True):
        assert set(services.tolist()) <= set(own), name
    starts = small.starts("service")
    assert all(small.names[one].startswith("service") for one in starts)
    assert [small.names[one] for one in small.starts("pool")] == ["pool"] * 6


def test_before_learning_starts_actions_are_random_and_weights_stay() -> None:
    environment = PaidFrequency(0.0)
    agents = Agents(2, 1)
    first = [part.detach().clone() for part in agents.weights]
    asked: list[Tensor] = []
    step = environment.step

    def spied(state: Any, targets: Tensor) -> Any:
        asked.append(targets)
        return step(state, targets)

    environment.step = spied  # type: ignore[method-assign]
    train(environment, agents, lambda number: draw([0, 1, 2, 3], 100, number), 1, 2, 0, Settings())
    assert all(map(torch.equal, first, agents.weights)), "200 transitions of 50,000"
    counts = torch.cat(asked).flatten().unique(return_counts=True)[1]
    assert len(counts) == len(LEVELS) and int(counts.max()) < 2 * 400 / len(LEVELS)
    train(environment, agents, lambda number: draw([0, 1, 2, 3], 100, number), 1, 2, 0, Settings(starts=100))
    assert not any(map(torch.equal, first, agents.weights))


def test_what_is_never_reached_counts_as_the_last_judgement() -> None:
    """Two seeds, two services: at once, after 4 episodes, never, and after 8 though it falls back then."""
    curves = np.array([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 1.0], [0.5, 0.0]], [[1.0, 1.0], [0.5, 1.0]],
                       [[1.0, 1.0], [0.5, 0.0]]])
    needed, share = episodes_needed([0, 4, 8, 16], curves, np.array([0.9, 0.9]))
    assert needed.tolist() == [[0.0, 4.0], [16.0, 8.0]] and share == 0.75


def test_the_tables_hold_each_member_against_the_services_that_it_has_not_seen() -> None:
    """Rewards whose means are known: 1 there itself; a pool has 0.9, or 0.8 on the processor that it left out; another
    service 0.7 on its own processor, else 0.6; random clocks 0.5."""
    choice = choice_of(2, 1, 1)
    processors = [processor_of(one) for one in choice.targets]
    names, everywhere = [], []
    for own in choice.sources:
        for left_out in choice.pools:
            names.append(f"pool without {left_out}" if left_out else "pool")
            everywhere.append([0.8 if PROCESSORS[one].name == left_out else 0.9 for one in processors])
        for source in own:
            names.append(f"service {source}")
            everywhere.append([0.7 if one == processor_of(source) else 0.6 for one in processors])
    pools = [row for row, name in zip(everywhere, names, strict=True) if name.startswith("pool")]
    curve = {"episodes": [0, 4], "rewards": [[[0.6] * 3] * 2, [[1.0] * 3] * 2]}
    curves = dict.fromkeys(("from scratch", "service", "pool"), curve)
    parts = {"rules": {"rules": {"performance": {"rewards": [0.95] * 3}}, "random": [0.5] * 3},
             "q": {"own": [[1.0] * 3] * 2, "everywhere": everywhere, "curves": curves},
             "generic": {"everywhere": everywhere, "curves": curves},
             "embedding": {"everywhere": pools, "curves": {"pool": curve}}}
    results = {"entries": [{"reward": "with power", "part": part, "seeds": 2, **made} for part, made in parts.items()],
               "processors": processors, "names": names, "targets": list(choice.targets)}
    rows = {row.split("|")[1].strip(): [cell.strip() for cell in row.split("|")[2:-2]]
            for row in lost_table("with power")(results).splitlines()[2:]}
    assert rows["Q-learning, trained on one other service"][1:] == [
        "30.0 ± 0.0", "40.0 ± 0.0", "60.0 ± 0.0", "80.0 ± 0.0"]
    for learner in ("Q-learning, trained on the pool", "the same with an embedding, trained on the pool"):
        assert rows[learner][1:] == ["10.0 ± 0.0", "20.0 ± 0.0", "20.0 ± 0.0", "40.0 ± 0.0"]
    assert rows["rule: performance, tuned on the pool"][1:] == ["5.0", "", "10.0", ""]
    adapted = adapted_table("with power")(results).splitlines()
    assert len(adapted) == 2 + 7 and all("| 4.0 ± 0.0 | 100 | 4.0 ± 0.0 | 100 | 1.0 |" in row for row in adapted[2:])
    assert lost_table("Table A.4")(results) == "*Not measured yet.*"
