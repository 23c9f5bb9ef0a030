"""The meta learner: a bundle of an application's trajectories becomes an embedding (thesis, sections 5.3.2, 5.4.3).

    trajectory (L records) -> summary, recurrent or a mean -> mean over the M trajectories -> two layers -> embedding

The recurrent state starts at zero for every trajectory, so at every switch of application; their order does not matter.
The embedding is tanh of the last layer, so that it lies in the box [-1, 1]: a proof is over every embedding in that
box. Without any trajectory the embedding is 0: the policy is then a generic one.

The published sizes are two bidirectional layers of 256, fully connected layers of 256 and 64, an embedding of 64 and 20
trajectories: 312 hours of pretraining there. The smaller ones are for two cores.

Symbols: B applications, M trajectories of each, L records, s numbers a record, e embedding.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from feature_store.errors import InputError, nearest
from models.adaptation.pool.episodes import seeded
from models.learners.set_encoders import AttentionEncoder, GruEncoder

Kind = Literal["gru", "attention", "deep_sets"]
KINDS = ("gru", "attention", "deep_sets")


@dataclass(frozen=True)
class EncoderSettings:
    """What an encoder is made of.

    Attributes:
        kind: gru (the thesis's), attention (over the records of a trajectory) or deep_sets (their mean).
        width: of the summary's layers.
        head: fully connected layers behind it.
        embedding: e.
        trajectories: M, the best ones that are looked at, 1 to 20.
        stride: steps a record.
    """

    kind: str = "gru"
    width: int = 32
    head: tuple[int, ...] = (64, 32)
    embedding: int = 8
    trajectories: int = 4
    stride: int = 4

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"encoder must be {', '.join(KINDS[:-1])} or {KINDS[-1]}, got {self.kind!r}; "
                             f"{nearest(self.kind, KINDS)}")
        if not 1 <= self.trajectories <= 20:
            raise InputError(f"trajectories must be from 1 to 20, got {self.trajectories}")


PUBLISHED = EncoderSettings("gru", 256, (256, 64), 64, 20, 1)


class MeanEncoder(nn.Module):
    """Deep sets (Zaheer et al., NeurIPS 2017): a network for each record, the mean of its outputs."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.each = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())

    def summary(self, samples: Tensor, is_run: Tensor) -> Tensor:
        """(E, k, s), (E, k) -> (E, width)."""
        total = torch.where(is_run[..., None], self.each(samples), 0.0).sum(dim=1)
        return total / is_run.sum(dim=1).clamp(min=1)[:, None]


class TrajectoryEncoder(nn.Module):
    """A bidirectional GRU over trajectories, and the mean of what it makes of each."""

    def __init__(self, settings: EncoderSettings, numbers: int, seed: int) -> None:
        super().__init__()
        self.settings = settings
        with seeded(seed):
            self.summary: GruEncoder | AttentionEncoder | MeanEncoder
            match settings.kind:
                case "gru":
                    self.summary, width = GruEncoder(numbers, 1, settings.width), 2 * settings.width
                    self.summary.gru.dropout = 0.0  # the thesis names none, and a resumed run must be the same
                case "attention":
                    self.summary, width = AttentionEncoder(numbers, 1, settings.width), settings.width
                case _:
                    self.summary, width = MeanEncoder(numbers, settings.width), settings.width
            if not isinstance(self.summary, MeanEncoder):
                self.summary.output = nn.Identity()  # type: ignore[assignment]  # the embedding layers are `head`
            sizes = (width, *settings.head)
            layers: list[nn.Module] = []
            for size, following in pairwise(sizes):
                layers += [nn.Linear(size, following), nn.ReLU()]
            self.head = nn.Sequential(*layers, nn.Linear(sizes[-1], settings.embedding))

    def forward(self, records: Tensor, is_there: Tensor) -> Tensor:
        """(B, e) in [-1, 1].

        Args:
            records: (B, M, L, s).
            is_there: (B, M) bool; what is not there is not looked at.
        """
        count, most, length, _ = records.shape
        known = is_there.any(dim=1)
        flat = records[is_there]
        if not len(flat):
            return records.new_zeros(count, self.settings.embedding)
        summaries = self.summary.summary(flat, torch.ones(len(flat), length, dtype=torch.bool))
        owner = torch.arange(count)[:, None].expand(-1, most)[is_there]
        total = summaries.new_zeros(count, summaries.shape[1]).index_add(0, owner, summaries)
        mean = total / is_there.sum(dim=1).clamp(min=1)[:, None]
        return torch.where(known[:, None], self.head(mean).tanh(), 0.0)
