"""Which workloads share a shard: a step of the fan-out takes one shard at a time.

Workloads of equal shape stand side by side, so that a shard can train them together; shards cost about the same.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise


def make_shards(workloads: Sequence[str], shapes: Mapping[str, Sequence[int]],
                count: int) -> tuple[tuple[str, ...], ...]:
    """At most `count` shards that hold every workload once, none of them empty.

    Args:
        workloads: names.
        shapes: by workload, the widths of its network's layers; its cost goes by the number of weights.
        count: > 0.
    """
    shards: list[list[str]] = [[] for _ in range(min(count, len(workloads)))]
    filled = [0] * len(shards)
    for shape in sorted({tuple(shapes[name]) for name in workloads}, key=lambda shape: (-cost_of(shape), shape)):
        for name in (name for name in workloads if tuple(shapes[name]) == shape):
            lightest = filled.index(min(filled))
            shards[lightest].append(name)
            filled[lightest] += cost_of(shape)
    return tuple(tuple(shard) for shard in shards if shard)


def make_readers(shards: Sequence[Sequence[str]], apart: Collection[str]) -> tuple[tuple[str, ...], ...]:
    """The shards by which telemetry is read, each of some workload that has files of its own.

    Args:
        apart: workloads that have; those without go with the first that has.
    """
    readers = [list(shard) for shard in shards if set(shard) & set(apart)]
    rest = [name for shard in shards if not set(shard) & set(apart) for name in shard]
    return tuple(map(tuple, [[*readers[0], *rest], *readers[1:]] if readers else [rest]))


def cost_of(shape: Sequence[int]) -> int:
    """What training a network of these widths costs, up to a factor: the number of its weights."""
    return 1 + sum(a * b for a, b in pairwise(shape))


def shard_texts(shards: Sequence[Sequence[str]]) -> list[str]:
    """As they travel through the pipeline: a JSON list each."""
    return [json.dumps(list(shard)) for shard in shards]
