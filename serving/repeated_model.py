"""Whether a bundle's model is that of a version before, byte for byte. Reads, changes nothing.

    the same model, encoder and promise as a registered version    nothing new: `register` makes no version of it
    the model of a version that was retired                        a person took it out: no comparison brings it back

Tags of the store may be changed by anyone. They say where to look, and keep a retired model out where its bundle is
lost; that a model is a registered one's say the signed bundles alone.
"""

from collections.abc import Mapping

from feature_store.errors import AssayError
from serving.bundle import Bundle
from serving.contract import ENCODER_FILE, SPECIFICATION_FILE
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
        """
        candidates = {*self._tagged(bundle, model), *filter(None, (standing.challenger, standing.champion))}
        for version in sorted(candidates & standing.registered.keys(), reverse=True):
            try:
                other = self._bundles.open(bundle.contract.task, bundle.contract.workload, standing, version)
            except AssayError:  # tampered or gone: the bundle gets a version of its own
                continue
            if _is_same(bundle, other):
                return version, other
        return None

    def retired(self, bundle: Bundle, model: str, digests: Mapping[int, str]) -> int | None:
        """The latest retired version with the bundle's model. `digests`: of the bundles of retired versions."""
        tagged = self._tagged(bundle, model)
        for version in sorted(digests, reverse=True):
            if version in tagged or self._has_model(bundle, version, digests[version]):
                return version
        return None

    def _has_model(self, bundle: Bundle, version: int, sha256: str) -> bool:
        task, workload = bundle.contract.task, bundle.contract.workload
        try:
            return self._bundles.open_digest(task, workload, version, sha256).model == bundle.model
        except AssayError:  # lost, which may be why it was retired
            return False

    def _tagged(self, bundle: Bundle, model: str) -> set[int]:
        digest = bundle.contract.model.sha256
        return {version for version, tags in self._store.tags(model).items() if tags.get(_DIGEST_TAG) == digest}


def _is_same(one: Bundle, other: Bundle) -> bool:
    """Whether a controller would notice no difference: what is run, what feeds it, and what is proved."""
    return (one.model == other.model
            and one.files.get(ENCODER_FILE) == other.files.get(ENCODER_FILE)
            and one.contract.embedding == other.contract.embedding
            and (one.contract.fallback, one.contract.driving) == (other.contract.fallback, other.contract.driving)
            and one.files[SPECIFICATION_FILE] == other.files[SPECIFICATION_FILE]
            and (one.contract.inputs, one.contract.outputs) == (other.contract.inputs, other.contract.outputs))
