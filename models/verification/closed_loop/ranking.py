"""Proves that a ranking function falls in one step until it is low: the smallest base for which that is found.

W' <= max(base, W - step) wherever V <= within. Then W <= base after at most ceil((highest - base) / step) steps, and
ever after, for states with W <= base stay there.

The base is looked for among samples first: of the states in which W falls by less than `step`, the largest W'. A base
above that by a small share is proved or refuted; a counterexample raises it, and where the proof does not come about
the share grows. What is proved is what `decide` proves of the chain's own file, certificate included.

Symbols: as of one_step.py.
"""

import math
import time
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from feature_store.whole_files import write_file
from models.verification.closed_loop.chain_builder import chain_file, chain_values
from models.verification.closed_loop.claim_text import claim_text
from models.verification.closed_loop.one_step import OneStep, Ranked
from models.verification.decide import decide
from models.verification.network.graph import FloatArray
from models.verification.verdict import Status

# Random states; rounds of the search around the worst of them, and how many are moved.
SAMPLES, ROUNDS, CLIMBERS = 40_000, 12, 256
# Steps that are tried, as shares of what the function could fall by; a base may be higher by so much for a longer step.
STEPS, CLOSE = (1.0, 0.7, 0.5, 0.35, 0.25, 0.15, 0.1, 0.05, 0.02), 0.03
# Share of the longest step that is tried first: a proof needs room; and what is left of it after each attempt.
ROOM, SHORTER = 0.8, 0.85
# How far above the sampled base the first proof is tried, as a share of the way to the highest value, and how it grows.
FIRST, GROWTH, ATTEMPTS = 0.01, 2.0, 8
# Seconds of the first attempt; each takes GROWTH times as long as the one before.
FIRST_SECONDS = 4.0


@dataclass(frozen=True)
class Ranking:
    """W' <= max(base, W - step) where V <= within, of states with up to `backlog`, W being `highest` at most.

    proved: and certified; where it is not, base is `highest` and step 0. boxes: of the searches in all; leaves: of the
    certificate; worst: the chain's input, of the samples and counterexamples, with the largest W' of those in which W
    does not fall by a step; None: there is none.
    """

    ranked: Ranked
    base: float
    step: float
    within: float
    highest: float
    backlog: float
    proved: bool
    reason: str
    seconds: float
    boxes: int
    leaves: int
    worst: tuple[float, ...] | None

    @property
    def steps(self) -> int:
        """After so many steps W <= base, and ever after."""
        return ranking_steps(self.highest, self.base, self.step)


def ranking_steps(highest: float, base: float, step: float) -> int:
    """ceil((highest - base) / step), exactly."""
    return max(math.ceil((Fraction(highest) - Fraction(base)) / Fraction(step)), 0)


def rank(loop: OneStep, ranked: Ranked, within: float, highest: float, most_fall: float, backlog: float, folder: Path,
         seconds: float, least: float = -math.inf, seed: int = 0) -> Ranking:
    """The lowest base that is found, with its proof in the folder (files of `files_of`).

    Args:
        within: V of the states that count, at most; highest: W of them, at most.
        most_fall: what W may fall by in one step, at most: steps are shares of it.
        backlog: of the states, at most.
        seconds: for all attempts.
        least: a base below it is of no use.
    """
    began, boxes = time.monotonic(), 0
    samples = _Samples(loop, ranked, within, backlog, seed)
    base, step = _best(samples, most_fall, least)
    floor, share, reason = base, FIRST, "no attempt was made"
    for attempt in range(ATTEMPTS):
        tried = floor + share * max(highest - floor, abs(highest) * 1e-6)
        left = seconds - (time.monotonic() - began)
        if tried >= highest or left <= 0:
            reason = reason if left > 0 else "the time is over"
            break
        step = min(step, highest - tried)
        model, claim, proof = files_of(folder, ranked)
        write_ranking(loop, ranked, tried, step, within, backlog, folder)
        found = decide(model, claim, min(left, FIRST_SECONDS * GROWTH**attempt), certificate=proof, seed=seed)
        boxes += sum(part.boxes for part in found.parts)
        if found.status is Status.PROVED and found.certificate is not None:
            return Ranking(ranked, tried, step, within, highest, backlog, True, found.reason,
                           time.monotonic() - began, boxes, found.certificate["leaves"], samples.worst(step))
        reason = found.reason
        if found.witness is not None:
            point = found.witness["points"][0]
            samples.add(np.array(list(point["inputs"].values())))
            floor = max(samples.base(step), floor)
        step *= SHORTER
        share *= GROWTH if found.witness is None or samples.base(step) <= floor else 1.0
    return Ranking(ranked, highest, 0.0, within, highest, backlog, False, reason, time.monotonic() - began, boxes, 0,
                   samples.worst(step))


