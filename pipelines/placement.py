"""Applies values.yaml to the tasks of the train pipeline, while it is compiled: where and as what their pods run.

kfp writes the result as the pipeline's second document, which Kubeflow alone reads: kfp.local ignores it.
"""

from typing import Any

from components.signing_key import SIGNING_KEY_VARIABLE
from components.tracking import CONFIGURATION_VARIABLE
from feature_store.errors import InputError
from pipelines.values_file import SIGNS, ResourceFields, StepFields, ValuesFile

SECRET_FOLDER = "/run/secrets/assay"  # the Secret, as it is mounted
KEY_FOLDER = "/run/assay"  # in memory; where the cluster's mlflow.yaml has its private key
CONFIGURATION_FOLDER = "/etc/assay"
POD_LABEL = ("app.kubernetes.io/part-of", "assay")  # by which deploy/kustomize lets steps through to MLflow
_BACKOFF = {"backoff_duration": "60s", "backoff_factor": 2.0, "backoff_max_duration": "600s"}


def place(task: Any, values: ValuesFile) -> None:
    """Gives a task (kfp's `PipelineTask`) all that the values say of its step.

    Raises:
        InputError: kfp-kubernetes is not installed.
    """
    try:
        from kfp import kubernetes
    except ImportError:
        raise InputError("values: expected kfp-kubernetes to be installed, got none; "
                         "pip install 'assay[cluster]' (--values)") from None
    name = task.component_spec.name
    _mount(kubernetes, task, values)
    if name == SIGNS:
        kubernetes.use_secret_as_volume(task, values.signing_key.secret, SECRET_FOLDER)
        kubernetes.empty_dir_mount(task, "signing-key", KEY_FOLDER, medium="Memory", size_limit="1Mi")
        task.set_env_variable(SIGNING_KEY_VARIABLE, f"{SECRET_FOLDER}/{values.signing_key.file}")
    for entry in values.secrets:
        if name in entry.steps:
            for variable, key in entry.variables.items():  # one by one, as kfp takes a key once for each call
                kubernetes.use_secret_as_env(task, entry.secret, {key: variable})
    kubernetes.add_pod_label(task, *POD_LABEL)
    if values.user:
        kubernetes.set_security_context(task, values.user.id, values.user.group, run_as_non_root=True)
    step = values.step(name)
    _set_resources(task, step.requests, "request")
    _set_resources(task, step.limits, "limit")
    if step.retries:
        task.set_retry(step.retries, **_BACKOFF)
    _schedule(kubernetes, task, step)


def _mount(kubernetes: Any, task: Any, values: ValuesFile) -> None:
    for volume in (values.state, *values.volumes):
        kubernetes.mount_pvc(task, volume.claim, volume.mount_path)
    task.set_env_variable("ASSAY_HOME", values.state.mount_path)
    kubernetes.use_config_map_as_volume(task, values.configuration, CONFIGURATION_FOLDER)
    task.set_env_variable(CONFIGURATION_VARIABLE, f"{CONFIGURATION_FOLDER}/mlflow.yaml")


def _set_resources(task: Any, resources: ResourceFields, which: str) -> None:
    if resources.cpu:
        getattr(task, f"set_cpu_{which}")(resources.cpu)
    if resources.memory:
        getattr(task, f"set_memory_{which}")(resources.memory)


def _schedule(kubernetes: Any, task: Any, step: StepFields) -> None:
    if step.timeout_s:
        kubernetes.set_timeout(task, step.timeout_s)
    for label, value in (step.node_selector or {}).items():
        kubernetes.add_node_selector(task, label, value)
    for toleration in step.tolerations or ():
        kubernetes.add_toleration(task, **toleration.model_dump())
