"""Seconds of taking a champion back: the call, and the whole command beside it."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

from benchmarks.harness.isolation import Context
from benchmarks.harness.quantity import below, quantity
from benchmarks.pipeline.assay_run import run_command
from benchmarks.pipeline.measurements.state_folder import state_folder
from benchmarks.pipeline.sizes import Sizes

GOAL_SECONDS = 1.0
COMMANDS = 3


def measure(sizes: Sizes, context: Context) -> dict[str, Any]:
    """A second version of the same model is promoted and rolled back in turn."""
    from models.configuration import load_configuration
    from serving.bundle import open_bundle
    from serving.registry import Registry
    from serving.signature import SIGNATURE_FILE

    state = state_folder(context)
    configuration = load_configuration(state.configuration, {"ASSAY_HOME": str(state.home)})
    registry = Registry(configuration, actor="benchmark")
    unsigned = Path(shutil.copytree(state.bundles[0], context.work / "second-version"))
    (unsigned / SIGNATURE_FILE).unlink()
    _reword(unsigned)  # the same bundle again would register nothing
    contract = open_bundle(unsigned).contract
    second = registry.register(unsigned).version
    seconds: list[float] = []
    for _ in range(sizes.rollback_repeats):
        registry.promote(contract.task, contract.workload, second)
        clock = time.perf_counter()
        registry.rollback(contract.task, contract.workload)
        seconds.append(time.perf_counter() - clock)
        context.say(f"{seconds[-1]:.3f} s")
    commands = []
    for _ in range(COMMANDS):
        registry.promote(contract.task, contract.workload, second)
        commands.append(run_command(["rollback", "--workload", contract.workload, "--task", contract.task],
                                    state.home, state.configuration))
    return {
        "quantities": {
            "call": quantity("rollback after start-up", "s", seconds, below(GOAL_SECONDS)),
            "command": quantity("`assay rollback`, the whole command", "s", commands)},
        "details": {"what": "the ledger is verified, the earlier bundle checked, the move signed and the aliases set",
                    "ledger_entries": len(registry.history()), "bundles": state.origin}}


def _reword(bundle: Path) -> None:
    """Another description of an input, which is no other promise."""
    from models.export.json_file import write_json

    contract = json.loads((bundle / "contract.json").read_text())
    contract["inputs"][0]["description"] += " (again)"
    write_json(bundle / "contract.json", contract)
