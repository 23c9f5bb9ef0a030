"""CPU frequency as a task file names it: randomised services, and the twin of a workload, its own service."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from feature_store.errors import InputError
from feature_store.schema import Column
from models.control.contract.controller import RuleFamily
from models.control.contract.setting import Setting, filled
from models.control.contract.signals import Control
from models.control.simulation.recorded_load import RecordedLoad, recorded_load
from systems.cpu_frequency.interface import CONTROLS
from systems.cpu_frequency.processors import AIR_C, MOST_CAP_W, PROCESSORS, Processor
from systems.cpu_frequency.programs import Programs, draw_programs
from systems.cpu_frequency.rules import RULES
from systems.cpu_frequency.simulator import FUTURE, CpuFrequency

if TYPE_CHECKING:
    import pandas as pd

SETTINGS = (
    Setting("processor", PROCESSORS[0].name, "", choices=tuple(one.name for one in PROCESSORS), meaning="its package"),
    Setting("cores", 8.0, "cores", 1.0, 18.0, meaning="that the service has"),
    Setting("work", 10.0, "1e6", 1e-2, 1e5, meaning="instructions of a request"),
    Setting("cpi", 0.8, "1", 0.1, 10.0, meaning="cycles of an instruction without memory"),
    Setting("memory_ns", 0.2, "ns", 0.0, 10.0, meaning="of an instruction, whatever the clock"),
    Setting("fixed_ms", 0.0, "ms", 0.0, 1e4, meaning="of a request, without a core"),
    Setting("ambient_c", 35.0, "degC", -10.0, AIR_C, meaning="air at the heat sink"),
    Setting("power_cap_w", MOST_CAP_W, "W", 20.0, MOST_CAP_W,
            meaning="that the package may never take more than; the most: whatever follows of the clock"),
    Setting("most_latency_ms", 20.0, "ms", 1.0, 4096.0, meaning="objective of the 99th percentile"),
)


class CpuFrequencySystem(CpuFrequency):
    """Implements `ControlledSystem`."""

    columns: Mapping[str, Column] = {"rate_rps": Column("1/s", 0.0, None, "requests that arrive a second")}
    settings: Sequence[Setting] = SETTINGS
    telemetry: Path | None = Path(__file__).resolve().parents[2] / "data" / "loads" / "cpu_frequency.parquet"
    largest_reward = 1.0
    acting: str = "systems.cpu_frequency.acting"
    rules: Mapping[str, RuleFamily] = RULES

    def twin(self, telemetry: "pd.DataFrame", settings: Mapping[str, float | str],
             limits: Mapping[str, tuple[float, float]]) -> CpuFrequency:
        """See `ControlledSystem.twin`: the load is replayed from some moment on; phases, variability, cooling and noise
        are those of randomised services."""
        rate = np.clip(telemetry["rate_rps"].to_numpy(dtype=np.float64), 2.0**-4, 2.0**20)
        load = recorded_load(rate, telemetry, "load")
        known = filled(settings, SETTINGS)
        (processor,) = (one for one in PROCESSORS if one.name == known["processor"])
        if float(known["cores"]) > processor.cores:
            raise InputError(f"cores: expected at most {processor.cores} of {processor.name}, got {known['cores']}")
        (control,) = CONTROLS
        low, high = limits.get(control.name, (control.low, control.high))
        if len(levels := tuple(level for level in processor.levels if low <= level <= high)) < 2:
            raise InputError(f"limits of {control.name}: expected two or more of {processor.name}'s levels, "
                             f"{', '.join(f'{level:g}' for level in processor.levels)} GHz, got [{low:g}, {high:g}]")
        own = replace(control, low=levels[0], high=levels[-1], levels=levels)
        return _OneService(load, known, processor, own)

    def guarantees(self, model: bytes, properties: Sequence[Mapping[str, Any]], settings: Mapping[str, float | str],
                   limits: Mapping[str, tuple[float, float]]) -> Mapping[str, Any]:
        """See guarantee.py."""
        from systems.cpu_frequency.guarantee import guarantees

        return guarantees(properties, filled(settings, SETTINGS), limits)


class _OneService(CpuFrequency):
    """A service whose load was recorded."""

    def __init__(self, load: RecordedLoad, known: Mapping[str, float | str], processor: Processor,
                 control: Control) -> None:
        super().__init__((control,))
        self._load, self._known, self._processor = load, known, processor

    def draw(self, split: str, count: int, steps: int, seed: int, scenario: str = "",
             applications: Sequence[int] | None = None) -> Programs:
        """See `Environment`."""
        programs = draw_programs(split, count, steps + 1 + FUTURE, seed, scenario, applications)
        rate = self._load.replayed(split, np.random.default_rng([seed, 5]), count, len(programs.rate_rps),
                                   self.step_seconds)
        named = {one.name for one in fields(Programs)}
        own = {name: torch.full((count,), float(value)) for name, value in self._known.items() if name in named - {
            "processor"}}
        first = min(self._processor.base_ghz, self.controls[0].high)
        return replace(
            programs, **own, processor=torch.full((count,), PROCESSORS.index(self._processor)),
            fixed_s=torch.full((count,), 1e-3 * float(self._known["fixed_ms"])),
            first_ghz=torch.full((count,), first),
            rate_rps=torch.tensor(rate, dtype=torch.float32))


ENVIRONMENT = CpuFrequencySystem()
