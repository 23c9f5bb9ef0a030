"""Compiles the `train` pipeline to the YAML that both kfp.local and a cluster execute."""

from pathlib import Path


def compile_train(path: Path) -> Path:
    """Writes the compiled pipeline to `path` (a temporary name first) and returns it."""
    from kfp import compiler

    from pipelines.train import train

    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.tmp.yaml")
    compiler.Compiler().compile(train, str(temporary))
    temporary.replace(path)
    return path
