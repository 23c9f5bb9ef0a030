"""Do the tests see it when the code is wrong? Changes one place of the code at a time and runs the tests of that file.

    python -m benchmarks code-mutation --mutants 20 --seed 0   # needs the extra [mutation]
    python -m benchmarks code-mutation --planted               # those that were planted by hand, once more

cosmic-ray makes the mutants (another comparison, another sign, another number, a condition turned round ...); a seeded
sample of them is tried for each subject, on a copy of the tree; subjects that are not asked for keep their row. A
mutant counts as found where a test fails, or where the tests no longer end. One that survives is a missing test or
changes nothing that matters ("equivalent"): somebody has to look. benchmarks/results/planted_mutants.json holds
mutants that a person thought of: what could be wrong here so that somebody would be harmed. Neither is part of CI:
a subject takes minutes.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.machine import describe_machine, load_average, now_utc
from benchmarks.harness.result_file import RESULTS, read_results, write_results
from benchmarks.test_quality.code_mutation_tables import sampled_table
from feature_store.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
FORMAT, PLANTED_FORMAT = "assay-code-mutation/1", "assay-planted-mutants/1"
OUTPUT = RESULTS / "code_mutation.json"
PLANTED = RESULTS / "planted_mutants.json"
# Of one run of a subject's tests, of which a mutant can make an endless loop.
TIMEOUT_S = 300.0
PASSED, FAILED = 0, 1  # pytest's exit codes; any other says that the tests did not run


@dataclass(frozen=True)
class Subject:
    """Files that are changed, and the tests that must see it."""

    files: tuple[str, ...]
    tests: tuple[str, ...]


_VERIFICATION = "tests/models/verification"
SUBJECTS: Mapping[str, Subject] = {
    "gates": Subject(("models/gates.py", "models/gate_report.py"),
                     ("tests/models/test_gates.py", "tests/models/test_gate_report.py")),
    "checker": Subject(
        tuple(f"models/verification/checker/{name}.py" for name in ("check", "bounds", "chain", "rounding")),
        (f"{_VERIFICATION}/checker", f"{_VERIFICATION}/test_proof_file.py")),
    "ledger": Subject(("serving/ledger.py", "serving/moves.py"),
                      ("tests/serving/test_ledger.py", "tests/serving/test_moves.py")),
    "admission": Subject(("serving/admission.py",),
                         ("tests/serving/test_admission.py", "tests/serving/test_lifecycle.py")),
    "splits": Subject(("feature_store/splits.py",),
                      ("tests/feature_store/test_splits.py", "tests/feature_store/test_features.py")),
    "scaling": Subject(("feature_store/scaling.py",),
                       ("tests/feature_store/test_scaling.py", "tests/feature_store/test_features.py")),
}
# Changes that a slip could make. What cosmic-ray has beyond them is mostly a type error, which any test finds.
OPERATORS = tuple(f"core/{name}" for name in (
    "AddNot", "NumberReplacer", "ReplaceAndWithOr", "ReplaceOrWithAnd", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue",
    "ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "ReplaceUnaryOperator_Delete_Not",
    "ReplaceUnaryOperator_Delete_USub", "ReplaceUnaryOperator_Delete_Invert", "ZeroIterationForLoop",
    *(f"ReplaceBinaryOperator_{pair}" for pair in ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "BitAnd_BitOr",
                                                   "BitOr_BitAnd", "FloorDiv_Mul", "Mod_Mul", "Pow_Mul")),
    *(f"ReplaceComparisonOperator_{pair}" for pair in ("Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt", "Lt_Gt", "Gt_Lt",
                                                       "LtE_GtE", "GtE_LtE", "Eq_NotEq", "NotEq_Eq", "Is_IsNot",
                                                       "IsNot_Is"))))


@dataclass(frozen=True)
class Mutant:
    """A file's whole text after the change, and the place: line from 1, the line before and after."""

    file: str
    operator: str
    line: int
    before: str
    after: str
    text: str


