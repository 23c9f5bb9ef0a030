"""Proves that a ranking function falls in one step until it is low: the smallest base for which that is found.

W' <= max(base, W - step) wherever V <= within. Then W <= base after at most ceil((highest - base) / step) steps, and
ever after, for states with W <= base stay there.

The base is looked for among samples first: of the states in which W falls by less than `step`, the largest W'. A base
above that by a small share is proved or refuted; a counterexample raises it, and where the proof does not come about
the share grows. What is proved is what `decide` proves of the chain's own file, certificate included.

Symbols: as of one_step.py.
"""

import math
import shutil
import time
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feature_store.whole_files import write_file
from models.verification.closed_loop.chain_builder import chain_file, chain_values
from models.verification.closed_loop.claim_text import RankingClaim
from models.verification.closed_loop.one_step import OneStep, Ranked
from models.verification.decide import decide
from models.verification.network.graph import FloatArray
from models.verification.onnx_verdict import OnnxVerdict
from models.verification.verdict import Status

# Random states; rounds of the search around the worst of them, and how many are moved, how often.
SAMPLES, ROUNDS, CLIMBERS, MOVES = 20_000, 12, 128, 8
# Steps that are tried, as shares of what the function could fall by; a base may be higher by so much for a longer step.
STEPS, CLOSE = (1.0, 0.7, 0.5, 0.35, 0.25, 0.15, 0.1, 0.05, 0.02), 0.03
# Share of the longest step that is tried first: a proof needs room; and what is left of it after each attempt.
ROOM, SHORTER = 0.8, 0.85
# How far above the sampled base the first proof is tried, as a share of the way to the highest value, how that grows,
# and how it shrinks once there is a proof.
FIRST, GROWTH, ATTEMPTS, TIGHTER = 0.01, 2.0, 8, 4.0
# Seconds of the first attempt; each takes GROWTH times as long as the one before. Of one for a tighter base.
FIRST_SECONDS, TIGHTER_SECONDS = 8.0, 4.0


@dataclass(frozen=True)
class Ranking:
    """W' <= max(base, W - step) where V <= within, of states with up to `backlog`, W being `highest` at first.

    proved: and certified; where it is not, base is `highest` and step 0. within: None where it holds whatever V is.
    boxes: of the searches in all; leaves: of the certificate; worst: the chain's input, of the samples and
    counterexamples, with the largest W' of those in which W does not fall by a step; None: there is none.
    """

    ranked: Ranked
    base: float
    step: float
    within: float | None
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
        if self.highest <= self.base:
            return 0
        return math.ceil((Fraction(self.highest) - Fraction(self.base)) / Fraction(self.step))

    @property
    def claim(self) -> RankingClaim:
        """What is proved. Where one step leads to the base, any fall will do."""
        return RankingClaim(self.base, None if self.steps <= 1 else self.step, self.within)


