"""mlflow.yaml is read once into absolute paths; what it cannot mean is refused by name."""

from pathlib import Path

import pytest

from feature_store.errors import InputError
from models.configuration import NotificationRule, PromotionRule, load_configuration
from models.gates import MetricGate, VerdictGate
from models.paired_comparison import ComparisonRule

SHIPPED = Path(__file__).parents[2] / "mlflow.yaml"


@pytest.fixture
def edited(tmp_path: Path):  # type: ignore[no-untyped-def]
    """Loads the shipped file with one text replaced by another."""

    def load(old: str, new: str, environment: dict[str, str] | None = None):  # type: ignore[no-untyped-def]
        text = SHIPPED.read_text()
        assert old in text
        path = tmp_path / "mlflow.yaml"
        path.write_text(text.replace(old, new))
        return load_configuration(path, environment or {})

    return load


def test_the_shipped_file_loads_and_lists_every_gate_of_the_task() -> None:
    configuration = load_configuration(SHIPPED, {})
    assert configuration.model_name("performance", "redis") == "assay.performance.redis"
    assert configuration.approval == "auto"
    assert configuration.gates["performance"] == (
        VerdictGate(),
        MetricGate("test_accuracy", "test_accuracy", "larger", 0.5, least_cases=30),
        MetricGate("champion_mse", "test_mse", "smaller", 1.05, "ratio", "champion", 30),
        MetricGate("baseline_mse", "test_mse", "smaller", 2.5, "ratio", "baseline_mse", 30),
        MetricGate("mean_baseline", "test_mse", "smaller", 1.0, "ratio", "mean_mse", 30),
        MetricGate("counterexample_accuracy", "counterexample_accuracy", "larger", 1.0),
        MetricGate("parity", "parity_max_abs", "smaller", 1e-4),
        MetricGate("latency", "latency_us", "smaller", 500.0),
    )


@pytest.mark.parametrize("task", ["performance", "sizing", "default", "a task of one's own"])
def test_every_task_is_compared_with_the_mean_on_a_least_number_of_cases(task: str) -> None:
    gates = load_configuration(SHIPPED, {}).gates[task]
    least = 8 if task == "sizing" else 30
    assert MetricGate("mean_baseline", "test_mse", "smaller", 1.0, "ratio", "mean_mse", least) in gates
    means = [gate for gate in gates if isinstance(gate, MetricGate) and gate.metric.startswith("test_")]
    assert all(gate.least_cases == least for gate in means)


def test_a_threshold_on_a_reward_is_written_like_any_other(edited) -> None:  # type: ignore[no-untyped-def]
    line = "    mean_reward: {metric: mean_reward, better: larger, at_least: -12.5, least_cases: 100}\n"
    gates = edited("  default:\n", f"  scaler:\n{line}  default:\n").gates["scaler"]
    assert gates == (MetricGate("mean_reward", "mean_reward", "larger", -12.5, least_cases=100),)


def test_a_least_gain_is_stated_for_a_metric_in_its_unit(edited) -> None:  # type: ignore[no-untyped-def]
    rule = edited("minimum_gain: {}", "minimum_gain: {mean_reward: 0.5}").promotion.comparison
    assert rule.minimum_gain == {"mean_reward": 0.5}


def test_a_file_without_the_section_promotion_has_the_shipped_values(tmp_path: Path) -> None:
    text = SHIPPED.read_text()
    start, end = text.index("# What a version that passed every gate needs"), text.index("# Append-only")
    path = tmp_path / "mlflow.yaml"
    path.write_text(text[:start] + text[end:])
    shipped, without = load_configuration(SHIPPED, {}), load_configuration(path, {})
    assert without.promotion == shipped.promotion == PromotionRule(ComparisonRule(0.01, 0.01, {}, 0.99), 0.0)
    path.write_text(f"{text[:start]}promotion: 3\n{text[end:]}")
    with pytest.raises(InputError, match=r"^promotion: expected a mapping, got 3 \(.*mlflow.yaml, line \d+\)$"):
        load_configuration(path, {})


