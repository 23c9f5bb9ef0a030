"""Joint training, and fine-tuning of many applications at once."""

from dataclasses import replace

import pytest
import torch

from models.control.adaptation.inputs import Given, Nothing
from models.control.adaptation.meta_learner import MetaSettings, MetaTraining
from models.control.adaptation.side_by_side import run
from models.control.adaptation.through_stacks import Batch, Stack, TrainingSettings, train
from models.control.adaptation.trajectory_encoder import EncoderSettings
from models.control.adaptation.widening import widened
from models.control.contract.environment import Outcome
from models.control.training.smooth_objectives import CostAndViolations, PaperReward
from tests.models.control.adaptation.adapting import TRAINING, policies, small

TRAIN = TrainingSettings(iterations=4, steps=8, window=4, warm_up=2, rate=1e-2, decay=False)
META = MetaSettings(EncoderSettings(width=8, head=(8,), embedding=2, trajectories=2, stride=2), TRAIN, seeds=(0, 1),
                    targets=(0.01, 0.04), applications=4, refresh=2, kept=3, fits=3)


def meta(settings=META, checkpoint=None):
    environment = small()
    width = len(environment.hidden) if settings.identify else settings.encoder.embedding
    settings = replace(settings, encoder=replace(settings.encoder, embedding=width))
    policy = policies(environment, len(settings.seeds) * settings.policies, Given(torch.zeros(1, width)))
    return MetaTraining(environment, environment.differentiable, policy, settings, TRAINING, checkpoint)


def weights(policy):
    return [part.detach().clone() for part in policy.parameters()]


def test_fine_tuning_of_many_is_that_of_each_alone():
    environment = small()
    policy = policies(environment, 2, Given(torch.zeros(1, 2)))
    told = torch.tensor([[0.5, -0.5], [-1.0, 1.0], [0.2, 0.3]])
    applications, start = [13, 13, 15, 15, 12, 12], [0, 1, 1]

    def tuned(these):
        def batch(iteration):
            drawn = environment.draw("held_out", 6, 9, 5 + iteration, applications=applications)
            rows = torch.tensor([2 * k + episode for k in these for episode in range(2)])
            return Batch(drawn.take(rows), lambda: Given(told[these].repeat_interleave(2, dim=0)))

        stack = Stack(policy.taken([start[k] for k in these]))
        train(environment.differentiable, stack, batch, PaperReward(), TRAIN)
        return weights(stack.policy)

    together = tuned([0, 1, 2])
    for k in range(3):
        for many, one in zip(together, tuned([k]), strict=True):
            torch.testing.assert_close(many[k], one[0], rtol=0, atol=1e-5)
    assert any((a[0] - b[0]).abs().max() > 1e-3 for a, b in zip(together, weights(policy), strict=True))


def test_fine_tuning_saves_cost_and_keeps_the_objective():
    environment = small()
    policy = policies(environment, 1, Nothing())
    stack = Stack(policy.taken([0]))
    settings = TrainingSettings(iterations=15, steps=20, warm_up=5, rate=1e-2)
    train(environment.differentiable, stack,
          lambda iteration: Batch(environment.draw("held_out", 8, 21, iteration, applications=[13] * 8), Nothing),
          CostAndViolations(torch.tensor([0.05]), 5.0), settings)
    judged = environment.draw("held_out", 16, 31, 4, applications=[13] * 16)
    after, before = (run(environment, one, Nothing(), judged, 30, 10) for one in (stack.policy, policy))
    assert after.cost.mean() < 0.7 * before.cost.mean() and after.violated.mean() <= 0.05


@pytest.mark.parametrize("identify", [False, True])
def test_a_run_that_was_stopped_goes_on_to_the_same_result(identify, tmp_path):
    settings = replace(META, identify=identify)
    whole = meta(settings).run()
    stopped = meta(replace(settings, training=replace(TRAIN, iterations=4)), tmp_path / "state")
    with pytest.raises(KeyboardInterrupt):
        after = stopped._after

        def killed(iteration):
            after(iteration)
            if iteration == 3:
                raise KeyboardInterrupt

        stopped._after = killed
        stopped.run()
    resumed = meta(settings, tmp_path / "state").run()
    for one, other in zip(weights(whole.policy), weights(resumed.policy), strict=True):
        assert torch.equal(one, other)
    for one, other in zip(whole.encoders, resumed.encoders, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(weights(one), weights(other), strict=True))


