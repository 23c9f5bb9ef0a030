"""FLASH's programming interface: a meta learner that turns a buffer of samples into an embedding of the workload.

    learner = MetaLearner()
    learner.register_base_learner("sizing", features=9, labels=1)
    learner.insert_data_samples(samples)             # or insert_trajectories(...), for reinforcement learning
    inputs = torch.cat([features, learner.embedding()])

The base learner concatenates the embedding to its features (or state) itself. With updates on, the embedding carries
gradients, so that the base learner's loss, propagated backward, trains `parameters()` too; with updates off nothing
here changes.

What is not here: the table's expiration time of trajectories (300 time steps), whose meaning the text
does not give. Values are taken as they are: bring features, labels and rewards to a size of about one before.

Source: H. Qiu, "Cloud Systems Management with Efficient and Robust Online Learning", PhD thesis, University of Illinois
Urbana-Champaign, 2024 ("Qiu's thesis" elsewhere), section 5.6.1, Listing 5.1, appendix A.1 and Table A.1.

Symbols: F features, P labels; of a trajectory T time steps, S state, A action; M trajectories of the buffer.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from feature_store.errors import InputError
from models.adaptation.learner import FloatArray
from models.adaptation.pool.episodes import seeded
from models.learners.set_encoders import EMBEDDING, AttentionEncoder, GruEncoder, build_encoder

BUFFER_SIZE = 32  # Table A.1
Kind = Literal["samples", "trajectories"]


class MetaLearner:
    """One for each task, that is, for each base learner.

    Args:
        encoder: gru, as published, or attention, whose embedding does not depend on the samples' order.
        embedding: its size.
        warm_up: so many trajectories, the first that come, are never kept for low rewards: those of the initial
            training stage are not representative (section 5.6.1).
        seed: of the initial weights. Dropout, which the published encoder has, takes torch's global generator.
    """

    def __init__(self, encoder: str = "gru", embedding: int = EMBEDDING, warm_up: int = 0, seed: int = 0) -> None:
        if warm_up < 0:
            raise InputError(f"warm_up must be 0 or more, got {warm_up}")
        self.size, self.name = embedding, ""
        self._kind, self._warm_up, self._seed = encoder, warm_up, seed
        self._expects: Kind = "samples"
        self._shape = (0, 0)
        self._network: GruEncoder | AttentionEncoder | None = None
        self._buffer: list[FloatArray] = []  # samples (F + P,), or trajectories (T, S + A + 1)
        self._arrived: list[int] = []  # of each member of the buffer, how many came before it
        self._inserted = 0

    def register_base_learner(self, name: str, features: int, labels: int, expects: Kind = "samples") -> None:
        """Makes the encoder for the base learner's shapes; updates are on.

        Args:
            name: the system management task.
            features: F, or S where it expects trajectories.
            labels: P, or A where it expects trajectories.
            expects: samples, of supervised learning, or trajectories, of reinforcement learning.

        Raises:
            InputError: a name, a size or a kind is unusable, or a base learner is registered already.
        """
        if self._network is not None:
            raise InputError(f"meta learner must have one base learner, got {name!r} after {self.name!r}; "
                             "make another meta learner for another task")
        if not name:
            raise InputError("name of the base learner must not be empty, got ''")
        for what, size in (("features", features), ("labels", labels)):
            if size < 1:
                raise InputError(f"{what} must be 1 or more, got {size} ({name})")
        if expects not in ("samples", "trajectories"):
            raise InputError(f"expects must be samples or trajectories, got {expects!r} ({name})")
        with seeded(self._seed):
            network = build_encoder(self._kind, features + labels + (expects == "trajectories"), self.size)
        self.name, self._expects, self._shape, self._network = name, expects, (features, labels), network

    def insert_data_samples(self, samples: Sequence[tuple[ArrayLike, ArrayLike]]) -> None:
        """Pairs of features (F,) and labels (P,). Of more than 32 in all the latest 32 stay.

        Raises InputError: no base learner, one that expects trajectories, or a pair of another shape or not finite;
        then nothing is inserted.
        """
        self._expect("samples")
        rows = [np.concatenate([_array(x, (self._shape[0],), f"features of sample {i}"),
                                _array(y, (self._shape[1],), f"labels of sample {i}")])
                for i, (x, y) in enumerate(samples)]
        self._buffer = [*self._buffer, *rows][-BUFFER_SIZE:]

    def insert_trajectories(self, trajectories: Sequence[tuple[ArrayLike, ArrayLike, ArrayLike]]) -> None:
        """Triples of states (T, S), actions (T, A) and rewards (T,); T may differ.

        Of more than 32 in all the 16 of the highest and the 16 of the lowest sums of rewards stay (section 5.6.1).

        Raises InputError: as insert_data_samples.
        """
        self._expect("trajectories")
        rows = [self._trajectory(i, *trajectory) for i, trajectory in enumerate(trajectories)]
        buffer = [*self._buffer, *rows]
        arrived = [*self._arrived, *range(self._inserted, self._inserted + len(rows))]
        self._inserted += len(rows)
        if len(buffer) > BUFFER_SIZE:
            order = sorted(range(len(buffer)), key=lambda i: float(buffer[i][:, -1].sum()))
            high, rest = order[-BUFFER_SIZE // 2:], order[:-BUFFER_SIZE // 2]
            low = [i for i in rest if arrived[i] >= self._warm_up][:BUFFER_SIZE // 2]
            kept = sorted([*low, *high])  # in the order in which they came
            buffer, arrived = [buffer[i] for i in kept], [arrived[i] for i in kept]
        self._buffer, self._arrived = buffer, arrived

    def embedding(self) -> Tensor:
        """(embedding,) of what the buffer holds; of an empty buffer the learned one.

        Samples are one sequence. Each trajectory is one, and their summaries are averaged over the M trajectories
        before the embedding layer (appendix A.1); shorter ones are masked, where the paper pads them with zeros.
        Raises InputError: no base learner is registered.
        """
        network = self._registered()
        width = sum(self._shape) + (self._expects == "trajectories")
        sequences = self._buffer if self._expects == "trajectories" else [np.array(self._buffer).reshape(-1, width)]
        longest = max([1, *map(len, sequences)])
        samples = torch.zeros(max(len(sequences), 1), longest, width)
        there = torch.zeros(samples.shape[:2], dtype=torch.bool)
        for i, sequence in enumerate(sequences):
            samples[i, :len(sequence)] = torch.from_numpy(sequence.astype(np.float32))
            there[i, :len(sequence)] = True
        found: Tensor = network.embed(network.summary(samples, there).mean(dim=0))
        return found

    def toggle_update(self, on: bool) -> None:
        """Off: no parameter takes a gradient, dropout is off, and what gradients there were are gone, so that not even
        an optimizer with momentum changes one. Raises InputError: no base learner is registered."""
        network = self._registered()
        network.train(on).requires_grad_(on)
        if not on:
            network.zero_grad(set_to_none=True)

    def parameters(self) -> Iterator[nn.Parameter]:
        """For the base learner's optimizer. Raises InputError: no base learner is registered."""
        return self._registered().parameters()

    def __len__(self) -> int:
        """Samples or trajectories in the buffer."""
        return len(self._buffer)

    def _registered(self) -> GruEncoder | AttentionEncoder:
        if self._network is None:
            raise InputError("meta learner must have a base learner, got none; call register_base_learner first")
        return self._network

    def _expect(self, given: Kind) -> None:
        self._registered()
        if given != self._expects:
            raise InputError(f"base learner {self.name!r} must get the {self._expects} it was registered for, "
                             f"got {given}")

    def _trajectory(self, i: int, states: ArrayLike, actions: ArrayLike, rewards: ArrayLike) -> FloatArray:
        """(T, S + A + 1)."""
        steps = len(np.atleast_1d(np.asarray(rewards)))
        if steps == 0:
            raise InputError(f"trajectory must have a time step, got none (trajectory {i})")
        return np.concatenate([_array(states, (steps, self._shape[0]), f"states of trajectory {i}"),
                               _array(actions, (steps, self._shape[1]), f"actions of trajectory {i}"),
                               _array(rewards, (steps,), f"rewards of trajectory {i}")[:, None]], axis=1)


def _array(values: ArrayLike, shape: tuple[int, ...], what: str) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.shape == () and shape == (1,):
        array = array[None]  # one label may come as a number
    if array.shape != shape:
        raise InputError(f"{what} must have the shape {shape}, got {array.shape}")
    if not np.isfinite(array).all():
        raise InputError(f"{what} must be finite, got {array[~np.isfinite(array)][0]}")
    return array