@pytest.mark.parametrize(("old", "new", "message"), [
    ("minimum_improvement: 0.01", "minimum_improvement: -0.01", "^promotion.minimum_improvement: "
     "expected a number from 0, got -0.01"),
    ("minimum_improvement: 0.01", "minimum_improvement: .nan", "^promotion.minimum_improvement: "
     "expected a number from 0, got nan"),
    ("minimum_improvement: 0.01", "minimum_improvement: .inf", "^promotion.minimum_improvement: "
     "expected a number from 0, got inf"),
    ("minimum_improvement: 0.01", "improvement: 0.01", "did you mean 'minimum_improvement'"),
    ("confidence: 0.99", "confidence: 1", "confidence: expected a number from 0.8 to below 1, got 1"),
    ("confidence: 0.99", "confidence: 0.5", "confidence: expected a number from 0.8 to below 1, got 0.5"),
    ("confidence: 0.99", "confidence: true", "confidence: expected a number from 0.8 to below 1, got true"),
    ("specification_leeway: 0.0", "specification_leeway: 1",
     "specification_leeway: expected a number from 0 to below 1, got 1"),
    ("specification_leeway: 0.0", "specification_leeway: -0.1",
     "specification_leeway: expected a number from 0 to below 1, got -0.1"),
])
def test_a_rule_of_promotion_that_means_nothing_is_refused(edited, old: str, new: str, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=message):
        edited(old, new)


def test_nobody_is_told_unless_the_file_says_so(edited) -> None:  # type: ignore[no-untyped-def]
    assert load_configuration(SHIPPED, {}).notify is None
    rule = edited("approval: auto", "approval: auto\nnotify: {command: [tell, -x], events: [refused]}").notify
    assert rule == NotificationRule(("tell", "-x"), "", frozenset({"refused"}))


@pytest.mark.parametrize(("written", "message"), [
    ("{}", "expected a command, a webhook or both, got neither"),
    ("{webhook: 'ftp://host/s3cret'}", r"^notify.webhook: expected an address such as https://host/path"),
    ("{command: [tell], events: []}", r"^notify.events: expected"),
    ("{command: [tell], events: [promotet]}", r"^notify.events.*promoted.*got 'promotet'"),
    ("{comand: [tell]}", "did you mean 'command'"),
])
def test_a_notification_that_reaches_nobody_is_refused(edited, written: str, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=message) as refused:
        edited("approval: auto", f"approval: auto\nnotify: {written}")
    assert "s3cret" not in str(refused.value), "an address may carry a token"


def test_every_gate_of_the_shipped_file_is_explained_by_a_comment_above_it() -> None:
    lines = [line.strip() for line in SHIPPED.read_text().splitlines()]
    for gate in load_configuration(SHIPPED, {}).gates["performance"]:
        (first, *_) = (number for number, line in enumerate(lines) if line.startswith(f"{gate.name}: "))
        assert lines[first - 1].startswith("#")


def test_paths_are_absolute_in_the_state_folder_beside_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mlflow.yaml").write_text(SHIPPED.read_text())
    monkeypatch.chdir(tmp_path)
    configuration = load_configuration(Path("mlflow.yaml"), {})
    home = tmp_path / ".assay"
    assert configuration.home == home
    assert configuration.tracking_uri == f"sqlite:///{home}/mlflow.db"
    assert configuration.artifact_root == str(home / "artifacts")
    assert configuration.ledger_path == home / "ledger" / "promotions.jsonl"
    assert configuration.private_key_path == home / "keys" / "assay.key"
    assert configuration.public_key_path == home / "keys" / "assay.pub"
    assert not home.exists(), "reading a configuration writes nothing"


