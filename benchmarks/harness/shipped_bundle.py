"""A bundle that ships with the project: signed with a key that is thrown away."""

import json
import shutil
import tempfile
from pathlib import Path

from feature_store.strict_yaml import read_yaml
from feature_store.whole_files import whole_file, whole_folder
from models.export.json_file import write_json
from models.gate_report import evaluate_gates
from models.gates import parse_gates
from serving.bundle import check_bundle
from serving.keys import create_key_pair
from serving.signature import SIGNATURE_FILE, sign_folder


def ship(bundle: Path, output: Path, command: str, gates: Path | None = None) -> str:
    """Writes `bundle/` and `assay.pub` there.

    Args:
        bundle: that passed its gates.
        command: that made it, for its evidence, which then names no folder of this machine.
        gates: a file of gates, a line each, which its evidence is held against in place of those that it met before.

    Returns:
        Digest of what was written.

    Raises:
        InputError: the gates mean nothing.
        RefusedError: it does not check, for one of them is not passed.
    """
    with tempfile.TemporaryDirectory() as work:
        folder, key = Path(work) / "bundle", Path(work) / "assay.pub"
        shutil.copytree(bundle, folder, ignore=shutil.ignore_patterns(SIGNATURE_FILE))
        evidence = json.loads((folder / "evidence.json").read_text())
        evidence["reproduce"]["command"] = command
        (folder / "evidence.json").write_text(json.dumps(evidence, separators=(",", ":")))
        if gates is not None:
            report = evaluate_gates(evidence, None, parse_gates(read_yaml(gates, "gates"), str(gates)))
            write_json(folder / "gates.json", report.to_json())
        create_key_pair(Path(work) / "private", key)
        sign_folder(folder, Path(work) / "private")
        sha256 = check_bundle(folder, key, deep=True).sha256
        # what was there stays until all of the new one holds and is written
        with whole_folder(output / "bundle") as shipped, whole_file(output / "assay.pub") as public:
            shutil.copytree(folder, shipped, dirs_exist_ok=True)
            shutil.copy(key, public)
    return sha256
