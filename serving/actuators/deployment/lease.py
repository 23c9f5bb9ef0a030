"""Who acts on a Deployment: a Lease of coordination.k8s.io/v1, taken and renewed under optimistic concurrency.

As client-go's leader election does, a lease of another counts as expired when its record has not changed for its
duration by this process's monotonic clock, since the answer in which it was first seen here: no two clocks are
compared, and a clock that jumps steals nothing. Of its own lease a holder counts from before the request that renewed
it, so that it stops before another may begin. The Lease carries the actuator's memory as well, an annotation, so that
one object, one rule of RBAC and one resourceVersion guard both.
Source: k8s.io/client-go, tools/leaderelection/leaderelection.go (tryAcquireOrRenew, isLeaseValid, release).
"""

import time
from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any, Literal

from serving.actuators.actuator import ActuatorError
from serving.actuators.deployment.api import LEASES, Api, ApiError, Json

TRIES = 5  # of a write that others were faster than; each is a new look at who holds it


class Lease:
    """The lease of one target.

    Args:
        api: the namespace.
        name: of the Lease object.
        duration_s: whole seconds that it stays valid without a renewal.
        clock: a monotonic one, in seconds.
    """

    def __init__(self, api: Api, name: str, duration_s: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self._api, self._duration_s, self._clock = api, duration_s, clock
        self._seen: tuple[Json, float] | None = None  # the record of another, and when it was first seen
        self._holder, self._valid_until = "", float("-inf")
        self._written: Json | None = None  # the object as this process last wrote it; None once another had it

    def require(self) -> None:
        """Raises ActuatorError where this process does not have the lease, or has not renewed it in time."""
        if not self._holder:
            raise ActuatorError("conflict", f"the lease {self.name} must be held before anything is set; "
                                            "acquire it first")
        if self._clock() >= self._valid_until:
            raise ActuatorError("conflict", f"the lease {self.name} ran out: it was not renewed within "
                                            f"{self._duration_s} s; nothing more is set until it is acquired again")

    def acquire(self, holder: str) -> str:
        """Takes or renews it: "" where `holder` has it, else who does. See `Actuator.acquire`. Where the object was
        deleted since this holder wrote it, it is made again with what was noted in it.
        """
        for _ in range(TRIES):
            started = self._clock()
            found = self._read()
            spec = (found or {}).get("spec") or {}
            other = spec.get("holderIdentity") or ""
            if other not in ("", holder) and self._valid(spec, started):
                self._forget(holder)
                self._written = None
                return str(other)
            try:
                if found is None:
                    self._written = self._write("create", self._object(holder))
                else:
                    self._written = self._write("update", self._taken(found, holder))
            except ApiError as error:
                if error.kind == "conflict" or (error.kind == "gone" and found is not None):
                    continue  # somebody was faster: look again who has it
                raise
            self._holder, self._valid_until, self._seen = holder, started + self._duration_s, None
            return ""
        raise ActuatorError("conflict", f"the lease {self.name} changed {TRIES} times while it was being acquired")

    def release(self, holder: str) -> None:
        """Gives it back where `holder` has it; the annotations stay. Without an answer it runs out by itself."""
        self._forget(holder)
        self._written = None
        for _ in range(TRIES):
            found = self._read()
            if found is None or (found.get("spec") or {}).get("holderIdentity") != holder:
                return
            given = deepcopy(found)
            given["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _now()}
            try:
                self._write("update", given)
                return
            except ApiError as error:
                if error.kind not in ("conflict", "gone"):
                    raise
        raise ActuatorError("conflict", f"the lease {self.name} changed {TRIES} times while it was being given back")

    def annotation(self, key: str) -> str | None:
        """What was noted under `key`, by whichever holder."""
        self.require()
        return _annotation(self._read(), key)

    def noted(self, key: str) -> str | None:
        """The same as when it was last acquired or written here, without a request; None too where it is not held."""
        return _annotation(self._written if self._holder else None, key)

    def annotate(self, key: str, value: str | None) -> None:
        """Notes `value` under `key`, or removes it with None, and renews.

        Raises:
            ActuatorError: somebody else has the lease.
        """
        for _ in range(TRIES):
            self.require()
            started = self._clock()
            found = self._read() or {}
            if (other := (found.get("spec") or {}).get("holderIdentity")) != self._holder:
                holder = self._holder
                self._forget(holder)
                self._written = None if other else self._written
                raise ActuatorError("conflict", f"the lease {self.name} is held by {other or 'nobody'}, no longer by "
                                                f"{holder}; nothing is set")
            renewed = self._taken(found, self._holder)
            annotations = {**(renewed["metadata"].get("annotations") or {}), key: value}
            renewed["metadata"]["annotations"] = {name: text for name, text in annotations.items() if text is not None}
            try:
                self._written = self._write("update", renewed)
            except ApiError as error:
                if error.kind == "conflict":
                    continue
                raise
            self._valid_until = started + self._duration_s
            return
        raise ActuatorError("conflict", f"the lease {self.name} changed {TRIES} times while it was being written")

    def _write(self, verb: Literal["create", "update"], body: Json) -> Json:
        """One write; the object as the server stored it, also where it answered that it took too long."""
        try:
            return self._api.call(verb, LEASES, self.name if verb == "update" else "", body=body)
        except ApiError as error:
            if error.in_doubt and error.status and (stands := self._standing(body)) is not None:
                return stands
            raise

    def _standing(self, body: Json) -> Json | None:
        """The object, where it is as `body` wrote it (a renewal has a time of its own); None too where nobody can say.
        """
        try:
            stands = self._read() or {}
        except ApiError:
            return None
        annotations = [(item.get("metadata") or {}).get("annotations") or {} for item in (stands, body)]
        return stands if stands.get("spec") == body["spec"] and annotations[0] == annotations[1] else None

    def _read(self) -> Json | None:
        try:
            return self._api.call("get", LEASES, self.name)
        except ApiError as error:
            if error.kind == "gone":
                return None
            raise

    def _valid(self, spec: Json, now: float) -> bool:
        """Whether another's record may still be in use; now: from before it was read."""
        if self._seen is None or self._seen[0] != spec:
            self._seen = (deepcopy(spec), self._clock())  # it may have been renewed while the answer was on its way
        return now - self._seen[1] < float(spec.get("leaseDurationSeconds") or self._duration_s)

    def _forget(self, holder: str) -> None:
        if self._holder == holder:
            self._holder, self._valid_until = "", float("-inf")

    def _object(self, holder: str) -> Json:
        metadata: Json = {"name": self.name, "namespace": self._api.namespace}
        written = self._written or {}
        if (written.get("spec") or {}).get("holderIdentity") == holder and written["metadata"].get("annotations"):
            metadata["annotations"] = dict(written["metadata"]["annotations"])
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata,
                "spec": self._spec(holder, _now(), 0)}

    def _taken(self, found: Json, holder: str) -> Json:
        """The object as it was read, resourceVersion included, held by `holder` from now on."""
        taken: Json = deepcopy(found)
        spec = found.get("spec") or {}
        same = spec.get("holderIdentity") == holder
        taken["spec"] = spec | self._spec(
            holder,
            spec.get("acquireTime") or _now() if same else _now(),
            int(spec.get("leaseTransitions") or 0) + (0 if same else 1),
        )
        return taken

    def _spec(self, holder: str, acquired: Any, transitions: int) -> Json:
        return {"holderIdentity": holder, "leaseDurationSeconds": self._duration_s, "acquireTime": acquired,
                "renewTime": _now(), "leaseTransitions": transitions}


def _annotation(found: Json | None, key: str) -> str | None:
    value = (((found or {}).get("metadata") or {}).get("annotations") or {}).get(key)
    return None if value is None else str(value)


def _now() -> str:
    """As a MicroTime; for people who look at the Lease, nothing here depends on it but that it changes."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
