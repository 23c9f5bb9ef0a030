"""Whether a bundle's model is that of a version before. Reads, changes nothing.

    the same model, encoder and promise as a registered version,   nothing new: `register` makes no version of it
    byte for byte; or no guarantee of the closed loop this time
    a model that computes what a version did which a person took   no comparison brings it back, whatever else stands in
    out: retired, or rolled back from                              its file (model_function.py)

Tags of the store may be changed by anyone. They say where to look, and keep a retired model out where its bundle is
lost; that a model is a registered one's say the signed bundles alone.
"""

from collections.abc import Mapping

from feature_store.errors import AssayError, UnavailableError
from serving.bundle import Bundle
from serving.card import FUNCTION_TAG
from serving.contract import ENCODER_FILE, SPECIFICATION_FILE
from serving.model_function import function_digest
from serving.moves import Standing
from serving.store import Store
from serving.version_bundles import VersionBundles

_DIGEST_TAG = "model_sha256"


class RepeatedModels:
    """Finds versions by their model."""

    def __init__(self, store: Store, bundles: VersionBundles) -> None:
        self._store = store
        self._bundles = bundles

    def registered(self, bundle: Bundle, model: str, standing: Standing) -> tuple[int, Bundle] | None:
        """The latest registered version that the bundle is again, and that version's checked bundle.

        Not the standing ones alone: the model of a version that was rolled back must not come back as a new one.

        Raises:
            UnavailableError: the store does not answer, and a version's bundle may be in it.
        """
        candidates = {*self._tagged(bundle, model), *filter(None, (standing.challenger, standing.champion))}
        for version in sorted(candidates & standing.registered.keys(), reverse=True):
            try:
                other = self._bundles.open(bundle.contract.task, bundle.contract.workload, standing, version)
            except UnavailableError:
                raise  # it may be whole, and the same command goes on later
            except AssayError:  # tampered or gone: the bundle gets a version of its own
                continue
            if _is_same(bundle, other):
                return version, other
        return None

    def taken_out(self, bundle: Bundle, model: str, digests: Mapping[int, str]) -> int | None:
        """The latest version that a person took out and whose model computes what the bundle's does.

        Args:
            digests: of the bundles of the versions that were taken out.

        Raises:
            UnavailableError: as `registered`.
        """
        function = function_digest(bundle.model)
        tagged = self._tagged(bundle, model) | self._tagged(bundle, model, FUNCTION_TAG, function)
        for version in sorted(digests, reverse=True):
            if version in tagged or self._computes(function, bundle, version, digests[version]):
                return version
        return None

    def _computes(self, function: str, bundle: Bundle, version: int, sha256: str) -> bool:
        task, workload = bundle.contract.task, bundle.contract.workload
        try:
            return function_digest(self._bundles.open_digest(task, workload, version, sha256).model) == function
        except UnavailableError:
            raise
        except AssayError:  # lost, which may be why it was taken out
            return False

    def _tagged(self, bundle: Bundle, model: str, tag: str = _DIGEST_TAG, digest: str = "") -> set[int]:
        digest = digest or bundle.contract.model.sha256
        return {version for version, tags in self._store.tags(model).items() if tags.get(tag) == digest}


def _is_same(one: Bundle, other: Bundle) -> bool:
    """Whether a controller would notice no difference: what is run, what feeds it, and what is proved."""
    return (one.model == other.model
            and one.files.get(ENCODER_FILE) == other.files.get(ENCODER_FILE)
            and one.contract.embedding == other.contract.embedding
            and (one.contract.fallback, one.contract.driving) == (other.contract.fallback, other.contract.driving)
            and one.files[SPECIFICATION_FILE] == other.files[SPECIFICATION_FILE]
            # the search for it has a time limit: where it found none this time, that of the version before still holds
            and (one.contract.guarantee is None or _statement(one) == _statement(other))
            and (one.contract.inputs, one.contract.outputs) == (other.contract.inputs, other.contract.outputs))


def _statement(bundle: Bundle) -> str:
    return "" if bundle.contract.guarantee is None else bundle.contract.guarantee.statement
