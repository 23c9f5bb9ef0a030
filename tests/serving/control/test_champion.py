"""Which policy may decide, while champions come and go."""

import shutil
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from feature_store.errors import AssayError, RefusedError
from models.configuration import load_configuration
from serving.bundle import check_bundle
from serving.control.champion import BundleAwayError, Champion, champion_of_ledger, open_version
from serving.kept_bundles import kept_bundle
from serving.session import Predictor
from serving.state_folder import state_folder
from tests.serving.conftest import ROOT
from tests.serving.control.policy_bundle import Opened, write_policy_bundle

# of SQLAlchemy about MLflow; where it became an error, MLflow would be broken for all that follows
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")


@pytest.fixture(scope="module")
def bundles(tmp_path_factory, keys):
    folder = tmp_path_factory.mktemp("bundles")
    private, public = keys

    def narrower(agreed):
        agreed["fallback"] = {**agreed["fallback"], "safe_ranges": {
            name: {**safe, "most_up": 0.5} for name, safe in agreed["fallback"]["safe_ranges"].items()}}

    def seen(agreed):
        load = {"name": "rate_rps", "scale": "log", "terms": {"rate_rps": 1.0}, "minimum": 10.0, "maximum": 90.0}
        agreed["driving"] = {**agreed["driving"], "seen": {"margin": 1.5, "ranges": [load]}}

    made = {"one": write_policy_bundle(folder / "one", private),
            "two": write_policy_bundle(folder / "two", private, seen, seed=2),
            "other": write_policy_bundle(folder / "other", private, narrower, seed=3)}
    return {name: check_bundle(path, public) for name, path in made.items()}


def test_a_new_champion_takes_its_place_and_an_unreachable_registry_changes_nothing(bundles):
    ledger, now = Opened(bundles["one"]), [0.0]
    champion = Champion(ledger, lambda: now[0])
    first = champion.current()
    assert (first.refused, first.version) == ("", bundles["one"].sha256[:12])
    now[0], ledger.found = 50.0, AssayError("tracking server must answer, got nothing")
    champion.poll()
    kept = champion.current()
    assert (kept.predictor, kept.refused, kept.age_s) == (first.predictor, "", 50.0)
    assert "must answer" in champion.unreachable
    ledger.found = bundles["two"]
    champion.poll()
    second = champion.current()
    assert (second.version, second.age_s, champion.unreachable) == (bundles["two"].sha256[:12], 0.0, "")
    assert second.predictor is not first.predictor
    # what its training saw comes with it
    assert (first.familiar.names, second.familiar.names) == ((), ("rate_rps",))


def test_a_prediction_says_beyond_what_training_saw_it_is(bundles):
    row = {item.name: item.minimum for item in bundles["two"].contract.inputs} | {"rate_rps": 60.0}
    predictor = Predictor(bundles["two"])
    assert predictor.predict(row).strange == ()
    assert predictor.predict([row, row | {"rate_rps": 140.0}]).strange == ("rate_rps",)
    assert Predictor(bundles["one"]).predict(row | {"rate_rps": 1e4}).strange == ()


@pytest.mark.parametrize("reason", ["workload must have a champion, got none", "signature must hold, got another key"])
def test_one_that_is_retired_or_does_not_check_decides_no_more_until_there_is_another(bundles, reason):
    ledger = Opened(bundles["one"])
    champion = Champion(ledger)
    ledger.found = RefusedError(reason)
    champion.poll()
    assert champion.current().refused == f"champion: {reason}"
    ledger.found = AssayError("registry is away")
    champion.poll()
    assert champion.current().refused == f"champion: {reason}"
    ledger.found = bundles["one"]
    champion.poll()
    assert champion.current().refused == ""


def test_one_of_other_safe_ranges_does_not_take_its_place(bundles):
    ledger = Opened(bundles["one"])
    champion = Champion(ledger)
    ledger.found = bundles["other"]
    champion.poll()
    model = champion.current()
    assert "start the controller again" in model.refused
    assert model.version == bundles["one"].sha256[:12]


def test_without_a_first_champion_there_is_no_controller():
    with pytest.raises(RefusedError, match="no champion"):
        Champion(Opened(RefusedError("no champion")))


