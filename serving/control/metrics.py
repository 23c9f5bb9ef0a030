"""What a controller tells Prometheus of itself, at /metrics.

    assay_control_steps_total{actor}                   decisions, by who made them
    assay_control_shield_changes_total{control,reason,actor} what the shield changed, and whose decision
    assay_control_outside_box_total{input}             inputs beyond the proved box, which the policy saw at its edge
    assay_control_out_of_distribution_total{range}     steps beyond what training saw, by range (serving/seen_spec.py)
    assay_control_troubles_total                       steps in which what was seen was not fit for a policy
    assay_control_failures_total                       steps in which the actuator, the log or the memory failed
    assay_control_step_seconds{phase}                  observe, decide, act
    assay_control_target{control}, assay_control_set{control}   what was to be set last, and what the actuator says is
    assay_control_policy_acts                          1: the policy decided last; 0: its fallback, or nobody
    assay_control_last_step_time_seconds               Unix time of the last step
    assay_control_interval_seconds                     between the beginnings of two steps, as it was asked for
    assay_control_model_age_seconds                    since the champion was last known to be it
    assay_control_ledger_unseen_seconds                since the ledger was looked at: a stop of that time is not known
    assay_control_model_info{version}                  1 of the version that decides
"""

import time
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from feature_store.errors import InputError
from serving.control.control_step import ControlStep
from serving.control.parts import Model
from serving.control.shield import Reason

ALERTED_REASONS: tuple[Reason, ...] = ("rate", "range", "missed")  # of a policy's decision that the shield changed
_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


class Metrics:
    """Counts steps. registry: what is exposed."""

    def __init__(self, task: str, workload: str, model: Callable[[], Model], unseen_s: Callable[[], float],
                 controls: Iterable[str] = ()) -> None:
        """unseen_s: seconds since the ledger was looked at. controls: that the shield watches."""
        self.registry = CollectorRegistry()
        names = ("task", "workload")
        own = {"task": task, "workload": workload}

        def counter(name: str, meaning: str, *labels: str) -> Counter:
            return Counter(f"assay_control_{name}", meaning, (*names, *labels), registry=self.registry)

        def gauge(name: str, meaning: str, *labels: str) -> Gauge:
            return Gauge(f"assay_control_{name}", meaning, (*names, *labels), registry=self.registry)

        self._own = own
        self._steps = counter("steps", "decisions, by who made them", "actor")
        self._changes = counter("shield_changes", "what the shield changed", "control", "reason", "actor")
        self._outside = counter("outside_box", "inputs beyond the proved box", "input")
        self._strange = counter("out_of_distribution", "steps beyond what training saw", "range")
        self._troubles = counter("troubles", "steps whose observation was not fit for a policy").labels(**own)
        self._failures = counter("failures", "steps in which actuator, log or memory failed").labels(**own)
        self._seconds = Histogram("assay_control_step_seconds", "time of a step's phases", (*names, "phase"),
                                  buckets=_SECONDS, registry=self.registry)
        self._target = gauge("target", "what was to be set last", "control")
        self._set = gauge("set", "what the actuator says is set", "control")
        self._policy = gauge("policy_acts", "1: the policy decided last").labels(**own)
        self._last = gauge("last_step_time_seconds", "Unix time of the last step").labels(**own)
        self._interval = gauge("interval_seconds", "between the beginnings of two steps").labels(**own)
        self._version = gauge("model_info", "1 of the version that decides", "version")
        gauge("model_age_seconds", "since the champion was last known to be it").labels(**own).set_function(
            lambda: model().age_s)
        gauge("ledger_unseen_seconds", "since the ledger was looked at").labels(**own).set_function(unseen_s)
        # What alerts watch begins at 0: to Prometheus the first sample of a counter is no increase
        for actor in ("policy", "fallback", "nobody"):
            self._steps.labels(**own, actor=actor)
        for control in controls:
            for reason in ALERTED_REASONS:
                self._changes.labels(**own, control=control, reason=reason, actor="policy")
        self._model = model
        self._begin_ranges()

    def expect(self, interval_s: float) -> None:
        """Takes the seconds between two steps."""
        self._interval.set(interval_s)

    def count(self, record: ControlStep) -> None:
        """Takes one step."""
        own = self._own
        self._steps.labels(**own, actor=record.actor).inc()
        for change in record.changes:
            self._changes.labels(**own, control=change.control, reason=change.reason, actor=record.actor).inc()
        for name in record.outside:
            self._outside.labels(**own, input=name).inc()
        for name in record.strange:
            self._strange.labels(**own, range=name).inc()
        self._troubles.inc(bool(record.troubles))
        self._failures.inc(bool(record.failure))
        for phase, seconds in record.took_s.items():
            self._seconds.labels(**own, phase=phase).observe(seconds)
        for name, value in record.targets.items():
            self._target.labels(**own, control=name).set(value)
        for name, value in (record.done or {}).items():
            self._set.labels(**own, control=name).set(value)
        self._policy.set(record.actor == "policy")
        self._last.set(time.time())
        self._version.clear()
        self._version.labels(**own, version=record.version).set(1)
        self._begin_ranges()

    def _begin_ranges(self) -> None:
        """Those of the version that decides now."""
        if familiar := self._model().familiar:
            for name in familiar.names:
                self._strange.labels(**self._own, range=name)

    def serve(self, port: int, address: str = "127.0.0.1") -> Callable[[], None]:
        """Answers at /metrics until what it gives is called. Raises InputError: the port is not free."""
        try:
            server, thread = start_http_server(port, address, self.registry)
        except (OSError, UnicodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "no address"
            raise InputError(f"metrics address and port must be free on this machine, got {why} ({address}:{port})") \
                from error

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return stop
