"""What a control task shows of its policies: cost, violations and reward beside the rules, and what the policy does."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from models.metrics import finite_number
from models.reporting.control_plots import savings
from models.reporting.document import Cell, Facts, Note, Part, Plot, figures
from models.reporting.formatting import number, percent
from models.reporting.plots import FULL_WIDTH
from models.reporting.reading import at, mapping
from models.tasks.control import learning_sections, sections
from models.tasks.control.evidence_reading import percent_signed
from models.tasks.pages import Columns, Figure, TitledSection

Json = Mapping[str, Any]


class ControlPages:
    """Implements `Pages`."""

    def headline(self, evidence: Json | None) -> Facts:
        """Cost saved at the objective, violations, reward, how long a decision takes."""
        latency_us = _metric(evidence, "latency_us")
        return Facts((
            ("Cost saved against the best rule", *_saved(evidence, "")),
            ("Against the best rule tuned to it", *_saved(evidence, "own_")),
            ("Violating steps", percent(_metric(evidence, "violating_share")),
             f"allowed {percent(at(evidence, 'objective', 'violating_share'))}; "
             f"the rule {percent(_metric(evidence, 'rule_violating_share'))}"),
            ("Mean reward", number(_metric(evidence, "mean_reward")),
             f"the best rule's {number(_metric(evidence, 'rule_reward'))}"),
            ("A decision", number(latency_us, "µs"), "in onnxruntime, median")))

    def sections(self, contract: Json | None, evidence: Json | None, scaling: Json | None,
                 page: str) -> Sequence[TitledSection]:
        """From where it stands among the rules to how it was trained."""
        return (("front", "Cost and violations among the rules", sections.front(evidence, page)),
                ("day", "The application over some hours", sections.day(evidence, page)),
                ("episodes", "Episode by episode", sections.episodes(evidence, page)),
                ("actions", "What the policy does", sections.actions(evidence, page)),
                ("loop", "What holds of the closed loop", sections.closed_loop(evidence, page)),
                ("lifecycle", "When it would have been let act", sections.lifecycle(evidence, page)),
                ("adaptation", "Adaptation to this workload", learning_sections.adaptation(evidence, page)),
                ("pretraining", "Pretraining", learning_sections.pretraining(evidence, page)))

    def run_sections(self, entries: Sequence[Json]) -> Sequence[TitledSection]:
        """What all workloads save, and what they started from."""
        rows = []
        for entry in entries:
            saved, low, high = (_metric(entry.get("evidence"), f"cost_saved{end}") for end in ("", "_lower", "_upper"))
            if saved is not None and low is not None and high is not None:
                rows.append((str(entry.get("workload", "")), (saved, low, high)))
        pretrained = next((found for entry in entries if (found := entry.get("evidence"))), None)
        generic = ("generic", "The generic policy on held-out applications",
                   learning_sections.generic_front(pretrained, "run-generic"))
        if not rows:
            return (("savings", "What the policies save", (Note("No saving was measured.", "missing"),)), generic)
        markup = savings(rows, "cost saved against the best rule", "run-savings")
        return (("savings", "What the policies save",
                 (Plot(markup, FULL_WIDTH, "Paired held-out episodes, with 99 % intervals. Best: the cheapest rule, "
                       "tuned on the training applications, that violates no more than is allowed, or than the policy "
                       "itself."),)), generic)

    def columns(self, entries: Sequence[Json]) -> Columns:
        """Cost saved, violations, reward."""
        return Columns((("Cost saved", 2), ("Violating steps", 2), ("Reward", 2)),
                       ("Best rule", "Own rule", "Policy", "Rule", "Policy", "Rule"),
                       "Cost saved: against the best rule as it was tuned on the training applications, and to the "
                       "workload itself; violating steps and reward: means over held-out episodes, beside the best "
                       "rule's.")

    def cells(self, evidence: Json | None) -> tuple[Cell, ...]:
        """One workload's cells."""
        shown: list[tuple[Callable[[Any], str], str]] = [
            *((percent_signed, name) for name in ("cost_saved", "own_cost_saved")),
            *((percent, name) for name in ("violating_share", "rule_violating_share")),
            *((number, name) for name in ("mean_reward", "rule_reward"))]
        return tuple(figures([say(_metric(evidence, name)) for say, name in shown]))

    def details(self, contract: Json | None, evidence: Json | None, scaling: Json | None,
                page: str) -> tuple[Part, ...]:
        """The day and the front."""
        return (*sections.day(evidence, page), *sections.front(evidence, page)[:2])

    def figures(self, evidence: Json | None) -> tuple[Figure, ...]:
        """Of the run's summary."""
        saved, share = _metric(evidence, "cost_saved"), _metric(evidence, "violating_share")
        return (Figure("saved", None if saved is None else 100 * saved, "%", "cost against the best rule"),
                Figure("violating", None if share is None else 100 * share, "%", "steps of held-out episodes"),
                Figure("reward", _metric(evidence, "mean_reward"), "", "the mean of held-out episodes"))

    def badness(self, evidence: Json | None) -> float | None:
        """What is lost against the best rule."""
        saved = _metric(evidence, "cost_saved")
        return None if saved is None else -saved

    def parameters(self, evidence: Json | None) -> Mapping[str, Any]:
        """What the run chose."""
        return {"fallback": mapping(evidence, "fallback").get("name", ""),
                "policy": mapping(evidence, "training").get("taken", "")}


def _saved(evidence: Json | None, prefix: str) -> tuple[str, str]:
    """The share, and at least how much of it against whom."""
    saved, least = (percent_signed(_metric(evidence, f"{prefix}cost_saved{end}")) for end in ("", "_lower"))
    return saved, f"at least {least}; {at(evidence, f'best_{prefix}rule') or 'no rule'}"


def _metric(evidence: Json | None, name: str) -> float | None:
    return finite_number(mapping(evidence, "metrics").get(name))
