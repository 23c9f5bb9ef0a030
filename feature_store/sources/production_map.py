"""What makes a training set of a metric map (metric_map.py): the range of time, and each workload's latency.

    window_s: 60                # length of a window, seconds
    start: 2026-11-01T00:00Z    # ISO times with a zone; or instead of both: last_s: 86400
    end: 2026-11-08T00:00Z
    environment: prod-eu
    workloads:
      redis:
        latency_ms: 1000 * rate(redis_seconds_sum[{window}]) / rate(redis_seconds_count[{window}])
        configuration: {cpu_quota_cores: 2, connections: sum(redis_connected_clients)}

Expressions are PromQL with {window} and {instance} as in the map; a number stands for itself. What the map leaves out
of a metric map's fields is the node exporter's.
"""

from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from feature_store.errors import InputError, nearest
from feature_store.schema import CONFIGURATION
from feature_store.sources.metric_map import MappedMetric, MetricMap, PromQL, read_metric_map
from feature_store.written.fields import ColumnName, PositiveNumber, Text, WorkloadName
from feature_store.written.model import Written


def _moment(value: Any) -> Any:
    if not isinstance(value, str | date):
        return value
    try:
        time = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError as error:
        raise ValueError(f"expected an ISO time, got {value!r}; write 2026-11-01T00:00:00Z") from error
    if time.tzinfo is None:
        raise ValueError(f"expected a time zone, got {str(value)!r}; write 2026-11-01T00:00:00Z")
    return time


def _property(name: str) -> str:
    if name not in CONFIGURATION:
        raise ValueError(f"expected a property of the schema, got {name!r}; {nearest(name, CONFIGURATION)}")
    return name


Moment = Annotated[datetime, BeforeValidator(_moment),
                   WithJsonSchema({"type": "string", "format": "date-time", "expected": "an ISO time with a zone"})]
Property = Annotated[str, AfterValidator(_property), WithJsonSchema({"type": "string", "enum": list(CONFIGURATION)})]


class ProductionWorkload(Written):
    """One workload of the server."""

    latency_ms: PromQL = Field(json_schema_extra={"unit": "ms"}, description="PromQL of its latency")
    configuration: dict[Property, PromQL | float] = Field(
        default_factory=dict, description="Its configurable properties: PromQL, or a number that stands for itself")


class AskedWindows(Written):
    """Which windows a map asks a server for."""

    window_s: PositiveNumber = Field(default=60.0, json_schema_extra={"unit": "s"}, description="Length of a window")
    start: Moment | None = Field(default=None, description="Start of the first window, an ISO time with a zone")
    end: Moment | None = Field(default=None, description="End of the last window, an ISO time with a zone")
    last_s: PositiveNumber | None = Field(
        default=None, json_schema_extra={"unit": "s"}, description="In place of both: how far to go back from now")

    @model_validator(mode="after")
    def _has_one_range(self) -> "AskedWindows":
        given = [name for name in ("start", "end", "last_s") if getattr(self, name) is not None]
        if given not in (["start", "end"], ["last_s"]):
            raise ValueError(f"expected either `last_s` or `start` and `end`, got {', '.join(given) or 'none of them'}")
        if self.last_s is not None and self.last_s < self.window_s:
            raise ValueError(f"expected `last_s` of at least `window_s`, {self.window_s:g} s, got {self.last_s:g} s")
        return self

    def window_ends(self, now: datetime | None = None) -> tuple[datetime, datetime]:
        """End of the first window and of the last one.

        Those of `last_s` begin at multiples of window_s since 1970, whenever they are asked for: of a second that two
        runs read, both have the same window, which is on one side of the split (splits.py).

        Args:
            now: end of the time where the map says last_s; the present where None.

        Raises:
            InputError: no calendar has such times, or there is no whole window between them.
        """
        try:
            window = timedelta(seconds=self.window_s)
            if self.start is not None and self.end is not None:
                if (first := self.start + window) > self.end:
                    raise InputError(f"end must be at least window_s after start, got {self.start} to {self.end} and "
                                     f"{self.window_s:g} s (--mapping)")
                return first, self.end
            epoch = datetime.fromtimestamp(0, UTC)
            end = epoch + ((now or datetime.now(UTC)) - epoch) // window * window
            return end - timedelta(seconds=self.last_s or 0.0) // window * window + window, end
        except (OverflowError, ZeroDivisionError):
            got = f"{self.window_s:g}" if self.last_s is None else f"{self.window_s:g} and {self.last_s:g}"
            raise InputError("window_s and last_s must be spans that a calendar has, got "
                             f"{got} s (--mapping)") from None


class ProductionMap(AskedWindows):
    """A metric map that makes a training set."""

    environment: Text = Field(default="production", description="Which machine and load range the rows are of")
    workloads: dict[WorkloadName, ProductionWorkload] = Field(min_length=1, description="The workloads by name")
    metrics: dict[ColumnName, MappedMetric] | None = Field(
        default=None, min_length=1, description="The machine's metrics by column name; default: the node exporter's")
    scrape_interval_s: PositiveNumber | None = Field(
        default=None, json_schema_extra={"unit": "s"},
        description="How often the server scrapes its targets; default: 1")
    instance: str | None = Field(
        default=None, description="Regular expression for the `instance` label of the machine; default `.*`")

    def metric_map(self) -> MetricMap:
        """How to ask for the machine's metrics."""
        given = {"metrics": self.metrics, "scrape_interval_s": self.scrape_interval_s, "instance": self.instance}
        return read_metric_map().model_copy(update={name: value for name, value in given.items() if value is not None})
