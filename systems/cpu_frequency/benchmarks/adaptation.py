"""What a governor loses on services and processors that it has not seen, and how long it takes to adapt.

    python -m benchmarks cpu-frequency-adaptation [--parts q generic ...] [--seeds 3]

SmartOverclock's Q-learning (q_learning.py) and our policies, which learn through the simulator, each trained on one
service, on a pool of services of all processors, and on pools that leave one processor out; then all of them act on the
same unseen services, and are fine-tuned to each in episodes of its own (thesis, section 5.6.3 and Figure 5.15). Twice:
for Table A.4's reward, which asks nothing for power, and with a price of power (adaptation_services.py).

    lost       (R_own - R) / |R_own|, R_own of the Q agent that was trained on the unseen service itself
    of gain    (R_own - R) / (R_own - R_random), R_random of clocks at random
    episodes   of the service, 100 s each, until 5 % or less is lost; those that never are count as the last

Parts are made one after the other and kept; resumable: a part that is there for the same code is not made again.
Symbols: S seeds, M members of a stack, A unseen services.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.entries import Entries
from benchmarks.harness.machine import describe_machine, now_utc
from benchmarks.harness.result_file import RESULTS
from models.control.adaptation.exploration import Exploration
from models.control.adaptation.inputs import Given, Inputs, Nothing
from models.control.adaptation.meta_learner import MetaLearner, MetaSettings, MetaTraining
from models.control.adaptation.side_by_side import run as run_side_by_side
from models.control.adaptation.through_stacks import Batch, Stack, TrainingSettings
from models.control.adaptation.through_stacks import train as train_policies
from models.control.adaptation.trajectory_encoder import EncoderSettings
from models.control.adaptation.widening import widened
from models.control.policy.policy import Policy, PolicyShape
from models.control.simulation.rollout import roll_out
from models.control.training.rollouts import random_walk
from models.control.training.rule_tuning import Tuner
from models.control.training.smooth_objectives import PaperReward
from models.control.training.through_environment import stack as stacked
from models.training.seeds import seeded
from systems.cpu_frequency.benchmarks.adaptation_services import (
    POOL,
    REWARDS,
    Choice,
    PaidFrequency,
    choice_of,
    draw,
    processor_of,
)
from systems.cpu_frequency.benchmarks.q_learning import LEVELS_GHZ, Agents, Settings, train
from systems.cpu_frequency.processors import LEVELS
from systems.cpu_frequency.rules import RULES

OUTPUT = RESULTS / "cpu_frequency_adaptation.json"
FORMAT = "assay-cpu-frequency-adaptation/1"
TARGETS, SOURCES = 5, 2  # on each processor; sources for each seed
STEPS, WARM_UP, JUDGED_EPISODES = 100, 10, 4
EACH, ROUNDS = 20, 50  # of a Q agent: episodes at once, and how often; 100,000 transitions
TUNED_EACH, Q_JUDGED = 2, (0, 2, 4, 8, 16, 30, 60, 100, 200)  # episodes of fine-tuning
SCRATCH_JUDGED = (0, 500, 520, 540, 580, 640, 700, 800, 900, 1000)
POLICY_JUDGED = (0, 1, 2, 4, 8, 16, 30)
HIDDEN_LAYERS, ITERATIONS, APPLICATIONS, RATE, TUNED_RATE = (64, 64), 60, 12, 5e-3, 5e-4
META_ITERATIONS, META_RATE, EPISODE = 30, 2e-3, 60
LOOKS = 4  # own episodes whose embedding is told where nothing is fine-tuned
TRIALS, TUNING_EPISODES = 64, 120
_JUDGE_SEED, _TUNING_SEED, _RULE_SEED, _SCRATCH_SEED, _LOOK_SEED = 777, 810_000, 5, 0, 500_000
Numbers = NDArray[np.float64]


class Bench:
    """One reward: services, simulator, and what all are judged on.

    Args:
        reward: of REWARDS.
        seeds: S.
    """

    def __init__(self, reward: str, seeds: int) -> None:
        self.environment = PaidFrequency(REWARDS[reward])
        self.seeds = seeds
        self.choice: Choice = choice_of(seeds, TARGETS, SOURCES)
        self.judged = [target for target in self.choice.targets for _ in range(JUDGED_EPISODES)]
        self.episodes = draw(self.judged, STEPS, _JUDGE_SEED)

    @property
    def trained_on(self) -> list[tuple[int, ...]]:
        """A member's services: of each seed every pool, then every source."""
        return [one for seed in range(self.seeds) for one in (
            *self.choice.pools.values(), *((source,) for source in self.choice.sources[seed]))]

    @property
    def names(self) -> list[str]:
        """What `trained_on` is called."""
        return [one for seed in range(self.seeds) for one in (
            *(f"pool without {left_out}" if left_out else "pool" for left_out in self.choice.pools),
            *(f"service {source}" for source in self.choice.sources[seed]))]

    def starts(self, name: str) -> list[int]:
        """(S A) which member of `trained_on` is fine-tuned: "pool", or "service", one drawn for each target."""
        each = len(self.names) // self.seeds
        pools, found = len(self.choice.pools), []
        for seed in range(self.seeds):
            generator = seeded(seed)
            for _ in self.choice.targets:
                drawn = int(torch.randint(each - pools, (), generator=generator))
                found.append(seed * each + (0 if name == "pool" else pools + drawn))
        return found

    def services(self, number: int, each: int, own: Sequence[Sequence[int]]) -> list[int]:
        """`each` services of every member, drawn from its own."""
        generator = seeded(number)
        return [some[int(torch.randint(len(some), (), generator=generator))] for some in own for _ in range(each)]

    def everywhere(self, act: Callable[[Tensor], Tensor], count: int) -> Numbers:
        """(M, A) mean rewards of M members on all targets, or of M A members, each on its own target."""
        rows = torch.arange(len(self.judged)).repeat(count)
        return self.by_target(roll_out(self.environment, act, self.episodes.take(rows), STEPS, WARM_UP).reward)

    def by_target(self, rewards: Numbers) -> Numbers:
        """(M A episodes) -> (M, A)."""
        return rewards.reshape(-1, len(self.choice.targets), JUDGED_EPISODES).mean(axis=2)


