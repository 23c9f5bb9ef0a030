"""The light install (`assay-serving`) beside the whole one: size, imports, memory of a loaded predictor.

    python -m benchmarks light-install [--repeats 7] [--home STATE_FOLDER]

The wheel is built from these sources and installed, with the pins of constraints.txt, into an empty environment, which
is removed at the end. The whole install is the environment that runs this: what the project needs, without its extras.
Every value is of a new process, the installations in turn; the first round warms the file cache and does not count.
Without --home a short run makes the bundle that is loaded. Resumable: what is there for the same code is kept.
"""

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.code_digest import code_digest
from benchmarks.harness.entries import Entries, made_by
from benchmarks.harness.isolation import Context
from benchmarks.harness.machine import describe_machine, load_average, now_utc
from benchmarks.harness.markdown import number, paragraph, table, with_unit
from benchmarks.harness.result_file import RESULTS
from benchmarks.pipeline.assay_run import bundles
from benchmarks.pipeline.measurements.state_folder import state_folder
from deploy.assay_serving.build import ROOT, build_wheel, light_closure
from deploy.assay_serving.closure import OWN
from feature_store.errors import InputError
from feature_store.recorded import DEFAULT_TELEMETRY

OUTPUT = RESULTS / "light_install.json"
FORMAT = "assay-light-install/1"
CHILD = Path(__file__).with_name("light_install_child.py")
REPEATS = 7
MB = 1e6
NAMED = 6  # packages that the page names
MODULES = {"control": "serving.control.start", "registry": "serving.registry"}  # the latter: MLflow's
TITLES = {"light": "light", "light, proofs": "light with `[proofs]`", "whole": "whole"}


@dataclass(frozen=True)
class Installed:
    """An installation: its interpreter, its distribution, the extra that counts, how its command is started."""

    name: str
    python: Path
    distribution: str
    extra: str
    command: tuple[str, ...]

    def child(self, *arguments: str) -> Any:
        """What the child process answers, run in this installation."""
        done = subprocess.run([str(self.python), str(CHILD), *arguments], check=True, stdout=subprocess.PIPE, text=True,
                              cwd=CHILD.parent, env=self.environment)
        return json.loads(done.stdout)

    @property
    def environment(self) -> dict[str, str]:
        """Of its processes: the whole install is these sources, the light one knows nothing of them."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ASSAY"))}
        return {**kept, "PYTHONPATH": str(ROOT)} if self.distribution == "assay" else kept

    def command_s(self) -> float:
        """Seconds of `assay --version`."""
        began = time.perf_counter()
        subprocess.run([*self.command, "--version"], check=True, stdout=subprocess.DEVNULL, env=self.environment)
        return time.perf_counter() - began


def measure(installed: Installed, bundle: Path, key: Path) -> dict[str, float]:
    """One round: each value of a process of its own."""
    loaded = installed.child("predictor", str(bundle), str(key))
    modules = MODULES if installed.distribution == "assay" else {"control": MODULES["control"]}
    imports = {name: installed.child("module", module) for name, module in modules.items()}
    return {**loaded, "command_s": installed.command_s(),
            **{f"{name}_{key}": value for name, found in imports.items() for key, value in found.items()}}


def installations(folder: Path, output: Path) -> list[Installed]:
    """The wheel in `output`, in an environment of its own; the same with the proofs' extra; this environment."""
    whole = Installed("whole", Path(sys.executable), "assay", "",
                      (sys.executable, "-c", "from pipelines.command_line import main; main()"))
    found = []
    for name, extra in (("light", ""), ("light, proofs", "proofs")):
        programs = folder / name.replace(", ", "-") / "bin"
        subprocess.run([sys.executable, "-m", "venv", str(programs.parent)], check=True)
        wheel = f"{output}[{extra}]" if extra else str(output)
        subprocess.run([str(programs / "pip"), "install", "--quiet", "--disable-pip-version-check", "-c",
                        str(ROOT / "constraints.txt"), wheel], check=True, env=whole.environment)
        found.append(Installed(name, programs / "python", "assay-serving", extra, (str(programs / "assay"),)))
    return [*found, whole]


def made_of() -> str:
    """Digest of the code that measures, of the modules of the wheel, and of what is installed beside it."""
    files = (CHILD, *light_closure().modules.values(), ROOT / "deploy/assay_serving/pyproject.toml",
             ROOT / "constraints.txt")
    own = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]
    return code_digest("benchmarks.pipeline.light_install", "benchmarks") + own


