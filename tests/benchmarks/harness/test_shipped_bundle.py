from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.harness import shipped_bundle
from benchmarks.harness.isolation import ROOT


def test_what_was_shipped_stands_until_the_new_one_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def written() -> dict[str, bytes]:
        return {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shipped_bundle, "check_bundle", lambda *_, **__: SimpleNamespace(sha256="0" * 64))
    shipped_bundle.ship(ROOT / "data" / "demo" / "bundle", tmp_path, "first")
    before = written()
    assert {"assay.pub", "bundle/model.onnx", "bundle/model.sig"} <= set(before)
    with monkeypatch.context() as during, pytest.raises(KeyboardInterrupt):
        during.setattr(shipped_bundle.shutil, "copy", killed)
        shipped_bundle.ship(ROOT / "data" / "demo" / "bundle", tmp_path, "second")
    assert written() == before
    shipped_bundle.ship(ROOT / "data" / "demo" / "bundle", tmp_path, "second")
    assert written().keys() == before.keys() and b"second" in written()["bundle/evidence.json"]
