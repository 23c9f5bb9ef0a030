import base64
import copy
import hashlib
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from markupsafe import Markup
from matplotlib.figure import Figure

from models.reporting import plots, report
from models.reporting.data_sections import MOST_CORRELATED
from models.reporting.document import Cell, Table
from models.tasks.supervised.pages import SupervisedPages
from tests.models.reporting import sample

REPORT_SCRIPT = (Path(report.__file__).parent / "report.js").read_text()
VOID = {"meta", "img", "br", "wbr", "link", "input"}


def render_version(*documents: Any) -> str:
    """Of a supervised model."""
    return report.render_version_report(*documents, SupervisedPages())


def render_run(entries: Any, context: Any) -> str:
    """Of supervised models."""
    return report.render_run_report(entries, context, SupervisedPages())



class Page(HTMLParser):
    """Checks that tags are balanced; collects ids, texts, addresses and table rows."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.words: list[str] = []
        self.rows: list[list[str]] = []
        self.tags: set[str] = set()
        self.scripts: list[str] = []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for key, value in attrs:
            if key == "id":
                self.ids.append(value or "")
            if key in ("href", "src", "xlink:href"):
                self.addresses.append(value or "")
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th") and self.rows:
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "script" in self.open:
            self.scripts.append(data)
        if {"style", "script"} & set(self.open):
            return
        self.words.append(data)
        if self.rows and {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).replace("\xa0", " ").split())

    def row(self, first: str) -> list[str]:
        """The first row whose first cell is `first`."""
        return next([cell.replace("\xa0", " ") for cell in row] for row in self.rows if row and row[0] == first)


@pytest.fixture(scope="module")
def version_html() -> str:
    return render_version(sample.contract(), sample.evidence(), sample.gates(), sample.context())


@pytest.fixture(scope="module")
def run_html() -> str:
    return render_run(sample.entries(), sample.run_context())


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plots take most of the time; what these tests look at stands in the text."""
    monkeypatch.setattr(plots, "embed", lambda *_: Markup("<svg></svg>"))


