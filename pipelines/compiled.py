"""Compiles the `train` pipeline to the YAML that both kfp.local and a cluster execute."""

from pathlib import Path

from feature_store.whole_files import whole_file


def compile_train(path: Path, parallelism: int = 2) -> Path:
    """Writes the compiled pipeline whole to `path` and returns it.

    Args:
        path: of the YAML.
        parallelism: shards at work at once.
    """
    from kfp import compiler

    from pipelines.train import train_pipeline

    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as new:
        compiler.Compiler().compile(train_pipeline(parallelism), str(new))
    return path
