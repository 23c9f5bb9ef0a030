"""What a campaign on the application is asked to do, checked once."""

from dataclasses import asdict, dataclass

from feature_store.errors import InputError

EXPORT_EVERY_S = 0.5  # the services' traces


@dataclass(frozen=True)
class ApplicationSettings:
    """Settings of a campaign.

    Attributes:
        segments: parts of the recording, each kept whole; a campaign can be gone on with for more of them.
        segment_s: length of a segment, s.
        requests_per_s: mean rate of the requests while nothing is injected, 1/s.
        seed: seed of every random choice.
    """

    segments: int = 24
    segment_s: float = 300.0
    requests_per_s: float = 30.0
    seed: int = 0

    def __post_init__(self) -> None:
        rules = [
            ("segments", self.segments, "lie in 1..1000", 1 <= self.segments <= 1000),
            ("segment_s", self.segment_s, "lie in 20..3600", 20 <= self.segment_s <= 3600),
            ("requests_per_s", self.requests_per_s, "lie in 1..200", 1 <= self.requests_per_s <= 200),
            ("seed", self.seed, "be 0 or more", self.seed >= 0),
        ]
        for thing, value, rule, holds in rules:
            if not holds:
                raise InputError(f"{thing} must {rule}, got {value!r} (settings of the application's campaign)")

    def identity(self) -> dict[str, float]:
        """What a campaign that is gone on with must have in common with its beginning."""
        return {name: value for name, value in asdict(self).items() if name != "segments"}

    def options(self) -> list[str]:
        """The settings as command line options; defaults are named too, since they may change."""
        return [f"--{name.replace('_', '-')}={value}" for name, value in asdict(self).items()]
