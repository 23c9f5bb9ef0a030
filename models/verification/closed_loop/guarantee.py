"""What a policy guarantees in the loop with the fluid law, for ever: `closed_loop_guarantee(policy, ...) -> Guarantee`.

"From any backlog up to B, whatever capacity is running, for any load in its limits that changes by at most d a step:
the backlog is at most S after N steps and for ever after, and from then on capacity exceeds load by at most X."

Two rankings of one step (ranking.py) show it. The first, of V = b + (a - c) dt + ramp, over all that can come of the
starts, which is V <= V0:

    V' <= max(base, V - step)    so V <= base after ceil((V0 - base) / step) steps and ever after,
                                 and b' = max(0, V - ramp) <= S = max(0, base) one step later

The second, of U = c - a, over what the first leaves (V <= base, b <= S): U <= X some steps later and ever after.

A guarantee is PROVED where both have certificates that the independent checker accepted; REFUTED where a trajectory of
the law and the policy, as it is executed, still has more backlog than it may have started with after all steps of the
simulation; UNKNOWN otherwise. It is about the fluid law alone.

Symbols: as of fluid_law.py and one_step.py.
"""

import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from feature_store.errors import InputError
from feature_store.whole_files import write_file
from models.verification.checker.chain import Chain
from models.verification.closed_loop.chain_builder import chain_values
from models.verification.closed_loop.check_guarantee import (
    DOCUMENT,
    NUMBERS,
    RANKED,
    about,
    guaranteed,
    observation_document,
)
from models.verification.closed_loop.document_check import policy_digest
from models.verification.closed_loop.fluid_law import FluidLaw, Observation
from models.verification.closed_loop.one_step import OneStep, Ramp
from models.verification.closed_loop.ranking import Ranking, RankingSearch
from models.verification.closed_loop.simulation import Execute, Trajectories, simulate
from models.verification.language.amounts import amount, plain
from models.verification.verdict import Status

# Steps of the simulation at least, and beyond what was proved; points of a trajectory that are kept.
HORIZON, BEYOND, KEPT = 400, 200, 60
# How much further than the starts allow V is let rise, where a policy does too little at first.
WIDER = (1.0, 1.5, 2.5)


@dataclass(frozen=True)
class Guarantee:
    """S, N and X for one d, with what shows them.

    backlog (core seconds) after `steps` steps, excess (cores) of capacity over load after `excess_steps`, and for ever
    after; None where nothing is proved. attained: the largest backlog and excess that simulated trajectories had after
    so many steps. trajectory: (b, a, c) a step, of a counterexample; weakness: where the policy does too little, in
    words, where the backlog's ranking was not proved. rankings: the two of them.
    """

    status: Status
    law: FluidLaw
    start: float
    backlog: float | None
    steps: int | None
    excess: float | None
    excess_steps: int | None
    attained: tuple[float, float] | None
    rankings: tuple[Ranking, ...]
    seconds: float
    trajectory: tuple[tuple[float, float, float], ...] = ()
    weakness: str = ""

    def statement(self, unit: str = "cores") -> str:
        """What is guaranteed, in words."""
        if self.status is Status.PROVED and self.backlog is not None and self.steps is not None and \
                self.excess is not None and self.excess_steps is not None:
            return guaranteed(self.law, self.start, self.backlog, self.steps, self.excess, self.excess_steps, unit)
        if self.status is Status.REFUTED:
            said = (f"the backlog does not come down: after {HORIZON} steps of a trajectory it is "
                    f"{amount(self.trajectory[-1][0], f'{unit} x s')}")
        else:
            said = "nothing is guaranteed, and no trajectory was found that does not come down"
        return f"{about(self.law, self.start, unit)}: {said}. {self.weakness}".strip()

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        document = asdict(self)
        document["status"] = str(self.status)
        document["statement"] = self.statement()
        return document


def closed_loop_guarantee(
    policy: Chain, observation: Observation, law: FluidLaw, backlog: float, folder: Path, *,
    ramp_factor: float | None = None, ramp_headroom: float = 0.0, seconds: float = 60.0, seed: int = 0,
    execute: Execute | None = None,
) -> Guarantee:
    """Looks for the guarantee, proves it and writes chains, claims and proofs to the folder, or refutes it.

    Args:
        policy: what it sees -> the capacity that it wants, the chain as the checker reads it (read_chain of its file).
        observation: its inputs as functions of the state; what is no such function is free in its interval.
        backlog: B.
        folder: is made where it does not exist; `check_guarantee` reads it.
        ramp_factor, ramp_headroom: of a policy that can raise its capacity by that factor at most in one step, see
            one_step.py; the headroom is how far above the load it goes as long as there is a backlog.
        seconds: for the proofs.
        execute: runs the policy for the trajectory that refutes (in_runtime of its file); None: NumPy, in its type.

    Raises:
        InputError: a policy, an observation and a law that do not fit; a backlog that is not > 0.
    """
    if not 0 < backlog < math.inf:
        raise InputError(f"backlog must be a number > 0, got {backlog!r}")
    began = time.monotonic()
    ramp = None if ramp_factor is None else Ramp.of(law, ramp_factor, ramp_headroom)
    loop = OneStep(policy, observation, law, ramp)
    folder.mkdir(parents=True, exist_ok=True)
    first = _backlog_ranking(loop, backlog, folder, seconds, seed)
    found = Guarantee(Status.UNKNOWN, law, backlog, None, None, None, None, None, (first,), 0.0)
    if first.proved:
        most = max(first.base, 0.0)
        widest = law.capacity_high - law.load_low
        second = RankingSearch(loop, "capacity", first.base, widest, widest, most, seed=seed).prove(
            folder, max(seconds - (time.monotonic() - began), 1.0))
        found = replace(found, rankings=(first, second), backlog=most, steps=first.steps + 1)
        if second.proved:
            found = replace(found, status=Status.PROVED, excess=second.base,
                            excess_steps=first.steps + 1 + second.steps)
    found = _held_against_trajectories(loop, found, seed, execute)
    found = replace(found, seconds=time.monotonic() - began)
    write_file(folder / DOCUMENT, json.dumps(_document(loop, found), indent=1, allow_nan=False))
    return found


