"""A compiled pipeline on its way to a cluster: read, its arguments checked, its caching taken out.

Stands between `assay compile`, which writes the YAML, and pipelines/cluster.py, which sends it. Checked
here and not by the server, because the server names a wrong argument only after an experiment was made for
it.

Caching is taken out of EVERY task. `kfp.Client`'s own `enable_caching=False` reaches only the tasks of the
root DAG (kfp 2.17.0, client/client.py, `_override_caching_options`): whatever stands in a loop or a condition
stays cached.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feature_store.errors import InputError, nearest

# PipelineSpec's parameter types (kfp_pipeline_spec, pipeline_spec.proto, ParameterType.ParameterTypeEnum).
_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "STRING": (str,),
    "NUMBER_INTEGER": (int,),
    "NUMBER_DOUBLE": (int, float),
    "BOOLEAN": (bool,),
    "LIST": (list,),
    "STRUCT": (dict,),
}


@dataclass(frozen=True)
class PipelinePackage:
    """A compiled pipeline.

    Attributes:
        path: the file it was read from.
        name: the pipeline's name.
        parameters: its input parameters, name to definition (`parameterType`, `defaultValue`).
        documents: the YAML documents: the pipeline, and perhaps a platform document after it.
    """

    path: Path
    name: str
    parameters: Mapping[str, Mapping[str, Any]]
    documents: tuple[Mapping[str, Any], ...]


def read_package(path: Path) -> PipelinePackage:
    """Read a pipeline as the KFP compiler writes it.

    Raises:
        InputError: the file is missing, no YAML, or no compiled pipeline.
    """
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        documents = tuple(document for document in yaml.safe_load_all(text) if document is not None)
    except OSError as error:
        raise InputError(f"pipeline package must be a readable file, got {error.strerror} ({path})") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        first_line = str(error).split("\n")[0]
        raise InputError(f"pipeline package must be YAML, got: {first_line} ({path})") from None
    pipeline = documents[0] if documents else None
    if not isinstance(pipeline, dict) or not {"root", "pipelineInfo"} <= pipeline.keys():
        raise InputError(
            f"pipeline package must be a compiled KFP pipeline, got no root or pipelineInfo in it ({path}); "
            "write one with `assay compile`"
        )
    parameters = pipeline["root"].get("inputDefinitions", {}).get("parameters", {})
    return PipelinePackage(path, pipeline["pipelineInfo"]["name"], parameters, documents)


def check_arguments(package: PipelinePackage, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, if the pipeline takes them.

    Raises:
        InputError: an unknown parameter, a missing one without default, or a value of another type.
    """
    for name, value in arguments.items():
        if name not in package.parameters:
            raise InputError(
                f"pipeline argument must be a parameter of {package.name}, got {name!r} ({package.path}); "
                f"{nearest(name, package.parameters)}"
            )
        expected = package.parameters[name].get("parameterType", "")
        types = _PYTHON_TYPES.get(expected, (object,))
        if not isinstance(value, types) or (
            isinstance(value, bool) and bool not in types and object not in types
        ):
            raise InputError(f"pipeline argument {name} must be a {expected}, got {value!r} ({package.path})")
    missing = [
        name
        for name, definition in package.parameters.items()
        if name not in arguments and "defaultValue" not in definition and not definition.get("isOptional")
    ]
    if missing:
        raise InputError(
            "pipeline arguments must hold every parameter without default, got none for "
            f"{', '.join(missing)} ({package.path})"
        )
    return dict(arguments)


def without_caching(package: PipelinePackage) -> PipelinePackage:
    """The same pipeline, with caching off in every task at every depth."""
    documents = copy.deepcopy(package.documents)
    for task in _tasks(documents[0]):
        # What `set_caching_options(False)` compiles to. A task that is a DAG itself has no such field.
        if "cachingOptions" in task:
            task["cachingOptions"] = {}
    return PipelinePackage(package.path, package.name, package.parameters, documents)


def write_package(package: PipelinePackage, path: Path) -> None:
    """Write the pipeline as YAML, for `kfp.Client` to read."""
    import yaml

    path.write_text(yaml.safe_dump_all(package.documents, sort_keys=False), encoding="utf-8")


def _tasks(pipeline: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """All tasks: of the root and of every component that is a DAG (loops, conditions, nested pipelines)."""
    for component in (pipeline["root"], *pipeline.get("components", {}).values()):
        yield from component.get("dag", {}).get("tasks", {}).values()
