"""Encoders of sets: padding, order, and sets without members."""

import pytest
import torch
from torch import Tensor, nn

from feature_store.errors import InputError
from models.learners.set_encoders import AttentionEncoder, GruEncoder, build_encoder, front_order

# float32 sums of some hundred terms in other orders, values of size 1
ROUNDING = 1e-6
SAMPLE = 5


@pytest.fixture(params=["gru", "attention"])
def encoder(request: pytest.FixtureRequest) -> nn.Module:
    return made(request.param)


def made(kind: str, seed: int = 0) -> GruEncoder | AttentionEncoder:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build_encoder(kind, SAMPLE).eval().requires_grad_(False)


def samples(rows: int, k: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, k, SAMPLE, generator=torch.Generator().manual_seed(seed))


def test_padding_changes_nothing_wherever_it_stands_and_whatever_it_holds(encoder: nn.Module) -> None:
    three = samples(4, 3)
    alone = encoder(three, torch.ones(4, 3, dtype=torch.bool))
    for places in ([0, 1, 2], [2, 4, 5], [0, 3, 6]):
        for filler in (0.0, 7.0, float("nan")):
            padded, there = torch.full((4, 7, SAMPLE), filler), torch.zeros(4, 7, dtype=torch.bool)
            padded[:, places], there[:, places] = three, True
            torch.testing.assert_close(encoder(padded, there), alone, rtol=0, atol=ROUNDING)


def test_rows_of_a_batch_do_not_see_each_other(encoder: nn.Module) -> None:
    values, there = samples(6, 5), torch.rand(6, 5, generator=torch.Generator().manual_seed(1)) < 0.5
    together = encoder(values, there)
    alone = torch.cat([encoder(values[i:i + 1], there[i:i + 1]) for i in range(6)])
    torch.testing.assert_close(together, alone, rtol=0, atol=ROUNDING)


def test_attention_does_not_see_the_order_and_the_gru_does() -> None:
    values, there = samples(3, 6), torch.ones(3, 6, dtype=torch.bool)
    turned = values.flip(1)
    attention, gru = made("attention"), made("gru")
    torch.testing.assert_close(attention(values, there), attention(turned, there), rtol=0, atol=ROUNDING)
    assert float((gru.summary(values, there) - gru.summary(turned, there)).abs().max()) > 100 * ROUNDING


def test_a_set_without_members_has_one_finite_embedding(encoder: nn.Module) -> None:
    nothing = encoder(samples(3, 4), torch.zeros(3, 4, dtype=torch.bool))
    assert nothing.shape == (3, 32) and bool(nothing.isfinite().all())
    assert torch.equal(nothing[0], nothing[1])


def test_gradients_are_finite_with_sets_of_all_sizes(encoder: nn.Module) -> None:
    encoder.train().requires_grad_(True)
    there = torch.arange(4) < torch.arange(5)[:, None]
    encoder(samples(5, 4).masked_fill(~there[..., None], float("nan")), there).sum().backward()
    slopes = [p.grad for p in encoder.parameters()]
    assert all(slope is not None and bool(slope.isfinite().all()) for slope in slopes)


def test_the_gru_has_the_sizes_of_table_a1() -> None:
    gru = made("gru").gru  # type: ignore[union-attr]
    assert (gru.input_size, gru.hidden_size, gru.num_layers, gru.bidirectional, gru.dropout) == (256, 256, 2, True,
                                                                                                0.05)


def test_members_come_to_the_front_in_their_order() -> None:
    there = torch.tensor([[False, True, False, True], [True, False, False, False]])
    assert front_order(there)[0].tolist() == [1, 3, 0, 2] and front_order(there)[1].tolist() == [0, 1, 2, 3]


def test_an_unknown_encoder_is_named_with_the_nearest_known_one() -> None:
    with pytest.raises(InputError, match="did you mean 'attention'"):
        build_encoder("atention", SAMPLE)
