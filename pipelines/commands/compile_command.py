"""`assay compile`: the train pipeline as YAML; and the values.yaml of all commands that send it to a cluster."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from feature_store.errors import InputError
from pipelines.console import JsonOption, print_json, print_line, reported, working

if TYPE_CHECKING:  # reads pydantic
    from pipelines.values_file import ValuesFile

ValuesOption = Annotated[
    Path | None, typer.Option(help="values.yaml of the cluster: volumes, signing key, resources of the pods.")]


def read_values(path: Path | None) -> "ValuesFile | None":
    """The values of a file; None without one. Raises InputError where it does not fit."""
    from feature_store.written.model import read_written
    from pipelines.values_file import ValuesFile

    return None if path is None else read_written(ValuesFile, path, "values")


@reported
def compile_pipeline(
    output: Annotated[Path, typer.Argument(help="Where the YAML goes.")] = Path("train.yaml"),
    image: Annotated[str | None, typer.Option(help="Image of the steps; overrules the values.")] = None,
    values: ValuesOption = None, json_output: JsonOption = False,
) -> None:
    """Compile the train pipeline to the YAML that a Kubeflow Pipelines cluster runs.

    Example: assay compile build/train.yaml --values deploy/values.yaml
    """
    from pipelines.compiled import compile_train

    if output.suffix not in (".yaml", ".yml"):
        raise InputError(f"output: expected a name that ends in .yaml, got {output}")
    with working("compiling the pipeline"):
        compile_train(output, image=image, values=read_values(values))
    print_json({"package": str(output)}) if json_output else print_line(f"wrote {output}")
