"""Policy search by the gradient of the environment itself (analytic policy gradient), many policies side by side.

A step of the environment is differentiable, so the cost of a window of steps has a gradient by the policy's weights. An
episode is cut into windows through whose ends no gradient flows (truncated backpropagation through time). Policies are
trained for

    minimise cost  subject to  share of violating steps <= target

by a Lagrange multiplier of each policy: the gradient is that of cost + multiplier * violation (smooth), the multiplier
rises and falls with the share of violating steps that was measured. Or for the paper's reward alone.

Every round draws new episodes of training applications; the seed of what is drawn is that of the round, so that a run
that was killed goes on from its checkpoint to the same result. The best weights of each policy are chosen on training
applications too, in episodes that no gradient has seen and in the environment that `judge` is (with whole replicas).

Symbols: K policies, N applications of each in a round, T steps of an episode, W steps of a window.
"""

import hashlib
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from feature_store.errors import InputError
from feature_store.whole_files import write_file
from models.control.contract.environment import Environment, Outcome
from models.control.policy.policy import Policy, PolicyShape
from models.control.simulation.settable import settable
from models.control.training.monotone import Demands, NoDemands
from models.control.training.objective import excess
from models.control.training.rollouts import Scores, judge, random_walk, targets_of
from models.control.training.smooth_objectives import CostAndViolations, PaperReward, SmoothObjective
from models.control.training.training_run import checkpoint_folder, first_steps
from models.control.training.windows import cut_to_norm, discounted, falling_rate, limit_slopes, member_means
from models.training.adam import adam_step
from models.training.seeds import seeded

OnProgress = Callable[[Mapping[str, Any]], None]
_JUDGES = 0xA55A  # seed of the episodes on which weights are chosen
_FIGURES = ("cost", "violated", "reward")  # of a round, as they are reported


@dataclass(frozen=True)
class Settings:
    """How policies are trained.

    Attributes:
        objective: cost under the constraint, or the paper's reward alone.
        reward_weight: cost units that a unit of the paper's reward is worth, where the objective is the cost.
        applications: N.
        rounds: episodes' worth of training; the learning rate falls by a cosine over them.
        steps: T; None: the environment's.
        warm_up: first steps, which do not count: what an episode starts with is gone by then. < T.
        window: W.
        discount: of the gradient through the state, a step: without it slopes of a queue explode.
        rate: first learning rate of Adam.
        last_rate: of the last round, a share of the first.
        clip: largest norm of a policy's gradient.
        slope: largest slope of (cost + multiplier * violation) / (1 + multiplier) by the logarithm of one agent's
            targets in one step. Without it a few applications near collapse, with slopes of thousands beside a median
            of 0.1, decide everything.
        open_loop: gradients do not flow through what the policy sees: a window is then that of a plan whose changes
            last.
        multiplier: first Lagrange multiplier.
        multiplier_rate: change of its logarithm in a window in which twice the target was measured.
        judged_every: rounds between judgements, from `judged_from` (a share of the rounds) on, after that of what
            training starts from.
        judged_applications: that each policy is judged on.
    """

    objective: Literal["cost", "reward"] = "cost"
    reward_weight: float = 0.0
    applications: int = 64
    rounds: int = 80
    steps: int | None = None
    warm_up: int = 10
    window: int = 20
    discount: float = 0.95
    rate: float = 5e-3
    last_rate: float = 0.02
    clip: float = 1.0
    slope: float = 10.0
    open_loop: bool = False
    multiplier: float = 100.0
    multiplier_rate: float = 0.02
    judged_every: int = 10
    judged_from: float = 0.5
    judged_applications: int = 200


@dataclass(frozen=True)
class Judgement:
    """Of the weights after so many rounds, means over the policies; see `Scores`."""

    round: int
    cost: float
    violated: float
    reward: float


@dataclass(frozen=True)
class TrainedTogether:
    """What training came to.

    Attributes:
        policy: with the best weights of each.
        scores: of these weights.
        judgements: all that there were, the first of what training started from.
        stopped: why it ended early, "" where it did not.
    """

    policy: Policy
    scores: Scores
    judgements: tuple[Judgement, ...]
    stopped: str = ""


@dataclass
class _Progress:
    """All that a run needs to go on."""

    policy: Policy
    best: Policy
    best_value: Tensor
    best_scores: Tensor
    objective: SmoothObjective
    means: list[Tensor]
    squares: list[Tensor]
    steps: list[Tensor]
    judgements: list[Judgement]
    round: int = 0


