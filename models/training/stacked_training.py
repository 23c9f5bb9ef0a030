"""Many workloads' loops (counterexample_loop.py) run together; those of equal shape are trained as one stack.

Algorithm 1 stands in CounterexampleLoop.phases alone: here its runs are kept in step with each other, and the epochs
that they ask for are trained in a stack of networks (network_stack.py), learners and twins. A workload that is done
leaves. Each draws its batches as it does alone, has its own number of rows, directions and steps, and ends with the
same networks as alone, bit for bit where the processor's matrix products allow it: see network_stack.py.

What needs torch's own differentiation is trained alone: the certified loss, and the hinge from the first counterexample
on, which a network that is monotone by construction never has.
"""

import time
from collections.abc import Generator, Iterator, Sequence
from itertools import groupby

import torch
from torch import Tensor

from models.learners.mlp import linear_layers
from models.training.counterexample_loop import CounterexampleLoop, LoopResult
from models.training.network_stack import NetworkStack, StepRows
from models.training.sign_pattern import project_weights, sign_patterns

# Weights and values (float32) of a stack, at most: more leave the fast part of a processor's cache. (Measured: 20
# workloads of 2x32 are the fastest to train side by side, 10 of 2x64, 3 of 2x128.) A workload with more than the second
# number, as of 3x512, is trained 7 % faster alone.
MOST_NUMBERS, MOST_OF_ONE = 250_000, 1_000_000
# A workload with fewer rows than a batch has that many places, rounded up to a multiple of this.
PLACES = 64


def train_together(loops: Sequence[CounterexampleLoop]) -> Iterator[tuple[int, LoopResult | Exception]]:
    """Runs every loop to its end.

    Args:
        loops: one a workload, not yet run, of any shapes and settings.

    Yields:
        (position in `loops`, result), in the order in which they end, each once. The result of a loop that raised
        is its exception; the others go on. A loss that becomes NaN stays within its workload.
    """
    for members in stacks(loops):
        yield from _run({index: loops[index] for index in members})


