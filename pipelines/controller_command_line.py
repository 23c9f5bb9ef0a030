"""The `assay` command of the light install (`assay-serving`): control, check, predict and serve, with the standard
library's parser alone.

The whole project's command is pipelines/command_line.py; its parser, typer, needs pydantic and rich. What stands beside
a controller has no mlflow.yaml: --home names the state folder, or a copy of it.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from typing import Any

from feature_store.errors import AssayError, InputError, RefusedError
from feature_store.names import printable
from feature_store.strict_json import parse_json
from feature_store.terminal import escape_what_python_says
from models.configuration import LEDGER_DATABASE
from pipelines.commands.known_names import require_in_ledger
from serving.bundle import check_bundle
from serving.control.champion import champion_of_ledger
from serving.control.controller_file import read_controller_file
from serving.control.kill_switch import hold_signal
from serving.control.start import ControlRequest, control, json_of, line_of, release, was_started
from serving.lines import Lines
from serving.predictions.start import ServeRequest, serve
from serving.session import Predictor
from serving.state_folder import StateFolder, state_folder

DISTRIBUTION = "assay-serving"
LARGEST_PORT = 65535


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the installed command. Exit codes: 0 done, 1 the job said no, 2 bad usage or input."""
    escape_what_python_says()
    code = RefusedError.exit_code
    try:
        code = run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # nobody reads it any more; Python would say so once more at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs one command.

    Returns:
        The exit code; 130 when stopped.
    """
    given = make_parser().parse_args(arguments)
    try:
        _require_values(sys.argv[1:] if arguments is None else arguments)
        code: int = given.command(given)
    except AssayError as error:
        return _failed(given, str(error), error.exit_code)
    except ModuleNotFoundError as error:
        return _failed(given, f"this needs the module {error.name}, which the light install lacks; install the whole "
                              "project", InputError.exit_code)
    except BrokenPipeError:
        raise
    except OSError as error:  # of a file or folder that nobody thought of
        return _failed(given, f"files must be readable and writable, got {error}", InputError.exit_code)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    return code


def _require_values(words: Sequence[str]) -> None:
    """Raises InputError where an option or an argument is empty: as a path it would be the current folder."""
    for before, word in pairwise(["", *words]):
        name, equals, value = word.partition("=")
        if not word or (name.startswith("--") and equals and not value):
            raise InputError(f"{name or before} must have a value, got an empty one; give one, or leave it out")


def _failed(given: argparse.Namespace, message: str, code: int) -> int:
    if given.json:
        _print({"error": message, "exit_code": code})
    else:
        print(f"error: {printable(message)}", file=sys.stderr)
    return code


def make_parser() -> argparse.ArgumentParser:
    """Options mean what they mean in the whole project's command."""
    parser = argparse.ArgumentParser(prog="assay", description="What stands beside a controller. Exit codes: 0 done, "
                                     "1 the job said no, 2 bad usage or input.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"{DISTRIBUTION} {_version()}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, job: Callable[[argparse.Namespace], int], summary: str,
                example: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=summary, description=summary, allow_abbrev=False,
                                   epilog=f"Example: assay {name} {example}")
        made.set_defaults(command=job)
        home = os.environ.get("ASSAY_HOME", "")
        made.add_argument("--home", type=_path, default=Path(home or ".assay"),
                          help="state folder or a copy of it; default: $ASSAY_HOME, or .assay here")
        made.add_argument("--ledger", type=_ledger,
                          help="promotion ledger: a file, or postgresql://user@host/database; default: "
                               "ledger/promotions.jsonl in the home")
        made.add_argument("--public-key", type=_path, help="key of the signer; default: keys/assay.pub in the home")
        made.add_argument("--json", action="store_true", help="print JSON instead of text")
        return made

    _add_control(command("control", _control,
                         "act on a workload with its proved policy: observe, check, decide, shield, act, log",
                         "--task autoscaling --workload nginx --controller controller.yaml --home state"))
    released = command("release", _release,
                       "set what a controller found before its first step, without a controller",
                       "--controller controller.yaml --actuator cgroup")
    released.add_argument("--controller", type=_path, required=True, help="controller file")
    released.add_argument("--actuator", required=True, help="what carried targets out: cgroup, kubernetes")
    checked = command("check", _check, "check a bundle: signature, digests, gates, and every leaf of its proof again",
                      "bundle --public-key assay.pub")
    checked.add_argument("bundle", type=_path, help="folder")
    checked.add_argument("--signed-only", action="store_true",
                         help="believe the signer that the proof is one: without the package onnx (extra `proofs`)")
    predicted = command("predict", _predict, "predict with the checked champion of a workload",
                        "--bundle bundle --public-key assay.pub --row '{\"psi_cpu_some\": 0.6, ...}'")
    predicted.add_argument("--workload", "-w", help="champion of this workload")
    predicted.add_argument("--bundle", type=_path, help="a bundle folder instead of the ledger's champion")
    predicted.add_argument("--task", default="performance", help="task of the champion")
    predicted.add_argument("--row", required=True, help="JSON object of the inputs, raw units; '-': from stdin")
    _add_serve(command("serve", _serve, "serve predictions of checked champions over HTTP (extra `serve`)",
                       "--home state --workload redis --port 8080"))
    return parser