def test_the_ledger_may_be_in_a_database(edited) -> None:  # type: ignore[no-untyped-def]
    address = "postgresql://assay@host:5432/mlflow"
    assert edited("ledger: ledger/promotions.jsonl", f"ledger: {address}").ledger_path == address
    for other in ("s3://bucket/ledger", "sqlite:///ledger.db"):
        with pytest.raises(InputError, match="ledger: expected a file, or postgresql://user@host/database, got"):
            edited("ledger: ledger/promotions.jsonl", f"ledger: {other}")


def test_assay_home_moves_the_state_folder(tmp_path: Path) -> None:
    configuration = load_configuration(SHIPPED, {"ASSAY_HOME": str(tmp_path)})
    assert configuration.home == tmp_path
    assert configuration.ledger_path.is_relative_to(tmp_path)
    with pytest.raises(InputError, match="ASSAY_HOME must be an absolute path, got 'state'"):
        load_configuration(SHIPPED, {"ASSAY_HOME": "state"})


@pytest.mark.parametrize("name", ["state?x", "a#b", "100%41"])
def test_a_state_folder_whose_path_would_end_its_uri_is_refused(edited, tmp_path: Path, name: str) -> None:  # type: ignore[no-untyped-def]
    environment = {"ASSAY_HOME": str(tmp_path / name)}
    with pytest.raises(InputError, match=r"state folder must have no \?, # or % in its path, got [?#%] \("):
        edited("sqlite:///mlflow.db", "sqlite:///mlflow.db", environment)
    assert edited("sqlite:///mlflow.db", "http://mlflow:5000", environment).home == tmp_path / name


@pytest.mark.parametrize("uri", ["http://mlflow:5000", "postgresql://u@db/assay", "sqlite:////var/lib/m.db"])
def test_any_tracking_uri_is_accepted_as_it_stands(edited, uri: str) -> None:  # type: ignore[no-untyped-def]
    assert edited("sqlite:///mlflow.db", uri).tracking_uri == uri


def test_an_artifact_store_uri_is_kept_and_a_path_is_resolved(edited) -> None:  # type: ignore[no-untyped-def]
    assert edited("artifacts: artifacts", "artifacts: s3://b/assay").artifact_root == "s3://b/assay"
    assert edited("artifacts: artifacts", "artifacts: /srv/a").artifact_root == "/srv/a"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("approval: auto", "aproval: auto", "did you mean 'approval'"),
        ("  uri:", "  url:", "did you mean 'uri'"),
        ("at_least: 0.5", "at_lest: 0.5", r"^gates.performance.test_accuracy.at_lest: unknown field; did you mean "
         r"'at_least'\? \(.*mlflow.yaml, line \d+\)$"),
        ("at_most: 0.0001", "at_most: 1e-4", "parity.at_most: expected a number, got '1e-4'; YAML reads 1e-4 as text"),
        ("at_least: 0.5, ", "", r"expected one limit .*, got none \(.*mlflow.yaml, line \d+, "
         r"gates.performance.test_accuracy\)"),
        ("better: larger", "better: more", "better: expected smaller or larger, got 'more'"),
        ("least_cases: 30", "least_cases: 1.5", "least_cases: expected a whole number from 1, got 1.5"),
        ("least_cases: 30", "least_cases: 0", "least_cases: expected a whole number from 1, got 0"),
        ("verdict: PROVED", "verdict: UNKNOWN", "specification.verdict: expected PROVED, got 'UNKNOWN'"),
        ("minimum_gain: {}", "minimum_gain: 3", "^promotion.minimum_gain: expected a mapping, got 3"),
        ("minimum_gain: {}", "minimum_gain: {r: -1}", "^promotion.minimum_gain.r: expected a number from 0, got -1"),
        ("approval: auto", "approval: maybe", "approval: expected auto or manual, got 'maybe'"),
        ("approval: auto", "", "the field 'approval' is missing"),
        ("experiment: assay", "experiment: ", "experiment: expected a text that is not empty, got nothing"),
        ("sqlite:///mlflow.db", "file:///tmp/mlruns", "no longer keeps runs in a plain folder"),
        ("sqlite:///mlflow.db", "mlruns", "tracking.uri: expected the address of a database or a server, got 'mlruns'"),
        ("assay.{task}.{workload}", "assay.{task}", "once each"),
        ("assay.{task}.{workload}", "assay{task}{workload}", "expected a dot between"),
        ("assay.{task}.{workload}", "a/{task}.{workload}", "expected a dot between"),
        ("assay.{task}.{workload}", "a.{workload}_{task}", "expected a dot between"),
        ("champion: champion", "champion: latest", "aliases.champion: expected a letter"),
        ("champion: champion", "champion: v2", "aliases.champion: expected a letter"),
        ("champion: champion", "champion: challenger",
         "aliases.challenger: expected another alias than the champion's, got 'challenger'"),
        ("approval: auto", "approval: auto\napproval: manual", "given once, got 'approval' twice"),
        ("at_least: 1.0", "at_least: 1.0, at_least: 0.0", "given once, got 'at_least' twice"),
        ("experiment: assay", "experiment: [", "must be YAML"),
    ],
)
def test_an_unusable_file_is_refused_with_the_reason(edited, old: str, new: str, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=message):
        edited(old, new)


