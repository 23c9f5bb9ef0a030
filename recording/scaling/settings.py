"""What a scaling campaign is asked to do, checked once."""

from dataclasses import dataclass, fields
from pathlib import Path

from feature_store.errors import InputError, nearest
from recording.scaling.servers.catalogue import SERVERS


@dataclass(frozen=True)
class ScalingSettings:
    """Settings of a scaling campaign.

    Attributes:
        servers: keys of the catalogue of scalable servers.
        utilisations: offered load of the points of a sweep, as a share of the deployment's CPU capacity.
        point_s: time in which a point is measured, s.
        warm_up_s: time before it, under the same load, s.
        timeout_s: a client gives up this long after its request was due, s.
        most_disturbance_cores: a point is repeated while other processes used more processors than this, cores.
        most_attempts: attempts at a point; the least disturbed one is kept.
        trace: CSV of invocations per minute in the format of the Azure Functions trace; empty: a synthetic day.
        seed: seed of every random choice.
        sweeps_only: points alone, without steps, traces and resizes.
    """

    servers: tuple[str, ...] = tuple(SERVERS)
    utilisations: tuple[float, ...] = (0.15, 0.35, 0.55, 0.7, 0.85, 0.95, 1.2)
    point_s: float = 6.0
    warm_up_s: float = 2.0
    timeout_s: float = 2.0
    most_disturbance_cores: float = 0.25
    most_attempts: int = 3
    trace: str = ""
    seed: int = 0
    sweeps_only: bool = False

    def __post_init__(self) -> None:
        for name in self.servers:
            if name not in SERVERS:
                raise InputError(
                    f"server must be known, got {name!r} (settings of the scaling campaign): {nearest(name, SERVERS)}")
        rules = [
            ("servers", self.servers, "be one or more, and differ",
             0 < len(self.servers) == len(set(self.servers))),
            ("utilisations", self.utilisations, "be one or more in 0.01..3",
             len(self.utilisations) > 0 and all(0.01 <= value <= 3 for value in self.utilisations)),
            ("point_s", self.point_s, "lie in 2..600", 2 <= self.point_s <= 600),
            ("warm_up_s", self.warm_up_s, "lie in 0..600", 0 <= self.warm_up_s <= 600),
            ("timeout_s", self.timeout_s, "lie in 0.1..60", 0.1 <= self.timeout_s <= 60),
            ("most_disturbance_cores", self.most_disturbance_cores, "be 0 or more", self.most_disturbance_cores >= 0),
            ("most_attempts", self.most_attempts, "lie in 1..10", 1 <= self.most_attempts <= 10),
            ("trace", self.trace, "be a file", not self.trace or Path(self.trace).is_file()),
            ("seed", self.seed, "be 0 or more", self.seed >= 0),
        ]
        for thing, value, rule, holds in rules:
            if not holds:
                raise InputError(f"{thing} must {rule}, got {value!r} (settings of the scaling campaign)")

    def options(self) -> list[str]:
        """The settings as command line options; defaults are named too, since they may change."""
        options = []
        for field in fields(self):
            name, value = field.name.replace("_", "-"), getattr(self, field.name)
            if isinstance(value, bool):
                options += [f"--{name}"] if value else []
            elif value != "":
                text = ",".join(str(one) for one in value) if isinstance(value, tuple) else value
                options.append(f"--{name}={text}")
        return options
