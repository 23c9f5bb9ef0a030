"""The one module that talks to MLflow's registry. What is done with it is in serving/lifecycle.py.

Traps, met by running it: two processes on a fresh database fail in its migrations (it is initialised
under a lock); a version source `models:/m-...` is looked up through the global tracking URI;
`search_model_versions()` returns empty `.aliases`; version numbers begin again when a registered model
was deleted.
"""

import contextlib
import json
import logging
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas as pd
import requests

from feature_store.errors import AssayError, UnavailableError
from feature_store.names import is_sha256
from models.configuration import Configuration
from models.metrics import finite_number
from serving.bundle import Bundle, ProofChecker, write_folder
from serving.card import TICKET_TAG
from serving.contract import MODEL_FILE
from serving.ledger_heads import HEAD_TAG
from serving.lifecycle import Lifecycle
from serving.relocation import HOME_TAG, is_unrecorded, locked_database, require_own_home
from serving.store import StoredModel, StoredVersion, Upload

# Read when mlflow is imported.
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")

import mlflow
import mlflow.onnx
from mlflow.entities import Dataset, DatasetInput, InputTag, LoggedModelOutput, Metric
from mlflow.exceptions import MlflowException
from mlflow.models import ModelSignature
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository
from mlflow.types import ColSpec, Schema, TensorSpec

_BUNDLE = "bundle"
_SQLITE = "sqlite:///"
_SHA256_TAG = "assay.bundle_sha256"
_PAGE = 1000  # models a request, MLflow's limit
# Seconds for which the head tags of all models are taken as read: a run that registers a thousand models would else
# list a thousand models twice for each.
HEADS_SECONDS = 10.0
_NO_STAGE = (None, "None", "Archived")  # a version in none of these is one that tools may load as they load aliases
_S3_CLIENTS = ("boto3", "botocore")  # MLflow passes on what they raise; they need not be installed
# MLflow answers with the second code where an alias is not there.
_ABSENT = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")
_NO_ANSWER = ("TEMPORARILY_UNAVAILABLE", "UNAUTHENTICATED", "PERMISSION_DENIED")
_NO_ANSWER_STATUS = (401, 403, 408, 429)  # of HTTP, with all from 500 on


class Registry(Lifecycle):
    """MLflow's registry with the promotion ledger beside it. One per process is enough."""

    def __init__(
        self,
        configuration: Configuration,
        actor: str = "assay",
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        checker: ProofChecker | None = None,
    ) -> None:
        """Opens the database, making it where it is new.

        Args:
            configuration: parsed mlflow.yaml.
            actor: who is written beside every move.
            clock: current time, for the ledger.
            checker: independent checker of proofs, asked before signing; None: the project's.

        Raises:
            AssayError: the database or the tracking server cannot be opened.
        """
        super().__init__(configuration, MlflowStore(configuration), actor, clock, checker)


