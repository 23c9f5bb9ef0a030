"""The verification campaign: our verifier and its peers on the same networks, under the same limits, in one command.

    python -m benchmarks verification-campaign [--tools assay scip ...] [--sizes 2x64 ...] [--limit 120] [--threads 1]
    python -m benchmarks verification-campaign --growth

Every network of verification/networks.py is asked whether it is monotone in one or in three features. Ours gets the
features at once; peers, which take one at a time, get them one after the other within the same limit in all, and have
refuted the network as soon as one is refuted. Solve time alone is limited and compared; on one thread it is processor
time, so that the machine's other work does not count (campaign_child.py). Peers are installed apart from us
(peers/installation.py; --peers-python, --auto-lirpa-source, --alpha-beta-crown-source or the variables PEERS_PYTHON,
AUTO_LIRPA_SOURCE, ALPHA_BETA_CROWN_SOURCE); a missing one is left out.

Resumable: an entry that is there for the same weights, question and code is not made again, and what is done is
written at once; two runs may share a result file. `--growth` measures instead how our cost grows with width, depth and
inputs (verification/growth.py).
"""

import argparse
import math
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.machine import load_average, now_utc
from benchmarks.harness.result_file import RESULTS, read_results
from benchmarks.verification.campaign_entries import Entry, Settings, begin, instance_digest, keep, keep_part, tool_code
from benchmarks.verification.campaign_process import DECIDED, Limits, ask
from benchmarks.verification.campaign_tables import contradictions
from benchmarks.verification.growth import measure_growth
from benchmarks.verification.networks import (
    DEFAULT_FOLDER,
    FEATURES,
    INPUTS,
    KINDS,
    SIZES,
    TOLERANCE,
    Instance,
    campaign_instances,
    load_or_train,
)
from benchmarks.verification.own_verifier import OUR_TOOLS
from benchmarks.verification.peers.installation import PEERS, Installation, missing
from benchmarks.verification.peers.question import Question
from feature_store.errors import InputError
from models.verification.network.fully_connected import ReluNetwork
from models.verification.verdict import Status

OUTPUT = RESULTS / "verification_campaign.json"
TOOLS = (*OUR_TOOLS, *PEERS)
REPEATS = 3
# Solvers that encode every neuron come last on networks above this: most of them use up their limit there.
SLOW_TOOLS, MANY_PARAMETERS = ("marabou", "highs", "scip"), 20_000


def run(options: argparse.Namespace) -> int:
    """Exit code 0; 1 if two tools contradict each other or ours failed."""
    settings = Settings(options.limit, options.threads, options.memory_gib)
    begin(options.output, settings)
    if options.growth:
        measure_growth(options.output, Limits(options.limit, options.threads, options.memory_gib), _say)
    else:
        _run(options, settings)
    return _judge((read_results(options.output) or {})["entries"])


def _judge(entries: Sequence[Entry]) -> int:
    """Says what is wrong with the entries: 1 for a contradiction or an error of ours."""
    bad = contradictions(entries)
    for name, verdicts in bad.items():
        print(f"CONTRADICTION {name}: " + ", ".join(f"{tool} {verdict}" for tool, verdict in verdicts.items()),
              file=sys.stderr)
    failed = [entry for entry in entries if entry["tool"] in OUR_TOOLS and entry["verdict"] == Status.ERROR]
    for entry in failed:
        print(f"ERROR {entry['network']} {entry['tool']}: {entry['reason']}", file=sys.stderr)
    return int(bool(bad or failed))


