"""The file of `assay compile --values`: what a cluster's administrator says about the pods of the steps.

    image: registry.example/assay:0.1.0
    state: {claim: assay-state}
    configuration: assay-configuration
    signing_key: {secret: assay-signing-key}
    every_step:
      requests: {cpu: "1", memory: 2Gi}
      limits: {cpu: "2", memory: 4Gi}
    steps:
      finetune: {limits: {cpu: "8", memory: 16Gi}, timeout_s: 21600}

pipelines/placement.py applies it; deploy/values.yaml is a whole one.
"""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from feature_store.errors import nearest
from feature_store.written.field_errors import FieldError
from feature_store.written.fields import PositiveWholeNumber, Text, WholeNumber
from feature_store.written.model import ListOf, Written

# In the order of the pipeline. Whether a pod of the step may be started again by itself after it failed:
REPEATABLE = {
    "ingest": True, "validate": True, "featurize": True, "audit": True,  # write their own output alone, over it
    "pretrain": True, "finetune": True, "verify": True, "export": True,  # the same; finished learners are taken again
    "gate": True,  # reads ledger and registry
    # Appends to the ledger and signs. Where a node is lost, its pod may still run while a second one begins, and a lock
    # on a network volume does not always hold between nodes.
    "register": False,
    "pages": True, "report": True,  # write the same files and the same metrics of the same run again
}
SIGNS = "register"
REACH_SERVICES = ("ingest", "gate", "register", "pages")  # telemetry's store; MLflow, its artifacts, the ledger's table

# what pipelines/placement.py sets, and the image (deploy/Dockerfile)
_SET_BY_US = re.compile("ASSAY_.*|HOME|MLFLOW_DISABLE_TELEMETRY|ORT_DISABLE_TELEMETRY|GX_ANALYTICS_ENABLED")
_VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_CPU = re.compile(r"\d+m|\d*\.?\d+")
_MEMORY = re.compile(r"(\d+)([EPTGMK]i?)?")  # what kfp takes
_POWERS = {unit: power for power, unit in enumerate("KMGTPE", 1)}


def _cpu(text: str) -> str:
    if not _CPU.fullmatch(text):
        raise ValueError(f"expected cores (\"2\", \"0.5\") or thousandths of them (\"500m\"), got {text!r}")
    return text


def _memory(text: str) -> str:
    if not _MEMORY.fullmatch(text):
        raise ValueError(f"expected bytes, or a whole number of K, M, G, T, P, E or Ki to Ei, got {text!r}")
    return text


def cores(text: str) -> float:
    """"500m" -> 0.5."""
    return float(text[:-1]) / 1000 if text.endswith("m") else float(text)


def memory_bytes(text: str) -> int:
    """"2Gi" -> 2147483648."""
    number, unit = re.fullmatch(_MEMORY, text).groups()  # type: ignore[union-attr]  # checked when it was read
    return int(number) * ((1024 if unit.endswith("i") else 1000) ** _POWERS[unit[0]] if unit else 1)


def _absolute(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError(f"expected an absolute path, got {path!r}")
    return path


AbsolutePath = Annotated[str, AfterValidator(_absolute)]


class ResourceFields(Written):
    """CPU and memory of one container."""

    cpu: Annotated[str, AfterValidator(_cpu)] | None = Field(
        default=None, description='Cores ("2") or thousandths of them ("500m")')
    memory: Annotated[str, AfterValidator(_memory)] | None = Field(
        default=None, description="Bytes, with a unit as Kubernetes writes it (`2Gi`)")


class TolerationFields(Written):
    """A taint of nodes that the pods tolerate, as Kubernetes writes it."""

    key: Text | None = Field(default=None, description="Key of the taint; default: all keys")
    operator: Literal["Equal", "Exists"] = Field(default="Equal", description="`Exists`: whatever the value")
    value: Text | None = Field(default=None, description="Value of the taint")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="Effect of the taint; default: all effects")

    @model_validator(mode="after")
    def _is_one_that_kubernetes_takes(self) -> "TolerationFields":
        if self.operator == "Equal" and self.key is None:
            raise FieldError(["key"], "expected a key, or `operator: Exists` for all of them, got none")
        if self.operator == "Exists" and self.value is not None:
            raise FieldError(["value"], f"expected none beside `operator: Exists`, got {self.value!r}")
        return self


class StepFields(Written):
    """The pods of a step."""

    requests: ResourceFields = Field(default=ResourceFields(), description="What a node must have free")
    limits: ResourceFields = Field(default=ResourceFields(), description="What it is stopped or slowed down at")
    timeout_s: PositiveWholeNumber | None = Field(
        default=None, json_schema_extra={"unit": "s"}, description="After which a pod is stopped; default: never")
    retries: WholeNumber | None = Field(
        default=None, description="How often a pod that failed is started again; `register` never is")
    node_selector: dict[str, str] | None = Field(default=None, description="Labels that a node must have")
    tolerations: ListOf[TolerationFields] | None = Field(default=None, description="Taints that the pods tolerate")

    def over(self, other: "StepFields") -> "StepFields":
        """These fields where they are given, else the other's; a request or limit by its own."""
        own = {name: getattr(self, name) for name in self.model_fields_set}
        for name in {"requests", "limits"} & own.keys():
            given = {each: getattr(own[name], each) for each in own[name].model_fields_set}
            own[name] = getattr(other, name).model_copy(update=given)
        return other.model_copy(update=own)