def mutants_of(root: Path, file: str) -> list[Mutant]:
    """Every mutant that cosmic-ray makes of a file with OPERATORS, in the order of the operators and of the file."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    code = (root / file).read_text(encoding="utf-8")
    nodes, made = list(ast_nodes(get_ast(code))), []
    for name in OPERATORS:
        operator = get_operator(name)()
        for occurrence in range(sum(len(list(operator.mutation_positions(node))) for node in nodes)):
            text = mutate_code(code, operator, occurrence)
            if text is not None and text != code:
                made.append(_located(file, name.removeprefix("core/"), code, text))
    return made


def _located(file: str, operator: str, code: str, text: str) -> Mutant:
    lines, changed = code.splitlines(), text.splitlines()
    line = next((i for i, pair in enumerate(zip(lines, changed, strict=False)) if pair[0] != pair[1]), len(lines) - 1)
    return Mutant(file, operator, line + 1, lines[line].strip(), changed[line].strip(), text)


def outcome(root: Path, file: str, text: str, tests: Sequence[str]) -> str:
    """found, survived, or no end; the file is as it was afterwards.

    Raises:
        RuntimeError: the tests did not run.
    """
    path = root / file
    original = path.read_bytes()
    path.write_text(text, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", *tests]
    try:
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S,
                              check=False)
    except subprocess.TimeoutExpired:
        return "no end"
    finally:
        path.write_bytes(original)
    # a module that can no longer be imported stops the collection (2): the tests noticed
    if done.returncode not in (PASSED, FAILED) and "error" not in done.stdout:
        said = done.stdout[-500:] + done.stderr[-500:]
        raise RuntimeError(f"the tests must run, got exit code {done.returncode}: {said}")
    return "survived" if done.returncode == PASSED else "found"


def copied_tree(folder: Path) -> Path:
    """The files that git knows, as they are now: mutants never stand in the tree itself."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True,
                            text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def sampled(root: Path, names: Sequence[str], count: int, seed: int) -> list[dict[str, Any]]:
    """One row a subject: how many mutants there are, how many were tried and found, and the survivors."""
    rows = []
    for name in names:
        subject, began = SUBJECTS[name], time.perf_counter()
        first = subject.files[0]
        if outcome(root, first, (root / first).read_text(encoding="utf-8"), subject.tests) != "survived":
            raise RuntimeError(f"tests of the unchanged code must pass ({name}: {', '.join(subject.tests)})")
        every = [mutant for file in subject.files for mutant in mutants_of(root, file)]
        chosen = np.random.default_rng(seed).permutation(len(every))[:count]
        ended = [(every[i], outcome(root, every[i].file, every[i].text, subject.tests)) for i in sorted(chosen)]
        survivors = [{"file": mutant.file, "line": mutant.line, "operator": mutant.operator, "before": mutant.before,
                      "after": mutant.after} for mutant, end in ended if end == "survived"]
        rows.append({"subject": name, "date": now_utc(), "seed": seed, "possible": len(every), "tried": len(ended),
                     "found": len(ended) - len(survivors), "without_end": sum(end == "no end" for _, end in ended),
                     "seconds": round(time.perf_counter() - began, 1), "survivors": survivors})
        print(f"{name}: {rows[-1]['found']} of {rows[-1]['tried']} found", file=sys.stderr)
    return rows


def planted(root: Path, mutants: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The mutants with `found` as it is now; `found` is None where the code has changed since."""
    results = []
    for entry in mutants:
        code = (root / entry["file"]).read_text(encoding="utf-8") if (root / entry["file"]).is_file() else ""
        if code.count(entry["before"]) != 1:
            results.append({**entry, "found": None})
            continue
        line = code[: code.index(entry["before"])].count("\n") + 1
        end = outcome(root, entry["file"], code.replace(entry["before"], entry["after"]), entry["tests"])
        results.append({**entry, "line": line, "found": end != "survived"})
    return results


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--planted", action="store_true", help="try the mutants of planted_mutants.json again")
    parser.add_argument("--mutants", type=int, default=20, help="of each subject")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--subjects", nargs="+", choices=tuple(SUBJECTS), default=tuple(SUBJECTS))


def run(options: argparse.Namespace) -> int:
    """Exit code 0 if every mutant was found (planted) or the sample was measured, 1 if a planted one survived."""
    if options.mutants < 1:
        raise InputError(f"--mutants: expected at least 1, got {options.mutants}")
    facts = {"machine": {**describe_machine(), "date": now_utc()}, "load_average_before": load_average()}
    with tempfile.TemporaryDirectory(prefix="assay-code-mutation-") as name:
        root = copied_tree(Path(name))
        if options.planted:
            options.output = PLANTED if options.output == OUTPUT else options.output
            mutants = planted(root, (read_results(PLANTED) or {"mutants": []})["mutants"])
            write_results(options.output, {"format": PLANTED_FORMAT, **facts, "mutants": mutants})
            return int(any(mutant["found"] is False for mutant in mutants))
        rows = sampled(root, options.subjects, options.mutants, options.seed)
    kept = [row for row in (read_results(options.output) or {"rows": []})["rows"]
            if row["subject"] not in options.subjects]
    rows = sorted([*kept, *rows], key=lambda row: list(SUBJECTS).index(row["subject"]))
    results = {"format": FORMAT, **facts, "rows": rows}
    write_results(options.output, results)
    print(sampled_table(results))
    return 0