def _run(options: argparse.Namespace, settings: Settings) -> None:
    """Makes the entries that are missing."""
    import torch

    torch.set_num_threads(1)  # weights must not depend on the number of cores
    installation = Installation(options.peers_python, tuple(
        (name, path) for name, path in (("auto_lirpa", options.auto_lirpa_source),
                                        ("alpha_beta_crown", options.alpha_beta_crown_source)) if path))
    tools = [tool for tool in options.tools if _installed(tool, installation)]
    versions = {tool: peer_version(tool, installation) for tool in tools if tool in PEERS}
    keep_part(options.output, "peers", {**(read_results(options.output) or {}).get("peers", {}), **versions})
    instances = [one for one in campaign_instances() if one.size in options.sizes and one.kind in options.kinds
                 and one.features in options.features]
    jobs = sorted(((instance, tool) for instance in instances for tool in tools), key=lambda job: _cost(*job))
    networks: dict[str, ReluNetwork] = {}
    codes, began = {tool: tool_code(tool) for tool in tools}, time.monotonic()
    for number, (instance, tool) in enumerate(jobs, 1):
        if instance.name not in networks:
            networks = {instance.name: load_or_train(instance, options.networks, _say)}
        questions = _questions(networks[instance.name], instance)
        about = {"network": instance.name, "tool": tool, "digest": instance_digest(questions), "code": codes[tool]}
        entry = _find(read_results(options.output), about)
        if entry is None:
            entry = {**about, "size": instance.size, "kind": instance.kind, "features": instance.features,
                     **_measure(tool, questions, settings, installation)}
            if tool_code(tool) != codes[tool]:
                raise InputError(f"code must stay as it is while it is measured, got other code ({tool}): start again")
            keep(options.output, entry)
        _say(f"{time.monotonic() - began:6.0f} s  {number}/{len(jobs)}  {instance.name} {tool}: {entry['verdict']} "
             f"{entry['seconds']:.3g} s, {entry['peak_rss_mib']:.0f} MiB  {entry['reason']}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _installed(tool: str, installation: Installation) -> bool:
    line = missing(tool, installation) if tool in PEERS else None
    if line is not None:
        _say(f"left out: {line}")
    return line is None


def peer_version(tool: str, installation: Installation) -> str:
    """As its package says; "unknown" for a checkout that does not say."""
    source = dict(installation.sources).get(tool)
    if source is None:
        command = "import sys; from importlib.metadata import version; print(version(sys.argv[1]))"
        printed = subprocess.run([installation.python, "-c", command, PEERS[tool].packages[0]], check=True,
                                 capture_output=True, text=True)
        return printed.stdout.strip()
    files = [source / folder / package / "__init__.py" for folder in PEERS[tool].source
             for package in (".", "auto_LiRPA")]
    versions = [re.search(r"^__version__ = '(.+)'", file.read_text(encoding="utf-8"), re.MULTILINE)
             for file in files if file.is_file()]
    return next((match[1] for match in versions if match), "unknown")


def _cost(instance: Instance, tool: str) -> tuple[bool, int, int, int, int]:
    """Cheap and informative first."""
    late = tool in SLOW_TOOLS and instance.parameters > MANY_PARAMETERS
    return (late, instance.parameters, instance.features, list(KINDS).index(instance.kind), TOOLS.index(tool))


def _find(results: Mapping[str, Any] | None, about: Entry) -> Entry | None:
    entries = (results or {}).get("entries", [])
    return next((entry for entry in entries if all(entry[key] == value for key, value in about.items())), None)


def _questions(network: ReluNetwork, instance: Instance) -> list[Question]:
    return [Question(network, feature, sign, np.zeros(INPUTS), np.ones(INPUTS), TOLERANCE)
            for feature, sign in instance.queries]


def _measure(tool: str, questions: Sequence[Question], settings: Settings, installation: Installation) -> Entry:
    """Peers once; ours, which is quick, the median of REPEATS processes where the first one decided."""
    limits = Limits(settings.limit_s, settings.threads, settings.memory_gib)
    date, load = now_utc(), load_average()
    answers = [ask(tool, questions, limits, installation)]
    if tool in OUR_TOOLS and answers[0].status in DECIDED:
        answers += [ask(tool, questions, limits, installation) for _ in range(REPEATS - 1)]
    # an answer that differs from the first is the one that is told
    decided = next((answer for answer in answers if answer.status != answers[0].status), answers[0])
    if {answer.status for answer in answers} >= set(DECIDED):
        decided = replace(decided, status=Status.ERROR, reason="its repeats contradict each other")
    shares = [answer.processor_share for answer in answers]
    return {"verdict": decided.status, "seconds": round(statistics.median(answer.seconds for answer in answers), 5),
            "all_seconds": [round(answer.seconds, 5) for answer in answers],
            "wall_seconds": round(statistics.median(answer.wall_seconds for answer in answers), 5),
            "setup_seconds": round(statistics.median(answer.setup_seconds for answer in answers), 3),
            "peak_rss_mib": round(max(answer.peak_rss_mib for answer in answers), 1), "boxes": decided.boxes,
            "processor_share": round(statistics.median(shares), 3) if all(map(math.isfinite, shares)) else None,
            "reason": decided.reason, "date": date, "load_average_before": load}


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    for option, values, kind in (("tools", TOOLS, str), ("sizes", tuple(SIZES), str), ("features", FEATURES, int),
                                 ("kinds", tuple(KINDS), str)):
        parser.add_argument(f"--{option}", nargs="+", choices=values, type=kind, default=list(values), metavar="NAME",
                            help=f"default: {' '.join(map(str, values))}")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds of solve time; default: %(default)s")
    parser.add_argument("--threads", type=int, default=1, help="threads of every tool; default: %(default)s")
    parser.add_argument("--memory-gib", type=float, default=8.0, help="default: %(default)s")
    parser.add_argument("--networks", type=Path, default=DEFAULT_FOLDER, help="folder of the trained networks; "
                        "default: assay/verification-networks in the user's cache")
    parser.add_argument("--growth", action="store_true", help="measure how our cost grows, nothing else")
    parser.add_argument("--peers-python", type=Path, default=Path(os.environ.get("PEERS_PYTHON", sys.executable)),
                        help="interpreter that has the peers' packages; default: this one")
    for name in ("auto_lirpa", "alpha_beta_crown"):
        variable = f"{name.upper()}_SOURCE"
        parser.add_argument(f"--{name.replace('_', '-')}-source", type=Path, help=f"checkout; default: ${variable}",
                            default=Path(os.environ[variable]) if os.environ.get(variable) else None)
