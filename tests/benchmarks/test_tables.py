"""The tables say what the result files say, and a page that does not is found out."""

import json
from pathlib import Path

import pytest

from benchmarks import tables
from benchmarks.__main__ import main as run_benchmark
from benchmarks.control import default_runs
from benchmarks.harness.markdown import NOT_MEASURED
from benchmarks.harness.result_file import read_results
from benchmarks.harness.shown import Headline, Source
from benchmarks.tables import RESULTS, ROOT, SCALE_PLOT, TABLES, new_pages
from tests.benchmarks.sample_results import performance_results, pipeline_results


@pytest.fixture(scope="module")
def pages() -> dict[Path, str]:
    """This project's, which take ten seconds."""
    return new_pages(ROOT)


def test_this_project_s_pages_are_up_to_date(pages: dict[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "new_pages", {ROOT: pages}.__getitem__)
    assert run_benchmark(["tables", "--check"]) == 0


def test_the_readme_has_a_line_of_each_task_that_was_measured(pages: dict[Path, str]) -> None:
    lines = [line for line in pages[ROOT / "README.md"].splitlines() if line.startswith("| `")]
    assert [line.split("`")[1] for line in lines] == [one.task for one in tables.HEADLINES if all(
        (ROOT / tables.RESULTS / f"{name}.json").is_file() for name in one.results)]
    assert len(lines) >= 6 and all("](docs/" in line for line in lines)


@pytest.mark.parametrize("verdict", ["PROVED", "REFUTED"])
@pytest.mark.parametrize("headline", [one for one in tables.HEADLINES if default_runs.NAME in one.results],
                         ids=lambda headline: headline.task)
def test_a_verdict_is_what_the_default_run_came_to(headline: Headline, verdict: str) -> None:
    runs = {"entries": [{"task": task, "workloads": [{"verdict": one}]}
                        for task, one in (("another", "UNKNOWN"), (headline.task, verdict))]}
    found = [runs if name == default_runs.NAME else read_results(ROOT / RESULTS / f"{name}.json")
             for name in headline.results]
    assert headline.render(*found)[1] == ("PROVED, 1 of 1" if verdict == "PROVED" else
                                          "0 of 1 PROVED, the others REFUTED")


def test_the_table_of_tasks_says_what_the_results_say_and_leaves_out_what_is_not_measured() -> None:
    results = performance_results()
    lines = tables.tasks_table(tables.HEADLINES, {"performance": results}).splitlines()[2:]
    assert len(lines) == 1 and "`performance`" in lines[0]
    for entry in results["entries"]:
        entry["metrics"]["test_accuracy"] = 0.123
    assert "12 to 12.3 % of test rows" in tables.tasks_table(tables.HEADLINES, {"performance": results})


def test_tables_are_made_and_then_up_to_date(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_benchmark(["tables", "--check", "--root", str(project)]) == 1
    assert "README.md is not up to date" in capsys.readouterr().err
    assert run_benchmark(["tables", "--root", str(project)]) == 0
    assert run_benchmark(["tables", "--check", "--root", str(project)]) == 0
    text = (project / "README.md").read_text()
    assert text.startswith("# Project\n") and text.endswith("The end.\n")
    assert text.count("<!-- end table -->") == len(TABLES)


def test_check_changes_nothing(project: Path) -> None:
    before = (project / "README.md").read_text()
    run_benchmark(["tables", "--check", "--root", str(project)])
    assert (project / "README.md").read_text() == before
    assert not (project / SCALE_PLOT).exists()


def test_new_results_make_a_page_stale(project: Path) -> None:
    run_benchmark(["tables", "--root", str(project)])
    results = performance_results()
    results["entries"][0]["metrics"]["test_accuracy"] = 0.5
    (project / "benchmarks/results/performance.json").write_text(json.dumps(results))
    assert run_benchmark(["tables", "--check", "--root", str(project)]) == 1


def test_a_number_changed_by_hand_makes_a_page_stale(project: Path) -> None:
    run_benchmark(["tables", "--root", str(project)])
    page = project / "README.md"
    page.write_text(page.read_text().replace("87.0", "88.0", 1))
    assert run_benchmark(["tables", "--check", "--root", str(project)]) == 1


def test_a_table_without_results_is_empty(project: Path) -> None:
    for path in (project / "benchmarks/results").iterdir():
        path.unlink()
    assert run_benchmark(["tables", "--check", "--root", str(project)]) == 0  # nothing stands in the fixture's page
    assert run_benchmark(["tables", "--root", str(project)]) == 0
    assert "|" not in (project / "README.md").read_text()


def test_a_table_whose_part_of_the_results_is_missing_says_so() -> None:
    source = Source("name", lambda results: str(len(results["cells"])), "cells")
    assert source.shown(None) == ""
    assert source.shown({"format": "x"}) == source.shown({"cells": []}) == NOT_MEASURED
    assert source.shown({"cells": [1, 2]}) == "2"


def test_what_tables_need_is_in_their_result_files() -> None:
    files = {source.results: read_results(ROOT / RESULTS / f"{source.results}.json") for source in TABLES.values()}
    missing = [name for name, source in TABLES.items() if source.needs not in (files[source.results] or source.needs)]
    assert not missing


def test_an_unknown_table_is_named_with_the_nearest_known(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "README.md").write_text("<!-- table: pipeline-stage -->\n<!-- end table -->\n")
    assert run_benchmark(["tables", "--root", str(project)]) == 2
    assert "did you mean 'pipeline-stages'?" in capsys.readouterr().err


@pytest.mark.parametrize("text", [
    "<!-- table: pipeline -->\n",
    "<!-- table: pipeline -->\n<!-- table: performance -->\n<!-- end table -->\n",
])
def test_a_table_without_an_end_is_refused(project: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "README.md").write_text(text)
    assert run_benchmark(["tables", "--root", str(project)]) == 2
    assert "end table" in capsys.readouterr().err
    assert (project / "README.md").read_text() == text


def test_pages_under_docs_hold_tables_too(project: Path) -> None:
    page = project / "docs" / "benchmarks" / "page.md"
    page.parent.mkdir(parents=True)
    page.write_text("<!-- table: pipeline -->\n<!-- end table -->\n")
    run_benchmark(["tables", "--root", str(project)])
    assert "whole run" not in page.read_text() and "share of the run that is overhead" in page.read_text()


def test_the_scale_plot_is_drawn_from_the_results(project: Path) -> None:
    run_benchmark(["tables", "--root", str(project)])
    assert "<svg" in (project / SCALE_PLOT).read_text()


def test_no_plot_where_scale_was_not_measured(project: Path) -> None:
    results = pipeline_results()
    results["measurements"]["scale"] = {"status": "failed", "error": "stopped"}
    (project / "benchmarks/results/pipeline.json").write_text(json.dumps(results))
    assert run_benchmark(["tables", "--root", str(project)]) == 0
    assert not (project / SCALE_PLOT).exists()
