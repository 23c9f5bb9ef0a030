"""The steps as Kubeflow components: each reads artifacts, makes one call, writes artifacts.

The call lives in the step's own file, which knows no kfp: inside a running component kfp offers only its
runtime part, without the decorator. One image for all (deploy/Dockerfile); locally no image is used.
code_version and data_version are arguments only to separate the keys of the step cache.
"""

import os

from kfp import dsl

IMAGE = os.environ.get("ASSAY_IMAGE", "assay:0.1.0")


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def ingest(telemetry: str, mapping_yaml: str, data_version: str, code_version: str,
           samples: dsl.Output[dsl.Dataset]) -> None:
    """Reads telemetry into the canonical table. data_version and code_version only separate cache keys."""
    from pathlib import Path

    from components.ingest import run_ingest

    samples.metadata.update(run_ingest(telemetry, mapping_yaml, Path(samples.path)))


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def validate(task_yaml: str, workloads: list, code_version: str, samples: dsl.Input[dsl.Dataset],
             validated: dsl.Output[dsl.Dataset], data_docs: dsl.Output[dsl.Artifact]) -> None:
    """Great Expectations on every workload, with its HTML Data Docs."""
    from pathlib import Path

    from components.validate import run_validate

    run_validate(task_yaml, workloads, Path(samples.path), Path(validated.path), Path(data_docs.path))


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def featurize(task_yaml: str, workloads: list, seed: int, code_version: str, validated: dsl.Input[dsl.Dataset],
              features: dsl.Output[dsl.Dataset]) -> None:
    """Splits and scales each workload's telemetry."""
    from pathlib import Path

    from components.featurize import run_featurize

    run_featurize(task_yaml, workloads, seed, Path(validated.path), Path(features.path))


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def audit(task_yaml: str, code_version: str, features: dsl.Input[dsl.Dataset],
          audited: dsl.Output[dsl.Dataset]) -> None:
    """Asks the data whether they obey the specification."""
    from pathlib import Path

    from components.audit import run_audit

    run_audit(task_yaml, Path(features.path), Path(audited.path))


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def pretrain(task_yaml: str, seed: int, code_version: str, features: dsl.Input[dsl.Dataset],
             pretrained: dsl.Output[dsl.Model]) -> None:
    """Shared backbone over all workloads."""
    from pathlib import Path

    from components.pretrain import run_pretrain

    run_pretrain(task_yaml, seed, Path(features.path), Path(pretrained.path))


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def finetune(task_yaml: str, workload: str, seed: int, code_version: str, features: dsl.Input[dsl.Dataset],
             pretrained: dsl.Input[dsl.Model], learner: dsl.Output[dsl.Model]) -> None:
    """Trains, verifies, adds counterexamples and repeats, for one workload."""
    from pathlib import Path

    from components.finetune import run_finetune

    run_finetune(task_yaml, workload, seed, Path(features.path), Path(pretrained.path), Path(learner.path))


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def verify(task_yaml: str, workload: str, seed: int, code_version: str, features: dsl.Input[dsl.Dataset],
           learner: dsl.Input[dsl.Model], verified: dsl.Output[dsl.Model]) -> None:
    """Makes the file that ships, and proves or refutes its specification."""
    from pathlib import Path

    from components.verify import run_verify

    run_verify(task_yaml, workload, seed, code_version, Path(features.path), Path(learner.path), Path(verified.path))


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def export(task_yaml: str, workload: str, seed: int, code_version: str, command: str,
           features: dsl.Input[dsl.Dataset], verified: dsl.Input[dsl.Model], bundle: dsl.Output[dsl.Model]) -> None:
    """The bundle of one workload: what was proved, with its evidence."""
    from pathlib import Path

    from components.export import run_export

    run_export(task_yaml, workload, seed, code_version, command, Path(features.path), Path(verified.path),
               Path(bundle.path))


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
def report(workloads: list, run_name: str, features: dsl.Input[dsl.Dataset], gated: dsl.Input[dsl.Model],
           registered: dsl.Input[dsl.Artifact], page: dsl.Output[dsl.HTML]) -> None:
    """HTML reports of the run and of every version."""
    import shutil
    from pathlib import Path

    from components.report import run_report

    folder = Path(page.path + "-files")
    run_report(workloads, run_name, Path(features.path), Path(gated.path), Path(registered.path), folder)
    shutil.copyfile(folder / "index.html", page.path)
