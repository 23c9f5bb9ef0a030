"""`assay demo`: a real server under load, and a proved controller that acts on it."""

import time
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryFile
from typing import Annotated

import typer

from feature_store.errors import InputError
from pipelines.console import ConfigOption, configuration_from, out, print_line, reported

ROOT = Path(__file__).resolve().parents[2]
BUNDLE, PUBLIC_KEY = ROOT / "data" / "demo" / "bundle", ROOT / "data" / "demo" / "assay.pub"


@reported
def demo(
    seconds: Annotated[float, typer.Option(min=30, max=3600, help="How long the load lasts.")] = 120.0,
    page: Annotated[Path | None, typer.Option(help="Page to write; default: demo.html in the state folder.")] = None,
    config: ConfigOption = None,
) -> None:
    """Watch a proved controller act on a real server for two minutes.

    Three equal nginx servers get the same load, in control groups of this machine. `assay control --actuator cgroup`
    sets the CPU quota of one of them, with a policy that comes with the project (data/demo); one is left alone, and one
    has all the time about what the controlled one has on average. Ends with a page: what happened, and the price of
    having done nothing. Needs root, nginx and prometheus (make debian).

    Example: assay demo --seconds 120
    """
    from feature_store.whole_files import write_file
    from pipelines.demo.history import History
    from pipelines.demo.page import NAMES
    from pipelines.demo.page import page as made_page
    from pipelines.demo.screen import Screen
    from pipelines.demo.stage import QUOTA, QUOTAS, STEP_S, WORKLOAD, staged
    from serving.bundle import check_bundle

    bundle = check_bundle(BUNDLE, PUBLIC_KEY)
    driving = bundle.contract.driving
    if driving is None or "slo_ms" not in driving.settings:
        raise InputError(f"bundle must say its objective, got none ({BUNDLE})")
    home = configuration_from(config).home
    folder, written = home / "demo" / "controller", page or home / "demo.html"
    _require_writable(folder, written.parent)
    history = History(driving.settings["slo_ms"])
    quotas = ", ".join(f"{quota:g}" for quota in QUOTAS.values())
    print_line(f"three {WORKLOAD} servers with {quotas} cores are starting; one step every {STEP_S:g} s")
    with staged(BUNDLE, PUBLIC_KEY, seconds, folder) as stage, \
            Screen(out, seconds) as screen:
        while time.time() < stage.start_s + seconds:
            history.sample(stage)
            stage.look()
            screen.show(history, stage.records)
            time.sleep(max(0.0, 1.0 - (time.time() - stage.start_s) % 1.0))
        records = list(stage.records)
    ran = {"Server": f"{WORKLOAD}, {QUOTA:g} cores at the beginning",
           "Load": "open loop, Poisson arrivals over loopback",
           "Policy": f"bundle {bundle.sha256[:12]}, signature and proof checked",
           "Actuator": "cgroup, given back at the end", "Step": f"{STEP_S:g} s"}
    write_file(written, made_page(history, records, ran).encode())
    print_line("p99 above the objective, of the time:")
    for service in history.series:
        print_line(f"  {100 * history.violating(service):3.0f} %  {NAMES[service]} "
                   f"({history.mean_quota(service):.3g} cores on average)")
    print_line(f"page: {written}")


def _require_writable(folder: Path, page: Path) -> None:
    """Makes both folders, the first one empty: what an earlier demo left is of no use. Raises InputError."""
    try:
        rmtree(folder, ignore_errors=True)
        for place in (folder, page):
            place.mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=place):
                pass
    except OSError as error:
        raise InputError(f"folder must be writable, got {error.strerror} ({error.filename})") from error
