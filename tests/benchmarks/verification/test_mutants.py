"""The mutation campaign: no mutant gets through, and one that did would be noticed."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.__main__ import main as run_benchmark
from benchmarks.verification import mutant_tables, mutants, tampered_proof
from benchmarks.verification.mutant_kinds import KINDS, REHASHED_KINDS, mutant, small_proof
from benchmarks.verification.tampered_proof import Proof
from models.verification.proof_file import ProofCheck

AS_THEY_ARE, ANEW = mutant_tables.ATTACKERS


def campaign(tmp_path: Path, count: int) -> tuple[int, dict[str, Any]]:
    output = tmp_path / "mutants.json"
    code = run_benchmark(["certificate-mutants", "--mutants", str(count), "--seed", "7", "--output", str(output)])
    assert str(tmp_path) not in output.read_text()
    return code, json.loads(output.read_text())


def total(results: dict[str, Any], attacker: str, column: str) -> int:
    return sum(row[column] for row in results["rows"] if row["attacker"] == attacker)


def test_no_mutant_is_falsely_accepted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, results = campaign(tmp_path, 300)
    assert code == 0 and results["falsely_accepted"] == []
    assert total(results, AS_THEY_ARE, "refused") == 150
    # some claims stay true when something is changed: a checker that refused everything would prove nothing
    refused, equivalent = (total(results, ANEW, column) for column in ("refused", "equivalent"))
    assert refused + equivalent == 150 and min(refused, equivalent) > 20
    assert results["leaves"] >= 24 and results["network"] == "2x12"
    assert {row["kind"] for row in results["rows"]} == set(KINDS)
    assert "| digests as they are | all | 150 | 0 | 0 |" in capsys.readouterr().out


def test_a_checker_that_believes_everything_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(tampered_proof, "check_proof", lambda *_: ProofCheck(True, ""))
    code, results = campaign(tmp_path, 480)
    assert code == 1
    assert total(results, AS_THEY_ARE, "falsely_accepted") == 240
    caught = {entry["kind"]: entry["why"] for entry in results["falsely_accepted"] if entry["attacker"] == ANEW}
    # a wrong proof of a right claim is beyond an oracle that knows the claim alone
    assert {"byte of the model", "wall moved", "limit", "direction", "feature names"} <= set(caught)
    assert "falsely accepted: mutant" in capsys.readouterr().err


@pytest.fixture(scope="module")
def proof(tmp_path_factory: pytest.TempPathFactory) -> Proof:
    return small_proof(tmp_path_factory.mktemp("small") / "bundle")


@pytest.mark.parametrize("kind", KINDS)
def test_every_mutant_differs_and_is_made_again_from_its_seed(proof: Proof, kind: str) -> None:
    for rehash in (False, True) if kind in REHASHED_KINDS else (False,):
        for seed in range(20):
            made = [mutant(proof, kind, rehash, np.random.default_rng(seed)) for _ in range(2)]
            assert made[0] == made[1]
            assert made[0] not in (proof, proof.rehashed())


def test_a_file_that_a_runtime_runs_otherwise_than_it_was_read_is_refuted(
    proof: Proof, monkeypatch: pytest.MonkeyPatch,
) -> None:
    oracle = mutants.Oracle(0)
    assert oracle.refutation(proof) == ""
    read = mutants.read_onnx

    def misread(file: bytes) -> Any:
        network = read(file)
        output = network.graph.output
        more = replace(output, offset=output.offset + 0.01)
        return replace(network, graph=replace(network.graph, output=more))

    monkeypatch.setattr(mutants, "read_onnx", misread)
    oracle = mutants.Oracle(0)
    assert "onnxruntime" in oracle.refutation(proof)


def test_no_mutant_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_benchmark(["certificate-mutants", "--mutants", "0"]) == 2
    assert "at least 1" in capsys.readouterr().err
