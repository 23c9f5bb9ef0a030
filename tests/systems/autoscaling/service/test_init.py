"""`assay init`: from a real Prometheus, or a file, to files that validate, train and act."""

import json
import math
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from typer.testing import CliRunner, Result

from feature_store.sources.prometheus_api import PrometheusApi
from models.control.contract.own_service import Service
from models.tasks.control.judging import play
from pipelines.command_line import app
from recording.processes import Guard
from recording.tools import SEARCH_PATH
from serving.control.controller_file import read_controller_file
from systems.autoscaling.environment import ENVIRONMENT
from systems.autoscaling.observer import AutoscalingObserver
from systems.autoscaling.service.begin import _scrape_s
from systems.autoscaling.service.files import TASK, proposed_limits, task_text
from systems.autoscaling.service.fit import Fitted, fit_service
from systems.autoscaling.service.queries import Query
from tests.systems.autoscaling.service.recorded_server import STEP_S, counters, prometheus_with, write_history
from tests.systems.autoscaling.service.test_fit import TRUTH, recorded

HOURS = 3
FITTED: dict[str, Fitted] = {}  # see `fitted_once`


def history(seconds: float = 15.0) -> pd.DataFrame:
    found = recorded(windows=int(HOURS * 3600 / seconds), quota=0.8, noise=0.02)
    found[["replicas", "ready_replicas"]] = 1.0
    found["rate_rps"] *= 0.35  # of one replica
    found["cpu_used_cores"] *= 0.35
    found.attrs["window_s"] = seconds
    return found


def init(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["init", *arguments])


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASSAY_HOME", str(tmp_path / "home"))


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    if any(shutil.which(one, path=SEARCH_PATH) is None for one in ("prometheus", "promtool")):
        pytest.skip("prometheus and promtool are not installed: apt-get install prometheus")
    with Guard() as guard:
        yield prometheus_with(guard, counters(history()))


def test_a_service_that_a_server_knows_becomes_files_that_fit_together(server: str, tmp_path: Path) -> None:
    found = init("--prometheus", server, "--name", "web", "--last", "3h", "--objective", "150")
    assert found.exit_code == 0, found.output
    assert "fitted   cpu_ms" in found.output and "open     startup_s" in found.output
    task = yaml.safe_load(Path("web/task.yaml").read_text())
    settings = task["workloads"]["web"]["settings"]
    assert settings["slo_ms"] == 150 and settings["memory_mib"] == pytest.approx(80, rel=0.05)
    assert settings["cpu_ms"] == pytest.approx(TRUTH.cpu_ms, rel=0.05)
    assert "cv2" not in settings, "no limit is known to this server: the law cannot be fitted"
    written = read_controller_file(Path("web/controller.yaml"), "dry-run")
    assert set(written.signals) >= {"rate_rps", "p99_ms", "served_share", "cpu_used_cores", "memory_used_mib"}
    written.require_all(AutoscalingObserver.measured)
    assert written.shares["cpu_utilization"].over == ("ready_replicas", "cpu_limit_cores")
    checked = CliRunner().invoke(app, ["validate", "--task", "web/task.yaml", "--telemetry", server, "--mapping",
                                       "web/load.yaml"])
    assert checked.exit_code == 0, checked.output


def test_how_often_a_service_of_two_minutes_is_scraped_is_not_asked_of_five(tmp_path: Path, server: str) -> None:
    young = history(5.0).iloc[:24]
    young.attrs["window_s"] = 5.0
    with Guard() as guard:
        found = init("--prometheus", prometheus_with(guard, counters(young), 5.0), "--name", "web", "--last", "2m",
                     "--objective", "150")
    assert found.exit_code == 0, found.output
    assert "scraped every 5 s" in Path("web/controller.yaml").read_text()
    assert "hold no measurement" not in found.output