def stacks(loops: Sequence[CounterexampleLoop]) -> list[list[int]]:
    """Positions of the loops that share a stack: of one shape, as many as the processor's cache holds."""
    keys = [_shape(loop) for loop in loops]
    order = sorted(range(len(loops)), key=lambda index: (repr(keys[index]), index))
    found = []
    for _, alike in groupby(order, key=lambda index: keys[index]):
        members = list(alike)
        size = max(MOST_NUMBERS // _numbers(loops[members[0]]), 1)
        found += [members[first: first + size] for first in range(0, len(members), size)]
    return found


def train_stacked(loops: Sequence[CounterexampleLoop], epochs: int) -> None:
    """Trains loops of one shape and as many epochs behind them for so many more, as `CounterexampleLoop.train` does."""
    loops = sorted(loops, key=lambda loop: -len(loop.x))  # who takes part in a step stands first
    settings, places = loops[0].settings, _places(loops[0])
    steps = [-(-len(loop.x) // places) for loop in loops]
    stack = NetworkStack([optimiser for loop in loops for optimiser in loop.optimisers],
                         [2 * len(list(group)) for _, group in groupby(steps)])
    rows = [StepRows.of([min(len(loop.x) - step * places, places) for loop, own in zip(loops, steps, strict=True)
                         if step < own for _ in range(2)], places) for step in range(steps[0])]
    signs = _sign_stack(loops) if settings.method == "monotone" else []
    x, y = _rows_of_all(loops)
    for _ in range(epochs):
        began, rate = time.monotonic(), loops[0].learning_rate()
        order = _order_of_all(loops, steps[0] * places, len(x) - 1)
        totals = [0.0] * (2 * len(loops))
        for step, own in enumerate(rows):
            batch = order[: len(own.counts) // 2, step * places: (step + 1) * places].repeat_interleave(2, dim=0)
            errors = stack.step(x[batch], y[batch], own, rate)
            for weight, sign in zip(stack.weights, signs, strict=False):
                project_weights(weight[: len(batch): 2], sign[: len(batch) // 2])
            for a, (error, count) in enumerate(zip(errors.tolist(), own.counts, strict=True)):
                totals[a] += error * count
        seconds = (time.monotonic() - began) / (2 * sum(len(loop.x) for loop in loops))
        for number, loop in enumerate(loops):
            for part in ("training", "twin"):
                loop.seconds[part] += seconds * len(loop.x)
            loop.end_epoch(*(total / len(loop.x) for total in totals[2 * number: 2 * number + 2]))
    stack.write_back()


def _run(loops: dict[int, CounterexampleLoop]) -> Iterator[tuple[int, LoopResult | Exception]]:
    """Loops of one shape, from phase to phase."""
    running = {index: loop.phases() for index, loop in loops.items()}
    while running:
        wanted: dict[int, list[int]] = {}
        for index, phases in list(running.items()):
            epochs = _advance(phases)
            if isinstance(epochs, int):
                wanted.setdefault(epochs, []).append(index)
            else:
                del running[index]
                yield index, epochs
        for epochs, members in wanted.items():
            for index, error in _train({index: loops[index] for index in members}, epochs):
                del running[index]
                yield index, error


def _advance(phases: Generator[int, None, LoopResult]) -> int | LoopResult | Exception:
    """What a loop wants next, or how it ended."""
    try:
        return next(phases)
    except StopIteration as end:
        result: LoopResult = end.value
        return result
    except Exception as error:
        return error


def _train(loops: dict[int, CounterexampleLoop], epochs: int) -> Iterator[tuple[int, Exception]]:
    """Trains in a stack those that can be; yields the loops that raised."""
    stacked = [index for index, loop in loops.items()
               if loop.penalty is None and loop.pairs is None and _numbers(loop) <= MOST_OF_ONE]
    try:
        if stacked:
            train_stacked([loops[index] for index in stacked], epochs)
    except Exception as error:
        yield from ((index, error) for index in stacked)
    for index in [index for index in loops if index not in stacked]:
        try:
            loops[index].train(epochs)
        except Exception as error:
            yield index, error


def _shape(loop: CounterexampleLoop) -> tuple[object, ...]:
    """Loops of equal shape can be trained as one."""
    sizes = tuple(tuple(layer.weight.shape) for network in (loop.network, loop.twin)
                  for layer in linear_layers(network))
    return sizes, loop.settings, _places(loop)


def _numbers(loop: CounterexampleLoop) -> int:
    """Weights, biases and the values of a batch, of its two networks."""
    layers = linear_layers(loop.network)
    values = layers[0].in_features + sum(layer.out_features for layer in layers)
    return 2 * (sum(parameter.numel() for parameter in loop.network.parameters()) + _places(loop) * values)


def _places(loop: CounterexampleLoop) -> int:
    """B, the rows of its batches at most. It must not depend on who else is in the stack."""
    return min(loop.settings.batch_size, -(-len(loop.x) // PLACES) * PLACES)


def _rows_of_all(loops: Sequence[CounterexampleLoop]) -> tuple[Tensor, Tensor]:
    """x (sum m + 1, n) and y (sum m + 1,) of all loops, one after the other; the last row is 0."""
    inputs = loops[0].x.shape[1]
    return (torch.cat([*(loop.x for loop in loops), torch.zeros(1, inputs)]),
            torch.cat([*(loop.y for loop in loops), torch.zeros(1)]))


def _order_of_all(loops: Sequence[CounterexampleLoop], width: int, nothing: int) -> Tensor:
    """(K, width) rows of `_rows_of_all` in the order of each loop's next epoch, then `nothing`."""
    order = torch.full((len(loops), width), nothing)
    start = 0
    for own, loop in zip(order, loops, strict=True):
        own[: len(loop.x)] = loop.draw_order() + start
        start += len(loop.x)
    return order


@torch.no_grad()
def _sign_stack(loops: Sequence[CounterexampleLoop]) -> list[Tensor]:
    """(K, out, in) a layer: the learners' patterns of signs."""
    each = [sign_patterns(linear_layers(loop.network), loop.specification.queries) for loop in loops]
    return [torch.stack([own[k] for own in each]) for k in range(len(each[0]))]
