"""The rules that a platform engineer would run, by name: what the learned policies have to beat, and fall back to."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from feature_store.errors import InputError, nearest
from models.control.contract.setting import Setting, Value, checked
from systems.autoscaling.rules.aimd import AimdCpu, AimdReplicas
from systems.autoscaling.rules.autopilot import AutopilotCpu, AutopilotMemory, AutopilotReplicas
from systems.autoscaling.rules.deployed import DeployedCpu, DeployedMemory, DeployedReplicas
from systems.autoscaling.rules.feedforward import FeedforwardCpu, FeedforwardDemand, FeedforwardReplicas, PeakMemory
from systems.autoscaling.rules.hpa import HpaCpu, HpaCpuP99
from systems.autoscaling.rules.keda import KedaForecast, KedaRate, KedaRateOfDeployed
from systems.autoscaling.rules.part import Part
from systems.autoscaling.rules.rule import PREFIXES, Rule
from systems.autoscaling.rules.vertical import VerticalCpu, VerticalCpuP99
from systems.autoscaling.rules.vpa import VpaCpu, VpaMemory


@dataclass(frozen=True)
class RuleFamily:
    """Rules that differ in their settings; see models/control/contract/environment.py.

    Attributes:
        name: as tables name it.
        replicas, cpu, memory: what sets each control.
        meaning: one phrase for a reader.
        demand: estimates the cores that are needed, for the others; None: nothing does.
    """

    name: str
    replicas: type[Part]
    cpu: type[Part]
    memory: type[Part]
    meaning: str
    demand: type[Part] | None = None

    @property
    def parts(self) -> dict[str, type[Part]]:
        """Estimate or control -> class, in the order in which they are asked."""
        estimates = {} if self.demand is None else {"needed_cores": self.demand}
        return estimates | {"target_replicas": self.replicas, "target_cpu_limit_cores": self.cpu,
                            "target_memory_limit_mib": self.memory}

    @property
    def declared(self) -> tuple[Setting, ...]:
        """Settings of the rule: those of its parts, as demand_..., replicas_..., cpu_... and memory_..."""
        return tuple(replace(setting, name=f"{PREFIXES[control]}_{setting.name}")
                     for control, part in self.parts.items() for setting in part.declared)

    def make(self, settings: Mapping[str, Value]) -> Rule:
        """A rule, from what differs from the defaults. Raises InputError: an unknown setting, a value out of range."""
        values = checked(settings, self.declared, f"rule {self.name}")
        parts: dict[str, Part] = {}
        for control, part in self.parts.items():
            prefix = f"{PREFIXES[control]}_"
            parts[control] = part({setting.name: values[prefix + setting.name] for setting in part.declared})
        return Rule(self.name, parts, values)


_FAMILIES = (
    RuleFamily("static", DeployedReplicas, DeployedCpu, DeployedMemory, "as deployed, times a share"),
    RuleFamily("hpa-cpu", HpaCpu, DeployedCpu, DeployedMemory, "replicas by CPU utilisation, limits as deployed"),
    RuleFamily("hpa-cpu-vpa-memory", HpaCpu, DeployedCpu, VpaMemory,
               "replicas by CPU utilisation, memory by the VPA"),
    RuleFamily("hpa-cpu-p99-vpa-memory", HpaCpuP99, DeployedCpu, VpaMemory,
               "replicas by CPU utilisation and latency, memory by the VPA"),
    RuleFamily("hpa-vpa", HpaCpu, VpaCpu, VpaMemory, "replicas by CPU utilisation, both limits by the VPA"),
    RuleFamily("keda-rate", KedaRate, DeployedCpu, VpaMemory, "replicas by the request rate, memory by the VPA"),
    RuleFamily("keda-forecast", KedaForecast, DeployedCpu, VpaMemory,
               "replicas by the request rate and its forecast, memory by the VPA"),
    RuleFamily("keda-rate-aimd-p99", KedaRateOfDeployed, AimdCpu, VpaMemory,
               "replicas by the request rate, CPU limit by latency, memory by the VPA"),
    RuleFamily("autopilot", AutopilotReplicas, AutopilotCpu, AutopilotMemory, "moving windows on all three"),
    RuleFamily("aimd-p99", DeployedReplicas, AimdCpu, VpaMemory, "CPU limit by latency, memory by the VPA"),
    RuleFamily("aimd-p99-replicas", AimdReplicas, DeployedCpu, VpaMemory, "replicas by latency, memory by the VPA"),
    RuleFamily("vertical-cpu", DeployedReplicas, VerticalCpu, VpaMemory,
               "CPU limit by utilisation, memory by the VPA"),
    RuleFamily("vertical-cpu-p99", DeployedReplicas, VerticalCpuP99, VpaMemory,
               "CPU limit by utilisation and latency, memory by the VPA"),
    RuleFamily("feedforward-p99", FeedforwardReplicas, FeedforwardCpu, PeakMemory,
               "needed cores by load, last peak and the cost of a request, with a headroom integrated from latency",
               FeedforwardDemand),
)
RULES: dict[str, RuleFamily] = {family.name: family for family in _FAMILIES}


def make(name: str, settings: Mapping[str, Value] | None = None) -> Rule:
    """A rule by name; `make(rule.name, rule.settings)` makes it again.

    Args:
        name: one of RULES.
        settings: what differs from the defaults; each one value, or one for each application.

    Raises:
        InputError: an unknown rule or setting, a value out of range.
    """
    if name not in RULES:
        raise InputError(f"rule must be one of {', '.join(RULES)}, got {name!r}; {nearest(name, RULES)}")
    return RULES[name].make(settings or {})
