"""`assay serve`: predictions of checked champions over HTTP."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from pipelines.commands.known_names import require_in_ledger
from pipelines.console import ConfigOption, KeyOption, configuration_from, reported
from serving.lines import Lines


@reported
def serve(
    workload: Annotated[list[str] | None, typer.Option(
        "--workload", "-w", help="Champion of this workload, as often as needed; default: all of the ledger.")] = None,
    task: Annotated[str | None, typer.Option(help="Task of the champions; default: all.")] = None,
    bundle: Annotated[list[Path] | None, typer.Option(help="A bundle folder instead of the ledger's champions, as "
                                                           "often as needed.")] = None,
    public_key: KeyOption = None,
    folder: Annotated[Path | None, typer.Option(
        help="Keeps the ledger and the champions there: after a restart an older ledger is refused, and what was "
             "served goes on while the real one is away.")] = None,
    extender: Annotated[Path | None, typer.Option(
        help="File of a Kubernetes scheduler's extender: answers at /scheduler/prioritize and /scheduler/filter.")
        ] = None,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: any that is free, which is printed.")] = 8080,
    max_body: Annotated[int, typer.Option(min=1, help="Largest body of a request, bytes.")] = 4_000_000,
    max_rate: Annotated[float | None, typer.Option(help="Most requests a second; default: any number.")] = None,
    poll: Annotated[float, typer.Option(help="Seconds between two looks at the ledger.")] = 30.0,
    tls_certificate: Annotated[Path | None, typer.Option(
        help="Certificate (PEM) to answer over HTTPS with; one that is renewed in its place is taken over.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its private key (PEM, without a password).")] = None,
    tls_client_ca: Annotated[Path | None, typer.Option(
        help="Answers only clients with a certificate of these issuers (PEM).")] = None,
    config: ConfigOption = None,
) -> None:
    """Serve predictions of checked champions over HTTP: Open Inference Protocol v2, /metrics, /healthz.

    A new champion is taken over while it runs, a retired one is served no more. SIGTERM or Ctrl-C ends it, after what
    was asked is answered.

    Example: assay serve --workload redis --port 8080

    Example: assay serve --extender extender.yaml --host 0.0.0.0
    """
    from serving.predictions.start import ServeRequest
    from serving.predictions.start import serve as run_service

    configuration = configuration_from(config)
    if public_key is not None:
        configuration = replace(configuration, public_key_path=public_key)
    if workload:
        require_in_ledger(configuration, task, *workload)
    request = ServeRequest(task, tuple(workload or ()), tuple(bundle or ()), folder, extender, host, port, max_body,
                           max_rate, poll, tls_certificate, tls_key, tls_client_ca)
    with Lines(sys.stdout) as lines:
        run_service(request, configuration, lines)