@pytest.mark.parametrize(("text", "message"), [
    ("", "configuration: expected a mapping, got nothing"), ("[]", r"configuration: expected a mapping, got \[\]"),
    ("gates: {}", "gates: expected a mapping that is not empty, got {}"),
    ("gates: {a/b: {}}", "gates.a/b: expected letters, digits, _ and -"),
    ("gates: {a: {parity: 3}}", "gates.a.parity: expected a mapping, got 3"),
])
def test_a_file_that_is_not_the_mapping_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mlflow.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        load_configuration(path, {})


def test_a_task_that_is_not_listed_has_the_default_gates() -> None:
    gates = load_configuration(SHIPPED, {}).gates
    assert gates["batching"] == gates["default"]
    assert gates["batching"][0] == VerdictGate()
    assert {"performance", "sizing", "autoscaling", "default"} <= set(gates)
    assert "batching" not in set(gates), "asking adds nothing"


def test_without_default_gates_a_task_that_is_not_listed_is_an_error_that_names_it(edited) -> None:  # type: ignore[no-untyped-def]
    gates = edited("  default:\n", "  other:\n").gates
    known = "other, performance, shared_cluster, sizing"
    with pytest.raises(InputError, match=rf"got 'zzz'.*known: .*{known}.*Add its gates"):
        gates["zzz"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be a readable file"):
        load_configuration(tmp_path / "absent.yaml", {})


@pytest.mark.parametrize("workload", ["a/b", "", "a:b", ".", "..", ".a", "a b"])
def test_a_workload_that_could_collide_or_escape_has_no_model_name(workload: str) -> None:
    with pytest.raises(InputError, match="workload must hold only"):
        load_configuration(SHIPPED, {}).model_name("performance", workload)


@pytest.mark.parametrize("template", ["assay.{task}.{workload}", "{workload}.of-{task}", "a+b.{task}.{workload}.c"])
def test_a_models_name_is_known_as_the_projects_own(tmp_path: Path, template: str) -> None:
    text = SHIPPED.read_text().replace("model_name: assay.{task}.{workload}", f'model_name: "{template}"')
    path = tmp_path / "mlflow.yaml"
    path.write_text(text)
    configuration = load_configuration(path, {})
    assert configuration.is_model_name(configuration.model_name("performance", "spark-3.1"))
    for name in ("other.performance.redis", "performance", "", "x" + configuration.model_name("t", "w") + "/"):
        assert not configuration.is_model_name(name)


def test_dots_may_stand_in_a_workload_and_not_in_a_task_so_that_no_two_share_a_name() -> None:
    configuration = load_configuration(SHIPPED, {})
    assert configuration.model_name("sizing", "spark1.5_kmeans") == "assay.sizing.spark1.5_kmeans"
    with pytest.raises(InputError, match="task must hold only"):
        configuration.model_name("sizing.spark1", "5_kmeans")
