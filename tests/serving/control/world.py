"""The simulated environment of autoscaling as the world of a controller: a source of measurements and an actuator."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from feature_store.errors import SourceError
from models.control.contract.acting import code_sha256
from serving.actuators.actuator import ActuatorError, Applied
from serving.contract import Contract
from serving.control.loop import ControlLoop
from serving.control.parts import Model, Parts, Readings, Settings
from serving.control.shield import Limit, Shield
from serving.fallback_spec import SafeRange
from serving.session import Prediction
from systems.autoscaling.interface import CONTROLS, SIGNALS
from systems.autoscaling.observer import AutoscalingObserver
from systems.autoscaling.rules.rules import make
from systems.autoscaling.simulator.simulator import Autoscaling, Physics

NAMES = [signal.name for signal in SIGNALS]
STEP_S = 15.0
ACTING = "systems.autoscaling.acting"
_DRAWN = Autoscaling()  # its applications and loads: drawing them takes a third of a second


def autoscaling(**physics: bool) -> Autoscaling:
    """An environment of one's own, on the applications and loads that all of these tests share."""
    return _DRAWN.with_physics(Physics(start_up=False, **physics))


def contract(slo_ms: float) -> Contract:
    """Of a policy of autoscaling; what it says of files is of none."""
    digest = "0" * 64
    return Contract.from_json({
        "format": "assay-bundle/2", "task": "autoscaling", "workload": "nginx",
        "inputs": [{"name": one.name, "unit": one.unit, "description": "", "minimum": one.low, "maximum": one.high,
                    "physical_minimum": one.low, "physical_maximum": one.high} for one in SIGNALS],
        "outputs": [{"name": one.name, "unit": one.unit, "kind": "target", "minimum": one.low, "maximum": one.high,
                     "physical_minimum": one.low, "physical_maximum": one.high} for one in CONTROLS],
        "specification": {"file": "specification.yaml", "sha256": digest, "statement": "nothing"},
        "model": {"file": "model.onnx", "sha256": digest, "opset": 17, "input": "x", "output": "y"},
        "code_version": "c", "data_version": "d", "seed": 0,
        "driving": {"acting": {"module": ACTING, "sha256": code_sha256(ACTING)}, "step_s": STEP_S,
                    "current": {one.name: one.current for one in CONTROLS},
                    "whole": [one.name for one in CONTROLS if one.whole], "settings": {"slo_ms": slo_ms},
                    "seen": {"margin": 1.0, "ranges": []}}})


@dataclass
class World:
    """One application that lives through an episode; a step of it passes when targets were set, or `pass_by`."""

    seed: int = 3
    environment: Autoscaling = field(default_factory=autoscaling)
    now: float = 1000.0
    broken: str = ""  # reader, present, apply or lease: what fails
    holder: str = ""
    lost: tuple[str, ...] = ()
    age_s: float = 5.0  # of measurements, as the source says
    interval_s: float | None = None  # as of `Reader`
    costs: list[float] = field(default_factory=list)
    violated: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        episodes = self.environment.draw("train", 1, 200, self.seed)
        self.state: Any = self.environment.reset(episodes)

    @property
    def name(self) -> str:
        return "a simulated application"

    @property
    def shown(self) -> dict[str, float]:
        """All signals, as a policy in training is shown them."""
        return dict(zip(NAMES, self.environment.observe(self.state)[0].tolist(), strict=True))

    def read(self) -> Readings:
        if self.broken == "reader":
            raise SourceError("Prometheus must answer, got nothing (http://prometheus)")
        known = {name: self.shown[name] for name in AutoscalingObserver.measured if name not in self.lost}
        return Readings(known, dict.fromkeys(known, self.age_s))

    def present(self) -> dict[str, float]:
        if self.broken == "present":
            raise ActuatorError("gone", "target must be there, got none")
        return {name: self.shown[name] for name in ("cpu_limit_cores", "memory_limit_mib", "replicas",
                                                    "ready_replicas")}

    def apply(self, targets: dict[str, float]) -> Applied:
        if self.broken == "apply":
            raise ActuatorError("conflict", "target must not be changed by others", partly={"target_replicas": 2.0})
        row = torch.tensor([[targets[control.name] for control in CONTROLS]], dtype=torch.float32)
        self._pass(row)
        return Applied(dict(targets))

    def pass_by(self) -> None:
        """A step in which nobody acts."""
        self._pass(torch.stack([self.state.limit, self.state.memory, self.state.replicas], dim=1))

    def _pass(self, targets: torch.Tensor) -> None:
        self.state, outcome = self.environment.step(self.state, targets)
        self.now += STEP_S
        self.costs.append(float(outcome.cost))
        self.violated.append(float(outcome.violated))

    def acquire(self, holder: str) -> str:
        if self.broken == "lease":
            raise ActuatorError("unreachable", "lease must be readable, got a time-out")
        self.holder = self.holder or holder
        return "" if self.holder == holder else self.holder

    def release(self, holder: str) -> None:
        self.holder = "" if self.holder == holder else self.holder

    def restore(self, *, lowering: bool = True) -> None:
        pass


@dataclass
class Said:
    """A policy that says the same always, or what a function of the row says."""

    answer: Any
    out_of_distribution: bool = False
    familiar: Any = None

    def predict(self, row: dict[str, float]) -> Prediction:
        found = self.answer(row) if callable(self.answer) else self.answer
        return Prediction({name: (value,) for name, value in found.items()}, {}, (), 0, self.out_of_distribution)


@dataclass
class OneModel:
    """A source of one model, which may be refused meanwhile."""

    predictor: Any
    refused: str = ""

    def current(self) -> Model:
        return Model(self.predictor, self.refused, "version 1")


SAFE = {"target_cpu_limit_cores": SafeRange(0.125, 16.0, 0.25, 1.0),
        "target_memory_limit_mib": SafeRange(32.0, 32768.0, 0.25, 1.0),
        "target_replicas": SafeRange(1.0, 64.0, 0.25, 1.0)}


def loop_of(world: World, folder: Any, predictor: Any, *, stops: Any = lambda: "", holder: str = "me",
            models: Any = None, rule: str = "hpa-cpu-p99-vpa-memory", shield: Any = None,
            fallback: Any = None, **settings: Any) -> ControlLoop:
    """A controller of the world that hands back after one good step, where nothing else is said."""
    limits = [Limit(one.name, one.current, SAFE[one.name], one.whole) for one in CONTROLS]
    parts = Parts(world, models or OneModel(predictor), world, shield or Shield(limits), fallback or make(rule),
                  AutoscalingObserver(), stops, holder)
    slo = float(world.state.episodes.applications.slo_s[0]) * 1e3
    return ControlLoop(contract(slo), parts, replace(Settings(hand_back_after=1), **settings), folder,
                       lambda: world.now)


def keep(row: dict[str, float]) -> dict[str, float]:
    """A policy that leaves everything as it is."""
    return {control.name: row[control.current] for control in CONTROLS}


def nonsense(row: dict[str, float]) -> dict[str, float]:
    return dict.fromkeys(keep(row), math.nan)


def measured(world: World, times_slo: float = 0.1) -> World:
    """The same, measured to serve everything at so many times its objective; what is lost stays lost."""
    honest = world.read

    def read() -> Readings:
        found = honest()
        known = {"p99_ms": times_slo * world.shown["slo_ms"], "served_share": 1.0}
        return replace(found, values={**found.values, **{name: known[name] for name in known if name in found.values}})

    world.read = read  # type: ignore[method-assign]
    return world
