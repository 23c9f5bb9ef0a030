"""The closed-loop benchmark: single requests against the fluid, and its tables."""

import numpy as np

from systems.autoscaling.benchmarks.closed_loop import guarantees_table, inside_table, service_of, single_requests


def test_single_requests_follow_the_fluid_under_overload_and_recovery() -> None:
    service = service_of("nginx")
    serve = single_requests(service, step_s=4.0)
    # cores of load and of capacity; a backlog before in core seconds
    load, k, limit = np.array([1.0, 0.3, 0.2]), np.array([1.0, 1.0, 2.0]), np.array([0.5, 1.0, 0.5])
    backlog = np.array([0.0, 0.0, 1.0])
    after, used, latency = serve(backlog, load, k, limit)
    np.testing.assert_allclose(after, [2.0, 0.0, 0.0], atol=0.25)
    np.testing.assert_allclose(used, [0.5, 0.3, 0.45], atol=0.07)
    assert 3500 < latency[0] < 4500 and latency[1] < 30.0 and 700 < latency[2] < 1100


def entry(policy: str, change: float, bound: list[float] | None) -> dict[str, object]:
    seen = {"largest": 3.0, "quantile_99": 1.0, "changes_within": 0.5, "loads_within": 1.0, "steps_inside": 0.999}
    return {"policy": policy, "change": change, "bound": bound, "status": "PROVED" if bound else "UNKNOWN",
            "law": {"largest": 2.0}, "growth": 1.2, "leaves": 9, "seconds": 3.0,
            "episodes": {"calm": seen, "as it is": seen}}


def test_tables_print_what_is_proved_alone() -> None:
    content = {"entries": [entry("seed 0", 0.0, [71.11, 40]), entry("nginx", 0.01, None),
                           entry("nginx", 0.0, [7.0, 4])]}
    lines = guarantees_table(content).splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["nginx", "nginx", "seed 0"]
    assert "71.2" in lines[-1] and "| 40 |" in lines[-1]
    assert lines[3].count("| - |") + lines[3].count(" - ") >= 2 and "UNKNOWN" in lines[3]
    inside = inside_table(content).splitlines()
    assert len(inside) == 2 + 4 and "99.90" in inside[2]