def test_seeds_and_applications_get_embeddings_of_their_own():
    trained = meta()
    learner = trained.run()
    records, there = zip(*(store.best(torch.arange(12), 2) for store in trained.stores), strict=True)
    each = [part.repeat_interleave(2, dim=0) for part in (torch.stack(records), torch.stack(there))]
    embedding = learner.embed(*each)
    assert embedding.shape == (4, 12, 2)
    assert torch.equal(embedding[0], embedding[1]) and not torch.equal(embedding[1], embedding[2])
    assert (embedding[0, 0] - embedding[0, 1]).abs().max() > 1e-4


def test_identification_fits_the_encoder_to_the_hidden_parameters():
    settings = replace(META, identify=True, fits=60, training=replace(TRAIN, iterations=5, rate=1e-2), refresh=1,
                       seeds=(0,), encoder=replace(META.encoder, width=16))
    trained = meta(settings)
    learner = trained.run()
    hidden = trained._hidden
    records, there = trained.stores[0].best(torch.arange(12), 2)
    found = learner.encoders[0](records, there)
    assert (found - hidden).square().mean() < 0.8 * (hidden - hidden.mean(dim=0)).square().mean()


def test_multipliers_rise_where_more_than_the_target_violates():
    objective = CostAndViolations(torch.tensor([0.01, 0.1]), 50.0, rate=0.1)
    for _ in range(20):
        objective.observe(torch.tensor([0.05, 0.05]))
    assert objective.multipliers[0] > 60.0 and objective.multipliers[1] < 50.0
    outcome = Outcome(torch.ones(4), torch.full((4,), 2.0), torch.tensor([0.0, 0.4] * 2),
                      torch.tensor([0.0, 1.0] * 2), {})
    weight = objective.multipliers
    missed = 0.4 / 0.6 + 0.04
    expected = [2.0 / (1.0 + weight[0]), (2.0 + weight[0] * missed) / (1.0 + weight[0]),
                2.0 / (1.0 + weight[1]), (2.0 + weight[1] * missed) / (1.0 + weight[1])]
    torch.testing.assert_close(objective(outcome), torch.stack(expected))
    assert torch.equal(PaperReward()(outcome), -outcome.reward)


def test_rates_are_tried_side_by_side():
    environment = small()
    policy = policies(environment, 1, Nothing())
    together = Stack(policy.taken([0, 0, 0]), rates=torch.tensor([0.0, 0.25, 1.0]))
    drawn = environment.draw("held_out", 2, 9, 5, applications=[13, 13]).take(torch.arange(2).repeat(3))
    train(environment.differentiable, together, lambda _: Batch(drawn, Nothing), PaperReward(),
          replace(TRAIN, iterations=1, window=8))
    for now, first in zip(weights(together.policy), weights(policy), strict=True):
        moved = now - first
        assert torch.equal(now[0], first[0])
        torch.testing.assert_close(moved[1], 0.25 * moved[2], rtol=1e-2, atol=1e-6)


def test_a_widened_policy_ignores_its_further_inputs_until_it_is_trained():
    environment = small()
    policy = policies(environment, 2, Nothing())
    wide = widened(policy, ("a", "b"), 1.0)
    observation = environment.observe(environment.reset(environment.draw("train", 5, 10, 0)))
    told = 2.0 * torch.rand(5, 2, generator=torch.Generator().manual_seed(0)) - 1.0
    torch.testing.assert_close(wide(observation, told), policy(observation))
    stack = Stack(wide.taken([0, 1]))
    inputs = Given(told[:2].repeat_interleave(2, dim=0))
    train(environment.differentiable, stack, lambda iteration: Batch(
        environment.draw("held_out", 4, 9, 5 + iteration, applications=[13] * 4), lambda: inputs), PaperReward(), TRAIN)
    assert (stack.policy(observation, told) - stack.policy(observation, -told)).abs().max() > 1e-4
