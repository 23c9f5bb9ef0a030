"""How much each measurement of the pipeline benchmark does; every field is an option of the command line."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """The real sizes. Repetitions are what medians are taken over."""

    stage_runs: int = 3
    stage_epochs: int = 0  # 0: the task's own
    ingestion_series: int = 100
    ingestion_points: int = 10_000
    ingestion_repeats: int = 5
    serving_processes: int = 5
    serving_repeats: int = 2000
    rollback_repeats: int = 15
    scale_workloads: tuple[int, ...] = (5, 20, 80)
    scale_rows: int = 150
    scale_epochs: int = 4


# To try the benchmark out; its numbers mean nothing.
QUICK = Sizes(stage_runs=1, stage_epochs=2, ingestion_series=10, ingestion_points=1_000, ingestion_repeats=2,
              serving_processes=2, serving_repeats=50, rollback_repeats=2, scale_workloads=(1, 2), scale_rows=110,
              scale_epochs=1)
