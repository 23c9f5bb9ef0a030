"""A version's page and its line in the summary say what the version is by the ledger, whatever the alias is called."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from components import pages, report
from models.tasks.supervised.pages import SupervisedPages
from tests.models.reporting import sample


@pytest.mark.parametrize(("written", "role"), [
    ({"alias": "live", "role": "champion"}, "champion"), ({"alias": "champion", "role": "challenger"}, "challenger"),
    ({"alias": None, "role": None}, None), ({"alias": "champion"}, "champion")],
    ids=["other names", "names exchanged", "no alias", "from before roles"])
def test_the_role_that_registration_wrote_reaches_the_page_and_the_summary(
        tmp_path: Path, written: dict[str, Any], role: str | None) -> None:
    bundle, output = tmp_path / "redis", tmp_path / "out"
    for folder in (bundle, output):
        folder.mkdir()
    evidence = sample.evidence()
    evidence["data"] = {**evidence.get("data", {}), "quality": {}}
    documents = {"contract": sample.contract(), "evidence": evidence, "gates": sample.gates()}
    for name, content in documents.items():
        (bundle / f"{name}.json").write_text(json.dumps(content))
    entry = {"workload": "redis", "status": "registered", "version": 4, "message": "", **written}
    pages._page(SimpleNamespace(home=tmp_path), SupervisedPages(), entry, bundle, tmp_path,  # type: ignore[arg-type]
                {"run_name": "here"}, output)
    assert ("Ships: version 4 is the champion" in (output / "redis.html").read_text()) is (role == "champion")
    found = report._summary({**entry, **documents}, SupervisedPages())
    assert (found["role"], found["alias"]) == (role, written["alias"])
