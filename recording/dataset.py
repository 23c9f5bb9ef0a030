"""Turns the raw data of a campaign into the data set: samples.parquet, card.json and README.md."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd

from feature_store.cleaning import INTERVAL_COLUMNS, clean_combination
from feature_store.errors import SourceError
from feature_store.schema import CONFIGURATION, IDENTITY, METRICS, TARGET
from feature_store.whole_files import whole_file, write_file
from recording.data_card import card_text, make_card, read_host
from recording.plan import Combination
from recording.raw_folder import Outcome, RawFolder
from recording.settings import SCRAPE_INTERVAL_S, CampaignSettings
from recording.workloads.catalogue import WORKLOADS

COLUMNS = (*IDENTITY, *METRICS, *CONFIGURATION, TARGET)


@dataclass(frozen=True)
class CampaignSummary:
    """What a campaign gave.

    Attributes:
        samples: cleaned samples.
        combinations: combinations that gave samples.
        problems: what went wrong, by combination.
        core_share: mean CPU use of the recorder, Prometheus and node exporter together, share of one core.
        files: the files of the data set.
    """

    samples: int
    combinations: int
    problems: dict[str, str]
    core_share: float
    files: tuple[Path, ...]


def clean_raw(settings: CampaignSettings, folder: RawFolder, outcome: Outcome) -> pd.DataFrame:
    """Samples of one finished combination in the canonical columns."""
    intervals = {
        name: pd.DataFrame(
            [asdict(interval) for interval in WORKLOADS[name].parse(folder.log(outcome.identifier, name))],
            columns=list(INTERVAL_COLUMNS),
        )
        for name in outcome.configurations
    }
    cleaned = clean_combination(
        folder.metrics(outcome.identifier),
        intervals,
        anchor_s=outcome.anchor_s,
        step_s=SCRAPE_INTERVAL_S,
        window_s=settings.window_s,
        warm_up_s=settings.warm_up_s,
    )
    cleaned["environment"] = settings.environment
    cleaned["combination"] = outcome.identifier
    for column in CONFIGURATION:
        values = {name: has.get(column, float("nan")) for name, has in outcome.configurations.items()}
        cleaned[column] = cleaned["workload"].map(values).astype(float)
    return cleaned[list(COLUMNS)]


def write_dataset(
    settings: CampaignSettings,
    plan: list[Combination],
    folder: RawFolder,
    destination: Path,
    command: str,
) -> CampaignSummary:
    """Cleans every finished combination and writes the data set.

    Raises:
        SourceError: where no combination gave a sample, or `folder` does not say what was recorded on.
    """
    outcomes = [folder.outcome(one.identifier) for one in plan if folder.has(one.identifier)]
    # A combination that a crash cut short is dropped from the crash on: its raw data end there.
    frames = [clean_raw(settings, folder, outcome) for outcome in outcomes]
    frames = [frame for frame in frames if len(frame)]
    if not frames:
        problems = "; ".join(f"{one.identifier}: {one.problem}" for one in outcomes[:3] if one.problem)
        raise SourceError(f"campaign: expected samples, got none ({folder.path}): {problems}")
    samples, host = pd.concat(frames, ignore_index=True), read_host(folder.path)
    destination.mkdir(parents=True, exist_ok=True)
    parquet = destination / "samples.parquet"
    with whole_file(parquet) as new:
        samples.to_parquet(new, compression="zstd", index=False)
    card = make_card(settings, samples, outcomes, host, command)
    files = (parquet, destination / "card.json", destination / "README.md")
    write_file(files[1], json.dumps(card, indent=2) + "\n")
    write_file(files[2], card_text(card))
    return CampaignSummary(
        samples=len(samples),
        combinations=samples["combination"].nunique(),
        problems={one.identifier: one.problem for one in outcomes if one.problem},
        core_share=card["recorder_core_share"]["sum"],
        files=files,
    )