class RankingSearch:
    """Looks for rankings of one function of one loop, by samples first.

    Args:
        within: V of the states that count, at most; highest: W of those that it starts from, at most.
        most_fall: what W may fall by in one step, at most: steps are shares of it.
        backlog: of the states, at most; least: a base below it is of no use.
    """

    def __init__(self, loop: OneStep, ranked: Ranked, within: float, highest: float, most_fall: float, backlog: float,
                 least: float = -math.inf, seed: int = 0) -> None:
        self.loop, self.ranked, self.within, self.highest = loop, ranked, within, highest
        self.backlog, self.least, self.seed = backlog, least, seed
        self.samples = _Samples(loop, ranked, within, backlog, seed)
        self.base, self.step = self._best(most_fall)
        self.boxes = 0

    @property
    def top(self) -> float:
        """What a base must be below to be of use."""
        return max(self.highest, self.within) if self.ranked == "backlog" else self.highest

    def prove(self, folder: Path, seconds: float) -> Ranking:
        """The lowest base that is found, with its proof in the folder (`files_of`)."""
        began, reason = time.monotonic(), "in the samples it does not fall"
        floor, share, step = self.base, FIRST, self.step
        for attempt in range(ATTEMPTS):
            left = seconds - (time.monotonic() - began)
            base = floor + share * max(self.top - floor, abs(self.top) * 1e-6)
            if base >= self.top or left <= 0:
                break
            tried = self._claimed(base, step)
            found = self._decided(tried, folder, min(left, FIRST_SECONDS * GROWTH**attempt))
            if found.certificate is not None:
                best = self._proved(tried, found)
                left = seconds - (time.monotonic() - began)
                best = self._tighter(best, floor, share / TIGHTER, folder, min(left, TIGHTER_SECONDS))
                return replace(best, seconds=time.monotonic() - began, boxes=self.boxes)
            reason, known = found.reason, floor
            if found.witness is not None:
                self.samples.add(np.array(list(found.witness["points"][0]["inputs"].values())))
                floor = max(self.samples.base(step), floor)
            step, share = step * SHORTER, share * (GROWTH if floor == known else 1.0)
        return Ranking(self.ranked, self.highest, 0.0, self.within, self.highest, self.backlog, False, reason,
                       time.monotonic() - began, self.boxes, 0, self.samples.worst(step))

    def _tighter(self, best: Ranking, floor: float, share: float, folder: Path, seconds: float) -> Ranking:
        """The same with a base nearer to the sampled one, if that is proved as quickly."""
        tried = self._claimed(floor + share * max(self.top - floor, abs(self.top) * 1e-6), best.step * SHORTER)
        if seconds <= 0 or tried.base >= best.base:
            return best
        aside = folder / f"{self.ranked}-tighter"
        found = self._decided(tried, aside, seconds)
        if found.certificate is not None:
            for old, new in zip(files_of(folder, self.ranked), files_of(aside, self.ranked), strict=True):
                new.replace(old)
            best = self._proved(tried, found)
        shutil.rmtree(aside)
        return best

    def _claimed(self, base: float, step: float) -> Ranking:
        """The claim with no more conditions than the samples ask for."""
        step = self.highest - base if self.samples.base(math.inf) < base < self.highest else min(
            step, max(self.highest - base, step * 0.1))
        within = None if self.samples.base(step, anywhere=True) < base else self.within
        return Ranking(self.ranked, base, step, within, self.highest, self.backlog, False, "", 0.0, 0, 0, None)

    def _decided(self, tried: Ranking, folder: Path, seconds: float) -> OnnxVerdict:
        model, claim, proof = files_of(folder, self.ranked)
        folder.mkdir(parents=True, exist_ok=True)
        proof.unlink(missing_ok=True)
        write_ranking(self.loop, tried, folder)
        found = decide(model, claim, max(seconds, 1e-3), certificate=proof, seed=self.seed)
        self.boxes += sum(part.boxes for part in found.parts)
        return found if found.status is Status.PROVED else replace(found, certificate=None)

    def _proved(self, tried: Ranking, found: OnnxVerdict) -> Ranking:
        assert found.certificate is not None
        return replace(tried, proved=True, reason=found.reason, leaves=found.certificate["leaves"],
                       worst=self.samples.worst(tried.step))

    def _best(self, most_fall: float) -> tuple[float, float]:
        """The lowest base of all steps, and the longest step whose base is about as low."""
        bases = {share * most_fall: max(self.samples.base(share * most_fall), self.least) for share in STEPS}
        lowest = min(bases.values())
        near = lowest + CLOSE * max(self.top - lowest, 0.0)
        step = max(step for step, base in bases.items() if base <= near)
        return bases[step], ROOM * step


def files_of(folder: Path, ranked: Ranked) -> tuple[Path, Path, Path]:
    """The chain, the claim and the proof."""
    return folder / f"{ranked}.onnx", folder / f"{ranked}.vnnlib", folder / f"{ranked}.npz"


def write_ranking(loop: OneStep, ranking: Ranking, folder: Path) -> None:
    """Writes the chain and the claim that a ranking comes down to."""
    model, claim, _ = files_of(folder, ranking.ranked)
    write_file(model, chain_file(loop.chain(ranking.backlog, ranking.ranked)))
    slack = loop.slack(ranking.backlog, ranking.ranked)
    write_file(claim, ranking.claim.text(*loop.box(ranking.backlog), slack))


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
        highest = max(float(self.y[:, 0].max()), 1e-9)
        for change in (0.0, -0.02 * highest, -0.3 * highest, -math.inf):
            self._climb(change, random)

    def _take(self, x: FloatArray) -> None:
        self.x, self.y = np.concatenate([self.x, x]), np.concatenate([self.y, chain_values(self.chain, x)])

    def _climb(self, change: float, random: np.random.Generator) -> None:
        """Moves the states with the largest W' among those that change by more than `change`."""
        reach = 0.3
        for _ in range(ROUNDS):
            value = np.where((self.y[:, 1] > change) & (self.y[:, 2] <= self.within), self.y[:, 0], -np.inf)
            best = self.x[np.argsort(-value)[:CLIMBERS]]
            moved = np.repeat(best, MOVES, axis=0)
            moved = moved + reach * (self.high - self.low) * random.normal(size=moved.shape) * (
                random.random(moved.shape) < 0.5)
            self._take(np.clip(moved, self.low, self.high))
            reach *= 0.7

    def add(self, x: FloatArray) -> None:
        """Adds a state (n,)."""
        self._take(np.clip(x, self.low, self.high)[None])

    def base(self, step: float, anywhere: bool = False) -> float:
        """The largest W' of those in which W falls by less than a step; anywhere: whatever V is."""
        short = self._short(step, anywhere)
        return float(self.y[short, 0].max()) if len(short) else float(self.y[:, 0].min())

    def worst(self, step: float) -> tuple[float, ...] | None:
        """That input."""
        short = self._short(step, False)
        return tuple(self.x[short[self.y[short, 0].argmax()]].tolist()) if len(short) else None

    def _short(self, step: float, anywhere: bool) -> NDArray[np.integer[Any]]:
        return np.flatnonzero((self.y[:, 1] > -step) & (anywhere | (self.y[:, 2] <= self.within)))
