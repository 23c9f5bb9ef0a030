"""What a campaign is asked to do, checked once."""

from dataclasses import dataclass, fields

from feature_store.errors import InputError, nearest
from recording.workloads.catalogue import WORKLOADS

PROFILES = ("base", "shifted")
SCRAPE_INTERVAL_S = 1
_LONGEST_S = 86_400.0


@dataclass(frozen=True)
class CampaignSettings:
    """Settings of a recording campaign.

    Attributes:
        workloads: names of the workloads to combine (keys of the workload catalogue).
        theta: most workloads running at once, 1 up to the number of workloads (vPALs: 5).
        combinations: number of different combinations to record.
        seconds_per_combination: time for which all workloads of a combination run, warm-up included, s.
        window_s: length of a window, s, a whole number of scrapes (vPALs: 60).
        warm_up_s: time cut off after the last workload has started, s.
        seed: seed of every random choice.
        environment: value of the column `environment`.
        profile: "base" or "shifted": from which ranges properties and interference are drawn.
        interference: whether stress-ng runs beside the workloads.
    """

    workloads: tuple[str, ...] = tuple(WORKLOADS)
    theta: int = 5
    combinations: int = 75
    seconds_per_combination: float = 58.0
    window_s: int = 2
    warm_up_s: float = 4.0
    seed: int = 0
    environment: str = "base"
    profile: str = "base"
    interference: bool = True

    def __post_init__(self) -> None:
        for name in self.workloads:
            if name not in WORKLOADS:
                hint = nearest(name, WORKLOADS)
                raise InputError(f"workload must be known, got {name!r} (campaign settings): {hint}")
        rules = [
            ("workloads", self.workloads, "be one or more", len(self.workloads) > 0),
            ("workloads", self.workloads, "differ", len(set(self.workloads)) == len(self.workloads)),
            ("theta", self.theta, "lie in 1..number of workloads", 1 <= self.theta <= len(self.workloads)),
            ("combinations", self.combinations, "be 1 or more", self.combinations >= 1),
            ("window_s", self.window_s, "be a whole number of scrapes, 1 or more", self._is_whole_window()),
            ("warm_up_s", self.warm_up_s, "be 0 or more", self.warm_up_s >= 0),
            (
                "seconds_per_combination",
                self.seconds_per_combination,
                f"leave at least one window after the warm-up, and be {_LONGEST_S:g} at most",
                self.warm_up_s + self.window_s + SCRAPE_INTERVAL_S <= self.seconds_per_combination <= _LONGEST_S,
            ),
            ("seed", self.seed, "be 0 or more", self.seed >= 0),
            ("environment", self.environment, "be a name", self.environment.isidentifier()),
            ("profile", self.profile, f"be one of {PROFILES}", self.profile in PROFILES),
        ]
        for thing, value, rule, holds in rules:
            if not holds:
                raise InputError(f"{thing} must {rule}, got {value!r} (campaign settings)")

    def options(self) -> list[str]:
        """The settings as command line options; defaults are named too, since they may change."""
        options = []
        for field in fields(self):
            name, value = field.name.replace("_", "-"), getattr(self, field.name)
            if isinstance(value, bool):
                options.append(f"--{name}" if value else f"--no-{name}")
            else:
                options.append(f"--{name}={','.join(value) if isinstance(value, tuple) else value}")
        return options

    def _is_whole_window(self) -> bool:
        return self.window_s >= 1 and self.window_s % SCRAPE_INTERVAL_S == 0
