"""Evidence of a policy as evidence.py writes it, small; figures are made up."""

from typing import Any


def figures(reward: float, cost: float, share: float) -> dict[str, Any]:
    means = {"reward": reward, "cost": cost, "violating_share": share, "cores": 10 * cost, "cpu_utilization": 0.4}
    return {"figures": {name: [value, 0.9 * value, 1.1 * value] for name, value in means.items()}, "settings": {}}


def series(points: int, scale: float) -> dict[str, list[float]]:
    return {"rate_rps": [100.0 + step for step in range(points)], "replicas": [scale * 2.0] * points,
            "p99_ms": [scale * 80.0] * points, "slo_ms": [120.0] * points,
            "violated": [float(step % 5 == 0) for step in range(points)]}


def held_out() -> dict[str, Any]:
    """Of the generic policy, as held_out.py writes it."""
    front = [{"aim": aim, "cost": 3.0 - 20 * aim, "violating_share": aim, "reward": 1.4} for aim in (0.01, 0.02, 0.04)]
    return {"best_rule": "autopilot", "front": front, "episodes": 120,
            "metrics": {"violating_share": 0.019, "cost_saved": 0.09, "cost_saved_lower": 0.05,
                        "cost_saved_upper": 0.13},
            "controllers": {"policy": figures(1.4, 2.6, 0.019), "autopilot": figures(1.35, 2.9, 0.02)}}


def evidence(points: int = 12) -> dict[str, Any]:
    history = [{"epoch": float(k), "reward": 1.0 + 0.01 * k, "cost": 3.0 - 0.1 * k, "violating_share": 0.3 / (k + 1),
                "price": 2.0} for k in range(6)]
    grid = [0.5, 1.0, 2.0]
    return {
        "metrics": {"cost_saved": 0.12, "cost_saved_lower": 0.08, "cost_saved_upper": 0.16, "own_cost_saved": -0.01,
                    "own_cost_saved_lower": -0.05, "own_cost_saved_upper": 0.03, "violating_share": 0.018,
                    "rule_violating_share": 0.019, "mean_reward": 1.45, "rule_reward": 1.4, "latency_us": 19.5},
        "best_rule": "autopilot", "best_own_rule": "hpa-cpu, own",
        "fallback": {"name": "hpa-cpu", "settings": {},
                     "score": {"loss": 3.2, "cost": 3.2, "violating_share": 0.02, "reward": 1.3}},
        "objective": {"maximise": "saving", "violating_share": 0.02}, "cost_unit": "cores a core of mean load",
        "measures": {"cores": "cores", "cpu_utilization": "share"},
        "controllers": {"policy": figures(1.45, 3.0, 0.018), "autopilot": figures(1.4, 3.4, 0.019),
                        "hpa-cpu": figures(1.2, 4.4, 0.04), "hpa-cpu, own": figures(1.3, 2.97, 0.02)},
        "episodes": {"policy_cost": [3.0, 2.5, 4.0], "rule_cost": [3.5, 3.0, 3.9],
                     "policy_violating_share": [0.0, 0.02, 0.03], "rule_violating_share": [0.01, 0.02, 0.02]},
        "roles": {"load": ["rate_rps"], "present": {"target_replicas": "replicas"}, "metric": "p99_ms",
                  "objective": "slo_ms"},
        "day": {"seconds": [15.0 * k for k in range(points)],
                "units": {"rate_rps": "1/s", "p99_ms": "ms", "slo_ms": "ms"},
                "series": {"policy": series(points, 1.0), "hpa-cpu": series(points, 2.0)}},
        "action_map": {"x": {"name": "p99_ms", "unit": "ms", "values": [60.0, 120.0, 240.0]},
                       "y": {"name": "cpu_utilization", "unit": "share", "values": grid},
                       "held_at": {"slo_ms": 120.0, "replicas": 4.0},
                       "target_over_present": {"target_replicas": [[0.8, 0.9, 1.0], [0.9, 1.0, 1.1], [1.0, 1.2, 1.5]]}},
        "closed_loop": {"assumed": "A law.", "found": [
            {"change": 0.0, "change_unit": "cores a step", "status": "PROVED", "statement": "It holds.", "reason": "",
             "bound": 71.01, "bound_unit": "core seconds", "steps": 40, "growth": 1.2, "leaves": 17, "seconds": 3.1},
            {"change": 0.1, "change_unit": "cores a step", "status": "UNKNOWN", "statement": "Nothing is guaranteed.",
             "reason": "The time ended.", "bound": None, "bound_unit": "core seconds", "steps": None, "growth": None,
             "leaves": 0, "seconds": 15.0}]},
        "lifecycle": {"stages": ["offline"] * 3 + ["online"] * 3 + ["serving"] * 4,
                      "rewards": [1.2 + 0.02 * k for k in range(10)],
                      "profile": {"t_online": 1.1, "t_serving": 1.25},
                      "transitions": [{"episode": 2, "before": "offline", "after": "online", "reason": "mean 1.22"}]},
        "training": {"taken": "finetuned", "reason": "cost 2.9 against 3.1", "history": history,
                     "diverged_in_update": None,
                     "pretraining": {"history": history, "held_out": held_out()}}}
