"""The benchmarks of autoscaling by name (`python -m benchmarks NAME`)."""

BENCHMARKS = {
    "autoscaling-physics": "systems.autoscaling.benchmarks.physics",
    "autoscaling-scenarios": "systems.autoscaling.benchmarks.scenarios",
    "autoscaling-twin": "systems.autoscaling.benchmarks.twin",
    "autoscaling-proofs": "systems.autoscaling.benchmarks.proofs",
    "autoscaling-closed-loop": "systems.autoscaling.benchmarks.closed_loop",
    "autoscaling-distribution": "systems.autoscaling.benchmarks.distribution",
    "autoscaling-rules": "systems.autoscaling.benchmarks.against_rules",
    "autoscaling-adversarial-states": "systems.autoscaling.benchmarks.adversarial.states",
    "autoscaling-run": "systems.autoscaling.benchmarks.whole_run",
    "autoscaling-speed": "systems.autoscaling.benchmarks.speed",
    "autoscaling-training": "systems.autoscaling.benchmarks.time_to_reward",
    "autoscaling-bootstrapping": "systems.autoscaling.benchmarks.bootstrapping",
    "autoscaling-rivals": "systems.autoscaling.benchmarks.adaptation.rivals",
    "autoscaling-adaptation": "systems.autoscaling.benchmarks.adaptation.new_application",
    "autoscaling-serving": "systems.autoscaling.benchmarks.adaptation.serving",
    "autoscaling-own-service": "systems.autoscaling.benchmarks.own_service",
    "closed-loop": "systems.autoscaling.benchmarks.real_servers.comparison",
    "closed-loop-challenge": "systems.autoscaling.benchmarks.real_servers.challenge",
}
