"""Runs and schedules: the real kfp.Client over real HTTP, against tests/pipelines/kfp_server.py."""

import ipaddress
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from feature_store.errors import InputError, SourceError
from pipelines.cluster import create_schedule, delete_schedule, list_schedules, submit
from pipelines.kfp_connection import Endpoint, connected, resolve_endpoint
from pipelines.package import PipelinePackage, check_arguments, read_package, without_caching
from tests.pipelines.kfp_server import KfpServer, kfp_server

WORKLOADS = ["redis"]
NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compiled pipeline with a task in the root, one in a loop and one in a condition."""
    from kfp import compiler, dsl

    @dsl.component(base_image="python:3.11")  # type: ignore[untyped-decorator,unused-ignore]
    def echo(text: str, seeds: int = 0) -> str:
        return text * seeds

    @dsl.pipeline(name="tiny")  # type: ignore[untyped-decorator,unused-ignore]
    def tiny(
        task: str,
        data_version: str = "",
        workloads: list = WORKLOADS,  # type: ignore[type-arg,unused-ignore]
        seeds: int = 3,
    ) -> None:
        ingested = echo(text=data_version, seeds=seeds)
        with dsl.ParallelFor(items=workloads) as workload:
            echo(text=workload)
        with dsl.If(ingested.output == "x"):
            echo(text=task)

    path = tmp_path_factory.mktemp("package") / "tiny.yaml"
    compiler.Compiler().compile(tiny, str(path))
    return path


@pytest.fixture(autouse=True)
def _no_kfp_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """kfp reads ~/.config/kfp/context.json, whose place it fixes at import: a user's own must not matter."""
    import kfp

    monkeypatch.setattr(kfp.Client, "_LOCAL_KFP_CONTEXT", str(tmp_path / "context.json"))


@pytest.fixture
def server() -> Iterator[KfpServer]:
    with kfp_server() as running:
        yield running


def endpoint_of(server: KfpServer, timeout_s: int = 10) -> Endpoint:
    return Endpoint(server.url, timeout_s=timeout_s)


def cached_tasks(package: PipelinePackage) -> tuple[str, ...]:
    """The names of the tasks, at any depth, that a cluster may answer from its cache."""
    pipeline = package.documents[0]
    dags = [component.get("dag", {}) for component in (pipeline["root"], *pipeline["components"].values())]
    return tuple(task["taskInfo"]["name"] for dag in dags for task in dag.get("tasks", {}).values()
                 if task.get("cachingOptions", {}).get("enableCache"))


def make(server: KfpServer, package: Path, name: str = "nightly", cron: str = "0 2 * * *") -> None:
    create_schedule(name, cron, package, {"task": "performance"}, endpoint_of(server), now=NOW)


def test_a_run_is_submitted_with_its_arguments(server: KfpServer, package: Path) -> None:
    arguments = {"task": "performance", "workloads": ["redis", "nginx"], "seeds": 5}
    run = submit(package, arguments, endpoint_of(server), run_name="first")
    (stored,) = server.state.runs.values()
    assert run.run_id == stored["run_id"]
    assert run.url == f"{server.url}/#/runs/details/{run.run_id}"
    assert (run.name, run.experiment) == ("first", "assay")
    assert stored["display_name"] == "first"
    assert stored["runtime_config"]["parameters"] == arguments
    assert stored["pipeline_spec"]["pipelineInfo"]["name"] == "tiny"
    assert [item["display_name"] for item in server.state.experiments.values()] == ["assay"]


def test_a_run_without_name_is_named_for_pipeline_and_time(server: KfpServer, package: Path) -> None:
    assert submit(package, {"task": "t"}, endpoint_of(server), now=NOW).name == "tiny 2026-01-01 12:00:00"


def test_a_second_run_uses_the_same_experiment(server: KfpServer, package: Path) -> None:
    for _ in range(2):
        submit(package, {"task": "performance"}, endpoint_of(server))
    assert len(server.state.experiments) == 1
    assert len(server.state.runs) == 2


