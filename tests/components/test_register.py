"""A service that is away while models are registered: it is waited for once, not once for each workload."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from components import register
from feature_store.errors import UnavailableError
from serving import registry
from serving.outcomes import Registration

WORKLOADS = ("mysql", "nginx", "redis")


@pytest.mark.parametrize("scheduled", [False, True], ids=["by_hand", "scheduled"])
def test_after_a_service_that_is_away_no_other_workload_is_tried(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheduled: bool) -> None:
    gated, features, asked = tmp_path / "gated", tmp_path / "features", list[str]()
    for workload in WORKLOADS:
        (gated / workload).mkdir(parents=True)
        (gated / workload / "contract.json").write_text(json.dumps({"task": "t", "workload": workload}))
        (gated / workload / "evidence.json").write_text(json.dumps({"reproduce": {"command": ""}}))
    (gated / "champions.json").write_text(json.dumps(dict.fromkeys(WORKLOADS)))
    features.mkdir()
    (features / "source.json").write_text("{}")

    def ask(about: Any, **_: Any) -> Any:
        asked.append(about["workload"] if scheduled else about.name)
        if asked[-1] == "nginx":
            raise UnavailableError("registry must answer, got nothing (http://mlflow)")
        return False if scheduled else made

    made = Registration("m", 1, "run", False, None, "gates failed", "a" * 64)
    monkeypatch.setattr(register, "project_configuration", lambda: SimpleNamespace(home=tmp_path))
    monkeypatch.setattr(register, "take_signing_key", lambda _: None)
    monkeypatch.setattr(registry, "Registry", lambda *_, **__: SimpleNamespace(
        reconcile=lambda: (), is_known=ask, register=(lambda *_, **__: made) if scheduled else ask))
    entries = register.run_register(list(WORKLOADS), "", scheduled, features, gated, tmp_path / "out")
    assert asked == ["mysql", "nginx"]
    assert [entry["status"] for entry in entries] == ["rejected", "error", "error"]
    assert {entry["message"] for entry in entries[1:]} == {"registry must answer, got nothing (http://mlflow)"}
    assert json.loads((tmp_path / "out/registered.json").read_text())["entries"] == entries
