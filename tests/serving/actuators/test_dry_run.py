"""What would have been set is where the next decision starts from."""

import pytest

from feature_store.errors import InputError
from serving.actuators.dry_run import DryRun

CURRENT = {"target_replicas": "replicas", "target_cpu_limit_cores": "cpu_limit_cores"}
FOUND = {"replicas": 2.0, "ready_replicas": 1.0, "cpu_limit_cores": 1.0}


def test_replicas_that_are_asked_for_serve_at_once():
    actuator = DryRun(FOUND, CURRENT)
    assert actuator.present() == FOUND
    actuator.apply({"target_replicas": 5.0, "target_cpu_limit_cores": 0.5})
    assert actuator.present() == {"replicas": 5.0, "ready_replicas": 5.0, "cpu_limit_cores": 0.5}
    actuator.restore()
    assert actuator.present() == FOUND


def test_what_was_not_given_is_not_made_up():
    actuator = DryRun({"replicas": 2.0, "cpu_limit_cores": 1.0}, CURRENT)
    actuator.apply({"target_replicas": 5.0})
    assert actuator.present() == {"replicas": 5.0, "cpu_limit_cores": 1.0}
    with pytest.raises(InputError, match="replicas is not there"):
        DryRun({"cpu_limit_cores": 1.0}, CURRENT)
