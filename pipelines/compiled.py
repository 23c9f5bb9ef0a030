"""Compiles the `train` pipeline to the YAML that both kfp.local and a cluster execute."""

from pathlib import Path

from feature_store.whole_files import whole_file


def compile_train(path: Path) -> Path:
    """Writes the compiled pipeline whole to `path` and returns it."""
    from kfp import compiler

    from pipelines.train import train

    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as new:
        compiler.Compiler().compile(train, str(new))
    return path