def test_submitting_prints_nothing(
    server: KfpServer, package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    submit(package, {"task": "performance"}, endpoint_of(server))
    assert capsys.readouterr() == ("", "")


def test_a_schedule_is_a_recurring_run_that_neither_overlaps_nor_catches_up(
    server: KfpServer, package: Path
) -> None:
    info = create_schedule(
        "nightly", "0 2 * * MON-FRI", package, {"task": "performance"}, endpoint_of(server), now=NOW
    )
    (stored,) = server.state.recurring_runs.values()
    assert stored["trigger"] == {"cron_schedule": {"cron": "0 0 2 * * 1-5"}}
    assert stored["max_concurrency"] == "1"
    assert stored["no_catchup"] is True
    assert stored["mode"] == "ENABLE"
    assert stored["display_name"] == "nightly"
    assert (info.name, info.cron, info.kfp_cron) == ("nightly", "0 2 * * 1-5", "0 0 2 * * 1-5")
    assert [run.isoformat() for run in info.next_runs] == [
        "2026-01-02T02:00:00+00:00",
        "2026-01-05T02:00:00+00:00",
        "2026-01-06T02:00:00+00:00",
    ]
    assert info.target == f"kfp {server.url}"
    assert info.enabled
    assert any("UTC" in note for note in info.notes)


def test_a_schedule_is_cached_in_no_task_at_any_depth(server: KfpServer, package: Path) -> None:
    assert cached_tasks(read_package(package)) == ("echo", "echo-3", "echo-2")
    make(server, package)
    (stored,) = server.state.recurring_runs.values()
    spec = stored["pipeline_spec"]
    dags = [
        component["dag"] for component in (spec["root"], *spec["components"].values()) if "dag" in component
    ]
    tasks = [task for dag in dags for task in dag["tasks"].values()]
    assert len(tasks) == 5
    assert not any(task.get("cachingOptions", {}).get("enableCache") for task in tasks)


def test_kfps_own_switch_would_leave_the_loop_cached(server: KfpServer, package: Path) -> None:
    """Why pipelines/package.py exists. Where this fails, kfp was mended and without_caching can go."""
    with connected(endpoint_of(server)) as client:
        experiment = client.create_experiment("assay")
        client.create_recurring_run(
            experiment.experiment_id,
            "x",
            cron_expression="0 0 2 * * *",
            pipeline_package_path=str(package),
            params={"task": "t"},
            enable_caching=False,
        )
    (stored,) = server.state.recurring_runs.values()
    loop = stored["pipeline_spec"]["components"]["comp-for-loop-1"]["dag"]["tasks"]
    assert [task["cachingOptions"] for task in loop.values()] == [{"enableCache": True}]


def test_each_schedule_has_a_data_version_of_its_own(server: KfpServer, package: Path) -> None:
    make(server, package)
    create_schedule(
        "other", "0 3 * * *", package, {"task": "t", "data_version": ""}, endpoint_of(server), now=NOW
    )
    create_schedule(
        "given", "0 3 * * *", package, {"task": "t", "data_version": "v"}, endpoint_of(server), now=NOW
    )
    runs = server.state.recurring_runs.values()
    assert [run["runtime_config"]["parameters"]["data_version"] for run in runs] == [
        "schedule-nightly-20260101T120000.000000Z",
        "schedule-other-20260101T120000.000000Z",
        "v",
    ]


def test_creating_a_schedule_twice_leaves_the_second(server: KfpServer, package: Path) -> None:
    make(server, package)
    make(server, package, "other")
    info = create_schedule("nightly", "0 4 * * *", package, {"task": "sizing"}, endpoint_of(server), now=NOW)
    assert info.notes[0] == "replaced the schedule of that name (0 2 * * *)"
    listed = {item.name: item.cron for item in list_schedules(endpoint_of(server))}
    assert listed == {"other": "0 2 * * *", "nightly": "0 4 * * *"}
    assert len(server.state.recurring_runs) == 2


def test_a_replacement_that_fails_keeps_the_old_schedule(server: KfpServer, package: Path) -> None:
    make(server, package)
    server.state.fail_with, server.state.fault_on = 500, "POST /apis/v2beta1/recurringruns"
    with pytest.raises(SourceError):
        make(server, package, cron="0 4 * * *")
    server.state.fail_with = None
    assert [item.cron for item in list_schedules(endpoint_of(server))] == ["0 2 * * *"]


def test_a_replacement_broken_off_between_is_tidied_up_by_the_next(server: KfpServer, package: Path) -> None:
    make(server, package)
    server.state.fail_with, server.state.fault_on = 500, "DELETE"
    with pytest.raises(SourceError):
        make(server, package, cron="0 4 * * *")
    assert len(server.state.recurring_runs) == 2
    server.state.fail_with = None
    make(server, package, cron="0 5 * * *")
    assert [item.cron for item in list_schedules(endpoint_of(server))] == ["0 5 * * *"]


def test_all_pages_are_listed(server: KfpServer, package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.cluster._PAGE_SIZE", 2)
    for number in range(5):
        make(server, package, f"schedule{number}")
    names = [item.name for item in list_schedules(endpoint_of(server))]
    assert names == [f"schedule{number}" for number in range(5)]


def test_a_disabled_schedule_is_listed_as_such(server: KfpServer, package: Path) -> None:
    make(server, package)
    (identifier,) = server.state.recurring_runs
    with connected(endpoint_of(server)) as client:
        client.disable_recurring_run(identifier)
    (info,) = list_schedules(endpoint_of(server))
    assert (info.enabled, info.next_runs) == (False, ())
    with connected(endpoint_of(server)) as client:
        client.enable_recurring_run(identifier)
        assert client.get_recurring_run(identifier).status == "ENABLED"
    assert list_schedules(endpoint_of(server))[0].enabled


@pytest.mark.parametrize(
    ("trigger", "cron", "kfp_cron"),
    [
        ({"cron_expression": "0 2 * * *"}, "2 * * * *", "0 2 * * *"),  # made elsewhere: really hourly
        ({"cron_expression": "30 0 2 * * *"}, "30 0 2 * * *", "30 0 2 * * *"),
        ({"interval_second": 600}, "every 600 s", None),
    ],
)
def test_foreign_schedules_are_listed_as_what_they_do(
    server: KfpServer, package: Path, trigger: dict[str, object], cron: str, kfp_cron: str | None
) -> None:
    with connected(endpoint_of(server)) as client:
        experiment = client.create_experiment("assay")
        client.create_recurring_run(
            experiment.experiment_id, "x", params={"task": "t"}, pipeline_package_path=str(package), **trigger
        )
    (info,) = list_schedules(endpoint_of(server), now=NOW)
    assert (info.cron, info.kfp_cron) == (cron, kfp_cron)


def test_a_schedule_is_deleted_by_name(server: KfpServer, package: Path) -> None:
    make(server, package)
    make(server, package, "other")
    assert delete_schedule("nightly", endpoint_of(server)).cron == "0 2 * * *"
    assert [item.name for item in list_schedules(endpoint_of(server))] == ["other"]


def test_deleting_an_unknown_schedule_names_the_nearest(server: KfpServer, package: Path) -> None:
    make(server, package)
    with pytest.raises(InputError, match="did you mean 'nightly'"):
        delete_schedule("nightli", endpoint_of(server))
    assert len(server.state.recurring_runs) == 1


def test_without_the_experiment_there_are_no_schedules_and_none_is_made(server: KfpServer) -> None:
    assert list_schedules(endpoint_of(server)) == ()
    with pytest.raises(InputError, match="known: none"):
        delete_schedule("nightly", endpoint_of(server))
    assert server.state.experiments == {}


@pytest.mark.parametrize(
    ("name", "cron", "arguments", "words"),
    [
        ("two words", "0 2 * * *", {"task": "t"}, "schedule name: expected"),
        ("nightly", "0 0 2 * * *", {"task": "t"}, "five fields"),
        ("nightly", "0 2 * * *", {}, "got none for task"),
        ("nightly", "0 2 * * *", {"task": "t", "sedes": 3}, "did you mean 'seeds'"),
        ("nightly", "0 2 * * *", {"task": 3}, "task must be a STRING, got 3"),
        ("nightly", "0 2 * * *", {"task": "t", "seeds": True}, "seeds must be a NUMBER_INTEGER, got True"),
    ],
)
def test_bad_input_is_refused_before_anything_is_sent(
    server: KfpServer, package: Path, name: str, cron: str, arguments: dict[str, object], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        create_schedule(name, cron, package, arguments, endpoint_of(server))
    assert server.state.requests == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file"),
        (b"a: [", "must be YAML"),
        (b"", "assay compile"),
        (b"a: 1", "assay compile"),
        (b"\xff", "YAML"),
    ],
)
def test_a_package_that_is_none_is_refused(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "pipeline.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=words) as caught:
        read_package(path)
    assert "\n" not in str(caught.value)


def test_taking_caching_out_changes_nothing_else(package: Path) -> None:
    before = read_package(package)
    after = without_caching(before)
    assert cached_tasks(after) == ()
    assert cached_tasks(before) != ()
    assert after.documents[0]["deploymentSpec"] == before.documents[0]["deploymentSpec"]
    assert check_arguments(after, {"task": "t"}) == {"task": "t"}


def one_line(error: BaseException) -> str:
    assert "\n" not in str(error)
    return str(error)


@pytest.mark.parametrize("path", ["healthz", "experiments", "recurringruns"])
@pytest.mark.parametrize(
    ("status", "words"),
    [
        (500, "got 500 Internal Server Error: Internal server error: dial tcp"),
        (401, "ASSAY_KFP_TOKEN"),
        (302, "a login stands before it"),
        (404, "check the address"),
        (429, "got 429"),
    ],
)
def test_a_failing_server_is_one_line_and_is_asked_once(
    server: KfpServer, package: Path, status: int, words: str, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server.state.fail_with, server.state.fault_on = status, path
    start = time.monotonic()
    with pytest.raises(SourceError) as caught:
        make(server, package)
    assert words in one_line(caught.value)
    assert server.url in str(caught.value)
    # kfp itself would ask five times, five seconds apart, and print five tracebacks.
    assert time.monotonic() - start < 4
    assert len([request for request in server.state.requests if path in request]) == 1
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("path", ["healthz", "experiments", "recurringruns", "POST /apis/v2beta1/runs"])
def test_a_slow_server_is_given_up_after_the_timeout(server: KfpServer, package: Path, path: str) -> None:
    server.state.delay_s, server.state.fault_on = 20.0, path
    endpoint = endpoint_of(server, timeout_s=1)
    start = time.monotonic()
    with pytest.raises(SourceError, match="within 1 s"):
        if "POST" in path:
            submit(package, {"task": "t"}, endpoint)
        else:
            create_schedule("nightly", "0 2 * * *", package, {"task": "t"}, endpoint)
    assert time.monotonic() - start < 4


def test_a_login_page_with_status_200_is_no_api(server: KfpServer, package: Path) -> None:
    server.state.page = "<html>Please log in</html>"
    with pytest.raises(SourceError) as caught:
        make(server, package)
    assert "login page" in one_line(caught.value)


def test_nobody_listening_is_one_line() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(SourceError) as caught:
        list_schedules(Endpoint(url))
    assert "Connection refused" in one_line(caught.value)
    assert url in str(caught.value)
    assert "0x" not in str(caught.value)


def test_an_unknown_host_is_one_line() -> None:
    with pytest.raises(SourceError) as caught:
        list_schedules(Endpoint("http://no-such-host.invalid"))
    assert "no-such-host.invalid" in one_line(caught.value)


def test_the_token_is_sent_and_never_shown(server: KfpServer, package: Path) -> None:
    server.state.token = "s3cret"
    endpoint = Endpoint(server.url, token="s3cret")
    assert submit(package, {"task": "t"}, endpoint).run_id
    assert "s3cret" not in repr(endpoint)
    with pytest.raises(SourceError) as caught:
        submit(package, {"task": "t"}, Endpoint(server.url, token="wr0ng"))
    assert "got 401" in one_line(caught.value)
    assert "wr0ng" not in str(caught.value)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A key and a certificate of its own making for 127.0.0.1, in one PEM file."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(datetime(2020, 1, 1))
        .not_valid_after(datetime(2120, 1, 1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    path = tmp_path / "certificate.pem"
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    path.write_bytes(private + made.public_bytes(pem))
    return path


def test_an_untrusted_certificate_is_one_line_and_a_named_authority_mends_it(certificate: Path) -> None:
    with kfp_server(certificate) as server:
        with pytest.raises(SourceError) as caught:
            list_schedules(Endpoint(server.url))
        assert "ASSAY_KFP_CA_FILE" in one_line(caught.value)
        assert list_schedules(Endpoint(server.url, ca_file=str(certificate))) == ()


def test_the_endpoint_comes_from_the_option_then_the_environment() -> None:
    environment = {
        "ASSAY_KFP_ENDPOINT": "http://kfp:8080/",
        "ASSAY_KFP_TOKEN": "t",
        "ASSAY_KFP_NAMESPACE": "team",
    }
    assert resolve_endpoint(None, environment) == Endpoint("http://kfp:8080", "t", "team")
    with pytest.raises(InputError, match="ASSAY_KFP_CA_FILE: expected the path of a file"):
        resolve_endpoint(None, {**environment, "ASSAY_KFP_CA_FILE": "/nowhere.pem"})
    assert resolve_endpoint("https://other/pipeline/", environment).url == "https://other/pipeline"


@pytest.mark.parametrize("option", [None, "", "localhost:8080", "ftp://kfp", "http://"])
def test_an_endpoint_that_is_no_address_is_refused(option: str | None) -> None:
    with pytest.raises(InputError, match=r"Kubeflow Pipelines: expected (its|an http).* address"):
        resolve_endpoint(option, {})
