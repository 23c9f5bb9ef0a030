"""Tables and pictures of autoscaling's results (benchmarks/tables.py)."""

from collections.abc import Mapping
from typing import Any

from benchmarks.harness.shown import Headline, Plot, Source, verdicts_line
from systems.autoscaling.benchmarks import (
    against_rules,
    cases,
    closed_loop,
    distribution,
    early_tables,
    own_service,
    physics_tables,
    scenarios,
    speed,
    time_to_reward,
    twin_tables,
    whole_run,
)
from systems.autoscaling.benchmarks.adaptation import new_application_tables, rivals, serving
from systems.autoscaling.benchmarks.adaptation.plots import draw_adaptation, draw_rivals, draw_serving
from systems.autoscaling.benchmarks.adversarial import tables as adversarial_tables
from systems.autoscaling.benchmarks.adversarial.plot import draw_states
from systems.autoscaling.benchmarks.fronts_plot import draw_rules
from systems.autoscaling.benchmarks.real_servers import challenge_tables
from systems.autoscaling.benchmarks.real_servers import plots as closed_loop_plots
from systems.autoscaling.benchmarks.real_servers import tables as closed_loop_tables

PLOTS = (
    Plot("autoscaling_physics", physics_tables.draw_physics, "docs/images/autoscaling_physics.svg"),
    Plot("autoscaling_twin", twin_tables.draw_twin, "docs/images/autoscaling_twin.svg"),
    Plot("autoscaling_speed", speed.draw_speed, "docs/images/autoscaling_speed.svg"),
    Plot("autoscaling_scenarios", scenarios.draw_scenarios, "docs/images/autoscaling_scenarios.svg", "scenarios"),
    Plot("autoscaling_scenarios", scenarios.draw_patterns, "docs/images/autoscaling_patterns.svg", "scenarios"),
    Plot("autoscaling_rules", draw_rules, "docs/images/autoscaling_rules.svg"),
    Plot("autoscaling_adversarial_states", draw_states, "docs/images/autoscaling_adversarial_states.svg"),
    Plot("autoscaling_rivals", draw_rivals, "docs/images/autoscaling_rivals.svg"),
    Plot("autoscaling_adaptation", draw_adaptation, "docs/images/autoscaling_adaptation.svg"),
    Plot("autoscaling_serving", draw_serving, "docs/images/autoscaling_serving.svg"),
    Plot("closed_loop_challenge", challenge_tables.draw, "docs/images/closed_loop_challenge.svg"),
    Plot("closed_loop", closed_loop_plots.draw_compared, "docs/images/closed_loop.svg"),
    Plot("closed_loop", closed_loop_plots.draw_suspect, "docs/images/closed_loop_suspect.svg"),
)
TABLES: dict[str, Source] = {
    "autoscaling-physics": Source("autoscaling_physics", physics_tables.bands_table),
    "autoscaling-physics-idle": Source("autoscaling_physics", physics_tables.idle_table),
    "autoscaling-physics-kinds": Source("autoscaling_physics", physics_tables.kinds_table),
    "autoscaling-twin": Source("autoscaling_twin", twin_tables.bands_table),
    "autoscaling-twin-servers": Source("autoscaling_twin", twin_tables.servers_table),
    "autoscaling-twin-parameters": Source("autoscaling_twin", twin_tables.parameters_table),
    "autoscaling-twin-conditions": Source("autoscaling_twin", twin_tables.conditions_line),
    "autoscaling-physics-conditions": Source("autoscaling_physics", physics_tables.conditions_line),
    "autoscaling-scenarios": Source("autoscaling_scenarios", scenarios.scenarios_table, "scenarios"),
    "autoscaling-scenarios-conditions": Source("autoscaling_scenarios", scenarios.conditions_line, "scenarios"),
    "closed-loop-challenge": Source("closed_loop_challenge", challenge_tables.arms_table),
    "closed-loop-challenge-equal": Source("closed_loop_challenge", challenge_tables.equal_violations_table),
    "closed-loop-challenge-pairs": Source("closed_loop_challenge", challenge_tables.pairs_table),
    "closed-loop-challenge-conditions": Source("closed_loop_challenge", challenge_tables.conditions_line),
    "closed-loop": Source("closed_loop", closed_loop_tables.compared_table),
    "closed-loop-paired": Source("closed_loop", closed_loop_tables.paired_line),
    "closed-loop-suspect": Source("closed_loop", closed_loop_tables.suspect_table),
    "closed-loop-shield": Source("closed_loop", closed_loop_tables.shield_table),
    "closed-loop-forecast": Source("closed_loop", closed_loop_tables.forecast_table),
    "closed-loop-conditions": Source("closed_loop", closed_loop_tables.conditions_line),
    "autoscaling-distribution": Source("autoscaling_distribution", distribution.flagged_table),
    "autoscaling-rules": Source("autoscaling_rules", against_rules.rules_table),
    "autoscaling-savings": Source("autoscaling_rules", against_rules.savings_table),
    "autoscaling-cases": Source("autoscaling_rules", cases.cases_table),
    "autoscaling-closed-loop": Source("autoscaling_closed_loop", closed_loop.guarantees_table),
    "autoscaling-closed-loop-inside": Source("autoscaling_closed_loop", closed_loop.inside_table),
    "autoscaling-adversarial-states": Source("autoscaling_adversarial_states", adversarial_tables.states_table),
    "autoscaling-adversarial-states-conditions": Source("autoscaling_adversarial_states",
                                                        adversarial_tables.conditions_line),
    "autoscaling-speed": Source("autoscaling_speed", speed.speed_table),
    "autoscaling-speed-conditions": Source("autoscaling_speed", speed.conditions_line),
    "autoscaling-speed-gpu": Source("autoscaling_speed_gpu", speed.speed_table),
    "autoscaling-speed-gpu-conditions": Source("autoscaling_speed_gpu", speed.conditions_line),
    "autoscaling-training-gpu": Source("autoscaling_training_gpu", time_to_reward.training_table),
    "autoscaling-own-service": Source("autoscaling_own_service", own_service.own_service_table, "seconds"),
    "autoscaling-run": Source("autoscaling_run", whole_run.run_table),
    "autoscaling-rivals": Source("autoscaling_rivals", rivals.rivals_table),
    "autoscaling-rivals-simplest": Source("autoscaling_rivals", rivals.simplest_line),
    "autoscaling-adaptation": Source("autoscaling_adaptation", new_application_tables.adaptation_table),
    "autoscaling-serving-conditions": Source("autoscaling_serving", serving.conditions_line),
    "autoscaling-serving": Source("autoscaling_serving", serving.serving_table),
    "autoscaling-serving-scenarios": Source("autoscaling_serving", serving.scenarios_table),
    "autoscaling-training": Source("autoscaling_training", time_to_reward.training_table),
    "autoscaling-bootstrapping": Source("autoscaling_bootstrapping", early_tables.early_table),
}


def headline(rules: Mapping[str, Any], run: Mapping[str, Any]) -> tuple[str, str]:
    """What a proved policy saves in simulation under made loads; verdicts of the whole run."""
    made = next(one for one in rules["entries"] if one["load"] == "made")
    saved = made["policies"]["proved"]["cost_saved"]
    return (f"{100 * saved['mean']:+.0f} % of cost saved ({100 * saved['low']:+.0f} to {100 * saved['high']:+.0f}) "
            f"against the best of {len(made['rules'])} rules (HPA, VPA, KEDA, ...), tuned on the same applications",
            verdicts_line([one["verdict"] for entry in run["entries"] for one in entry["workloads"]]))


HEADLINES = (Headline("autoscaling", "sets CPU limit, memory limit and replicas (simulated; real servers: below)",
                      ("autoscaling_rules", "autoscaling_run"), headline,
                      "docs/benchmarks/autoscaling-rules.md"),)