class MlflowStore:
    """Implements `serving.store.Store` with MLflow."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._heads: dict[str, str] | None = None
        self._heads_read = 0.0
        for name in ("alembic", "mlflow.store.db.utils"):  # forty lines of migrations on the first start
            logging.getLogger(name).setLevel(logging.WARNING)
        require_own_home(configuration)
        with self._alone(), store_errors("be reachable", configuration.tracking_uri):
            if configuration.tracking_uri.startswith(_SQLITE):
                Path(configuration.tracking_uri.removeprefix(_SQLITE)).parent.mkdir(
                    parents=True, exist_ok=True
                )
            self._client = mlflow.MlflowClient(configuration.tracking_uri, configuration.tracking_uri)
            self._client.search_registered_models(max_results=1)
            if is_unrecorded(configuration):
                self._record_home()

    def alias(self, model: str, alias: str) -> int | None:
        """See `serving.store.Store`."""
        with store_errors("give an alias", model):
            try:
                return int(self._client.get_model_version_by_alias(model, alias).version)
            except MlflowException as error:
                if error.error_code in _ABSENT:
                    return None
                raise

    def set_alias(self, model: str, alias: str, version: int | None) -> None:
        """See `serving.store.Store`."""
        with store_errors(f"take version {version} as {alias}", model):
            if version is None:
                self._client.delete_registered_model_alias(model, alias)
            else:
                self._client.set_registered_model_alias(model, alias, str(version))

    def head(self, model: str) -> str | None:
        """See `serving.store.Store`."""
        with store_errors("give its head tag", model):
            try:
                tags: dict[str, str] = self._client.get_registered_model(model).tags
                return tags.get(HEAD_TAG)
            except MlflowException as error:
                if error.error_code in _ABSENT:
                    return None
                raise

    def heads(self) -> dict[str, str]:
        """See `serving.store.Store`."""
        if self._heads is None or time.monotonic() - self._heads_read > HEADS_SECONDS:
            self._heads_read, self._heads = time.monotonic(), self._read_heads()
        return dict(self._heads)

    def _read_heads(self) -> dict[str, str]:
        with store_errors("list its head tags", self._configuration.tracking_uri):
            return {model.name: model.tags[HEAD_TAG] for model in self._listed(self._client.search_registered_models)
                    if HEAD_TAG in model.tags}

    def models(self) -> dict[str, StoredModel]:
        """See `serving.store.Store`."""
        with store_errors("list its models and versions", self._configuration.tracking_uri):
            versions: dict[str, dict[int, StoredVersion]] = {}
            for item in self._listed(self._client.search_model_versions):
                stage = "" if item.current_stage in _NO_STAGE else str(item.current_stage)
                versions.setdefault(item.name, {})[int(item.version)] = StoredVersion(
                    dict(item.tags), item.description or "", stage)
            return {model.name: StoredModel(model.tags.get(HEAD_TAG),
                                            {alias: int(version) for alias, version in model.aliases.items()},
                                            versions.get(model.name, {}))
                    for model in self._listed(self._client.search_registered_models)}

    def _listed(self, search: Callable[..., Any]) -> Iterator[Any]:
        """All of this project's that a search of models or versions finds, page by page."""
        token: str | None = ""
        while token is not None:
            page = search(max_results=_PAGE, page_token=token)
            yield from (item for item in page if self._configuration.is_model_name(item.name))
            token = page.token or None

    def set_tag(self, model: str, version: int, key: str, value: str | None) -> None:
        """See `serving.store.Store`."""
        with store_errors(f"take tag {key} of version {version}", model):
            if value is not None:
                self._client.set_model_version_tag(model, str(version), key, value)
            elif key in self._client.get_model_version(model, str(version)).tags:
                self._client.delete_model_version_tag(model, str(version), key)

    def set_description(self, model: str, version: int, text: str) -> None:
        """See `serving.store.Store`."""
        with store_errors(f"take the description of version {version}", model):
            self._client.update_model_version(model, str(version), text)

    def clear_stage(self, model: str, version: int) -> None:
        """See `serving.store.Store`."""
        with store_errors(f"take version {version} out of its stage", model), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # stages are deprecated, and can still be set
            self._client.transition_model_version_stage(model, str(version), "None")

    def has_version(self, model: str, version: int) -> bool:
        """See `serving.store.Store`."""
        with store_errors(f"say whether it has version {version}", model):
            try:
                self._client.get_model_version(model, str(version))
            except MlflowException as error:
                if error.error_code in _ABSENT:
                    return False
                raise
        return True

    def set_head(self, model: str, head: str) -> None:
        """See `serving.store.Store`."""
        with store_errors("take its head tag", model):
            self._client.set_registered_model_tag(model, HEAD_TAG, head)
        if self._heads is not None:
            self._heads[model] = head

    def upload(self, bundle: Bundle, run_id: str | None, ticket: str, data_path: Path | None) -> Upload:
        """See `serving.store.Store`."""
        tags = {TICKET_TAG: ticket}
        with store_errors("take a bundle", bundle.contract.workload), self._as_global():
            is_own = run_id is None
            if run_id is None:
                run_id = self._start_run(bundle, tags)
            self._log_data(run_id, _lineage(bundle, data_path))
            experiment_id = self._client.get_run(run_id).info.experiment_id
            named = {**tags, _SHA256_TAG: bundle.sha256}
            logged = self._client.create_logged_model(experiment_id, source_run_id=run_id, tags=named)
            with tempfile.TemporaryDirectory(prefix="assay-register-") as temporary:
                write_folder(bundle, Path(temporary) / _BUNDLE)
                self._client.log_model_artifacts(logged.model_id, str(Path(temporary) / _BUNDLE), _BUNDLE)
            _log_flavor(bundle, logged.model_id)
            self._client.log_outputs(run_id, models=[LoggedModelOutput(logged.model_id, step=0)])
            if is_own:
                self._client.set_terminated(run_id)
            return Upload(run_id, logged.model_uri, logged.artifact_location)

    @contextlib.contextmanager
    def fetched(self, location: str) -> Iterator[Path]:
        """See `serving.store.Store`."""
        with tempfile.TemporaryDirectory(prefix="assay-bundle-") as temporary:
            with store_errors("give a bundle", location):
                folder = self._download(location, _BUNDLE, temporary)
            yield folder

    def location(self, model: str, version: int) -> str:
        """See `serving.store.Store`."""
        with store_errors(f"have version {version}", model):
            location: str = self._client.get_model_version_download_uri(model, str(version))
            return location

    def served_model(self, location: str) -> bytes:
        """See `serving.store.Store`."""
        with tempfile.TemporaryDirectory(prefix="assay-model-") as temporary, store_errors("give a model", location):
            return self._download(location, MODEL_FILE, temporary).read_bytes()

    def put_signature(self, location: str, signature: Path) -> None:
        """See `serving.store.Store`."""
        with store_errors("take a signature", location):
            self._artifacts(location).log_artifact(str(signature), _BUNDLE)

    def copies(self, sha256: str) -> list[str]:
        """See `serving.store.Store`."""
        with store_errors("look for a bundle", sha256):
            experiments = [item.experiment_id for item in self._client.search_experiments()]
            logged_models = self._client.search_logged_models(experiments, f"tags.`{_SHA256_TAG}` = '{sha256}'")
            return [str(logged.artifact_location) for logged in logged_models]

    def create_version(
        self, model: str, upload: Upload, tags: Mapping[str, str], description: str, above: int
    ) -> int:
        """See `serving.store.Store`."""
        with store_errors("take a version", model), self._as_global():
            try:
                about = {key: tags[key] for key in ("task", "workload")}
                self._client.create_registered_model(model, tags=about)
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
            while True:
                made = self._client.create_model_version(
                    model, upload.source, upload.run_id, dict(tags), description=description,
                    model_id=upload.source.removeprefix("models:/"),  # a server refuses the source without it
                )
                if int(made.version) > above:
                    self._name_own_run(upload.run_id, tags, int(made.version))
                    return int(made.version)
                # Numbers begin again where someone deleted the registered model; the ledger's stay used.
                self._client.delete_model_version(model, str(made.version))

    def _name_own_run(self, run_id: str, tags: Mapping[str, str], version: int) -> None:
        """A run of this registration is named for its version; one that the caller gave keeps its name."""
        if self._client.get_run(run_id).data.tags.get(TICKET_TAG) == tags[TICKET_TAG]:
            self._client.update_run(run_id, name=f"{tags['task']}.{tags['workload']} version {version}")

    def tags(self, model: str) -> dict[int, dict[str, str]]:
        """See `serving.store.Store`."""
        with store_errors("list its versions", model):
            versions = self._client.search_model_versions(f"name = '{model}'")
            return {int(version.version): dict(version.tags) for version in versions}

    def discard(self, ticket: str, model: str, keep: Mapping[int, str]) -> None:
        """See `serving.store.Store`."""
        with store_errors("be cleaned up", model):
            versions = [
                version
                for version in self._client.search_model_versions(f"name = '{model}'")
                if version.tags.get(TICKET_TAG) == ticket
            ]
            if any(_is_kept(version, keep) for version in versions):
                return  # it was registered before its process died
            for version in versions:
                self._client.delete_model_version(model, version.version)
            experiments = [item.experiment_id for item in self._client.search_experiments()]
            filter_string = f"tags.`{TICKET_TAG}` = '{ticket}'"
            for logged in self._client.search_logged_models(experiments, filter_string):
                self._delete_artifacts(logged.artifact_location)
                self._client.delete_logged_model(logged.model_id)
            for run in self._client.search_runs(experiments, filter_string):
                self._client.set_tag(run.info.run_id, "assay.failed", "registration did not finish")
                self._client.set_terminated(run.info.run_id, "FAILED")

    def _delete_artifacts(self, location: str) -> None:
        repository = self._artifacts(location)
        repository.delete_artifacts()
        if isinstance(repository, LocalArtifactRepository):  # MLflow leaves the folder m-... around them
            with contextlib.suppress(OSError):  # not there, or something else lies in it
                Path(repository.artifact_dir).parent.rmdir()

    def _download(self, location: str, path: str, temporary: str) -> Path:
        repository = self._artifacts(location)
        # A local store answers with its own folder, without a copy.
        is_local = isinstance(repository, LocalArtifactRepository)
        try:
            return Path(repository.download_artifacts(path, None if is_local else temporary))
        except MlflowException:
            # It keeps the text alone of what became of each file. A store that is away says so once more.
            repository.list_artifacts(path)
            raise

    def _artifacts(self, location: str) -> Any:
        repository: Any = get_artifact_repository(location, self._configuration.tracking_uri)
        return repository

    def _start_run(self, bundle: Bundle, tags: Mapping[str, str]) -> str:
        label = f"{bundle.contract.task}.{bundle.contract.workload}"
        run_id: str = self._client.create_run(
            self._experiment_id(), tags=dict(tags), run_name=label
        ).info.run_id
        now_ms = int(time.time() * 1000)
        metrics = [
            Metric(key, number, now_ms, 0)
            for key, value in bundle.evidence["metrics"].items()
            if (number := finite_number(value)) is not None
        ]
        self._client.log_batch(run_id, metrics)
        return run_id

    def _log_data(self, run_id: str, data: DatasetInput) -> None:
        """Two processes that insert one dataset at once violate its key; other machines' are not held apart."""
        with self._alone():
            try:
                self._client.log_inputs(run_id, datasets=[data])
            except MlflowException:
                self._client.log_inputs(run_id, datasets=[data])  # it is there by now

    def _experiment_id(self) -> str:
        name = self._configuration.experiment
        with self._alone():
            experiment = self._client.get_experiment_by_name(name)
            if experiment is not None:
                return str(experiment.experiment_id)
            tags = {HOME_TAG: str(self._configuration.home)}
            try:
                return str(self._client.create_experiment(name, self._configuration.artifact_root, tags))
            except MlflowException as error:
                experiment = self._client.get_experiment_by_name(name)  # made by another machine just now
                if experiment is None:
                    raise error
                return str(experiment.experiment_id)

    def _record_home(self) -> None:
        """In an experiment that was made before homes were recorded."""
        experiment = self._client.get_experiment_by_name(self._configuration.experiment)
        if experiment is not None:
            self._client.set_experiment_tag(experiment.experiment_id, HOME_TAG, str(self._configuration.home))

    def _alone(self) -> AbstractContextManager[None]:
        """Holds this state folder's database for what MLflow does not do safely in two processes."""
        return locked_database(self._configuration.home)

    @contextlib.contextmanager
    def _as_global(self) -> Iterator[None]:
        """MLflow's fluent calls and the lookup of `models:/m-...` know only the global tracking URI."""
        before = mlflow.get_tracking_uri()
        mlflow.set_tracking_uri(self._configuration.tracking_uri)
        try:
            yield
        finally:
            mlflow.set_tracking_uri(before)


