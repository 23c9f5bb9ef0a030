"""The `train` pipeline: recorded telemetry in, proved and gated models in the registry out.

The same compiled YAML runs locally (kfp.local) and on a cluster. Three flat fan-outs over shards of the workloads; a
workload that fails travels on as a failure and does not sink the others. The first, over `readers`, is of one shard but
where telemetry is a data set that is cut by workload: there each reads its own part. Steps whose result must not be
older than the run (verify, export, gate, register, pages, report) are never cached; the others are cached by
code_version and data_version, which is what makes a run resumable after a kill. No step is retried, but on a cluster as
its values.yaml says (pipelines/values_file.py).
"""

from collections.abc import Callable
from typing import Any

from kfp import dsl

from components.definitions import (
    audit,
    export,
    featurize,
    finetune,
    gate,
    ingest,
    pages,
    pretrain,
    register,
    report,
    validate,
    verify,
)


def train_pipeline(parallelism: int, settle: Callable[[dsl.PipelineTask], None] | None = None,
                   artifacts: str | None = None) -> Any:
    """The pipeline; kfp fixes when it is compiled how many shards are at work at once.

    Args:
        parallelism: shards at work at once.
        settle: is given each step's task: image, volumes, resources.
        artifacts: object store of what steps hand on; None: the cluster's.
    """
    @dsl.pipeline(name="train", description="Meta-pretrain, fine-tune, verify, gate and register learned controllers.",
                  pipeline_root=artifacts)
    def train(
        task_yaml: str,
        workloads: list,
        shards: list,
        readers: list,
        telemetry: str,
        data_version: str,
        code_version: str,
        mapping_yaml: str = "",
        seed: int = 0,
        run_name: str = "train",
        command: str = "",
        scheduled: bool = False,
    ) -> None:
        """shards, readers: each a JSON list of names of workloads; together all of `workloads`.

        (ingest -> validate -> featurize) -> audit -> pretrain -> (finetune -> verify -> export) -> gate -> register ->
        pages -> report.
        """
        with dsl.ParallelFor(items=readers, name="readers", parallelism=parallelism) as reader:
            ingested = ingest(task_yaml=task_yaml, workloads=reader, telemetry=telemetry, mapping_yaml=mapping_yaml,
                              data_version=data_version, code_version=code_version)
            validated = validate(task_yaml=task_yaml, workloads=reader, code_version=code_version,
                                 samples=ingested.outputs["samples"])
            featurized = featurize(task_yaml=task_yaml, workloads=reader, seed=seed, code_version=code_version,
                                   validated=validated.outputs["validated"])
        audited = audit(task_yaml=task_yaml, workloads=workloads, code_version=code_version,
                        features=dsl.Collected(featurized.outputs["features"]))
        features = audited.outputs["audited"]
        pretrained = pretrain(task_yaml=task_yaml, seed=seed, code_version=code_version, features=features)

        with dsl.ParallelFor(items=shards, name="shards", parallelism=parallelism) as shard:
            finetuned = finetune(task_yaml=task_yaml, workloads=shard, seed=seed, code_version=code_version,
                                 features=features, pretrained=pretrained.outputs["pretrained"])
            verified = verify(task_yaml=task_yaml, workloads=shard, seed=seed, code_version=code_version,
                              features=features, learners=finetuned.outputs["learners"])
            exported = export(task_yaml=task_yaml, workloads=shard, seed=seed, code_version=code_version,
                              command=command, features=features, verified=verified.outputs["verified"])

        gated = gate(task_yaml=task_yaml, workloads=workloads, features=features,
                     bundles=dsl.Collected(exported.outputs["bundles"]))
        registered = register(workloads=workloads, telemetry=telemetry, scheduled=scheduled,
                              features=features, gated=gated.outputs["gated"])
        with dsl.ParallelFor(items=shards, name="pages", parallelism=parallelism) as shard:
            shown = pages(task_yaml=task_yaml, workloads=shard, run_name=run_name, features=features,
                          gated=gated.outputs["gated"], registered=registered.outputs["registered"])

        reported = report(task_yaml=task_yaml, run_name=run_name, features=features, gated=gated.outputs["gated"],
                          registered=registered.outputs["registered"], pages=dsl.Collected(shown.outputs["pages"]))
        uncached = (verified, exported, gated, registered, shown, reported)
        for task in uncached:
            task.set_caching_options(False)
        if settle:
            for task in (ingested, validated, featurized, audited, pretrained, finetuned, *uncached):
                settle(task)

    return train