def _add_control(parser: argparse.ArgumentParser) -> None:
    default = ControlRequest("", Path())
    add = parser.add_argument
    add("--workload", "-w", required=True, help="whose champion acts")
    add("--controller", type=_path, required=True, help="controller file: measurements, shield, waiting times")
    add("--task", help="task of the champion; default: the bundle's, or that of the workload's one champion")
    add("--actuator", default=default.actuator, help="what carries targets out: dry-run, cgroup, kubernetes, "
        "or the import path of a module; watch, with --shadow alone")
    add("--shadow", action="store_true", help="decide beside what sets it now, and set nothing")
    add("--every", type=float, help="seconds between two steps; default: as the policy was trained")
    add("--give-back", action=argparse.BooleanOptionalAction,
        help="at the end set what was found at the beginning; default: as the actuator does: control groups, clocks "
        "and senders do, Deployments do not")
    add("--leave", dest="give_back", action="store_false", help="the same as --no-give-back")
    add("--steps", type=_positive, help="end after so many; default: never")
    add("--bundle", type=_path, help="a bundle folder instead of the ledger's champion")
    add("--folder", type=_path, help="log and memory of this controller; default: controllers/<task>/<workload> in the "
                                    "state folder, shadow/<task>/<workload> with --shadow")
    add("--metrics-port", type=_port, help="serve /metrics for Prometheus there")
    add("--metrics-address", default=default.metrics_address, help="address that /metrics is served at")


def _add_serve(parser: argparse.ArgumentParser) -> None:
    default = ServeRequest()
    add = parser.add_argument
    add("--workload", "-w", dest="workloads", action="append", default=[],
        help="champion of this workload, as often as needed; default: all of the ledger")
    add("--task", help="task of the champions; default: all")
    add("--bundle", dest="bundles", type=_path, action="append", default=[],
        help="a bundle folder instead of the ledger's champions, as often as needed")
    add("--folder", type=_path, help="keeps the ledger and the champions there: after a restart an older ledger is "
                                     "refused, and what was served goes on while the real one is away")
    add("--extender", type=_path, help="file of a Kubernetes scheduler's extender: answers at /scheduler/prioritize "
                                       "and /scheduler/filter")
    add("--host", default=default.host, help="address to listen at; default: this machine alone")
    add("--port", type=_port_or_any, default=default.port, help="0: any that is free, which is printed")
    add("--max-body", type=_positive, default=default.max_body, help="largest body of a request, bytes")
    add("--max-rate", type=float, help="most requests a second; default: any number")
    add("--poll", type=float, default=default.poll, help="seconds between two looks at the ledger")
    add("--tls-certificate", type=_path, help="certificate (PEM) to answer over HTTPS with; one that is renewed in its "
                                              "place is taken over")
    add("--tls-key", type=_path, help="its private key (PEM, without a password)")
    add("--tls-client-ca", type=_path, help="answers only clients with a certificate of these issuers (PEM)")


def _serve(given: argparse.Namespace) -> int:
    state = _state(given)
    if given.workloads:
        require_in_ledger(state, given.task, *given.workloads)
    chosen = {name: getattr(given, name) for name in ServeRequest.__dataclass_fields__}
    request = ServeRequest(**{**chosen, "workloads": tuple(given.workloads), "bundles": tuple(given.bundles)})
    with Lines(sys.stdout) as lines:
        serve(request, state, lines)
    return 0