class ThroughEnvironment:
    """One training of K policies.

    Args:
        environment: differentiable.
        judge: the environment in which weights are chosen.
        shape: of the policies.
        seeds: (K,) of the first weights of each.
        targets: (K,) shares of violating steps.
        start: policies to go on from; None: new ones. Their normalisation is kept.
        checkpoint: file from which a run that was killed goes on; removed by `run` at its end.
    """

    def __init__(self, environment: Environment, judge: Environment, shape: PolicyShape, settings: Settings,
                 seeds: Sequence[int], targets: Sequence[float], demands: Demands = NoDemands(),
                 start: Policy | None = None, checkpoint: Path | None = None,
                 on_progress: OnProgress = lambda event: None) -> None:
        if len(seeds) != len(targets):
            raise InputError(f"targets: expected one for each of {len(seeds)} seeds, got {len(targets)}")
        if not all(0 < target < 1 for target in targets):
            raise InputError(f"targets: expected shares between 0 and 1, got {list(targets)}")
        self.environment, self.judge, self.settings, self.on_progress = environment, judge, settings, on_progress
        self.demands = demands
        self.seeds, self.targets = tuple(seeds), torch.tensor(targets)
        self.steps = settings.steps or environment.steps
        if not 1 <= settings.window <= self.steps:
            raise InputError(f"window: expected 1 to {self.steps} steps, as many as an episode has, got "
                             f"{settings.window}")
        if not 0 <= settings.warm_up < self.steps:
            raise InputError(f"warm_up: expected 0 to {self.steps - 1} steps of an episode of {self.steps}, got "
                             f"{settings.warm_up}")
        self.checkpoint, self.started_anew = checkpoint, start is None
        policy = self._first(shape) if start is None else start.taken(range(len(seeds)))
        self.demands.project(policy)
        parameters = list(policy.parameters())
        count = len(seeds)
        self.state = _Progress(
            policy, deepcopy(policy), torch.full((count,), math.inf), torch.full((3, count), math.nan),
            self._objective(), [torch.zeros_like(one) for one in parameters],
            [torch.zeros_like(one) for one in parameters], [torch.zeros(()) for _ in parameters], [])
        weights = hashlib.sha256(b"".join(one.detach().cpu().numpy().tobytes() for one in policy.state_dict().values()))
        self.digest = json.dumps({"settings": asdict(settings), "shape": shape.document(), "seeds": self.seeds,
                                  "targets": list(targets), "weights": weights.hexdigest(), "environment":
                                  first_steps(environment, policy.current) if checkpoint else ""}, sort_keys=True)

    def run(self) -> TrainedTogether:
        """Trains to the end; from the checkpoint, where there is one."""
        if self.checkpoint is not None:
            self._resume(self.checkpoint)
        settings, state = self.settings, self.state
        stopped = ""
        if not state.judgements:
            self._judge()
        while state.round < settings.rounds:
            stopped = self._round()
            if stopped:
                break
            state.round += 1
            done = state.round / settings.rounds
            last = state.round == settings.rounds
            if last or (done >= settings.judged_from and state.round % settings.judged_every == 0):
                self._judge()
            if self.checkpoint is not None:
                self._save(self.checkpoint)
        if stopped and self.started_anew and len(state.judgements) == 1:
            raise InputError(f"training: {stopped}, before any weights were judged; lower `rate` or `clip`")
        if self.checkpoint is not None and not stopped:
            self.checkpoint.unlink(missing_ok=True)
        return TrainedTogether(state.best, Scores(*state.best_scores), tuple(state.judgements), stopped)

    def _first(self, shape: PolicyShape) -> Policy:
        """New policies; features are normalised by what is seen while targets walk at random."""
        policy = stack([Policy(shape, seeded(seed)) for seed in self.seeds])
        policy.normalise(random_walk(self.environment, policy.current, self.steps, self.seeds[0]))
        return policy

    def _round(self) -> str:
        """One episode; why training has to stop, "" where it goes on."""
        state, settings = self.state, self.settings
        count = len(self.seeds)
        episodes = self.environment.draw("train", count * settings.applications, self.steps,
                                         _seed(self.seeds[0], state.round))
        now = self.environment.reset(episodes)
        rate = falling_rate(settings.rate, settings.last_rate, state.round / settings.rounds)
        losses, seen = [], []
        for begin in range(0, self.steps - settings.window + 1, settings.window):
            now = discounted(now, 0.0)
            now, outcomes = self._window(now, begin)
            if not outcomes:
                continue
            loss = member_means([state.objective(outcome) for outcome in outcomes], count)
            gradients, norm = cut_to_norm(torch.autograd.grad(loss.sum(), list(state.policy.parameters())),
                                          settings.clip)
            if not (torch.isfinite(loss).all() and torch.isfinite(norm).all()):
                bad = [k for k in range(count) if not (loss[k].isfinite() and norm[k].isfinite())]
                return f"the loss of policies {bad} was no finite number in round {state.round + 1}, step {begin}"
            parameters = [parameter.detach() for parameter in state.policy.parameters()]
            adam_step(parameters, gradients, state.means, state.squares, state.steps, rate)
            self.demands.project(state.policy)
            means = torch.stack([member_means([getattr(outcome, name).detach() for outcome in outcomes], count)
                                 for name in _FIGURES])
            state.objective.observe(means[_FIGURES.index("violated")])
            losses.append(loss.detach())
            seen.append(means)
        figures = torch.stack(seen).mean(dim=(0, 2)).tolist()
        self.on_progress({"stage": "pretrain", "round": state.round + 1, "rounds": settings.rounds,
                          "loss": float(torch.stack(losses).mean()), **dict(zip(_FIGURES, figures, strict=True))})
        return ""

    def _window(self, now: Any, begin: int) -> tuple[Any, list[Outcome]]:
        """The steps of a window from the state `now` on; what those came to that count."""
        settings, outcomes = self.settings, []
        for step in range(begin, begin + settings.window):
            with torch.set_grad_enabled(begin + settings.window > settings.warm_up):
                targets = targets_of(self.state.policy, self.environment.observe(now), settings.open_loop)
                if targets.requires_grad:
                    limit_slopes(targets, settings.slope / (len(targets) // len(self.seeds) * settings.window))
                now, outcome = self.environment.step(now, settable(targets, self.environment.controls))
                now = discounted(now, settings.discount)
            if step >= settings.warm_up:
                outcomes.append(outcome)
        return now, outcomes

    def _objective(self) -> SmoothObjective:
        if self.settings.objective == "reward":
            return PaperReward()
        return CostAndViolations(self.targets, self.settings.multiplier, self.settings.multiplier_rate,
                                 self.settings.reward_weight)

    def _judge(self) -> None:
        """Keeps the weights that are the best so far."""
        state, count = self.state, len(self.seeds)
        applications = self.settings.judged_applications
        # the same episodes for every policy and every time: paired
        episodes = self.judge.draw("train", applications, self.steps, _JUDGES)
        scores = judge(state.policy, self.judge, episodes.take(torch.arange(applications).repeat(count)), self.steps,
                       self.settings.warm_up)
        over = [excess(*pair) for pair in zip(scores.violated.tolist(), self.targets.tolist(), strict=True)]
        value = -scores.reward
        if self.settings.objective == "cost":
            value = scores.cost * (1.0 + torch.tensor(over)) - self.settings.reward_weight * scores.reward
        better = value < state.best_value
        with torch.no_grad():
            for best, now in zip(state.best.parameters(), state.policy.parameters(), strict=True):
                best[better] = now[better]
        state.best_value = torch.where(better, value, state.best_value)
        together = torch.stack([scores.cost, scores.violated, scores.reward])
        state.best_scores = torch.where(better, together, state.best_scores)
        state.judgements.append(Judgement(state.round, *(float(part.mean()) for part in together)))

    def _tensors(self) -> dict[str, Tensor]:
        state = self.state
        named = {f"policy.{name}": value for name, value in state.policy.state_dict().items()}
        named |= {f"best.{name}": value for name, value in state.best.state_dict().items()}
        named |= {"best_value": state.best_value, "best_scores": state.best_scores, **state.objective.state()}
        for name in ("means", "squares", "steps"):
            named |= {f"{name}.{k}": value for k, value in enumerate(getattr(state, name))}
        return named

    def _save(self, path: Path) -> None:
        content = io.BytesIO()
        np.savez(content, allow_pickle=False, digest=np.frombuffer(self.digest.encode(), dtype=np.uint8),
                 round=np.array(self.state.round),
                 judgements=np.array([astuple(one) for one in self.state.judgements], dtype=np.float64).reshape(-1, 4),
                 **{name: value.detach().numpy() for name, value in self._tensors().items()})
        with checkpoint_folder(path):
            write_file(path, content.getvalue())

    @torch.no_grad()
    def _resume(self, path: Path) -> None:
        """Where there is a checkpoint. Raises InputError where it is of another training."""
        try:
            with np.load(path, allow_pickle=False) as file:
                stored = {name: file[name] for name in file.files}
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            raise InputError(f"checkpoint: expected one that this training wrote, got {error}; remove it ({path})") \
                from error
        if stored.pop("digest").tobytes().decode() != self.digest:
            raise InputError("checkpoint: expected one of this training, got one of other settings, another start or "
                             f"another environment; remove it ({path})")
        self.state.round = int(stored.pop("round"))
        self.state.judgements = [Judgement(int(row[0]), *row[1:]) for row in stored.pop("judgements").tolist()]
        for name, value in self._tensors().items():
            value.copy_(torch.from_numpy(stored[name]))


def stack(policies: Sequence[Policy]) -> Policy:
    """Policies of one shape and normalisation as one module."""
    many = Policy(policies[0].shape, members=(len(policies),))
    many.mean.copy_(policies[0].mean)
    many.spread.copy_(policies[0].spread)
    with torch.no_grad():
        for together, *alone in zip(many.parameters(), *(one.parameters() for one in policies), strict=True):
            together.copy_(torch.stack(alone))
    return many


def _seed(seed: int, round_number: int) -> int:
    return int(np.random.SeedSequence([seed, round_number]).generate_state(1)[0])