def scraped(replicas: int, seconds: float, cpu_s: float) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Series each 15 s, of which each replica was scraped at times of its own; and how late each of them is."""
    series: dict[str, np.ndarray] = {}
    late_s: dict[str, float] = {}
    for number in range(replicas):
        for name, values in counters(history()).items():
            one = name.replace('job="web"', f'job="web",instance="{number}"').replace(',instance="a"', "")
            every = round((cpu_s if "cpu" in name else seconds) / STEP_S)
            series[one] = np.where(np.arange(len(values))[::-1] % every == 0, values, np.nan)
            late_s[one] = every * STEP_S * (number + 0.5) / replicas
    return series, late_s


@pytest.mark.parametrize(("replicas", "seconds", "cpu_s", "slowest"), [
    (2, 15.0, 15.0, 15.0), (3, 30.0, 30.0, 30.0), (1, 60.0, 60.0, 60.0), (4, 15.0, 60.0, 60.0)], ids=str)
def test_the_slowest_target_says_over_which_time_a_rate_is_asked_by_a_controller_and_by_a_run(
        tmp_path: Path, replicas: int, seconds: float, cpu_s: float, slowest: float) -> None:
    """Two samples of each target have to be in a window, however many targets there are and whenever each comes."""
    with Guard() as guard:
        series, late_s = scraped(replicas, seconds, cpu_s)
        url = prometheus_with(guard, series, STEP_S, late_s)
        found = init("--prometheus", url, "--name", "web", "--last", "2h", "--objective", "150")
        assert found.exit_code == 0, found.output
        checked = CliRunner().invoke(app, ["validate", "--task", "web/task.yaml", "--telemetry", url, "--mapping",
                                           "web/load.yaml"])
    controller = Path("web/controller.yaml").read_text()
    windows = {int(one) for one in re.findall(r"\[(\d+)s\]", controller)}
    assert windows == {math.ceil(2.5 * slowest)} and f"scraped every {slowest:g} s" in controller
    assert checked.exit_code == 0, checked.output
    assert yaml.safe_load(Path("web/load.yaml").read_text())["scrape_interval_s"] == slowest


def test_a_server_that_knows_one_sample_of_each_series_is_taken_for_one_that_scrapes_as_usual(tmp_path: Path) -> None:
    with Guard() as guard:
        api = PrometheusApi(prometheus_with(guard, {'up{job="web"}': np.ones(1)}), 5.0, 0)
        assert _scrape_s(api, [Query("", read='up{job="web"}')]) == 15.0


def test_windows_without_a_measurement_are_said(server: str) -> None:
    found = init("--prometheus", server, "--name", "web", "--last", "6h", "--objective", "150")
    assert found.exit_code == 0, found.output
    missing = re.search(r"(\d+) of 360 windows hold no measurement: the service or its server was not there",
                        found.output)
    assert missing is not None and 170 < int(missing[1]) < 190


def test_nothing_is_overwritten_unless_it_is_asked_for(server: str) -> None:
    asked = ("--prometheus", server, "--name", "web", "--last", "1h")
    assert init(*asked).exit_code == 0
    Path("web/task.yaml").write_text("mine")
    refused = init(*asked)
    assert refused.exit_code == 2 and "--overwrite" in refused.output
    assert Path("web/task.yaml").read_text() == "mine"
    assert init(*asked, "--overwrite").exit_code == 0 and Path("web/task.yaml").read_text() != "mine"


def test_a_service_that_the_server_does_not_know_is_said_with_the_nearest_name(server: str) -> None:
    found = init("--prometheus", server, "--name", "wbe")
    assert found.exit_code == 2 and "web" in found.output and not Path("wbe").exists()


def test_a_file_becomes_a_task_with_what_its_windows_tell(tmp_path: Path) -> None:
    write_history(history(60.0), tmp_path / "shop.csv")
    found = init("--csv", "shop.csv", "--json")
    assert found.exit_code == 0, found.output
    assert set(json.loads(found.stdout)["files"]) == {"task.yaml", "load.csv"}
    workload = yaml.safe_load(Path("shop/task.yaml").read_text())["workloads"]["shop"]
    assert workload["settings"]["cpu_ms"] == pytest.approx(TRUTH.cpu_ms, rel=0.05)
    assert workload["limits"]["target_replicas"] == [1, 2] and workload["limits"]["target_cpu_limit_cores"][1] == 1.6
    checked = CliRunner().invoke(app, ["validate", "--task", "shop/task.yaml", "--telemetry", "shop/load.csv"])
    assert checked.exit_code == 0, checked.output


@pytest.mark.parametrize(("arguments", "said"), [
    (["--prometheus", "http://127.0.0.1:1", "--csv", "x.csv", "--name", "a"], "got both"),
    (["--name", "a"], "got none"),
    (["--prometheus", "http://127.0.0.1:1"], "which service"), (["--csv", "away.csv"], "away.csv"),
    (["--prometheus", "http://127.0.0.1:1", "--name", "a", "--last", "week"], "90m, 36h or 7d"),
    (["--prometheus", "http://127.0.0.1:1", "--name", "a", "--last", "400d"], "at most 366d"),
    (["--prometheus", "http://127.0.0.1:1", "--deployment", "a", "--cgroup", "b"], "got both")])
def test_what_cannot_be_begun_is_refused_in_one_line(arguments: list[str], said: str) -> None:
    found = init(*arguments)
    assert found.exit_code == 2 and said in found.output and len(found.output.strip().splitlines()) == 1


@pytest.fixture
def fitted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal windows are fitted once, which takes a second: for tests that are not about the fit."""
    def fitted(windows: pd.DataFrame, came: list[float] | None) -> Fitted:
        key = repr((windows.to_csv(), windows.attrs, came))
        if key not in FITTED:
            FITTED[key] = fit_service(windows, came)
        return FITTED[key]

    monkeypatch.setattr("systems.autoscaling.service.begin.fit_service", fitted)


