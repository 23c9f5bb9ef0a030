"""Encoders of a set of measured runs into an embedding: FLASH's recurrent one, and attention over the set.

Both keep one contract: `forward(samples, is_run) -> embedding`, in two halves, `summary` and `embed`, for where several
sequences of one workload are averaged in between (FLASH's trajectories). Values of padding are not looked at, wherever
in the row they are, and a workload without any run gets a learned embedding.

Source of FLASH: H. Qiu, "Cloud Systems Management with Efficient and Robust Online Learning", PhD thesis, University of
Illinois Urbana-Champaign, 2024 ("Qiu's thesis" elsewhere), section 5.6.1, appendix A.1 and Table A.1.

Symbols: E workloads, k runs (samples of the set), s numbers a run; samples (E, k, s), is_run (E, k) bool, False where a
row is padded.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from feature_store.errors import InputError, nearest

# FLASH, thesis appendix A.1, Table A.1
FLASH_WIDTH, FLASH_LAYERS, FLASH_DROPOUT, EMBEDDING = 256, 2, 0.05, 32


def front_order(is_run: Tensor) -> Tensor:
    """(E, k): indices that bring the runs to the front of each row, in their order."""
    return torch.argsort((~is_run).to(torch.uint8), dim=1, stable=True)


class GruEncoder(nn.Module):
    """FLASH's meta learner: input layer, two bidirectional GRU layers, the mean over the runs, an embedding layer.

    The state starts at zero for every workload. The order of the runs matters. Source: thesis, section 5.6.1, appendix
    A.1 and Table A.1; its text has a two-layer and its appendix a one-layer embedding network, and this is the latter.
    """

    def __init__(self, inputs: int, embedding: int = EMBEDDING, width: int = FLASH_WIDTH) -> None:
        super().__init__()
        self.input = nn.Linear(inputs, width)
        self.gru = nn.GRU(width, width, FLASH_LAYERS, batch_first=True, bidirectional=True, dropout=FLASH_DROPOUT)
        self.output = nn.Linear(2 * width, embedding)

    def forward(self, samples: Tensor, is_run: Tensor) -> Tensor:
        """(E, embedding), not negative."""
        return self.embed(self.summary(samples, is_run))

    def summary(self, samples: Tensor, is_run: Tensor) -> Tensor:
        """(E, 2 width): mean of the recurrent outputs over the runs; zero without any run."""
        order = front_order(is_run)
        is_run = is_run.gather(1, order)
        samples = samples.gather(1, order[..., None].expand_as(samples))
        count = is_run.sum(dim=1)
        # packed, the backward direction starts at each row's last run; a row without any stands in with one of zeros
        samples = functional.relu(self.input(torch.where(is_run[..., None], samples, 0.0)))
        packed = pack_padded_sequence(samples, count.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
        outputs, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True, total_length=samples.shape[1])
        total = torch.where(is_run[..., None], outputs, 0.0).sum(dim=1)
        return total / count.clamp(min=1)[:, None]

    def embed(self, summary: Tensor) -> Tensor:
        """(..., 2 width) -> (..., embedding)."""
        return functional.relu(self.output(summary))


class AttentionBlock(nn.Module):
    """Multi-head attention among the members, then a layer for each member; normalised before either."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.project, self.merge = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.each = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

    def forward(self, members: Tensor, mask: Tensor) -> Tensor:
        """members (E, m, width); mask (E, 1, 1, m) bool, at least one member a row: (E, m, width)."""
        rows, m, width = members.shape
        parts = self.project(self.norms[0](members)).view(rows, m, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        members = members + self.merge(attended.transpose(1, 2).reshape(rows, m, width))
        each: Tensor = self.each(self.norms[1](members))
        return members + each


class AttentionEncoder(nn.Module):
    """Set attention and a mean: the order of the runs does not matter.

    Sources: Lee et al., "Set Transformer" (ICML 2019), for the blocks; Kim et al., "Attentive Neural Processes" (ICLR
    2019), for their use on measured points. A learned member stands in every set, so that attention is defined without
    any run, and the mean knows how many runs there are.
    """

    def __init__(self, inputs: int, embedding: int = EMBEDDING, width: int = 64, blocks: int = 2,
                 heads: int = 4) -> None:
        super().__init__()
        self.input = nn.Linear(inputs, width)
        self.always = nn.Parameter(torch.zeros(width))
        self.blocks = nn.ModuleList(AttentionBlock(width, heads) for _ in range(blocks))
        self.output = nn.Linear(width, embedding)

    def forward(self, samples: Tensor, is_run: Tensor) -> Tensor:
        """(E, embedding)."""
        return self.embed(self.summary(samples, is_run))

    def summary(self, samples: Tensor, is_member: Tensor) -> Tensor:
        """(E, width): mean over the runs and the learned member."""
        members = self.input(torch.where(is_member[..., None], samples, 0.0))
        members = torch.cat([self.always.expand(len(samples), 1, -1), members], dim=1)
        is_member = torch.cat([is_member.new_ones(len(is_member), 1), is_member], dim=1)
        for block in self.blocks:
            members = block(members, is_member[:, None, None, :])
        total = torch.where(is_member[..., None], members, 0.0).sum(dim=1)
        return total / is_member.sum(dim=1, keepdim=True)

    def embed(self, summary: Tensor) -> Tensor:
        """(..., width) -> (..., embedding)."""
        embedding: Tensor = self.output(summary)
        return embedding


def build_encoder(kind: str, inputs: int, embedding: int = EMBEDDING) -> GruEncoder | AttentionEncoder:
    """kind: gru or attention. Raises InputError: it is neither."""
    match kind:
        case "gru":
            return GruEncoder(inputs, embedding)
        case "attention":
            return AttentionEncoder(inputs, embedding)
    raise InputError(f"encoder must be gru or attention, got {kind!r}; {nearest(kind, ('gru', 'attention'))}")
