"""Tables of the policy beside the rules."""

from typing import Any

from systems.microservices.benchmarks.control import headline, mitigation_table


def results() -> dict[str, Any]:
    def figures(**of: float) -> dict[str, list[float]]:
        return {name: [value, value, value] for name, value in of.items()}

    return {"entries": [{"episodes": 9, "best_rule": "aimd", "controllers": {
        "policy": figures(missed=0.04, begins=0.02, limits=0.3, usage=0.5, dropped=0.0),
        "aimd": figures(missed=0.08 + more, begins=0.01, limits=0.6, usage=0.25, dropped=0.001)}}
        for more in (0.0, 0.02)]}


def test_how_long_an_objective_stays_missed_is_the_mean_length_of_a_miss() -> None:
    rows = [line.split(" | ") for line in mitigation_table(results()).splitlines()[2:4]]
    assert rows[0][0] == "| **policy**" and rows[0][1].startswith("2.0 ±")
    assert rows[0][2].startswith("1.2 ±") and rows[1][3].startswith("9.00 ±")
    assert rows[1][0] == "| aimd" and rows[1][1].startswith("9.0 ±") and rows[1][2].startswith("0.6 ±")


def test_the_headline_names_both() -> None:
    runs = {"entries": [{"task": task, "workloads": [{"verdict": verdict}]}
                        for task, verdict in (("microservices", "UNKNOWN"), ("another", "PROVED"))]}
    said, verdict = headline(results(), runs)
    assert "30 % of the node's cores set, an objective held again after 2.0 s" in said
    assert "the rule aimd: 60 % of the node's cores" in said and "9.0 s" in said
    assert verdict == "0 of 1 PROVED, the others UNKNOWN"