class VolumeFields(Written):
    """A volume of all steps."""

    claim: Text = Field(description="PersistentVolumeClaim")
    mount_path: AbsolutePath = Field(description="Where it is seen")


class StateFields(VolumeFields):
    """That of the state folder."""

    claim: Text = Field(description="PersistentVolumeClaim, ReadWriteMany where steps run on several nodes")
    mount_path: AbsolutePath = Field(default="/var/lib/assay", description="Where it is seen; the image's $ASSAY_HOME")


class SigningKeyFields(Written):
    """The private key, which the step `register` alone sees."""

    secret: Text = Field(description="Kubernetes Secret")
    file: Text = Field(default="assay.key", description="Its key that holds the PEM file")


class SecretFields(Written):
    """A Kubernetes Secret of which steps get variables of their environment."""

    secret: Text = Field(description="Kubernetes Secret; not that of the signing key")
    variables: dict[str, Text] = Field(description="The Secret's keys, each by the name of the variable that holds it")
    steps: ListOf[Text] = Field(default=REACH_SERVICES, description="Steps that get them; default: those that reach "
                                                                    "object stores, MLflow or the ledger's table")


class UserFields(Written):
    """Whom the steps run as."""

    id: PositiveWholeNumber = Field(description="User; not root")
    group: PositiveWholeNumber = Field(description="Group, which must be able to write to the volumes")


class ValuesFile(Written):
    """values.yaml."""

    image: Text | None = Field(default=None, description="Image of all steps; `--image` overrules it; default: "
                                                         "$ASSAY_IMAGE, else assay:0.1.0")
    service_account: Text | None = Field(
        default=None, description="Of the runs that `assay submit --values` and `assay schedule create --values` make; "
                                  "default: the cluster's, which can read every Secret of the namespace")
    state: StateFields = Field(description="Volume of the state folder: ledger, public key, bundles, learners")
    artifacts: Text | None = Field(
        default=None, description="Object store of what steps hand on (`s3://bucket/folder`); default: the cluster's")
    configuration: Text = Field(description="ConfigMap with the cluster's `mlflow.yaml`; its `keys.private` lies in "
                                            "/run/assay, which `register` alone has")
    signing_key: SigningKeyFields = Field(description="The signing key, of a Secret")
    secrets: ListOf[SecretFields] = Field(
        default=(), description="Variables from Secrets: `AWS_*`, `PGPASSWORD`, `MLFLOW_TRACKING_*`")
    volumes: ListOf[VolumeFields] = Field(default=(), description="Further volumes of all steps, of telemetry say")
    user: UserFields | None = Field(default=None, description="Whom steps run as; default: the image's user")
    every_step: StepFields = Field(default=StepFields(), description="What holds of all steps")
    steps: dict[str, StepFields] = Field(
        default={}, description="What holds of one step, by its name: " + ", ".join(f"`{name}`" for name in REPEATABLE))

    def step(self, name: str) -> StepFields:
        """All that holds of one step."""
        fields = self.steps.get(name, StepFields()).over(self.every_step)
        return fields if REPEATABLE[name] else fields.model_copy(update={"retries": None})

    @model_validator(mode="after")
    def _fits_together(self) -> "ValuesFile":
        for name, fields in self.steps.items():
            if name not in REPEATABLE:
                raise FieldError(["steps", name], f"unknown step; {nearest(name, REPEATABLE)}")
            if fields.retries and not REPEATABLE[name]:
                raise FieldError(["steps", name, "retries"], f"expected none, for {name} writes to the ledger, which "
                                                             f"two at once may break, got {fields.retries}")
        for name in REPEATABLE:
            self._refuse_request_above_limit(name)
        self._check_secrets()
        return self

    def _check_secrets(self) -> None:
        given: set[tuple[str, str]] = set()
        for index, entry in enumerate(self.secrets):
            if entry.secret == self.signing_key.secret:
                raise FieldError(["secrets", index, "secret"], "expected another Secret than that of the signing key, "
                                                               f"which {SIGNS} alone sees, got {entry.secret!r}")
            for place, step in enumerate(entry.steps):
                if step not in REPEATABLE:
                    raise FieldError(["secrets", index, "steps", place], f"unknown step; {nearest(step, REPEATABLE)}")
            for variable in entry.variables:
                where: list[str | int] = ["secrets", index, "variables", variable]
                if not _VARIABLE.fullmatch(variable):
                    raise FieldError(where, f"expected letters, digits and _, no digit in front, got {variable!r}")
                if _SET_BY_US.fullmatch(variable):
                    raise FieldError(where, f"expected a variable that Assay does not set itself, got {variable!r}")
                for step in dict.fromkeys(entry.steps):
                    if (step, variable) in given:
                        raise FieldError(where, f"expected one Secret to give it to {step}, got two")
                    given.add((step, variable))

    def _refuse_request_above_limit(self, name: str) -> None:
        step = self.step(name)
        where = ["steps", name] if name in self.steps else ["every_step"]
        for resource, value in (("cpu", cores), ("memory", memory_bytes)):
            request, limit = getattr(step.requests, resource), getattr(step.limits, resource)
            if request and limit and value(request) > value(limit):
                raise FieldError(where, f"expected a {resource} request up to the limit of {limit}, got {request}")