def _log_flavor(bundle: Bundle, model_id: str) -> None:
    """The model in MLflow's own format beside the bundle, for its UI and tools. Nothing of ours reads it."""
    contract = bundle.contract
    # by name, so that MLflow's tools put columns in order; its reader of ONNX files makes float32 of double
    inputs = Schema([ColSpec("double", item.name) for item in contract.inputs])
    output = TensorSpec(np.dtype(np.float32), (-1, len(contract.outputs)), contract.model.output)
    middle = {item.name: [(item.minimum + item.maximum) / 2] for item in contract.inputs}
    with warnings.catch_warnings():
        # Of MLflow's own code, when log_model first imports mlflow.pyfunc.
        warnings.filterwarnings("ignore", ".*Any type hint is inferred", UserWarning)
        # Of its way of saving the example: it compares names of columns with a range.
        warnings.filterwarnings("ignore", "Operation with range is deprecated")
        mlflow.onnx.log_model(
            onnx.load_model_from_string(bundle.model),
            model_id=model_id,
            save_as_external_data=False,
            onnx_execution_providers=["CPUExecutionProvider"],
            signature=ModelSignature(inputs, Schema([output])),
            input_example=pd.DataFrame(middle, dtype=np.float64),
            # Named, or MLflow starts a process to find out.
            pip_requirements=["onnx", "onnxruntime"],
        )


