"""Who else sets a Deployment's replicas or limits: two that set the same value undo each other's work for ever.

KEDA scales through an HPA that it makes, so that it is found as one.
"""

from collections.abc import Collection

from serving.actuators.actuator import ActuatorError
from serving.actuators.deployment.api import HORIZONTAL_AUTOSCALERS, VERTICAL_AUTOSCALERS, Api, ApiError, Json
from serving.actuators.deployment.limits import RESOURCE

PASSIVE = ("Off", "Initial")  # modes of a VPA that change no running pod; every other one, also one not known yet, does


def require_sole_owner(api: Api, deployment: str, controls: Collection[str]) -> None:
    """Raises ActuatorError (refused) where an HPA, or a VPA that acts, owns what `controls` set."""
    if "target_replicas" in controls:
        for item in api.call("list", HORIZONTAL_AUTOSCALERS).get("items", []):
            if _aims_at((item.get("spec") or {}).get("scaleTargetRef"), deployment):
                raise ActuatorError("refused", f"the HorizontalPodAutoscaler {_name(item)} sets the replicas of "
                                               f"{deployment} too; delete it, or leave target_replicas out of the "
                                               "controls")
    if set(controls) & set(RESOURCE):
        for item in _vertical(api):
            spec = item.get("spec") or {}
            mode = (spec.get("updatePolicy") or {}).get("updateMode") or "Auto"
            if _aims_at(spec.get("targetRef"), deployment) and mode not in PASSIVE:
                raise ActuatorError("refused", f"the VerticalPodAutoscaler {_name(item)} (mode {mode}) sets the limits "
                                               f"of {deployment} too; set its updateMode to Off, or leave the limits "
                                               "out of the controls")


def _vertical(api: Api) -> list[Json]:
    try:
        return list(api.call("list", VERTICAL_AUTOSCALERS).get("items", []))
    except ApiError as error:
        if error.status == 404:  # a custom resource that nobody installed
            return []
        raise


def _aims_at(reference: Json | None, deployment: str) -> bool:
    reference = reference or {}
    return reference.get("kind") == "Deployment" and reference.get("name") == deployment


def _name(item: Json) -> str:
    return str((item.get("metadata") or {}).get("name", "?"))
