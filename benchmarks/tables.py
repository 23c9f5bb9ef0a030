"""Makes the tables in README.md and docs/ from the result files, and says whether they are up to date.

    python -m benchmarks tables [--check]

A page gets a table by the two lines `<!-- table: NAME -->` and `<!-- end table -->`; what stands between them
is replaced. Nothing in a table is typed by hand.
"""

import argparse
import sys
from pathlib import Path

from benchmarks.adaptation import accuracy_tables, cost_tables, pool_tables, sizing
from benchmarks.adaptation.plots import draw_adaptation_scale
from benchmarks.control import default_runs
from benchmarks.control.soak_tables import draw_soak, soak_conditions_line, soak_table
from benchmarks.gates import false_promotion, later_runs, monitor
from benchmarks.harness.markdown import fill, marked_tables
from benchmarks.harness.result_file import read_results
from benchmarks.harness.shown import Headline, Plot, Source, tasks_table
from benchmarks.harness.systems import systems
from benchmarks.learning import performance_tables, stacked_training
from benchmarks.pipeline import larger_than_memory_tables, light_install
from benchmarks.pipeline import tables as pipeline_tables
from benchmarks.pipeline.scale_plot import draw_scale
from benchmarks.serving import predictions
from benchmarks.test_quality import code_mutation_tables
from benchmarks.verification import (
    campaign_tables,
    execution_rounding,
    forest_tables,
    mutant_tables,
    published_tables,
)
from benchmarks.verification.plots import draw_cactus, draw_growth
from feature_store.errors import InputError, nearest