def q_part(bench: Bench) -> dict[str, Any]:
    """Table A.5's agents, of each unseen service itself and of `trained_on`; and fine-tuned to each unseen service."""
    seeds, unseen = bench.seeds, list(bench.choice.targets) * bench.seeds
    agents = Agents(len(unseen) + len(bench.trained_on), _SCRATCH_SEED)
    own = [(one,) for one in unseen] + bench.trained_on
    scratch: list[Numbers] = []

    def after(done: int) -> None:
        if done * EACH in SCRATCH_JUDGED:
            scratch.append(bench.everywhere(agents.taken(list(range(len(unseen)))).greedy, seeds))

    def episodes(number: int) -> Any:
        return draw(bench.services(number, EACH, own), STEPS, number)

    train(bench.environment, agents, episodes, ROUNDS, EACH, _SCRATCH_SEED, Settings(), after)
    trained = agents.taken(list(range(len(unseen), len(agents))))
    everywhere = bench.everywhere(trained.greedy, len(trained))
    starts = bench.starts("service") + bench.starts("pool")
    tuned, curves = trained.taken(starts), []

    def judged(done: int) -> None:
        if done * TUNED_EACH in Q_JUDGED:
            curves.append(bench.everywhere(tuned.greedy, 2 * seeds))

    def of_targets(number: int) -> Any:
        return draw([one for one in unseen * 2 for _ in range(TUNED_EACH)], STEPS, _TUNING_SEED + number)

    train(bench.environment, tuned, of_targets, Q_JUDGED[-1] // TUNED_EACH, TUNED_EACH, 1,
          replace(Settings(), starts=STEPS * TUNED_EACH), judged, explores=False)
    return {"own": _listed(scratch[-1]), "everywhere": _listed(everywhere), "curves": {
        "from scratch": _curve(SCRATCH_JUDGED, scratch),
        "service": _curve(Q_JUDGED, [one[:seeds] for one in curves]),
        "pool": _curve(Q_JUDGED, [one[seeds:] for one in curves])}}


def generic_part(bench: Bench) -> dict[str, Any]:
    """Our policies of `trained_on`, through the simulator; and fine-tuned to each unseen service."""
    policy = trained_policies(bench, bench.trained_on)
    everywhere = bench.everywhere(acting(policy, Nothing()), policy.members[0])
    scratch = untrained(bench.environment, range(bench.seeds))
    began = stacked([*(policy.member(start) for start in bench.starts("service") + bench.starts("pool")),
                     *(scratch.member(seed) for seed in range(bench.seeds) for _ in bench.choice.targets)])
    curves = tuned_policies(bench, began, Nothing, lambda episode: None)
    parts = {name: [one[at * bench.seeds:(at + 1) * bench.seeds] for one in curves]
             for at, name in enumerate(("service", "pool", "from scratch"))}
    return {"everywhere": _listed(everywhere),
            "curves": {name: _curve(POLICY_JUDGED, own) for name, own in parts.items()}}


