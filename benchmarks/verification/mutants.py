"""The mutation campaign: does the checker refuse every certificate that was tampered with?

    python -m benchmarks certificate-mutants --mutants 10000 --seed 0 [--output FILE]

Makes a small bundle with a proof and tries mutants of it (mutant_kinds.py), of two attackers. The one changes a file
and leaves the digests as they are: nothing of his may be accepted. The other computes digests and counts anew (the
signature, which he cannot make, is left out here): he may be accepted only where what he claims is true. So each
accepted mutant of his is attacked: the file is run in onnxruntime and compared with the network that was checked, and
that network is searched for pairs in the wrong order and for slopes below what the contract allows. One that is
refuted is a false acceptance; the others are "equivalent".

The same seed makes the same mutants; mutant i depends on the seed and i alone.
"""

import argparse
import hashlib
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from models.verification.checker.model_file import read_model

from benchmarks.harness.machine import describe_machine, load_average, now_utc
from benchmarks.harness.result_file import RESULTS, write_results
from benchmarks.verification.mutant_kinds import KINDS, REHASHED_KINDS, WIDTH, mutant, sampled_slopes, small_proof
from benchmarks.verification.mutant_tables import ATTACKERS, results_table
from benchmarks.verification.tampered_proof import Proof
from feature_store.errors import InputError
from models.verification.attack.falsification import falsify
from models.verification.language.properties import Direction, Monotonicity
from models.verification.language.specification import Specification
from models.verification.network.fully_connected import ReluNetwork

OUTPUT = RESULTS / "mutants.json"
FORMAT = "assay-mutants/1"
DIRECTION: Mapping[str, Direction] = {"increasing": "increasing", "decreasing": "decreasing"}
POINTS, REPLAYED = 20_000, 64
# Slopes are evaluated in float64: one that is closer to the limit than this share of their size is no refutation.
ROUNDING = 1e-9
# Unit roundoff of float32 in that of float64: what bounds a value's rounding in the one bounds it in the other.
FLOAT32 = 2.0**29