OUTPUT = None  # pages of README and docs, not a result file
ROOT = Path(__file__).resolve().parent.parent
RESULTS = "benchmarks/results"
SCALE_PLOT = "docs/images/pipeline_scale.svg"
CACTUS_PLOT = "docs/images/verification_cactus.svg"
GROWTH_PLOT = "docs/images/verification_growth.svg"
PLOTS = (
    Plot("pipeline", draw_scale, SCALE_PLOT, "measurements.scale.details", False),
    Plot("verification_campaign", draw_cactus, CACTUS_PLOT),
    Plot("verification_campaign", draw_growth, GROWTH_PLOT, "growth", False),
    Plot("adaptation_scale", draw_adaptation_scale, "docs/images/adaptation_scale.svg"),
    Plot("adaptation_cost", cost_tables.draw_amortisation, "docs/images/adaptation_cost.svg"),
    Plot("larger_than_memory", larger_than_memory_tables.draw_rows, "docs/images/larger_than_memory.svg"),
    Plot("control_soak", draw_soak, "docs/images/control_soak.svg", "samples"),
    *(plot for shown in systems("shown") for plot in shown.PLOTS),
)
TABLES: dict[str, Source] = {
    "adaptation-goals": Source("adaptation", accuracy_tables.goals_table),
    "adaptation-methods": Source("adaptation", accuracy_tables.methods_table),
    "adaptation-splits": Source("adaptation", accuracy_tables.splits_table),
    "adaptation-intervals": Source("adaptation", accuracy_tables.intervals_table),
    "adaptation-conditions": Source("adaptation", accuracy_tables.conditions_line),
    "adaptation-search": Source("adaptation_search", accuracy_tables.search_table),
    "adaptation-search-conditions": Source("adaptation_search", accuracy_tables.search_conditions_line),
    "adaptation-cost": Source("adaptation_cost", cost_tables.cost_table),
    "adaptation-cost-conditions": Source("adaptation_cost", cost_tables.cost_conditions_line),
    "adaptation-amortisation": Source("adaptation_cost", cost_tables.amortisation_table),
    "adaptation-foreseen": Source("adaptation_cost", cost_tables.foreseen_table),
    "sizing": Source("sizing", sizing.sizing_table),
    "sizing-conditions": Source("sizing", sizing.sizing_conditions_line),
    "adaptation-metrics": Source("adaptation_metrics", pool_tables.metrics_table),
    "adaptation-metrics-candidates": Source("adaptation_metrics", pool_tables.candidates_table),
    "adaptation-metrics-conditions": Source("adaptation_metrics", pool_tables.metrics_conditions_line),
    "adaptation-scale": Source("adaptation_scale", pool_tables.scale_table),
    "adaptation-scale-conditions": Source("adaptation_scale", pool_tables.scale_conditions_line),
    "control-runs": Source(default_runs.NAME, default_runs.runs_table),
    "control-soak": Source("control_soak", soak_table, "samples"),
    "control-soak-conditions": Source("control_soak", soak_conditions_line, "samples"),
    "false-promotion": Source("false_promotion", false_promotion.equal_table("errors"), "cells"),
    "false-promotion-missed": Source("false_promotion", false_promotion.missed_table("errors", 0.05), "cells"),
    "false-promotion-missed-more": Source("false_promotion", false_promotion.missed_table("errors", 0.2), "cells"),
    "false-promotion-rewards": Source("false_promotion", false_promotion.equal_table("rewards"), "cells"),
    "false-promotion-rewards-missed": Source(
        "false_promotion", false_promotion.missed_table("rewards", 0.05), "cells"),
    "false-promotion-rewards-missed-more": Source(
        "false_promotion", false_promotion.missed_table("rewards", 0.2), "cells"),
    "false-promotion-margin": Source("false_promotion", false_promotion.margin_table, "margins"),
    "false-promotion-blocks": Source("false_promotion", false_promotion.block_table, "blocks"),
    "false-promotion-zero": Source("false_promotion", false_promotion.zero_table, "margins"),
    "false-promotion-autoscalers": Source("false_promotion", false_promotion.autoscaler_table, "autoscalers"),
    "false-promotion-conditions": Source("false_promotion", false_promotion.conditions_line, "cells"),
    "later-runs": Source("later_runs", later_runs.later_runs_table, "cells"),
    "later-runs-series": Source("later_runs", later_runs.series_line, "series"),
    "monitor-alarms": Source("monitor", monitor.alarms_table),
    "monitor-delays": Source("monitor", monitor.delays_table),
    "monitor-policies": Source("monitor", monitor.policies_table),
    "monitor-conditions": Source("monitor", monitor.conditions_line),
    "larger-than-memory": Source("larger_than_memory", larger_than_memory_tables.rows_table),
    "larger-than-memory-conditions": Source("larger_than_memory", larger_than_memory_tables.conditions_line),
    "light-install": Source("light_install", light_install.install_table),
    "light-install-conditions": Source("light_install", light_install.conditions_line),
    "performance": Source("performance", performance_tables.verified_table),
    "performance-methods": Source("performance", performance_tables.methods_table),
    "performance-ablation": Source("performance", performance_tables.ablation_table),
    "performance-settings": Source("performance", performance_tables.settings_line),
    "pipeline": Source("pipeline", pipeline_tables.goals_table, "measurements"),
    "pipeline-others": Source("pipeline", pipeline_tables.others_table, "measurements"),
    "pipeline-stages": Source("pipeline", pipeline_tables.stages_table, "measurements"),
    "pipeline-shares": Source("pipeline", pipeline_tables.shares_table, "measurements"),
    "pipeline-scale": Source("pipeline", pipeline_tables.scale_table, "measurements"),
    "serve-predictions": Source("serve_predictions", predictions.predictions_table),
    "serve-predictions-conditions": Source("serve_predictions", predictions.conditions_line),
    "stacked-training": Source("stacked_training", stacked_training.stacked_table, "cells"),
    "stacked-training-conditions": Source("stacked_training", stacked_training.conditions_line, "cells"),
    "pipeline-without-shards": Source("pipeline_without_shards", pipeline_tables.without_shards_line, "scale"),
    "pipeline-machine": Source("pipeline", pipeline_tables.machine_line, "measurements"),
    "verification-published": Source("verification", published_tables.published_table, "parts"),
    "verification-forests": Source("verification_forests", forest_tables.forests_table),
    "verification-forests-conditions": Source("verification_forests", forest_tables.forests_conditions_line),
    "verification-goals": Source("verification_campaign", campaign_tables.goals_table),
    "verification-tools": Source("verification_campaign", campaign_tables.tools_table),
    "verification-instances": Source("verification_campaign", campaign_tables.instances_table),
    "verification-conditions": Source("verification_campaign", campaign_tables.conditions_line),
    "verification-mutants": Source("mutants", mutant_tables.mutants_table, "rows"),
    "code-mutation": Source("code_mutation", code_mutation_tables.sampled_table, "rows"),
    "planted-mutants": Source("planted_mutants", code_mutation_tables.planted_table, "mutants"),
    "execution-rounding": Source("execution_rounding", execution_rounding.rounding_table),
    "verification-growth": Source("verification_campaign", campaign_tables.growth_table, "growth"),
    **{name: table for shown in systems("shown") for name, table in shown.TABLES.items()},
}
TASKS = "tasks"  # the table that is made of several files
HEADLINES = (
    Headline("performance", "predicts a service's latency from pressure and configuration", ("performance",),
             performance_tables.headline, "docs/benchmarks/performance.md"),
    Headline("sizing", "predicts a job's run time on other machines from three runs", ("sizing",), sizing.headline,
             "docs/recipes/size-a-workload.md"),
    *(headline for shown in systems("shown") for headline in getattr(shown, "HEADLINES", ())),
)
RESULT_FILES = tuple(dict.fromkeys(source.results for source in TABLES.values()))


