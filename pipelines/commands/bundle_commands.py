"""`assay check` and `assay predict`: what a controller does with a bundle."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feature_store.errors import InputError, RefusedError
from feature_store.schema import METRICS
from models.reporting.formatting import count
from pipelines.commands.known_names import require_known
from pipelines.console import (
    ConfigOption,
    JsonOption,
    KeyOption,
    configuration_from,
    print_json,
    print_line,
    reported,
    working,
)

if TYPE_CHECKING:
    from models.configuration import Configuration
    from serving.session import Predictor


@reported
def check(
    bundle: Annotated[Path, typer.Argument(help="Folder of the bundle; or a proof that `assay verify --certificate` "
                                                "wrote, with --model and --specification.")],
    public_key: KeyOption = None,
    model: Annotated[Path | None, typer.Option(help="ONNX file that the proof is about.")] = None,
    specification: Annotated[Path | None, typer.Option("--specification", "-s", help="What the proof says.")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds in all for a proof; it is refused where they do not do.")
                       ] = 600.0,
    config: ConfigOption = None, json_output: JsonOption = False,
) -> None:
    """Check a bundle: signature, digests, gates, and every leaf of its proofs again, by an independent program.

    Needs nothing but the folder and the public key; of a proof about any ONNX file, that file and the property.
    Exit code 0: everything holds; 1: refused, with the reason.

    Example: assay check .assay/bundles/performance/redis/1

    Example: assay check proof.npz --model model.onnx --specification spec.yaml
    """
    if (model is None) != (specification is None):
        raise InputError("--model and --specification must be given together")
    if model is not None and specification is not None:
        _check_proof(bundle, model, specification, timeout, json_output)
        return
    from serving.bundle import check_bundle

    key = public_key or configuration_from(config).public_key_path
    started = time.perf_counter()
    if not bundle.is_dir():
        raise InputError(f"bundle must be a folder, got {bundle}; of a proof give --model and --specification too")
    try:
        with working("proving every leaf again", json_output):
            checked = check_bundle(bundle, key, deep=True)
    except RefusedError as error:
        if json_output:
            print_json({"accepted": False, "reason": str(error)})
            raise typer.Exit(1) from None
        raise
    seconds, contract = time.perf_counter() - started, checked.contract
    if json_output:
        print_json({"accepted": True, "task": contract.task, "workload": contract.workload, "sha256": checked.sha256,
                    "leaves": checked.leaves, "statement": contract.specification.statement,
                    "guarantee": None if contract.guarantee is None else contract.guarantee.statement,
                    "seconds": seconds})
        return
    print_line(f"accepted: {contract.task}, {contract.workload}; signature, digests and gates hold, "
               f"{count(checked.leaves, 'leaf box', 'leaf boxes')} proved again ({seconds:.2f} s)")
    print_line(contract.specification.statement)
    if contract.guarantee is not None:
        print_line(f"Closed loop, proved again: {contract.guarantee.statement}")


def _check_proof(proof: Path, model: Path, specification: Path, timeout: float, json_output: bool) -> None:
    from models.verification.language.amounts import asked
    from models.verification.proof_file import check_proof

    for path in (proof, model, specification):
        if not path.is_file():
            raise InputError(f"file must exist, got {path}")
    if not timeout > 0:
        raise InputError(f"timeout must be positive, got {timeout}")
    started = time.perf_counter()
    with working("proving every leaf again", json_output):
        checked = check_proof(proof, model, specification, timeout)
    seconds = time.perf_counter() - started
    if json_output:
        statement = checked.statement if checked.accepted else asked(checked.statement)
        print_json({"accepted": checked.accepted, "reason": checked.reason, "parts": checked.parts,
                    "leaves": checked.leaves, "statement": statement, "execution": checked.execution,
                    "seconds": seconds})
        raise typer.Exit(0 if checked.accepted else 1)
    if not checked.accepted:
        raise RefusedError(checked.reason)
    leaves, parts = count(checked.leaves, "leaf box", "leaf boxes"), count(checked.parts, "part")
    print_line(f"accepted: {leaves} in {parts} proved again ({seconds:.2f} s)")
    print_line(f"{checked.statement} {checked.execution}")


@reported
def predict(
    workload: Annotated[str | None, typer.Option("--workload", "-w", help="Champion of this workload.")] = None,
    bundle: Annotated[Path | None, typer.Option(help="A bundle folder instead of the registry.")] = None,
    task: Annotated[str, typer.Option(help="Task of the champion.")] = "performance",
    least_head: Annotated[str | None, typer.Option(
        help="Head that the ledger must hold, as `assay history` prints it; an older ledger is refused.")] = None,
    row: Annotated[str | None, typer.Option(help="JSON object of the inputs, raw units; '-': from stdin.")] = None,
    at: Annotated[str | None, typer.Option(help="'now': the metrics of this moment from --prometheus.")] = None,
    prometheus: Annotated[str | None, typer.Option(help="Address of a Prometheus server.")] = None,
    metric_map: Annotated[Path | None, typer.Option(help="Metric map; default: the node exporter's.")] = None,
    setting: Annotated[list[str] | None, typer.Option("--set", help="name=value of a configuration input.")] = None,
    window: Annotated[float, typer.Option(help="Seconds that the metrics are averaged over.")] = 60.0,
    public_key: KeyOption = None, config: ConfigOption = None, json_output: JsonOption = False,
) -> None:
    """Predict with the checked champion of a workload, from a row or from the live host.

    What the row does not give must come by --set. With --at now the metrics come from Prometheus; a configuration input
    that is not set then takes the middle of its proved range, and the answer says so.

    Example: assay predict --workload training --row '{"psi_cpu_some": 0.6, ...}' --set batch_size=24

    Example: assay predict --workload redis --at now --prometheus http://127.0.0.1:9090 --set connections=16
    """
    from pipelines.controller_command_line import row_of
    from serving.bundle import check_bundle
    from serving.session import Predictor

    if (workload is None) == (bundle is None):
        raise InputError("either --workload or --bundle must be given")
    if bundle is not None and least_head is not None:
        raise InputError("--least-head must be given with --workload: a bundle folder has no ledger")
    if (row is None) == (at is None):
        raise InputError("either --row or --at now must be given")
    given = None if row is None else row_of(row)
    if workload is not None:
        predictor = _champion(configuration_from(config), task, workload, json_output, least_head)
    else:  # whatever it is for: the answer says so
        assert bundle is not None
        predictor = Predictor(check_bundle(bundle, public_key or configuration_from(config).public_key_path))
    values = _live_values(at, prometheus, metric_map, window) if given is None else given
    contract = predictor.contract
    values = {name: value for name, value in values.items() if row is not None or name in contract.input_names}
    values |= _settings(setting or ())
    assumed = []
    for item in contract.inputs:
        if item.name not in values and row is None and item.name not in METRICS:
            middle = (item.minimum + item.maximum) / 2
            values[item.name] = middle if item.values is None else item.values[len(item.values) // 2]
            assumed.append(item.name)
    prediction = predictor.predict(values)
    answers = {name: values[0] for name, values in prediction.columns.items()}
    units = {"unit": prediction.unit} if len(answers) == 1 else {"units": dict(prediction.units)}
    result = {"workload": contract.workload, **answers, **units, "outside_box": list(prediction.outside_box),
              "assumed": assumed, "inputs": values, "bundle_sha256": predictor.sha256}
    if json_output:
        print_json(result)
        return
    for name, value in answers.items():
        print_line(f"{contract.workload}: {name} = {value:.4g} {prediction.units[name]}")
    for item in contract.inputs:
        notes = " (assumed: the middle of its range)" * (item.name in assumed)
        notes += f" (outside the proved box, moved to [{item.minimum:g}, {item.maximum:g}])" * (
            item.name in prediction.outside_box)
        print_line(f"  {item.name} = {values[item.name]:.4g} {item.unit}{notes}")


def _champion(configuration: "Configuration", task: str, workload: str, quiet: bool,
              least_head: str | None) -> "Predictor":
    from serving.ledger import Ledger
    from serving.session import Predictor

    with working("loading the champion", quiet):
        require_known(Ledger(configuration.ledger_path, configuration.public_key_path).standings(), task, workload)
        return Predictor.from_registry(configuration, task, workload, least_head=least_head)


def _live_values(at: str | None, url: str | None, metric_map: Path | None, window: float) -> dict[str, Any]:
    from feature_store.sources.metric_map import DEFAULT_PATH, read_metric_map
    from feature_store.sources.prometheus import PrometheusSource

    if at != "now":
        raise InputError(f"time must be now, got {at!r} (--at)")
    if not url:
        raise InputError("--prometheus must give the address of a server for --at now")
    return dict(PrometheusSource(url).read_now(read_metric_map(metric_map or DEFAULT_PATH), window))


def _settings(settings: Sequence[str]) -> dict[str, float]:
    values = {}
    for text in settings:
        name, _, value = text.partition("=")
        if name in values:
            raise InputError(f"setting must be given once, got {name!r:.80} twice (--set)")
        try:
            values[name] = float(value)
        except ValueError:
            raise InputError(f"setting must be name=number, got {text!r} (--set)") from None
    return values
