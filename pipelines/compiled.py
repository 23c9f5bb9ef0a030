"""Compiles the `train` pipeline to the YAML that both kfp.local and a cluster execute."""

from pathlib import Path


def compile_train(path: Path, parallelism: int = 2) -> Path:
    """Writes the compiled pipeline to `path` (a temporary name first) and returns it.

    Args:
        path: of the YAML.
        parallelism: shards at work at once.
    """
    from kfp import compiler

    from pipelines.train import train_pipeline

    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.tmp.yaml")
    compiler.Compiler().compile(train_pipeline(parallelism), str(temporary))
    temporary.replace(path)
    return path