def _control(given: argparse.Namespace) -> int:
    hold_signal()
    state = _state(given)
    fields = ControlRequest.__dataclass_fields__.keys() - {"generic"}  # no policy ships with the light install
    request = ControlRequest(**{name: getattr(given, name) for name in fields})
    if request.bundle is None and not was_started(request, state.home):
        require_in_ledger(state, request.task, request.workload)
    with Lines(sys.stdout) as lines, Lines(sys.stderr) if given.json else nullcontext(lines) as notes:
        control(request, state, lambda record: lines(json_of(record) if given.json else line_of(record)), notes)
    return 0


def _release(given: argparse.Namespace) -> int:
    said = release(given.actuator, read_controller_file(given.controller, given.actuator),
                   tell=lambda line: print(printable(line), file=sys.stderr, flush=True))
    if given.json:
        _print({"released": said})
    else:
        print(printable(said))
    return 0


def _check(given: argparse.Namespace) -> int:
    if not given.bundle.is_dir():
        raise InputError(f"bundle must be a folder, got {given.bundle}")
    started = time.perf_counter()
    try:
        bundle = check_bundle(given.bundle, _state(given).public_key_path, deep=not given.signed_only)
    except RefusedError as error:
        if given.json:  # as the whole project's command answers
            _print({"accepted": False, "reason": str(error)})
            return error.exit_code
        raise
    seconds, contract = time.perf_counter() - started, bundle.contract
    leaves = None if given.signed_only else bundle.leaves
    if given.json:
        _print({"accepted": True, "task": contract.task, "workload": contract.workload, "sha256": bundle.sha256,
                "leaves": leaves, "statement": contract.specification.statement,
                "guarantee": contract.guarantee and contract.guarantee.statement, "seconds": seconds})
        return 0
    proof = "its proof not looked at" if leaves is None else f"leaf boxes proved again: {leaves}"
    loop = "" if contract.guarantee is None else f"\nClosed loop: {contract.guarantee.statement}"
    print(printable(f"accepted: {contract.task}, {contract.workload}; signature, digests and gates hold, {proof} "
                    f"({seconds:.2f} s)\n{contract.specification.statement}{loop}", "\n"))
    return 0


def _predict(given: argparse.Namespace) -> int:
    if (given.workload is None) == (given.bundle is None):
        raise InputError("either --workload or --bundle must be given")
    state = _state(given)
    bundle = (check_bundle(given.bundle, state.public_key_path) if given.bundle is not None
              else champion_of_ledger(state, given.task, given.workload))
    predictor = Predictor(bundle)
    prediction = predictor.predict(row_of(given.row))
    answers = {name: values[0] for name, values in prediction.columns.items()}
    if given.json:
        _print({"workload": bundle.contract.workload, **answers, "units": dict(prediction.units),
                "outside_box": list(prediction.outside_box), "bundle_sha256": predictor.sha256})
        return 0
    for name, value in answers.items():
        print(printable(f"{bundle.contract.workload}: {name} = {value:.4g} {prediction.units[name]}"))
    for name in prediction.outside_box:
        print(printable(f"  {name} was outside the proved box, and moved to its edge"))
    return 0


def row_of(text: str) -> dict[str, Any]:
    """The inputs that --row gives. Raises InputError."""
    row = sys.stdin.buffer.read() if text == "-" else os.fsencode(text)
    try:
        return parse_json(row, "row", InputError)
    except InputError as error:
        raise InputError(f"{error} (--row)") from error


def _state(given: argparse.Namespace) -> StateFolder:
    return state_folder(given.home, given.ledger, given.public_key)


def _positive(text: str) -> int:
    """Raises ValueError, which argparse turns into bad usage."""
    if (number := int(text)) < 1:
        raise ValueError
    return number


def _port(text: str) -> int:
    """Raises ValueError, as `_positive`."""
    if (port := _positive(text)) > LARGEST_PORT:
        raise ValueError
    return port


def _port_or_any(text: str) -> int:
    """Raises ValueError, as `_positive`."""
    return 0 if text == "0" else _port(text)


def _path(text: str) -> Path:
    """Raises ValueError, as `_positive`: no file has such a name."""
    if "\0" in text:
        raise ValueError
    return Path(text)


def _ledger(text: str) -> Path | str:
    """Raises ValueError, as `_positive`."""
    return text if text.startswith(LEDGER_DATABASE) else _path(text)


def _version() -> str:
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:  # run from the sources
        return "(not installed)"


def _print(value: Any) -> None:
    print(json.dumps(value, indent=1))
