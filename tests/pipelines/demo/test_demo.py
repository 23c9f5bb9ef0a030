"""`assay demo`: its bundle checks, its picture and page say what happened, and it runs for real."""

import io
import json
import math
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console
from typer.testing import CliRunner

from feature_store.errors import SourceError
from pipelines.command_line import app
from pipelines.commands.demo_command import BUNDLE, PUBLIC_KEY
from pipelines.demo.history import History
from pipelines.demo.page import page
from pipelines.demo.screen import Screen, drawn, line
from pipelines.demo.stage import ACTED, CONSTANT, COURSE, LEFT, TASK, WORKLOAD, Stage
from recording.control_groups import find_hierarchy
from recording.live.prometheus import LivePrometheus
from recording.processes import Running
from recording.tools import SEARCH_PATH
from serving.bundle import check_bundle

RECORD = {
    "at": "2026-11-23T05:00:05.000+00:00", "actor": "policy", "reason": "", "failure": "", "seen": {"p99_ms": 61.0},
    "changes": [{"control": "target_cpu_limit_cores", "reason": "rate", "wanted": 0.9, "allowed": 0.6}],
    "done": {"target_cpu_limit_cores": 0.6}, "targets": {"target_cpu_limit_cores": 0.6}}


@pytest.fixture
def history() -> History:
    """Ten seconds: above the objective are the controller's service in two, the one left alone in six, the constant one
    in four; one sample is missing."""
    made = History(50.0)
    made.seconds.extend(float(second) for second in range(10))
    for service, above in ((ACTED, 2), (LEFT, 6), (CONSTANT, 4)):
        kept = made.series[service]
        kept["rate_rps"].extend([100.0] * 10)
        kept["p99_ms"].extend([None, *[200.0] * above, *[8.0] * (9 - above)])
        kept["quota"].extend([0.6 if service == ACTED else 0.3] * 10)
        kept["used"].extend([0.1] * 9 + [math.nan])
    return made


def test_its_bundle_is_signed_proved_and_of_this_workload() -> None:
    bundle = check_bundle(BUNDLE, PUBLIC_KEY)
    assert (bundle.contract.task, bundle.contract.workload) == (TASK, WORKLOAD)
    assert bundle.contract.driving is not None
    assert bundle.contract.driving.seen.ranges
    low, high = (bundle.contract.fallback.safe_ranges["target_cpu_limit_cores"].minimum,
                 bundle.contract.fallback.safe_ranges["target_cpu_limit_cores"].maximum)
    rates = [rate for _, rate in COURSE]
    seen = next(one for one in bundle.contract.driving.seen.ranges if one.name == "rate_rps")
    assert seen.minimum < min(rates) < max(rates) < seen.maximum
    assert low < 0.3 < high
    assert sum(share for share, _ in COURSE) == pytest.approx(1.0)


def test_a_controller_that_refuses_to_start_is_told_by_what_it_said(tmp_path: Path) -> None:
    said = tmp_path / "said"
    refusal = json.dumps({"error": "code must be what the bundle was made with"}, indent=1)
    said.write_text(f'{{"number": 1}}\n{refusal}\n')
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
        stage = Stage(cast(LivePrometheus, None), 0.0, (), Running("controller", cast(Any, ended)), said)
        with pytest.raises(SourceError, match=r"(?s)controller must keep running, but it ended: .*code must be what"):
            stage.look()
    assert stage.records == [{"number": 1}]


def test_its_bundle_names_no_folder_of_a_machine() -> None:
    for file in BUNDLE.iterdir():
        assert not re.search(rb"/(work|tmp|home|root)/", file.read_bytes()), file.name


def test_what_they_came_to_is_counted_over_what_is_known(history: History) -> None:
    assert history.violating(ACTED) == pytest.approx(2 / 9)
    assert history.violating(LEFT) == pytest.approx(6 / 9)
    assert history.mean_quota(LEFT) == pytest.approx(0.3)


def test_the_picture_shows_the_services_and_what_was_done(history: History) -> None:
    console = Console(width=100, record=True, force_terminal=True, file=io.StringIO())
    console.print(drawn(history, [RECORD], 120.0))
    text = console.export_text()
    for part in ("with assay control", "left alone", "constant, same cost", "p99, ms", "quota 0.600 cores",
                 "shield: rate 0.9 -> 0.6"):
        assert part in text, text
    assert max(map(len, text.splitlines())) <= 100


def test_without_a_terminal_each_step_is_a_line(history: History) -> None:
    console = Console(width=100, record=True, force_terminal=False, file=io.StringIO())
    with Screen(console, 120.0) as screen:
        screen.show(history, [RECORD])
        screen.show(history, [RECORD, {**RECORD, "actor": "fallback", "reason": "p99_ms is missing", "changes": []}])
    assert console.export_text().splitlines() == [
        line(RECORD), "05:00:05  fallback  quota 0.600 cores  p99_ms is missing"]


def test_the_page_says_the_price_of_doing_nothing(history: History) -> None:
    html = page(history, [RECORD], {"Server": "nginx <3"})
    assert "67 %" in html and "22 %" in html
    assert "the price of doing nothing" in html
    assert "constant, at about the same cost" in html and "44 %" in html
    assert "rate 0.9 -&gt; 0.6" in html
    assert "nginx &lt;3" in html
    assert html.count("<svg") + html.count("data:image/png") == 3


@pytest.mark.skipif(any(shutil.which(one, path=SEARCH_PATH) is None for one in ("nginx", "prometheus")),
                    reason="needs the Debian packages nginx-light and prometheus (make debian)")
@pytest.mark.skipif(os.geteuid() != 0 or find_hierarchy().memory is None or find_hierarchy().cpu is None,
                    reason="needs control groups that may be written")
def test_it_runs(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("ASSAY_HOME", str(tmp_path))
    found = CliRunner().invoke(app, ["demo", "--seconds", "30", "--page", str(tmp_path / "page.html")])
    assert found.exit_code == 0, found.output
    assert re.search(r"policy    quota 0\.\d+ cores", found.output), found.output
    assert "p99 above the objective, of the time:" in found.output
    assert "What the controller did" in (tmp_path / "page.html").read_text()