def add_options(parser: argparse.ArgumentParser) -> None:
    """See benchmarks/harness/runner.py."""
    parser.add_argument("--check", action="store_true", help="change nothing; exit code 1 if a page is not up to date")
    parser.add_argument("--root", type=Path, default=ROOT, help="folder with README.md, docs and benchmarks/results")


def run(options: argparse.Namespace) -> int:
    """Exit code 0; 1 with --check if a page is not up to date."""
    root = options.root
    try:
        stale = {page: text for page, text in new_pages(root).items() if page.read_text(encoding="utf-8") != text}
    except ValueError as error:
        raise InputError(str(error)) from error
    for page, text in stale.items():
        if options.check:
            print(f"{page.relative_to(root)} is not up to date: run `make tables`", file=sys.stderr)
        else:
            page.write_text(text, encoding="utf-8")
            print(f"wrote {page.relative_to(root)}")
    if options.check:
        return int(bool(stale))
    _draw(root)
    return 0


def new_pages(root: Path) -> dict[Path, str]:
    """Every page that holds tables, with its text as it should be.

    Raises:
        ValueError: a page names an unknown table or leaves one open.
    """
    results = {name: read_results(root / RESULTS / f"{name}.json") for name in RESULT_FILES}

    def render(name: str) -> str:
        if name == TASKS:
            return tasks_table(HEADLINES, results)
        return TABLES[name].shown(results[TABLES[name].results])

    pages = {}
    for page in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        if not page.is_file():
            continue
        text = page.read_text(encoding="utf-8")
        try:
            names = marked_tables(text)
            unknown = [name for name in names if name not in (*TABLES, TASKS)]
            if unknown:
                raise ValueError(f"table must be a known one, got {unknown[0]!r}; {nearest(unknown[0], TABLES)}")
        except ValueError as error:
            raise ValueError(f"{error} ({page.relative_to(root)})") from None
        if names:
            pages[page] = fill(text, render)
    return pages


def _draw(root: Path) -> None:
    for plot in PLOTS:
        content = plot.content(read_results(root / RESULTS / f"{plot.results}.json") or {})
        if content:
            plot.draw(content, root / plot.path)
            print(f"wrote {plot.path}")