def files_of(folder: Path, ranked: Ranked) -> tuple[Path, Path, Path]:
    """The chain, the claim and the proof."""
    return folder / f"{ranked}.onnx", folder / f"{ranked}.vnnlib", folder / f"{ranked}.npz"


def write_ranking(loop: OneStep, ranked: Ranked, base: float, step: float, within: float, backlog: float,
                  folder: Path) -> None:
    """Writes the chain and the claim that a ranking comes down to."""
    model, claim, _ = files_of(folder, ranked)
    write_file(model, chain_file(loop.chain(backlog, ranked)))
    text = claim_text(*loop.box(backlog), base, step, within, loop.slack(backlog, ranked))
    write_file(claim, text.encode())


def _best(samples: "_Samples", most_fall: float, least: float) -> tuple[float, float]:
    """The lowest base of all steps, and the longest step whose base is about as low."""
    bases = {share * most_fall: max(samples.base(share * most_fall), least) for share in STEPS}
    lowest = min(bases.values())
    near = lowest + CLOSE * max(samples.highest - lowest, 0.0)
    step = max(step for step, base in bases.items() if base <= near)
    return bases[step], ROOM * step


class _Samples:
    """States of the box, worst first found by random moves; W', W' - W and V of each."""

    def __init__(self, loop: OneStep, ranked: Ranked, within: float, backlog: float, seed: int) -> None:
        self.chain, self.within = loop.chain(backlog, ranked), within
        self.low, self.high = loop.box(backlog)
        random = np.random.default_rng(seed)
        share = random.random((SAMPLES, len(self.low)))
        share[: SAMPLES // 2] = np.round(share[: SAMPLES // 2] * 2) / 2  # corners, and middles of sides
        share[SAMPLES // 4 : SAMPLES // 2, :3] = random.random((SAMPLES // 4, 3))
        self.x, self.y = np.zeros((0, len(self.low))), np.zeros((0, 3))
        self._take(self.low + share * (self.high - self.low))
        self.highest = float(self.y[:, 0].max())
        for fall in (0.0, -0.02, -0.3):
            self._climb(fall * max(self.highest, 1e-9), random)

    def _take(self, x: FloatArray) -> None:
        y = chain_values(self.chain, x)
        kept = y[:, 2] <= self.within
        self.x, self.y = np.concatenate([self.x, x[kept]]), np.concatenate([self.y, y[kept]])

    def _climb(self, change: float, random: np.random.Generator) -> None:
        """Moves the states with the largest W' among those that change by more than `change`."""
        reach = 0.3
        for _ in range(ROUNDS):
            value = np.where(self.y[:, 1] > change, self.y[:, 0], -np.inf)
            best = self.x[np.argsort(-value)[:CLIMBERS]]
            moved = np.repeat(best, 8, axis=0)
            moved = moved + reach * (self.high - self.low) * random.normal(size=moved.shape) * (
                random.random(moved.shape) < 0.5)
            self._take(np.clip(moved, self.low, self.high))
            reach *= 0.7

    def add(self, x: FloatArray) -> None:
        """Adds a state (n,)."""
        self._take(np.clip(x, self.low, self.high)[None])

    def base(self, step: float) -> float:
        """The largest W' of those in which W falls by less than a step."""
        short = self.y[:, 1] > -step
        return float(self.y[short, 0].max()) if short.any() else float(self.y[:, 0].min())

    def worst(self, step: float) -> tuple[float, ...] | None:
        """That input."""
        short = np.flatnonzero(self.y[:, 1] > -step)
        return tuple(self.x[short[self.y[short, 0].argmax()]].tolist()) if len(short) else None