def _lineage(bundle: Bundle, data_path: Path | None) -> DatasetInput:
    contract = bundle.contract
    source = json.dumps({"uri": str(data_path) if data_path else f"assay:data/{contract.data_version}"})
    dataset = Dataset(
        name=f"{contract.task}.{contract.workload}",
        digest=contract.data_version[:36],  # MLflow's limit
        source_type="local" if data_path else "code",
        source=source,
        profile=json.dumps({"data_version": contract.data_version, "seed": contract.seed}),
    )
    return DatasetInput(dataset, tags=[InputTag("mlflow.data.context", "training")])


def _is_kept(version: Any, keep: Mapping[int, str]) -> bool:
    """Whether the ledger knows it. One that says another digest has a number that was used before someone deleted the
    registered model; one whose tag says none may be the ledger's.
    """
    digest = version.tags.get("bundle_sha256") or ""
    return int(version.version) in keep and (digest == keep[int(version.version)] or not is_sha256(digest))


@contextlib.contextmanager
def store_errors(rule: str, where: str) -> Iterator[None]:
    """MLflow's, the disk's and an object store's errors as ours: the caller cleans up after all of them alike.

    Raises:
        UnavailableError: a service gave no answer, or none that says anything about what was asked for.
        AssayError: any other.
    """
    try:
        yield
    except Exception as error:
        if not _of_object_store(error) and not isinstance(error, MlflowException | OSError):
            raise
        refused = isinstance(error, MlflowException) and error.error_code == "UNAUTHENTICATED"
        hint = "; are $MLFLOW_TRACKING_USERNAME and $MLFLOW_TRACKING_PASSWORD those of a user?" if refused else ""
        if not _is_unavailable(error):
            raise AssayError(f"registry must {rule}, got {error} ({where}){hint}") from error
        if isinstance(error.__context__, requests.exceptions.RetryError):  # it answered, with errors alone
            hint = "; is the database up that MLflow keeps its data in?"
        hint = hint or "; the same command goes on once it answers"
        raise UnavailableError(f"registry must {rule}, got {error} ({where}){hint}") from error


def _is_unavailable(error: BaseException) -> bool:
    if isinstance(error, requests.RequestException):
        return error.response is None or _says_nothing(error.response.status_code)
    if _of_object_store(error):
        answer = getattr(error, "response", {})  # those that are no answer to a request have none
        return _says_nothing(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 500))
    if isinstance(error, MlflowException) and error.error_code in _NO_ANSWER:
        return True
    return error.__context__ is not None and _is_unavailable(error.__context__)


def _says_nothing(status: int) -> bool:
    return status >= 500 or status in _NO_ANSWER_STATUS


def _of_object_store(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] in _S3_CLIENTS