def _backlog_ranking(loop: OneStep, backlog: float, folder: Path, seconds: float, seed: int) -> Ranking:
    """Over all that may come of the starts, or of more than these where the policy lets the backlog rise at first."""
    law, highest = loop.law, loop.highest(backlog)
    fall = max((law.capacity_high - law.load_high) * law.step_s, 1e-3 * law.load_high * law.step_s)
    for within in (highest * factor for factor in WIDER):
        search = RankingSearch(loop, "backlog", within, highest, fall, max(backlog, within), 0.0, seed)
        if search.base < search.top:
            break
    return search.prove(folder, seconds)


def guarantee_table(found: Sequence[Guarantee], unit: str = "cores") -> str:
    """A markdown table, a row for each change of the load."""
    head = [f"load changes by, {unit} a step", "verdict", f"backlog S, {unit} x s", "after N steps",
            f"capacity above load X, {unit}", "after steps", "attained: backlog", "capacity above load", "leaves", "s"]
    lines = ["| " + " | ".join(head) + " |", "| ---: | --- |" + " ---: |" * (len(head) - 2)]
    for one in found:
        proved = one.status is Status.PROVED
        cells = [plain(one.law.change), str(one.status),
                 *(_cell(value, proved) for value in (one.backlog, one.steps, one.excess, one.excess_steps)),
                 *(f"{value:.3g}" for value in one.attained or (math.nan, math.nan)),
                 str(sum(ranking.leaves for ranking in one.rankings)), f"{one.seconds:.1f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(value: float | int | None, proved: bool) -> str:
    """Only what is proved is printed; amounts are rounded up."""
    if not proved or value is None:
        return "-"
    return str(value) if isinstance(value, int) else amount(value) if value > 0 else f"{value:.3g}"


def _held_against_trajectories(loop: OneStep, found: Guarantee, seed: int, execute: Execute | None) -> Guarantee:
    """What trajectories attained of what is proved; where nothing is, one that does not come down, and why."""
    steps = max(HORIZON, (found.excess_steps or found.steps or 0) + BEYOND)
    seen = simulate(loop, found.start, steps, seed=seed)
    if found.steps is not None:
        backlog, _ = seen.largest(found.steps)
        _, excess = seen.largest(found.excess_steps if found.excess_steps is not None else steps)
        return replace(found, attained=(backlog, excess))
    found = replace(found, weakness=_weakness(loop, found))
    worst = int(seen.states[-1, :, 0].argmax())
    if seen.states[-1, worst, 0] <= found.start:
        return found
    path = _replayed(loop, seen, worst, execute)
    return found if path is None else replace(found, status=Status.REFUTED, trajectory=path)


def _replayed(loop: OneStep, seen: Trajectories, number: int,
              execute: Execute | None) -> tuple[tuple[float, float, float], ...] | None:
    """The trajectory with the policy run by `execute`, at up to KEPT points; None where the backlog comes down in it.

    Its loads are those of the simulation, and what is free in the observation is in the middle.
    """
    law = loop.law
    run = execute or (lambda x: chain_values(loop.policy, x)[:, 0])
    state = seen.states[0, number]
    path = [state]
    for load in seen.states[1:, number, 1]:
        b, a, c = (path[-1][[j]] for j in range(3))
        middle = np.full((1, loop.observation.inputs), 0.5)
        target = law.next_capacity(run(loop.observation.seen(b, a, c, middle)))
        path.append(np.array([law.next_backlog(b, a, c)[0], load, target[0]]))
    if path[-1][0] <= seen.states[0, :, 0].max():
        return None
    chosen = np.unique(np.linspace(0, len(path) - 1, KEPT).astype(int))
    return tuple((float(path[t][0]), float(path[t][1]), float(path[t][2])) for t in chosen)


def _weakness(loop: OneStep, found: Guarantee) -> str:
    """The state in which the policy does least for its backlog."""
    (ranking, *_) = found.rankings
    if ranking.worst is None:
        return ""
    taken = loop.taken(np.array(ranking.worst), ranking.backlog)
    commanded = float(loop.law.next_capacity(np.array([taken["target"]]))[0])
    return (f"With a backlog of {taken['backlog']:.3g}, a load of {taken['load']:.3g} and a capacity of "
            f"{taken['capacity']:.3g} it commands {commanded:.3g} of {loop.law.capacity_high:.3g}, although the load "
            f"may be {taken['next_load']:.3g} in the next step.")


def _document(loop: OneStep, found: Guarantee) -> dict[str, Any]:
    """What `check_guarantee` derives again, and no more."""
    return {"status": str(found.status), "statement": found.statement(), "policy_sha256": policy_digest(loop.policy),
            "law": asdict(loop.law), "observation": observation_document(loop.observation),
            "ramp": None if loop.ramp is None else asdict(loop.ramp),
            "rankings": [{name: getattr(one, name) for name in RANKED} for one in found.rankings],
            **{name: getattr(found, name) for name in NUMBERS}}