@pytest.mark.usefixtures("fitted_once")
@pytest.mark.parametrize("objective", ["0", "-5", "3.9", "20000", "nan", "inf"])
def test_an_objective_that_no_twin_has_is_refused(tmp_path: Path, objective: str) -> None:
    write_history(history(60.0), tmp_path / "shop.csv")
    found = init("--csv", "shop.csv", "--objective", objective)
    assert found.exit_code == 2 and "objective must be 4 to 16384 ms" in found.output and not Path("shop").exists()


@pytest.mark.parametrize("factors", [
    {"memory_limit_mib": 64.0, "memory_used_mib": 300.0}, {"cpu_used_cores": 1e-6}, {"cpu_used_cores": 1e6},
    {"memory_used_mib": 1e-3}, {"memory_used_mib": 1e6}, {"p99_ms": 1e4}, {"p99_ms": 1e-6},
    {"cpu_limit_cores": 80.0, "replicas": 500.0, "ready_replicas": 500.0}, {"mean_latency_ms": 1e9}], ids=str)
def test_whatever_the_windows_say_the_task_is_one_that_validates(tmp_path: Path, factors: dict[str, float]) -> None:
    table = history(60.0)
    for name, factor in factors.items():
        table[name] *= factor
    write_history(table, tmp_path / "shop.csv")
    found = init("--csv", "shop.csv")
    assert found.exit_code == 0, found.output
    checked = CliRunner().invoke(app, ["validate", "--task", "shop/task.yaml", "--telemetry", "shop/load.csv"])
    assert checked.exit_code in (0, 1), checked.output  # 1: the data gate, with the rule; never an unusable task


@pytest.mark.usefixtures("fitted_once")
@pytest.mark.parametrize(("name", "folder"), [
    ("a b", "a-b"), ('web"q', "web-q"), ("../up", "up"), ("shop/web", "shop-web"), ("web@docker", "web-docker"),
    ("x\nminimum_rows: 2", "x-minimum_rows-2")])
def test_a_name_is_no_path_and_no_yaml(tmp_path: Path, name: str, folder: str) -> None:
    write_history(history(60.0), tmp_path / "x.csv")
    found = init("--csv", "x.csv", "--name", name)
    assert found.exit_code == 0 and Path(folder, "task.yaml").exists(), found.output
    assert list(yaml.safe_load(Path(folder, "task.yaml").read_text())["workloads"]) == [folder]
    assert "minimum_rows" not in yaml.safe_load(Path(folder, "task.yaml").read_text())
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted([folder, "x.csv"])


def test_a_file_name_is_no_yaml(tmp_path: Path) -> None:
    path = write_history(history(60.0), tmp_path / "x\nminimum_rows: 2 #.csv")
    assert init("--csv", str(path), "--name", "ok").exit_code == 0
    assert "minimum_rows" not in yaml.safe_load(Path("ok/task.yaml").read_text())


def test_all_files_are_written_or_none(tmp_path: Path) -> None:
    write_history(history(60.0), tmp_path / "shop.csv")
    Path("shop/load.csv").mkdir(parents=True)
    found = init("--csv", "shop.csv", "--overwrite")
    assert found.exit_code == 2 and "must not be folders" in found.output and not Path("shop/task.yaml").exists()