def embedding_part(bench: Bench) -> dict[str, Any]:
    """The same with the embedding of an unseen service's own episodes (models/control/adaptation/meta_learner.py)."""
    pools, count = bench.choice.pools, len(bench.choice.targets)
    policy = trained_policies(bench, list(pools.values()) * bench.seeds)
    everywhere, curves = [], {}
    for at, numbers in enumerate(pools.values()):
        learner = meta_learner(bench, policy.taken(range(at, bench.seeds * len(pools), len(pools))), numbers)
        known = Exploration(learner, count, 8, EPISODE)
        for episode in range(LOOKS):
            look(bench, learner, known, learner.policy, episode)
        told = Given(known.embedding().repeat_interleave(JUDGED_EPISODES, dim=1).flatten(0, 1))
        everywhere.append(bench.everywhere(acting(learner.policy, told), bench.seeds))
        if not at:
            curves["pool"] = _tuned_by_embedding(bench, learner)
    return {"everywhere": _listed(np.stack(everywhere, axis=1).reshape(-1, count)), "curves": curves}


def _tuned_by_embedding(bench: Bench, learner: MetaLearner) -> dict[str, Any]:
    """Fine-tuned policies that read the embedding of their own episodes so far."""
    count = len(bench.choice.targets)
    wide = learner.policy.taken([seed for seed in range(bench.seeds) for _ in range(count)])
    known = Exploration(learner, count, 8, EPISODE)
    return _curve(POLICY_JUDGED, tuned_policies(
        bench, wide, known.told, lambda episode: look(bench, learner, known, wide, episode)))


def rules_part(bench: Bench) -> dict[str, Any]:
    """The best that needs no learning: governors tuned on the pool for the reward, and clocks at random."""
    environment, pool = bench.environment, bench.choice.pools[""]
    episodes = draw(bench.services(_RULE_SEED, TUNING_EPISODES, [pool]), STEPS, _RULE_SEED)
    found = {}
    for name in ("performance", "schedutil", "leading-loads"):
        tuner = Tuner(environment, RULES[name], episodes, STEPS, 0, WARM_UP)
        tuner.search(TRIALS, None)
        settings = tuner.best(None).settings
        rewards = roll_out(environment, RULES[name].make(settings), bench.episodes, STEPS, WARM_UP).reward
        found[name] = {"settings": settings, "rewards": _listed(bench.by_target(rewards))[0]}
    generator = seeded(_RULE_SEED)

    def at_random(observation: Tensor) -> Tensor:
        return LEVELS_GHZ[torch.randint(len(LEVELS), (len(observation), 1), generator=generator)]

    return {"rules": found, "random": _listed(bench.everywhere(at_random, 1))[0]}


PARTS: dict[str, Callable[[Bench], dict[str, Any]]] = {
    "rules": rules_part, "q": q_part, "generic": generic_part, "embedding": embedding_part}


def untrained(environment: PaidFrequency, seeds: Sequence[int]) -> Policy:
    """(M,) policies that begin about as their anchor, one of each seed."""
    shape = PolicyShape(environment.signals, environment.controls, environment.features, HIDDEN_LAYERS,
                        anchors=environment.anchors)
    policy = stacked([Policy(shape, seeded(seed)) for seed in seeds])
    policy.normalise(random_walk(environment, policy.current, STEPS, 0))  # of training services
    return policy


