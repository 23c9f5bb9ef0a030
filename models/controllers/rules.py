"""The rules that a platform engineer would run, by name: what the learned policies have to beat, and fall back to."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from feature_store.errors import InputError, nearest
from models.controllers.aimd import AimdCpu, AimdReplicas
from models.controllers.autopilot import AutopilotCpu, AutopilotMemory, AutopilotReplicas
from models.controllers.deployed import DeployedCpu, DeployedMemory, DeployedReplicas
from models.controllers.hpa import HpaCpu, HpaCpuP99
from models.controllers.keda import KedaForecast, KedaRate
from models.controllers.part import Part
from models.controllers.rule import PREFIXES, Rule
from models.controllers.setting import Setting, Value, checked
from models.controllers.vertical import VerticalCpu, VerticalCpuP99
from models.controllers.vpa import VpaCpu, VpaMemory


@dataclass(frozen=True)
class RuleClass:
    """What sets each control."""

    replicas: type[Part]
    cpu: type[Part]
    memory: type[Part]
    meaning: str

    @property
    def parts(self) -> dict[str, type[Part]]:
        """Control -> class."""
        return {"target_replicas": self.replicas, "target_cpu_limit_cores": self.cpu,
                "target_memory_limit_mib": self.memory}

    @property
    def declared(self) -> tuple[Setting, ...]:
        """Settings of the rule: those of its parts, as replicas_..., cpu_... and memory_..."""
        return tuple(replace(setting, name=f"{PREFIXES[control]}_{setting.name}")
                     for control, part in self.parts.items() for setting in part.declared)


RULES: dict[str, RuleClass] = {
    "static": RuleClass(DeployedReplicas, DeployedCpu, DeployedMemory, "as deployed, times a share"),
    "hpa-cpu": RuleClass(HpaCpu, DeployedCpu, DeployedMemory, "replicas by CPU utilisation, limits as deployed"),
    "hpa-cpu-vpa-memory": RuleClass(HpaCpu, DeployedCpu, VpaMemory, "replicas by CPU utilisation, memory by the VPA"),
    "hpa-cpu-p99-vpa-memory": RuleClass(
        HpaCpuP99, DeployedCpu, VpaMemory, "replicas by CPU utilisation and latency, memory by the VPA"),
    "hpa-vpa": RuleClass(HpaCpu, VpaCpu, VpaMemory, "replicas by CPU utilisation, both limits by the VPA"),
    "keda-rate": RuleClass(KedaRate, DeployedCpu, VpaMemory, "replicas by the request rate, memory by the VPA"),
    "keda-forecast": RuleClass(
        KedaForecast, DeployedCpu, VpaMemory, "replicas by the request rate and its forecast, memory by the VPA"),
    "autopilot": RuleClass(AutopilotReplicas, AutopilotCpu, AutopilotMemory, "moving windows on all three"),
    "aimd-p99": RuleClass(DeployedReplicas, AimdCpu, VpaMemory, "CPU limit by latency, memory by the VPA"),
    "aimd-p99-replicas": RuleClass(AimdReplicas, DeployedCpu, VpaMemory, "replicas by latency, memory by the VPA"),
    "vertical-cpu": RuleClass(DeployedReplicas, VerticalCpu, VpaMemory, "CPU limit by utilisation, memory by the VPA"),
    "vertical-cpu-p99": RuleClass(
        DeployedReplicas, VerticalCpuP99, VpaMemory, "CPU limit by utilisation and latency, memory by the VPA"),
}


def rule_class(name: str) -> RuleClass:
    """The rule of that name. Raises InputError."""
    if name not in RULES:
        raise InputError(f"rule must be one of {', '.join(RULES)}, got {name!r}; {nearest(name, RULES)}")
    return RULES[name]


def make(name: str, settings: Mapping[str, Value] | None = None) -> Rule:
    """A rule by name; `make(rule.name, rule.settings)` makes it again.

    Args:
        name: one of RULES.
        settings: what differs from the defaults; each one value, or one for each application.

    Raises:
        InputError: an unknown rule or setting, a value out of range.
    """
    known = rule_class(name)
    values = checked(settings or {}, known.declared, f"rule {name}")
    parts: dict[str, Part] = {}
    for control, part in known.parts.items():
        prefix = f"{PREFIXES[control]}_"
        parts[control] = part({setting.name: values[prefix + setting.name] for setting in part.declared})
    return Rule(name, parts, values)
