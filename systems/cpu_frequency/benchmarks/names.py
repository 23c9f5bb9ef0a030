"""The benchmarks of CPU frequency by name (`python -m benchmarks NAME`)."""

BENCHMARKS = {
    "cpu-frequency-policies": "systems.cpu_frequency.benchmarks.policies",
    "cpu-frequency-foresight": "systems.cpu_frequency.benchmarks.foresight",
    "cpu-frequency-adaptation": "systems.cpu_frequency.benchmarks.adaptation",
}