def test_what_is_set_and_nobody_knows_is_said_before_a_shadow_would_find_out(server: str) -> None:
    found = init("--prometheus", server, "--name", "web", "--last", "1h")
    assert "nobody knows cpu_limit_cores, memory_limit_mib" in found.output
    assert oct(Path("web/controller.yaml").stat().st_mode)[-3:] == "600"


def test_a_replay_has_the_recorded_load_and_sets_what_was_set() -> None:
    """A third of a core misses the objective all the time, ten cores never: whatever the limits say."""
    load = pd.DataFrame({"rate_rps": 40.0 + 10.0 * np.sin(np.arange(60) / 10.0)})
    settings = {"slo_ms": 200.0, "cpu_ms": 20.0, "fixed_ms": 5.0, "cv2": 0.3, "workers": 2.0, "memory_mib": 50.0}
    limits = {"target_replicas": (1.0, 2.0)}
    missed = []
    for cores, replicas in ((0.33, 1.0), (2.0, 5.0)):
        environment, episodes = ENVIRONMENT.replay(load, settings, limits, bounded=False)
        assert len(episodes) >= 8 and episodes.steps == len(load)
        assert np.allclose(episodes.rate[:, 0].numpy(), load["rate_rps"])
        allocation = torch.tensor([[cores, 256.0, replicas]]).expand(len(episodes), -1)
        played = play(environment, episodes, len(load), lambda seen, at, done=allocation: done, warm_up=20)
        assert np.allclose(played.series["replicas"], replicas)
        missed.append(played.violating_share.mean())
    assert missed[0] > 0.9 and missed[1] < 0.05
    bounded, episodes = ENVIRONMENT.replay(load, settings, limits)
    played = play(bounded, episodes, len(load), lambda seen, at: torch.full((len(episodes), 3), 64.0))
    assert played.series["replicas"][20:].max() == 2.0


@pytest.mark.parametrize(("limit_mib", "used_mib", "low"), [
    (65536.0, 80.0, 80.0), (1024.0, 300.0, 256.0), (1024.0, 200.0, 200.0), (65536.0, None, 8192.0),
    (65536.0, math.nan, 8192.0), (65536.0, 10.0, 32.0)])
def test_a_limit_of_memory_may_come_down_to_what_was_lived_on_where_only_the_host_sets_one(
        limit_mib: float, used_mib: float | None, low: float) -> None:
    """In most windows: one just after a restart, of 10 MiB, does not count."""
    windows = pd.DataFrame({"cpu_limit_cores": 2.0, "memory_limit_mib": limit_mib, "replicas": 1.0}, index=range(5))
    if used_mib is not None:
        windows["memory_used_mib"] = [used_mib, 2 * used_mib, 0.0, used_mib, min(used_mib, 10.0)]
    found = proposed_limits(windows, {"cgroup": {"group": "x"}})["target_memory_limit_mib"]
    assert found == [low, min(2.0 * limit_mib, 32768.0)]


def test_a_demand_that_no_limit_lets_begin_is_left_out(tmp_path: Path) -> None:
    """Of one instance nothing is demanded for four; `validate` refuses a file that demands it."""
    shipped = TASK.read_text()
    limits = {"target_replicas": [1.0, 1.0], "target_cpu_limit_cores": [0.125, 2.0]}
    written = task_text(Service("one"), fit_service(recorded()), 100.0, False, limits, "a test")
    assert "replicas: [4, 64]" in shipped and "replicas: [4, 64]" not in written and "replicas: [1, 4]" in written
    assert written.count("- order") == shipped.count("- order") - shipped.count("replicas: [4, 64]")
    times = pd.date_range("2026-01-01", periods=90, freq="60s", tz="UTC")
    load = pd.DataFrame({"workload": "one", "window_start": times, "window_s": 60.0,
                         "rate_rps": 5.0 + np.sin(np.arange(90.0))})
    load.to_csv("load.csv", index=False)
    for text, code in ((written, 0), (written.replace("replicas: [1, 4]", "replicas: [4, 64]"), 2)):
        Path("task.yaml").write_text(text)
        found = CliRunner().invoke(app, ["validate", "--task", "task.yaml", "--telemetry", "load.csv"])
        assert found.exit_code == code, found.output
    assert "when must meet the box [1, 1]" in found.output and "line" in found.output
