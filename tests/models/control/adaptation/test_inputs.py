"""What policies are told beside the present observation."""

import torch

from models.control.adaptation.inputs import Coming, Forecast, Given, Hidden, Joined, Nothing, Window
from models.control.adaptation.load_forecast import allocation_table, fit_autoregression
from tests.models.control.adaptation.adapting import small


def test_a_window_holds_earlier_features_the_latest_first():
    environment = small()
    state = environment.reset(environment.draw("train", 3, 10, 0))
    window = Window(environment, 2)
    observation = environment.observe(state)
    memory, told = window.start(observation), []
    seen = []
    for _ in range(4):
        values, memory = window(environment, state, observation, memory)
        told.append(values.view(3, 2, -1))
        seen.append(window._features(observation))
        state, _ = environment.step(state, observation[:, :3] * 1.1)
        observation = environment.observe(state)
    assert torch.equal(told[0], seen[0][:, None].expand(-1, 2, -1))
    assert torch.equal(told[3], torch.stack([seen[2], seen[1]], dim=1))
    assert len(window.names) == told[0].flatten(1).shape[1]


def test_every_kind_gives_as_many_numbers_as_names_within_its_reach():
    environment = small()
    state = environment.reset(environment.draw("train", 5, 10, 0))
    observation = environment.observe(state)
    model = fit_autoregression(torch.randn(4, 30, generator=torch.Generator().manual_seed(0)), 3)
    kinds = [Nothing(), Window(environment, 3), Hidden(environment), Coming(6), Given(torch.full((5, 2), 3.0)),
             Forecast(environment, model)]
    for inputs in (*kinds, Joined(kinds)):
        values, _ = inputs(environment, state, observation, inputs.start(observation))
        assert values.shape == (5, len(inputs.names))
        assert values.numel() == 0 or values.abs().max() <= inputs.reach


def test_the_autoregression_finds_the_coefficients_of_its_own_kind():
    generator = torch.Generator().manual_seed(0)
    series = torch.zeros(8, 2000)
    noise = torch.randn(series.shape, generator=generator)
    for step in range(2, series.shape[1]):
        change = series[:, step - 1] - series[:, step - 2]
        series[:, step] = series[:, step - 1] + 0.6 * change + 0.01 * noise[:, step]
    model = fit_autoregression(series, 1)
    torch.testing.assert_close(model.coefficients, torch.tensor([0.6]), rtol=0, atol=0.03)
    torch.testing.assert_close(model.change(torch.tensor([[1.0, 2.0]])), model.coefficients)


def test_a_table_holds_the_mean_of_its_cell_and_the_prior_where_there_is_none():
    table = allocation_table(torch.tensor([[0.5, 0.6, 2.0, torch.nan]]), torch.tensor([[1.0, 3.0, 5.0, 7.0]]),
                             torch.tensor([0.0, 1.0]), torch.tensor([9.0, 2.0, 1.0]))
    assert table.tolist() == [[9.0, 2.0, 3.0]]
