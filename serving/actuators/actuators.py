"""The table of actuators: how each is made of a contract and an operator's file."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from feature_store.errors import InputError, nearest
from serving.actuators.actuator import Actuator
from serving.actuators.cgroup import Cgroup
from serving.actuators.control_group.replica_limits import LIMITS
from serving.actuators.deployment.api import Api, cluster_configuration
from serving.actuators.dry_run import DryRun
from serving.actuators.kubernetes import KubernetesDeployment
from serving.contract import Contract
from serving.control.checks import checked, first_of
from serving.control.controller_file import ControllerFile

Maker = Callable[[Contract | None, ControllerFile], Actuator]


def _dry_run(contract: Contract | None, written: ControllerFile) -> Actuator:
    if contract is None:
        raise InputError("actuator must be one that keeps what it found, got dry-run, which sets nothing")
    if not written.dry_run:
        raise InputError("dry_run must say what is set at the beginning, got nothing (controller file)")
    assert contract.driving is not None
    made = DryRun(written.dry_run, contract.driving.current)
    if impossible := checked(contract, written.dry_run, written.dry_run).troubles:
        raise InputError(f"dry_run must be possible values, got {first_of(tuple(impossible.values()))}: no policy "
                         "would ever act")
    return made


def _require_held(contract: Contract | None, written: ControllerFile, sets: Collection[str], what: str) -> None:
    """What an actuator cannot set has to stay as it is: it refuses every decision that changes it, whole."""
    if contract is None or contract.driving is None:
        return
    if loose := [name for name in contract.driving.current if name not in (*sets, *written.hold)]:
        raise InputError(f"shield.hold must have {', '.join(loose)}, which {what} does not set, got "
                         f"{', '.join(written.hold) or 'nothing'} (controller file)")


def _kubernetes(contract: Contract | None, written: ControllerFile) -> Actuator:
    if (target := written.kubernetes) is None:
        raise InputError("kubernetes must name namespace, deployment and container, got nothing (controller file)")
    _require_held(contract, written, target.controls, "kubernetes")
    kubeconfig = Path(target.kubeconfig).expanduser() if target.kubeconfig else None
    api = Api(cluster_configuration(kubeconfig, target.context or None), target.namespace, target.connect_s,
              target.read_s)
    return KubernetesDeployment(api, target.deployment, target.container, target.controls, target.lease_s)


def _cgroup(contract: Contract | None, written: ControllerFile) -> Actuator:
    if (target := written.cgroup) is None:
        raise InputError("cgroup must name the group, got nothing (controller file)")
    _require_held(contract, written, LIMITS, "cgroup")
    return Cgroup(target.group, Path(target.state), parent=target.parent, root=Path(target.root),
                  replicas=target.replicas)


ACTUATORS: Mapping[str, Maker] = {"dry-run": _dry_run, "cgroup": _cgroup, "kubernetes": _kubernetes}
# those that give back what they found when a controller ends, unless it is told otherwise
GIVES_BACK = frozenset({"cgroup"})


def make_actuator(name: str, contract: Contract | None, written: ControllerFile) -> Actuator:
    """An actuator by name.

    Args:
        contract: of the policy; None: only to give back what was found.

    Raises:
        InputError: there is none of that name, or the file does not say what it needs.
    """
    if name not in ACTUATORS:
        raise InputError(f"actuator must be one of {', '.join(ACTUATORS)}, got {name!r}; {nearest(name, ACTUATORS)}")
    return ACTUATORS[name](contract, written)
