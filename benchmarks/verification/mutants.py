"""The mutation campaign: does the checker refuse every proof that was tampered with?

    python -m benchmarks certificate-mutants --mutants 10000 --seed 0 [--output FILE]

Makes a small bundle with a proof and tries mutants of it (mutant_kinds.py), of two attackers. The one changes a file
and leaves the digests as they are: nothing of his may be accepted. The other computes digests and counts anew (the
signature, which he cannot make, is left out here): he may be accepted only where what he claims is true. So each
accepted mutant of his is attacked: the file is run in onnxruntime and compared with the network as the search's reader
reads it, and that network is searched for pairs in the wrong order, for slopes below what the specification allows and
for outputs beyond its limit. One that is refuted is a false acceptance; the others are "equivalent".

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
import torch

from benchmarks.harness.machine import describe_machine, load_average, now_utc
from benchmarks.harness.result_file import RESULTS, write_results
from benchmarks.verification.mutant_kinds import KINDS, REHASHED_KINDS, WIDTH, mutant, small_proof
from benchmarks.verification.mutant_tables import ATTACKERS, results_table
from benchmarks.verification.tampered_proof import Proof
from feature_store.errors import InputError
from models.verification.attack.falsification import slope_falsifier
from models.verification.language.properties import Direction, Monotonicity
from models.verification.language.specification import Specification
from models.verification.network.graph import Graph
from models.verification.network.graph_tensors import GraphTensors
from models.verification.network.onnx_reader import OnnxNetwork, read_onnx
from models.verification.network.runtime_session import open_session

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
    """Refutes what is claimed of a model, by trying; the same claim of the same model is tried once."""

    seed: int
    known: dict[bytes, str] = field(default_factory=dict)

    def refutation(self, proof: Proof) -> str:
        """Why the proof must not be accepted, "" where nothing was found."""
        key = hashlib.sha256(proof.model + proof.specification).digest()
        if key not in self.known:
            try:
                self.known[key] = self._refutation(proof)
            except Exception as error:  # nobody can say what was proved
                self.known[key] = f"what it claims cannot be read: {type(error).__name__}: {error}"
        return self.known[key]

    def _refutation(self, proof: Proof) -> str:
        network, claim = read_onnx(proof.model), proof.claim
        graph = network.graph
        names = claim["features"]
        walls = np.array([claim["box"][name] for name in names], dtype=float)
        if problem := self._replay(proof.model, network, walls):
            return problem
        for entry in claim["properties"]:
            ((kind, body),) = entry.items()
            part = walls.copy()
            for name, (low, high) in (body.get("when") or {}).items():
                place = names.index(name)
                part[place] = max(part[place, 0], low), min(part[place, 1], high)
            if kind == "range":
                problem = self._beyond(graph, part, body)
            else:
                problem = next(filter(None, (
                    self._wrong(graph, part, names.index(name), body["direction"],
                                claim["tolerance"]["latency_ms"] / max(float(np.ptp(walls[names.index(name)])), 1e-300))
                    for name in body["features"])), "")
            if problem:
                return problem
        return ""

    def _points(self, walls: Any, count: int) -> Any:
        """Points of the box, some of them on walls, edges and corners."""
        rng = np.random.default_rng(self.seed)
        share = rng.random((count, len(walls)))
        share[: count // 4] = np.clip(1.2 * share[: count // 4] - 0.1, 0, 1)
        return walls[:, 0] + (walls[:, 1] - walls[:, 0]) * share

    def _replay(self, model: bytes, network: OnnxNetwork, walls: Any) -> str:
        """Whether onnxruntime runs the file as the network that was read."""
        try:
            session = open_session(model)
        except Exception:  # a file that no runtime takes decides nothing
            return ""
        x = self._points(walls, REPLAYED).astype(np.float32)
        got = np.concatenate([session.run(None, {session.get_inputs()[0].name: row[None]})[0] for row in x])
        exact = x.astype(np.float64)
        apart = np.abs(got - network.graph.value(exact))
        slack = network.graph.rounding(exact) * (1 if network.executed == np.float64 else FLOAT32)
        slack = slack + 2.0**-22 * np.abs(got)
        if np.isfinite(apart).all() and (apart > 2 * slack).any():
            return f"onnxruntime is {apart.max():g} away from what was checked"
        return ""

    def _beyond(self, graph: Graph, walls: Any, body: Mapping[str, Any]) -> str:
        """A point at which the output is beyond a limit."""
        y = graph.value(self._points(walls, POINTS))[:, 0]
        slack = ROUNDING * (1 + np.abs(y).max())
        if body.get("minimum") is not None and y.min() < body["minimum"] - slack:
            return f"an output of {y.min():g}, below {body['minimum']:g}"
        if body.get("maximum") is not None and y.max() > body["maximum"] + slack:
            return f"an output of {y.max():g}, above {body['maximum']:g}"
        return ""

    def _wrong(self, graph: Graph, walls: Any, feature: int, way: str, allowed: float) -> str:
        """A pair in the wrong order or a slope below the limit in one feature."""
        if not walls[feature, 0] < walls[feature, 1]:
            return ""
        names = tuple(f"x{i}" for i in range(graph.inputs))
        rule = Monotonicity((feature,), DIRECTION[way])
        falsifier = slope_falsifier(graph, Specification(names, walls[:, 0], walls[:, 1], (rule,), allowed))
        if found := falsifier.search(seed=self.seed):
            return f"{way} in input {feature} is violated by {found[0].excess:g}"
        points = torch.as_tensor(self._points(walls, POINTS))
        gradient = GraphTensors(graph).gradient(points, torch.ones(1, dtype=torch.float64)).numpy()
        slopes = rule.sign * gradient[:, feature]
        if slopes.min() < -allowed - ROUNDING * (1 + np.abs(slopes).max()):
            return f"{way} in input {feature}: a slope of {slopes.min():g}, allowed are {-allowed:g}"
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
    return {"mutants": mutants, "seed": seed, "network": f"2x{WIDTH}", "leaves": proof.leaves,
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