def test_it_is_followed_in_a_thread_that_ends(bundles):
    ledger, stopped = Opened(bundles["one"]), threading.Event()
    champion = Champion(ledger)
    thread = champion.follow(0.01, stopped)
    ledger.found = bundles["two"]
    deadline = time.monotonic() + 20
    while champion.current().version != bundles["two"].sha256[:12] and time.monotonic() < deadline:
        time.sleep(0.01)
    stopped.set()
    thread.join(10)
    assert champion.current().version == bundles["two"].sha256[:12]
    assert not thread.is_alive()


def test_the_champion_is_the_ledger_s_from_the_copy_in_the_state_folder(tmp_path, keys, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    from serving.ledger import Ledger as SignedLedger
    from serving.moves import Move

    private, public = keys
    configuration = replace(load_configuration(ROOT / "mlflow.yaml", {"ASSAY_HOME": str(tmp_path)}),
                            public_key_path=public)
    with pytest.raises(AssayError, match="ledger must be there") as away:
        champion_of_ledger(configuration, "autoscaling", "nginx")
    assert not isinstance(away.value, RefusedError)
    made = {version: write_policy_bundle(kept_bundle(configuration.home, "autoscaling", "nginx", version), private,
                                         seed=version) for version in (1, 2)}
    digests = {version: check_bundle(path, public).sha256 for version, path in made.items()}
    ledger = SignedLedger(configuration.ledger_path, public, private)

    def move(action, version, before):
        return Move(action, "2026-11-23T00:00:00+00:00", "autoscaling", "nginx", "assay.autoscaling.nginx", version,
                    before, digests[version], gates_passed=True, reason="", actor="test")

    ledger.append([move("register", 1, None), move("champion", 1, None)])
    assert champion_of_ledger(configuration, "autoscaling", "nginx").sha256 == digests[1]
    ledger.append([move("register", 2, 1), move("champion", 2, 1)])
    assert champion_of_ledger(configuration, "autoscaling", "nginx").sha256 == digests[2]
    with pytest.raises(RefusedError, match="must have a champion"):
        champion_of_ledger(configuration, "autoscaling", "redis")
    light, away = state_folder(configuration.home, public_key=public), made[2].with_name("away")
    acting = Champion(lambda: champion_of_ledger(light, "autoscaling", "nginx"))
    made[2].rename(away)
    acting.poll()  # it is the one that acts
    assert (acting.current().refused, "bundle of version 2" in acting.unreachable) == ("", True)
    away.rename(made[2])
    made[1].rename(away)
    ledger.append([move("retire", 2, 2)])
    with pytest.raises(BundleAwayError, match="bundle of version 1 must be in the state folder") as gone:
        champion_of_ledger(light, "autoscaling", "nginx")
    assert gone.value.sha256 == digests[1]
    with pytest.raises(BundleAwayError) as gone:  # nor does MLflow answer
        champion_of_ledger(replace(configuration, tracking_uri="http://127.0.0.1:9"), "autoscaling", "nginx")
    assert gone.value.sha256 == digests[1]
    acting.poll()
    assert "bundle of version 1" in acting.current().refused
    shutil.copytree(made[2], made[1])
    with pytest.raises(RefusedError, match="as the ledger says"):
        champion_of_ledger(configuration, "autoscaling", "nginx")


def test_where_no_copy_is_kept_the_version_that_is_asked_for_comes_of_mlflow(bundles, tmp_path, monkeypatch):
    versions = {1: bundles["one"], 2: bundles["two"]}
    monkeypatch.setattr("serving.registry.Registry", lambda _: SimpleNamespace(
        open=lambda task, workload, version: versions[version]))
    configuration = load_configuration(ROOT / "mlflow.yaml", {"ASSAY_HOME": str(tmp_path)})
    for version, bundle in versions.items():
        assert open_version(configuration, "autoscaling", "nginx", version, bundle.sha256) is bundle
    with pytest.raises(RefusedError, match=f"must be {bundles['two'].sha256} as the ledger says"):
        open_version(configuration, "autoscaling", "nginx", 1, bundles["two"].sha256)
