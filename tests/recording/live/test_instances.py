"""How many instances a service has while they come and go; no server runs."""

from types import SimpleNamespace

import pytest

from recording.control_groups import ControlGroups, find_hierarchy
from recording.live.replicated_service import ReplicatedService
from recording.processes import Guard
from recording.scaling.plan import Deployment


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> ReplicatedService:
    """With one instance that serves, and may have two."""
    with Guard() as guard:
        made = ReplicatedService(guard, ControlGroups(guard, find_hierarchy()), guard.folder, "shop",
                                 Deployment("nginx", 0.5, 1, 1), 64.0, most=2, start_up_s=(0.0, 0.0), seed=0)
    one, instances = SimpleNamespace(place=SimpleNamespace(port=1)), list[object]()
    live = SimpleNamespace(instances=instances, start_instance=lambda: instances.append(one) or one,
                           stop_instance=instances.pop, await_answer=lambda _: None)
    monkeypatch.setattr(made, "_live", live)
    monkeypatch.setattr(made, "_proxy", SimpleNamespace(serve=lambda *_: None, drain=lambda *_: None))
    monkeypatch.setattr(made, "_tell", lambda *_: None)
    made._add()
    return made


def test_an_instance_counts_from_when_it_serves(service: ReplicatedService, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = list[int]()
    monkeypatch.setattr(service._live, "await_answer", lambda _: ready.append(service.ready))
    service._add()
    assert (ready, service.ready) == ([1], 2)


def test_one_that_is_asked_for_again_before_it_goes_stays(service: ReplicatedService) -> None:
    """Between the look at what was asked for and the lock."""
    service._add()
    service.scale(2)
    service._remove_newest()
    assert (service.ready, len(service._live.instances)) == (2, 2)
    service.scale(1)
    service._remove_newest()
    assert (service.ready, len(service._live.instances)) == (1, 1)
