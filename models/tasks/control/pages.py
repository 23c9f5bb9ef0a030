"""What a control task shows of its policies: cost, violations and reward beside the rules, and what the policy does."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from models.metrics import SHARE_UNIT, Better, finite_number
from models.reporting.control_plots import savings
from models.reporting.document import Cell, Facts, Note, Part, Plot, figures
from models.reporting.formatting import number, percent
from models.reporting.gate_words import limit_of
from models.reporting.plots import FULL_WIDTH
from models.reporting.reading import at, floats, mapping, mappings
from models.tasks.control import learning_sections, sections
from models.tasks.control.evidence_reading import cost_unit, interval, name_at, percent_signed
from models.tasks.pages import Claim, Columns, Figure, Paired, TitledSection, paired, same_cases_of

Json = Mapping[str, Any]
# Recorded of every episode: key, name, unit ("": that of cost), which values are better.
EPISODES: tuple[tuple[str, str, str, Better], ...] = (
    ("cost", "cost per episode", "", "smaller"), ("reward", "reward per episode", "reward", "larger"),
    ("violating_share", "steps that miss the objective", SHARE_UNIT, "smaller"))


class ControlPages:
    """Implements `Pages`."""

    def headline(self, evidence: Json | None, gates: Json | None) -> Facts:
        """Cost, violations and reward, all beside one rule: the cheapest that violates no more than is allowed."""
        rule = name_at(evidence, "best_rule")

        def remark(key: str, *metrics: str, share: bool = False) -> str:
            other = interval(evidence, rule, key)[0]
            limits = (limit_of(metric, gates, evidence) for metric in metrics)
            return "; ".join([f"{rule or 'no rule'} {(percent if share else number)(other)}",
                              *filter(None, limits)][:2])

        saved, least = (percent_signed(_metric(evidence, f"cost_saved{end}")) for end in ("", "_lower"))
        worst = "worst_tenth_violating_share"
        return Facts((
            (f"Cost saved against {rule or 'the best rule'}", saved, "; ".join(filter(None, (
                f"at least {least}", limit_of("cost_saved_lower", gates, evidence))))),
            ("Cost", number(interval(evidence, "policy", "cost")[0]),
             "; ".join(filter(None, (cost_unit(evidence), remark("cost", "mean_cost"))))),
            ("Steps that miss the objective", percent(_metric(evidence, "violating_share")),
             remark("violating_share", "violating_share_upper", "violating_share", share=True)),
            ("In the worst tenth of episodes", percent(_metric(evidence, worst)), limit_of(worst, gates, evidence)),
            ("Reward", number(_metric(evidence, "mean_reward")), remark("reward")),
            ("A decision takes", number(_metric(evidence, "latency_us"), "µs"),
             limit_of("latency_us", gates, evidence) or "in onnxruntime, median")))

    def claims(self, evidence: Json | None) -> Sequence[Claim]:
        """What holds of the closed loop, for each change a step that was tried; or that nothing does."""
        return sections.loop_claims(evidence)

    def paired(self, evidence: Json) -> Sequence[Paired]:
        """What decides; then what else was recorded of every episode, of both."""
        decides = paired(same_cases_of(evidence), "episode")
        more = []
        for key, name, unit, better in EPISODES:
            version, champion = (floats(at(evidence, *keys)) for keys in
                                 (("episodes", f"policy_{key}"), ("champion", "episodes", key)))
            same = len(version) == len(champion) == len(decides.version) and name != decides.name
            if same and np.isfinite(version).all() and np.isfinite(champion).all():
                more.append(Paired(name, unit or cost_unit(evidence), better, version, champion, "episode"))
        return (decides, *more)

    def worst(self, evidence: Json | None) -> tuple[Part, ...]:
        """The episodes that miss the objective most."""
        return sections.worst(evidence)

    def sections(self, contract: Json | None, evidence: Json | None, scaling: Json | None,
                 page: str) -> Sequence[TitledSection]:
        """From where it stands among the rules to how it was trained."""
        return (("front", "Cost and violations among the rules", sections.front(evidence, page)),
                ("day", "One episode over time", sections.day(evidence, page)),
                ("episodes", "Episode by episode", sections.episodes(evidence, page)),
                ("actions", "What the policy does", sections.actions(evidence, page)),
                *([("loop", "What holds of the closed loop", sections.closed_loop(evidence, page))]
                  if mappings(evidence, "closed_loop", "found") else []),  # else the first screen says so
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
        generic = ("generic", "The generic policy on held-out environments",
                   learning_sections.generic_front(pretrained, "run-generic"))
        if not rows:
            return (("savings", "What the policies save", (Note("No saving was measured.", "missing"),)), generic)
        markup = savings(rows, "cost saved against the best rule", "run-savings")
        return (("savings", "What the policies save",
                 (Plot(markup, FULL_WIDTH, "Paired held-out episodes; intervals, each end at 99 %. Best: the cheapest "
                       "rule, tuned on the training environments, that violates no more than is allowed, or than the "
                       "policy itself."),)), generic)

    def columns(self, entries: Sequence[Json]) -> Columns:
        """Cost saved, violations, reward."""
        return Columns((("Cost saved", 2), ("Violating steps", 2), ("Reward", 2)),
                       ("Best rule", "Own rule", "Policy", "Rule", "Policy", "Rule"),
                       "Cost saved: against the best rule as it was tuned on the training environments, and to the "
                       "workload itself; violating steps and reward: means over held-out episodes, beside the best "
                       "rule's violating steps and the largest reward of the rules that it was chosen from.")

    def cells(self, evidence: Json | None) -> tuple[Cell, ...]:
        """One workload's cells."""
        shown: list[tuple[Callable[[Any], str], str]] = [
            *((percent_signed, name) for name in ("cost_saved", "own_cost_saved")),
            *((percent, name) for name in ("violating_share", "rule_violating_share")),
            *((number, name) for name in ("mean_reward", "rule_reward"))]
        return tuple(figures([say(_metric(evidence, name)) for say, name in shown]))

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


def _metric(evidence: Json | None, name: str) -> float | None:
    return finite_number(mapping(evidence, "metrics").get(name))