def own_bytes() -> int:
    """Of the project's modules, compiled ones not among them: the whole install is a link to them."""
    return sum(path.stat().st_size for package in OWN for path in (ROOT / package).rglob("*.py"))


def run(options: argparse.Namespace) -> None:
    """Measures all installations anew, unless the same code has."""
    code = made_of()
    entries = Entries(options.output, FORMAT, lambda entry: list(TITLES).index(entry["install"]), made_by(code))
    if len(entries) == len(TITLES):
        return
    with tempfile.TemporaryDirectory(prefix="assay-light-install-") as temporary:
        folder = Path(temporary)
        home, origin = _home(options, folder)
        bundle = bundles(home)[0]
        wheel = build_wheel(folder / "dist")
        found = installations(folder, wheel)
        rounds: dict[str, list[dict[str, float]]] = {one.name: [] for one in found}
        before = load_average()
        for number_of_round in range(options.repeats + 1):
            for one in found:
                values = measure(one, bundle, home / "keys" / "assay.pub")
                if number_of_round:
                    rounds[one.name].append(values)
            print(f"round {number_of_round} of {options.repeats}", file=sys.stderr)
        sizes = {one.name: one.child("sizes", one.distribution, one.extra) for one in found}
        wheel_bytes = wheel.stat().st_size
    sizes["whole"]["assay"] += own_bytes()
    entries.content |= {"machine": {**describe_machine(), "date": now_utc()}, "bundle": origin,
                        "load_average_before": before, "wheel_bytes": wheel_bytes,
                        "wheel_modules": len(light_closure().modules)}
    entries.add(*({"install": name, "code": code, "bytes": sizes[name], "values": {
        key: [one[key] for one in values] for key in values[0]}} for name, values in rounds.items()))


def _home(options: argparse.Namespace, folder: Path) -> tuple[Path, str]:
    if options.home is None:
        made = state_folder(Context(folder, options.telemetry.resolve(), "light-install"))
        return made.home, made.origin
    if not bundles(options.home.resolve()):
        raise InputError(f"--home: expected a state folder with signed bundles, got none ({options.home})")
    return options.home.resolve(), "a state folder that was there"


QUANTITIES = (("command_s", "`assay --version`", "s"), ("import_s", "`import serving.session`", "s"),
              ("load_s", "first bundle checked and loaded, a row predicted", "s"),
              ("memory_mib", "memory then", "MiB"),
              ("control_import_s", "import of all that `assay control` needs", "s"),
              ("control_memory_mib", "memory then", "MiB"),
              ("registry_import_s", "import of MLflow's registry, where a bundle was not copied", "s"),
              ("registry_memory_mib", "memory then", "MiB"))


def install_table(results: Mapping[str, Any]) -> str:
    """A row a quantity, a column an installation."""
    by_name = {entry["install"]: entry for entry in results["entries"]}
    rows = [["packages", *(str(len(by_name[name]["bytes"])) for name in TITLES)],
            ["installed", *(f"{number(sum(by_name[name]['bytes'].values()) / MB)} MB" for name in TITLES)]]
    for key, label, unit in QUANTITIES:
        values = [by_name[name]["values"].get(key) for name in TITLES]
        rows.append([label, *("" if one is None else with_unit(statistics.median(one), unit) for one in values)])
    return table(["", *TITLES.values()], rows, range(1, len(TITLES) + 1))


def conditions_line(results: Mapping[str, Any]) -> str:
    """The wheel, its largest packages, and how it was measured."""
    light = next(entry for entry in results["entries"] if entry["install"] == "light")
    largest = sorted(light["bytes"].items(), key=lambda item: -item[1])[:NAMED]
    machine = results["machine"]
    repeats = len(light["values"]["import_s"])
    return paragraph(
        f"The wheel has {results['wheel_modules']} modules and {results['wheel_bytes'] / 1000:.0f} kB. The largest",
        f"packages of the light install: {', '.join(f'{name} {number(size / MB)} MB' for name, size in largest)}.",
        f"Medians of {repeats} new processes with warm file caches; memory is resident; the bundle is of",
        f"{results['bundle']}; load of the machine before: {results['load_average_before']:g}. {machine['cpu_model']},",
        f"{machine['cores']} cores, Python {machine['python']}, {machine['date'][:10]}.")


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--home", type=Path, help="state folder whose first bundle is loaded; default: of a short run")
    parser.add_argument("--telemetry", type=Path, default=DEFAULT_TELEMETRY, help="default: data/base/samples.parquet")
