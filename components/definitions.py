"""The steps as Kubeflow components: each reads artifacts, makes one call, writes artifacts.

The call lives in the step's own file, which knows no kfp: inside a running component kfp offers only its
runtime part, without the decorator. One image for all (deploy/Dockerfile); locally no image is used.
data_version, and in the early steps code_version, are arguments only to separate the keys of the step cache.
"""

import os

from kfp import dsl

IMAGE = os.environ.get("ASSAY_IMAGE", "assay:0.1.0")


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def ingest(task_yaml: str, workloads: str, telemetry: str, mapping_yaml: str, data_version: str, code_version: str,
           samples: dsl.Output[dsl.Dataset]) -> None:
    """Reads telemetry into the canonical table. data_version and code_version only separate cache keys."""
    import json
    from pathlib import Path

    from components.ingest import run_ingest

    source = run_ingest(task_yaml, telemetry, mapping_yaml, Path(samples.path), json.loads(workloads))
    samples.metadata.update({name: source[name] for name in ("telemetry", "data_version", "rows", "workloads")})


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def validate(task_yaml: str, workloads: str, code_version: str, samples: dsl.Input[dsl.Dataset],
             validated: dsl.Output[dsl.Dataset], data_docs: dsl.Output[dsl.Artifact]) -> None:
    """Great Expectations on every workload of a shard, with its HTML Data Docs."""
    import json
    from pathlib import Path

    from components.validate import run_validate

    run_validate(task_yaml, json.loads(workloads), Path(samples.path), Path(validated.path), Path(data_docs.path))


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def featurize(task_yaml: str, workloads: str, seed: int, code_version: str, validated: dsl.Input[dsl.Dataset],
              features: dsl.Output[dsl.Dataset]) -> None:
    """Makes what each learner of a shard is trained and judged by."""
    import json
    from pathlib import Path

    from components.featurize import run_featurize

    run_featurize(task_yaml, json.loads(workloads), seed, Path(validated.path), Path(features.path))


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def audit(task_yaml: str, workloads: list, code_version: str, features: dsl.Input[list[dsl.Dataset]],
          audited: dsl.Output[dsl.Dataset]) -> None:
    """Puts the features of all shards together, and asks the data whether they obey the specification."""
    from pathlib import Path

    from components.audit import run_audit

    run_audit(task_yaml, workloads, [Path(shard.path) for shard in features], Path(audited.path))


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def pretrain(task_yaml: str, seed: int, code_version: str, features: dsl.Input[dsl.Dataset],
             pretrained: dsl.Output[dsl.Model]) -> None:
    """What the learners of all workloads start from, where the kind has such a thing."""
    from pathlib import Path

    from components.pretrain import run_pretrain

    run_pretrain(task_yaml, seed, code_version, Path(features.path), Path(pretrained.path))


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def finetune(task_yaml: str, workloads: str, seed: int, code_version: str, features: dsl.Input[dsl.Dataset],
             pretrained: dsl.Input[dsl.Model], learners: dsl.Output[dsl.Model]) -> None:
    """Trains the learners of a shard. workloads: a JSON list of names."""
    import json
    from pathlib import Path

    from components.finetune import forget_finished
    from components.isolation import run_isolated

    made_of: dict = {"task_yaml": task_yaml, "seed": seed, "code_version": code_version,
                     "features": Path(features.path), "pretrained": Path(pretrained.path)}
    run_isolated("finetune", json.loads(workloads), Path(learners.path), made_of)
    forget_finished(workloads=json.loads(workloads), **made_of)


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def verify(task_yaml: str, workloads: str, seed: int, code_version: str, features: dsl.Input[dsl.Dataset],
           learners: dsl.Input[dsl.Model], verified: dsl.Output[dsl.Model]) -> None:
    """Proves or refutes the specification of each learner of a shard."""
    import json
    from pathlib import Path

    from components.isolation import run_isolated

    run_isolated("verify", json.loads(workloads), Path(verified.path), {
        "task_yaml": task_yaml, "seed": seed, "code_version": code_version, "features": Path(features.path),
        "learner": Path(learners.path)})


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def export(task_yaml: str, workloads: str, seed: int, code_version: str, command: str,
           features: dsl.Input[dsl.Dataset], verified: dsl.Input[dsl.Model], bundles: dsl.Output[dsl.Model]) -> None:
    """The bundle of each workload of a shard: what was proved, with its evidence."""
    import json
    from pathlib import Path

    from components.isolation import run_isolated

    run_isolated("export", json.loads(workloads), Path(bundles.path), {
        "task_yaml": task_yaml, "seed": seed, "code_version": code_version, "command": command,
        "features": Path(features.path), "verified": Path(verified.path)})


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def gate(task_yaml: str, workloads: list, features: dsl.Input[dsl.Dataset], bundles: dsl.Input[list[dsl.Model]],
         gated: dsl.Output[dsl.Model]) -> bool:
    """Evaluates the promotion gates of every workload."""
    from pathlib import Path

    from components.gate import run_gate

    return run_gate(task_yaml, workloads, Path(features.path), [Path(b.path) for b in bundles], Path(gated.path))


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def register(workloads: list, telemetry: str, scheduled: bool, features: dsl.Input[dsl.Dataset],
             gated: dsl.Input[dsl.Model], registered: dsl.Output[dsl.Artifact]) -> None:
    """Registers the gated bundles through the promotion ledger."""
    from pathlib import Path

    from components.register import run_register

    run_register(workloads, telemetry, scheduled, Path(features.path), Path(gated.path), Path(registered.path))


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def pages(task_yaml: str, workloads: str, run_name: str, features: dsl.Input[dsl.Dataset],
          gated: dsl.Input[dsl.Model], registered: dsl.Input[dsl.Artifact], pages: dsl.Output[dsl.Artifact]) -> None:
    """HTML page of each version of a shard."""
    import json
    from pathlib import Path

    from components.pages import run_pages

    run_pages(task_yaml, json.loads(workloads), run_name, Path(features.path), Path(gated.path),
              Path(registered.path), Path(pages.path))


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def report(task_yaml: str, run_name: str, features: dsl.Input[dsl.Dataset], gated: dsl.Input[dsl.Model],
           registered: dsl.Input[dsl.Artifact], pages: dsl.Input[list[dsl.Artifact]],
           page: dsl.Output[dsl.HTML]) -> None:
    """HTML page of the run, with the pages of its versions beside it."""
    import shutil
    from pathlib import Path

    from components.report import run_report

    folder = Path(page.path + "-files")
    run_report(task_yaml, run_name, Path(features.path), Path(gated.path), Path(registered.path),
               [Path(shard.path) for shard in pages], folder)
    shutil.copyfile(folder / "index.html", page.path)