def trained_policies(bench: Bench, own: Sequence[Sequence[int]]) -> Policy:
    """(M,) policies, each for the reward on services of its own; the first weights are those of its seed."""
    each = len(own) // bench.seeds
    stack = Stack(untrained(bench.environment, [member // each for member in range(len(own))]))

    def batch(iteration: int) -> Batch:
        return Batch(draw(bench.services(iteration, APPLICATIONS, own), EPISODE, iteration), Nothing)

    train_policies(bench.environment, stack, batch, PaperReward(),
                   TrainingSettings(ITERATIONS, EPISODE, warm_up=WARM_UP, rate=RATE))
    return stack.policy


def meta_learner(bench: Bench, policy: Policy, numbers: Sequence[int]) -> MetaLearner:
    """Trained on from (S,) generic policies of a pool of training services."""
    encoder = EncoderSettings(trajectories=LOOKS)
    wide = widened(policy, Given(torch.zeros(1, encoder.embedding)).names, 1.0)
    settings = MetaSettings(encoder, TrainingSettings(META_ITERATIONS, EPISODE, warm_up=WARM_UP, rate=META_RATE),
                            tuple(range(bench.seeds)), applications=APPLICATIONS, refresh=10)
    return MetaTraining(bench.environment, bench.environment, wide, settings, numbers).run()


@torch.no_grad()
def look(bench: Bench, learner: MetaLearner, known: Exploration, policy: Policy, episode: int) -> None:
    """One more episode of every unseen service, by policies that are told what is known so far."""
    drawn = draw(list(bench.choice.targets) * bench.seeds, EPISODE, _LOOK_SEED + episode)
    known.add(run_side_by_side(bench.environment, policy, known.told(), drawn, EPISODE, WARM_UP,
                               recorder=learner.recorder))


def tuned_policies(bench: Bench, policy: Policy, inputs: Callable[[], Inputs],
                   before: Callable[[int], None]) -> list[Numbers]:
    """Fine-tunes policies, in place, each to its unseen service: (S..., A) rewards at POLICY_JUDGED.

    Args:
        inputs: what they are told.
        before: called with the number of an episode before its gradients.
    """
    stack, curves = Stack(policy), []
    times = policy.members[0] // len(bench.choice.targets)
    every = list(bench.choice.targets) * times

    def batch(iteration: int) -> Batch:
        return Batch(draw(every, STEPS, _TUNING_SEED + iteration), inputs)

    for episode in range(POLICY_JUDGED[-1] + 1):
        if episode in POLICY_JUDGED:
            told = inputs()
            if isinstance(told, Given):
                told = Given(told.values.repeat_interleave(JUDGED_EPISODES, dim=0))
            curves.append(bench.everywhere(acting(stack.policy, told), times))
        if episode < POLICY_JUDGED[-1]:
            before(episode)
            settings = TrainingSettings(episode + 1, STEPS, warm_up=WARM_UP, rate=TUNED_RATE, decay=False)
            train_policies(bench.environment, stack, batch, PaperReward(), settings)
    return curves


def acting(policy: Policy, told: Given | Inputs) -> Callable[[Tensor], Tensor]:
    """(M N, 13) raw observations -> (M N, 1) targets, those of a member next to each other."""
    extra = told.values if isinstance(told, Given) else None

    def act(observation: Tensor) -> Tensor:
        rows = observation if extra is None else torch.cat([observation, extra], dim=1)
        return policy(rows.unflatten(0, (policy.members[0], -1))).flatten(0, 1)

    return act


def _listed(rewards: Numbers) -> list[list[float]]:
    return [[round(float(value), 5) for value in row] for row in np.atleast_2d(rewards)]


def _curve(judged_at: Sequence[int], rewards: Sequence[Numbers]) -> dict[str, Any]:
    """(judged, S, A) rewards at so many episodes."""
    return {"episodes": list(judged_at), "rewards": [_listed(one) for one in rewards]}


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--seeds", type=int, default=3, help="of training; default: 3")


def run(options: argparse.Namespace) -> None:
    """Measures what is not there yet."""
    torch.set_num_threads(1)
    code = code_digest("systems.cpu_frequency.benchmarks.adaptation", ("systems.cpu_frequency", "models.control"))
    entries = Entries(options.output, FORMAT, lambda one: (list(REWARDS).index(one["reward"]),
                                                           list(PARTS).index(one["part"])),
                      lambda _, one: (one["code"], one["seeds"]) == (code, options.seeds))
    entries.content["machine"] = {**describe_machine(), "date": now_utc()}
    for number, reward in reversed(list(enumerate(REWARDS))):
        bench = Bench(reward, options.seeds)
        entries.content |= {"targets": list(bench.choice.targets), "names": bench.names, "pool": POOL,
                            "processors": [processor_of(one) for one in bench.choice.targets]}
        for part in options.parts:
            if entries.has((number, list(PARTS).index(part))):
                continue
            began = time.process_time()
            made = PARTS[part](bench)
            entries.add({"reward": reward, "part": part, "code": code, "seeds": options.seeds,
                         "cpu_s": round(time.process_time() - began, 1), **made})
            print(f"{time.process_time() - began:6.0f} s of CPU time  {reward}, {part}", file=sys.stderr, flush=True)