@pytest.fixture
def unsaved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plots are drawn but not written, which takes most of the time."""
    def embed(draw: Any, width: float, height: float, name: str, description: str) -> Markup:
        draw(Figure(figsize=(width, height)))
        return Markup("<svg></svg>")

    monkeypatch.setattr(plots, "embed", embed)


def test_a_version_report_has_its_sections_in_order(version_html):
    titles = re.findall(r"<h2>(.*?)</h2>", version_html)
    assert titles == ["Gates", "Training and verification", "Verified against unverified",
                      "Along each monotone feature", "Predicted against measured", "Data", "How to reproduce",
                      "Correlation"]
    assert version_html.count("<svg") + version_html.count("<img") == 7


@pytest.mark.parametrize("name", ["version_html", "run_html"])
def test_a_page_asks_nothing_of_the_network(name, request):
    html = request.getfixturevalue(name)
    page = Page(html)
    assert not re.search(r"https?://|@import|url\((?!#)", html)
    assert set(page.scripts) <= {REPORT_SCRIPT}
    assert all(address.startswith(("#", "data:", "performance/")) for address in page.addresses)
    assert len(page.ids) == len(set(page.ids))
    assert {address[1:] for address in page.addresses if address.startswith("#")} <= set(page.ids)


def test_a_version_report_is_small_and_the_same_each_time(version_html):
    assert len(version_html.encode()) < 700_000
    assert version_html == render_version(sample.contract(), sample.evidence(), sample.gates(), sample.context())


def test_a_large_test_set_does_not_make_a_large_report():
    html = render_version(sample.contract(), sample.evidence(rows=20_000), sample.gates(), sample.context())
    assert len(html.encode()) < 700_000


def test_a_proved_version_says_what_for_which_box(version_html):
    page = Page(version_html)
    assert "performance / redis" in page.text and "version 4, champion" in page.text
    assert "Proved for every input in the box, the range of each input" in page.text
    assert sample.contract()["specification"]["statement"] in page.text
    assert page.row("payload_bytes")[:5] == ["payload_bytes", "bytes", "64", "65,536", ""]
    assert page.row("psi_io_full")[:5] == ["psi_io_full", "share", "0", "0.41", "increasing"]


def test_gates_show_value_threshold_and_verdict(version_html):
    page = Page(version_html)
    # a share of 0.00274 of the squared range of 38.19 ms is an error of 0.05235 of that range
    assert page.row("baseline_mse") == ["baseline_mse", "error on test rows, root mean square", "holds", "1.999 ms",
                                        "at most 2.57 ms", "420", "baseline_mse times 1.5"]
    assert page.row("test_accuracy")[2:] == ["holds", "86.4 %", "at least 50.0 %", "420", ""]
    assert page.row("champion_mse")[4:] == ["none", "420", "no champion yet"]
    html = render_version(sample.contract(), sample.evidence(), sample.gates(False), sample.context())
    assert Page(html).row("latency") == ["latency", "time of one answer", "fails", "missing", "at most 500 µs", "",
                                         "latency_us must be in the evidence, it is missing"]


def test_a_gate_shows_the_unit_of_its_metric_whatever_the_metric_is():
    gates = sample.gates()
    gates["gates"].append({"name": "beats_rules", "metric": "mean_reward", "value": -10.25, "threshold": -12.5,
                           "comparison": ">=", "unit": "EUR", "cases": 200, "passed": True, "reason": "holds"})
    page = Page(render_version(sample.contract(), sample.evidence(), gates, sample.context()))
    assert page.row("beats_rules") == ["beats_rules", "mean reward", "holds", "-10.25 EUR", "at least -12.5 EUR", "200",
                                       "holds"]


def test_accuracy_is_compared_with_the_twin_and_the_baseline(version_html):
    page = Page(version_html)
    assert page.row("Accuracy, test rows") == ["Accuracy, test rows", "86.4 %", "85.7 %", "+0.7 points", "84.9 %"]
    assert page.row("Mean absolute error, test rows")[1:] == ["0.7638 ms", "1.146 ms", "-33.3 %", "1.528 ms"]
    assert page.row("Accuracy, counterexamples")[1:4] == ["100 %", "12.5 %", "+87.5 points"]
    assert "within 0.05 of the scaled target (equation 2 of vPALs), which is 1.909 ms" in page.text
    assert "Mean absolute error 0.7638 ms on test rows The baseline's 1.528 ms" in page.text
    assert "Price of the proof -33.3 % error against 1.146 ms without the verifier" in page.text
    assert "312 counterexamples" in page.text


def test_a_refuted_version_shows_its_counterexample_in_raw_units(undrawn):
    evidence = {**sample.evidence(), "verdict": sample.verdict("REFUTED")}
    page = Page(render_version(sample.contract(), evidence, sample.gates(False), sample.context()))
    assert "Nothing is guaranteed: the verdict is REFUTED (a counterexample was found)" in page.text
    assert "It is asked of the network" in page.text and "It is proved" not in page.text
    assert "the outputs stand in the wrong order. onnxruntime shows it on the file itself" in page.text
    assert page.row("latency_ms") == ["latency_ms", "ms", "19.3", "9.758"]


def test_a_counterexample_says_which_demand_it_breaks_and_by_how_much(undrawn):
    verdict = {**sample.verdict("REFUTED"), "witness": {
        "points": [{"inputs": {"p99_ms": 30.0, "slo_ms": 15.0, "replicas": 10.0}, "outputs": {"target_replicas": 8.0}}],
        "units": {"target_replicas": "count"}, "replayed_with": "onnxruntime"}}
    kept = {"order": {"upper": "target_replicas", "lower": "replicas", "at_least": {"p99_ms": "slo_ms"}}}
    bounded = {"range": {"output": "target_replicas", "maximum": 64.0}}
    specification = {"features": ["p99_ms", "slo_ms", "replicas"], "outputs": ["target_replicas"],
                     "box": {"p99_ms": [1, 100], "slo_ms": [4, 100], "replicas": [1, 64]},
                     "properties": [kept, bounded]}
    evidence = {**sample.evidence(), "verdict": verdict, "specification": specification}
    page = Page(render_version(sample.contract(), evidence, sample.gates(False), sample.context()))
    assert ("Broken: target_replicas is at least replicas, where p99_ms is at least slo_ms: missed by 2."
            in page.text)
    without = Page(render_version(sample.contract(), {**evidence, "specification": {"properties": [kept]}},
                                  sample.gates(False), sample.context()))
    assert "Broken:" not in without.text and without.row("target_replicas") == ["target_replicas", "count", "8"]


def test_a_refuted_version_without_its_witness_says_so(undrawn):
    evidence = {**sample.evidence(), "verdict": {**sample.verdict("REFUTED"), "witness": None}}
    page = Page(render_version(sample.contract(), evidence, None, sample.context()))
    assert "The verdict is REFUTED, but its witness was not recorded." in page.text


def test_the_twins_worst_witness_is_shown_in_raw_units(undrawn):
    page = Page(render_version(sample.contract(), sample.evidence(), sample.gates(), sample.context()))
    # target 0.21..38.4 ms, outputs 0.5 and 0.25; psi_io_full 0..0.41, 0.2 and 0.7
    assert "must not fall when psi_io_full rises and all else is equal" in page.text
    assert "here it falls from 19.3 ms to 9.758 ms" in page.text
    lower, higher = page.row("lower input"), page.row("higher input")
    assert (lower[2], higher[2]) == ("0.082", "0.287")
    assert lower[1] == higher[1] and (lower[-1], higher[-1]) == ("19.3", "9.758")


def test_a_witness_that_lies_beside_the_range_by_rounding_is_shown_on_its_edge(undrawn):
    verdict = sample.twin_verdict()
    for witness in verdict["witnesses"]:
        witness["low"] = [*witness["low"][:1], -1e-6, *witness["low"][2:]]
    page = Page(render_version(sample.contract(), {**sample.evidence(), "twin_verdict": verdict}, None,
                                      sample.context()))
    assert page.row("lower input")[2] == "0"


def test_without_the_scaling_a_witness_is_said_to_be_scaled(undrawn):
    context = {key: value for key, value in sample.context().items() if key != "scaling"}
    page = Page(render_version(sample.contract(), sample.evidence(), None, context))
    assert "(scaled)" in page.text and page.row("lower input")[2] == "0.2"


def test_what_is_not_there_is_said_in_words():
    page = Page(render_version(None, None, None, {}))
    for sentence in ("there is no verdict", "The box of inputs is missing", "The gates were not evaluated",
                     "The loss of each epoch was not recorded", "No metric was recorded", "No partial-dependence curve",
                     "No prediction on the test rows", "No data quality was recorded",
                     "result of the validation is missing",
                     "correlation of the target with the metrics was not computed", "The command was not recorded"):
        assert sentence in page.text
    assert "nan" not in page.text.lower().replace("nano", "")


def test_nan_is_shown_as_missing():
    evidence = sample.evidence()
    evidence["metrics"] = dict.fromkeys(evidence["metrics"], float("nan"))
    page = Page(render_version(sample.contract(), evidence, None, sample.context()))
    assert page.row("Accuracy, test rows")[1:] == ["missing"] * 4
    assert not re.search(r"\bnan\b", page.text, re.IGNORECASE)


def test_bad_data_is_listed_with_column_rule_count_and_row(undrawn):
    message = sample.entries()[3]["message"]
    failure = {"column": "psi_cpu_some", "rule": "time_gap", "count": 1204, "first_row": 0, "message": message}
    context = {**sample.context(), "validation": {"passed": False, "failures": [failure]}}
    page = Page(render_version(None, None, None, context))
    assert ["psi_cpu_some", "time gap", "1,204", "0", message] in page.rows
    assert "did not pass" in page.text


def test_data_quality_may_come_in_any_form(undrawn):
    for quality in (sample.context()["data_quality"], {"data": sample.context()["data_quality"]},
                    {"columns": {"latency_ms": {"min": 0.21, "median": 2.24, "max": 38.4, "missing": 3}}}):
        page = Page(render_version(None, None, None, {"data_quality": quality}))
        assert page.row("latency_ms")[2:6] == ["0.21", "2.24", "38.4", "3"]
    checks = {"checks": [{"column": "cpu_time", "statement": "must be in 0..1", "passed": False}]}
    assert "1 rule checked, 1 broken" in render_version(None, None, None, {"data_quality": checks})


def test_everything_is_escaped(undrawn):
    evil = '<script>alert("$1$")</script>'
    contract = replace_texts(sample.contract(evil), evil)
    evidence = replace_texts(sample.evidence(evil), evil)
    context = {**replace_texts(sample.run_context(), evil), "audit": {evil: [evil]}}
    entry = {**sample.entries()[1], "contract": contract, "evidence": evidence, "message": evil,
             "report_path": "javascript:alert(1)"}
    for html in (render_version(contract, evidence, replace_texts(sample.gates(), evil), context),
                 render_run([entry], context)):
        page = Page(html)
        assert set(page.scripts) <= {REPORT_SCRIPT} and evil in page.text
        assert not any(address.startswith("javascript") for address in page.addresses)


def test_a_run_report_has_a_row_for_every_workload(run_html):
    page = Page(run_html)
    assert page.row("redis") == ["redis", "rejected", "0.7638 ms", "1.146 ms", "1.528 ms", "86.4 %", "85.7 %",
                                 "100 %", "12.5 %", "REFUTED", "4.61 s", "6 of 7", "2"]
    assert "Error: mean absolute error, on test rows; accuracy: share of them predicted within 0.05" in page.text
    assert page.row("training") == ["training", "bad data", "no evidence", "none", "none"]
    assert page.row("nginx")[-1] == "1 champion"
    assert "performance/nginx/report.html" in page.addresses
    assert "it looks like percent: divide by 100" in page.text


@pytest.mark.parametrize(("known", "said"), [
    ({"alias": "champion"}, False), ({"alias": "live", "role": "champion"}, False),
    ({"alias": "next", "role": "challenger"}, True), ({"alias": "champion", "role": "challenger"}, True)])
def test_a_champion_speaks_for_itself_whatever_its_alias_is_called(known, said):
    page = render_run([{**sample.entries()[0], **known, "message": "what registration wrote"}], sample.run_context())
    assert (f"{known['alias']}: what registration wrote" in page) is said


def test_a_run_without_workloads_or_context_is_reported():
    page = Page(render_run([], {}))
    assert "The run has no workload." in page.text and "The times of the stages were not recorded." in page.text


def test_the_page_of_a_run_plots_no_workload_however_many_there_are():
    """Each has a page of its own, which its row leads to."""
    entry = sample.entries()[0]
    html = render_run([{**entry, "workload": f"copy {k}"} for k in range(80)], {})
    assert html.count("<svg") + html.count("<img") == 0 and Page(html).addresses.count(entry["report_path"]) == 80


ODD = (None, float("nan"), [], "text", -1, 1e308, {"key": None}, [None, "x", 3.0])


@pytest.fixture
def whole() -> dict[str, Any]:
    """The four arguments of a version report."""
    evidence = {**sample.evidence(rows=5), "verdict": sample.verdict("REFUTED")}
    return {"contract": sample.contract(), "evidence": evidence, "gates": sample.gates(),
            "context": sample.run_context()}


def test_no_hole_in_the_evidence_breaks_the_report(undrawn, whole):
    paths = [path for path in places(whole) if path != ("context",)]
    for k, path in enumerate(paths):
        broken = copy.deepcopy(whole)
        put(broken, path, ODD[k % len(ODD)])
        render_version(*broken.values())
    assert len(paths) > 300


@pytest.mark.parametrize("odd", [None, float("nan"), [], 1e308], ids=str)
@pytest.mark.parametrize("part", ["history", "metrics", "curves", "correlation"])
def test_no_hole_in_the_data_breaks_a_plot(unsaved, whole, part, odd):
    """Every value of a part is odd at once, then every list and mapping."""
    place = whole["context"] if part == "correlation" else whole["evidence"]
    kept = copy.deepcopy(place[part])
    for path in places(kept):
        put(place[part], path, odd) if not isinstance(at(kept, path), dict | list) else None
    render_version(*whole.values())
    for path in [path for path in places(kept) if isinstance(at(kept, path), dict | list)]:
        place[part] = copy.deepcopy(kept)
        put(place[part], path, odd)
        render_version(None, {part: place[part]}, None, {part: place[part]})


def at(value: Any, path: tuple) -> Any:
    for key in path:
        value = value[key]
    return value


def places(value: Any, path: tuple = ()) -> Iterator[tuple]:
    """The path of every value in nested mappings and lists; of long lists the first two."""
    children = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, child in children:
        yield (*path, key)
        yield from places(child, (*path, key))


def put(value: Any, path: tuple, new: Any) -> None:
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = new


def replace_texts(value: Any, text: str) -> Any:
    """The same structure with `text` in place of every text but the statuses and comparisons."""
    if isinstance(value, dict):
        kept = ("status", "direction", "comparison")
        return {key: child if key in kept else replace_texts(child, text) for key, child in value.items()}
    if isinstance(value, list):
        return [replace_texts(child, text) for child in value]
    return text if isinstance(value, str) else value


def test_only_a_table_of_several_workloads_has_the_script_that_sorts_it(
        version_html: str, run_html: str, undrawn: None) -> None:
    many, one = Page(run_html), Page(render_run(sample.entries()[:1], sample.run_context()))
    assert many.scripts == [REPORT_SCRIPT] and one.scripts == [] and Page(version_html).scripts == []
    digest = base64.b64encode(hashlib.sha256(REPORT_SCRIPT.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in run_html and "script-src" not in version_html


def test_a_row_and_what_is_said_of_it_stay_together_when_a_table_is_sorted() -> None:
    full, said = (Cell("a"), Cell("1")), (Cell(""), Cell("why", span=1))
    wide = (Cell(""), Cell("why", span=2))
    table = Table(("name", "value", "more"), (full, wide, full, full), sortable=True)
    assert table.row_groups == ((full, wide), (full,), (full,))
    assert Table(("name", "value"), (full, said), sortable=False).row_groups == ((full, said),)


# --- many workloads ---------------------------------------------------------------------------------------


def correlated(workloads: int) -> dict[str, Any]:
    names = [f"w{number:03d}" for number in range(workloads)]
    return {"workloads": names, "metrics": ["psi_cpu_some"], "pearson": [[0.5 - k / 1000] for k in range(workloads)]}


def test_of_many_workloads_a_page_shows_its_own_correlation_and_the_run_the_first() -> None:
    context = {**sample.context(), "correlation": correlated(MOST_CORRELATED + 1)}
    contract = {**sample.contract(), "workload": "w007"}
    page = Page(render_version(contract, sample.evidence(), sample.gates(), context))
    correlations = [row for row in page.rows if row and re.fullmatch(r"w\d{3}", row[0].strip())]
    assert [(row[0].strip(), row[1].strip()) for row in correlations] == [("w007", "0.49")]
    run = Page(render_run([], context))
    assert sum(bool(re.fullmatch(r"w\d{3}", row[0].strip())) for row in run.rows if row) == MOST_CORRELATED


def test_a_page_costs_the_same_whatever_the_number_of_workloads() -> None:
    contract, evidence, gates = ({**sample.contract(), "workload": "w007"}, sample.evidence(), sample.gates())
    sizes = [len(render_version(contract, evidence, gates, {**sample.context(), "correlation": correlated(count)}))
             for count in (101, 1000)]  # all but its own: numbers of three digits
    assert sizes[0] == sizes[1]


def test_the_heat_map_that_all_pages_share_is_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    original = plots.embed

    def counted(draw: Any, width: float, height: float, name: str, description: str) -> Markup:
        drawn.append(name)
        return original(draw, width, height, name, description)

    monkeypatch.setattr(plots, "embed", counted)
    context = {**sample.context(), "correlation": correlated(5)}
    pages = [render_version({**sample.contract(), "workload": name}, sample.evidence(), sample.gates(), context)
             for name in ("w001", "w002")]
    assert drawn.count("v-correlation") == 1
    assert all('id="correlation"' in page for page in pages)