@dataclass
class Oracle:
    """Refutes what is claimed of a model, by trying; the same claim of the same network is tried once."""

    seed: int
    known: dict[str, str] = field(default_factory=dict)

    def refutation(self, proof: Proof) -> str:
        """Why the certificate must not be accepted, "" where nothing was found."""
        try:
            return self._refutation(proof)
        except Exception as error:  # nobody can say what was proved
            return f"what it claims cannot be read: {type(error).__name__}: {error}"

    def _refutation(self, proof: Proof) -> str:
        file = read_model(proof.model)
        offset, factor, gain = file.offset, file.factor, file.gain
        network = ReluNetwork(tuple(w.astype(np.float32) for w in file.weights),
                              tuple(b.astype(np.float32) for b in file.biases))
        inputs, (output,) = proof.contract["inputs"], proof.contract["outputs"]
        walls = np.array([[entry["minimum"], entry["maximum"]] for entry in inputs])
        lower, upper = ((side - offset) * factor for side in walls.T)
        if problem := self._replay(proof.model, network, walls, (offset, factor, gain)):
            return problem
        # the contract's limit, in the network's units: share of the output's range by width of the box
        limit = proof.contract["specification"]["tolerance"] * (output["maximum"] - output["minimum"]) / gain
        claims = {(name, entry["monotone"]["direction"]) for entry in proof.contract["specification"]["properties"]
                  for name in entry["monotone"]["features"]}
        numbers = [array.tobytes() for array in (*network.weights, *network.biases, lower, upper)]
        key = hashlib.sha256(b"|".join([*numbers, repr((sorted(claims), limit, [e["name"] for e in inputs])).encode()]))
        if key.hexdigest() not in self.known:
            names = [entry["name"] for entry in inputs]
            self.known[key.hexdigest()] = next(filter(None, (
                self._wrong(network, lower, upper, names.index(name), way, limit) for name, way in sorted(claims))), "")
        return self.known[key.hexdigest()]

    def _replay(self, model: bytes, network: ReluNetwork, walls: Any, scaling: tuple[Any, Any, float]) -> str:
        """Whether onnxruntime runs the file as the network that the checker read, but for the shift of its output."""
        offset, factor, gain = scaling
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads, options.inter_op_num_threads = 4, 1, 1
        try:
            session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception:  # a file that no runtime takes decides nothing
            return ""
        rng = np.random.default_rng(self.seed)
        x = (walls[:, 0] + (walls[:, 1] - walls[:, 0]) * rng.random((REPLAYED, len(walls)))).astype(np.float32)
        (got,) = session.run(None, {session.get_inputs()[0].name: x})
        scaled = (x.astype(np.float64) - offset) * factor
        apart = got[:, 0] - gain * network.value(scaled)
        reach = (np.abs(x) + np.abs(offset)) * factor  # an input rounds by its distance from zero, not from the offset
        slack = gain * network.rounding(reach) * FLOAT32 + 2.0**-22 * np.abs(got).max()
        if np.isfinite(apart).all() and np.ptp(apart) > 2 * slack.max():
            return f"onnxruntime is {np.ptp(apart):g} away from what was checked"
        return ""

    def _wrong(self, network: ReluNetwork, lower: Any, upper: Any, feature: int, way: str, limit: float) -> str:
        """A pair in the wrong order or a slope below the limit in one feature."""
        width = upper[feature] - lower[feature]
        if not width > 0:
            return ""
        names = tuple(f"x{i}" for i in range(network.inputs))
        rule = Monotonicity((feature,), DIRECTION[way])
        claim = Specification(names, lower, upper, (rule,), limit / width)
        if found := falsify(network, claim, seed=self.seed):
            return f"{way} in input {feature} is violated by {found[0].excess:g}"
        rng = np.random.default_rng(self.seed)
        share = rng.random((POINTS, network.inputs))
        share[: POINTS // 4] = np.clip(1.2 * share[: POINTS // 4] - 0.1, 0, 1)  # walls, edges and corners
        points = lower + (upper - lower) * share
        slopes = rule.sign * sampled_slopes(network.weights, network.biases, points)[:, feature]
        if slopes.min() < -limit / width - ROUNDING * (1 + np.abs(slopes).max()):
            return f"{way} in input {feature}: a slope of {slopes.min():g}, allowed are {-limit / width:g}"
        return ""


def made_and_checked(mutants: int, seed: int) -> dict[str, Any]:
    """Tries the mutants, half of each attacker, all kinds alike; the content of the result file."""
    counts: Counter[tuple[str, str, str]] = Counter()
    wrong: list[dict[str, Any]] = []
    oracle = Oracle(seed)
    with tempfile.TemporaryDirectory(prefix="assay-mutants-") as name:
        folder = Path(name)
        proof = small_proof(folder / "bundle")
        for valid in (proof, proof.rehashed()):
            if not (result := valid.check(folder)).accepted:
                raise RuntimeError(f"the bundle must be accepted, got: {result.reason}")
        began = time.perf_counter()
        for number in range(mutants):
            rehash = number % 2 == 1
            kinds = REHASHED_KINDS if rehash else tuple(KINDS)
            kind = kinds[number // 2 % len(kinds)]
            other = mutant(proof, kind, rehash, np.random.default_rng([seed, number]))
            outcome, why = "refused", ""
            if other.check(folder).accepted:
                why = oracle.refutation(other) if rehash else "a changed file was accepted"
                outcome = "falsely accepted" if why else "equivalent"
            counts[ATTACKERS[rehash], kind, outcome] += 1
            if why:
                wrong.append({"number": number, "attacker": ATTACKERS[rehash], "kind": kind, "why": why})
        seconds = time.perf_counter() - began
    rows = [{"attacker": attacker, "kind": kind, **{outcome.replace(" ", "_"): counts[attacker, kind, outcome]
                                                    for outcome in ("refused", "equivalent", "falsely accepted")}}
            for attacker in ATTACKERS for kind in KINDS if any(key[:2] == (attacker, kind) for key in counts)]
    return {"mutants": mutants, "seed": seed, "network": f"2x{WIDTH}", "leaves": proof.certificate["leaves"],
            "seconds": round(seconds, 1), "rows": rows, "falsely_accepted": wrong}


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--mutants", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)


def run(options: argparse.Namespace) -> int:
    """Exit code 0 if no mutant was falsely accepted, 1 if one was."""
    if options.mutants < 1:
        raise InputError(f"--mutants: expected at least 1, got {options.mutants}")
    torch.set_num_threads(1)
    load = load_average()
    results = made_and_checked(options.mutants, options.seed)
    write_results(options.output, {"format": FORMAT, "machine": {**describe_machine(), "date": now_utc()},
                                   "load_average_before": load, **results})
    print(results_table(results))
    print(f"{options.mutants:,} mutants of a {results['network']} network with {results['leaves']} leaves in "
          f"{results['seconds']:.0f} s", file=sys.stderr)
    for entry in results["falsely_accepted"]:
        print(f"falsely accepted: mutant {entry['number']} ({entry['kind']}): {entry['why']}", file=sys.stderr)
    return int(bool(results["falsely_accepted"]))
