"""After the most aggressive `assay clean` everything still works: what stands, what stood before, and new runs."""

from pathlib import Path

import pytest

from tests.components.steps import IGNORED_WARNING
from tests.e2e.processes import new_project

pytestmark = [pytest.mark.timeout(1200), pytest.mark.filterwarnings(IGNORED_WARNING)]

RUN = ("run", "--task", "tiny.yaml", "--telemetry", "samples.parquet")
REDIS = ("--task", "tiny", "--workload", "redis")


def test_promotions_audits_pages_and_runs_go_on(tmp_path: Path) -> None:
    project = new_project(tmp_path, ("redis",), approval="manual")
    made = [project.json(*RUN, "--name", name, "--seed", str(seed)) for seed, name in enumerate(("first", "second"))]
    assert [one["entries"][0]["version"] for one in made] == [1, 2]
    project.json("promote", *REDIS)  # the latest; version 1 is a challenger of old

    shown = project.json("clean", "--older-than", "0", "--keep", "0")
    removed = project.json("clean", "--older-than", "0", "--keep", "0", "--yes")
    assert removed["kinds"] == shown["kinds"] and removed["bytes"] > 0
    assert {kind["kind"]: kind["entries"] for kind in removed["kinds"]}["runs"] == 1
    assert [path.name for path in (project.home / "runs").iterdir()] == ["second"]  # the champion's
    assert not Path(made[0]["report"]).exists()
    for page in (Path(made[1]["report"]), Path(made[1]["report"]).with_name("redis.html")):
        assert "PROVED" in page.read_text()

    assert project.json("audit-registry") == {"wrong": [], "healed": []}
    row = '{"psi_cpu_some": 0.3, "psi_io_some": 0.4, "connections": 4.0}'
    before = project.json("predict", *REDIS, "--row", row)
    assert project.json("promote", *REDIS, "--version", "1")["previous_version"] == 2
    after = project.json("predict", *REDIS, "--row", row)
    assert before["bundle_sha256"] != after["bundle_sha256"]

    again = project.json(*RUN, "--name", "again", "--seed", "2")
    assert "ingest" in project.started("again")  # nothing was left in kfp's cache
    assert (again["entries"][0]["status"], again["entries"][0]["version"]) == ("registered", 3)
    assert Path(again["report"]).is_file()
    assert project.json("audit-registry") == {"wrong": [], "healed": []}
