"""Compiles the `train` pipeline to the YAML that both kfp.local and a cluster execute."""

from pathlib import Path
from typing import Any

from feature_store.whole_files import whole_file
from pipelines.values_file import ValuesFile


def compile_train(path: Path, parallelism: int = 2, image: str | None = None, values: ValuesFile | None = None) -> Path:
    """Writes the compiled pipeline whole to `path` and returns it.

    Args:
        path: of the YAML.
        parallelism: shards at work at once.
        image: of all steps; None: that of the values, else of components/definitions.py.
        values: what a cluster's administrator says of the pods.

    Raises:
        InputError: the values need kfp-kubernetes, which is not installed.
    """
    from kfp import compiler

    from pipelines.train import train_pipeline

    image = image or (values.image if values else None)

    def settle(task: Any) -> None:
        if image:
            task.set_container_image(image)
        if values:
            from pipelines.placement import place

            place(task, values)

    pipeline = train_pipeline(parallelism, settle, values.artifacts if values else None)
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as new:
        compiler.Compiler().compile(pipeline, str(new))
    return path
