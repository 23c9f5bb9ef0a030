"""The benchmarks of congestion control by name (`python -m benchmarks NAME`)."""

BENCHMARKS = {
    "congestion-rules": "systems.congestion.benchmarks.against_rules",
    "congestion-ceiling": "systems.congestion.benchmarks.ceiling",
    "congestion-several-senders": "systems.congestion.benchmarks.several_senders",
    "congestion-packets": "systems.congestion.benchmarks.beside_packets",
    "congestion-for-ever": "systems.congestion.benchmarks.for_ever",
    "congestion-real-link": "systems.congestion.benchmarks.beside_kernel",
}
