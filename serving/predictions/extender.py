"""Ranks the nodes of a Kubernetes cluster for a pod by the latency that a model predicts on each (the use that vPALs
are made for): what kube-scheduler's extender is asked.

    ExtenderArgs {Pod, Nodes, NodeNames}  ->  prioritized: HostPriorityList  [{Host, Score}]
                                          ->  filtered: ExtenderFilterResult {Nodes, FailedNodes, ...}

A score is a function of the node's own prediction alone: 10 at `best` and below, 0 at `worst` and above, a straight
line between, rounded down; so it never rises with the prediction, whichever nodes stand beside. A node whose features
are missing, too old, no numbers, or outside of the proved box has no prediction: it gets 0 and a reason, never a
made-up one. Features come with the question, or from Prometheus's last answers (node_queries.py).

Source: k8s.io/kube-scheduler, extender/v1 (field names have no JSON tags there, so they begin with capitals).
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from feature_store.errors import AssayError, InputError, nearest
from serving.predictions.champions import Served
from serving.predictions.extender_file import ExtenderFile, FeatureFields, WorkloadFields
from serving.predictions.node_queries import NOTHING_MEASURED, Measured, NodeQueries
from serving.session import Predictor

MOST_SCORE = 10  # MaxExtenderPriority
_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_REASON = 300  # characters


@dataclass(frozen=True)
class Verdict:
    """Of one node.

    Attributes:
        host: the node's name.
        value: predicted, unit of the output; None: there is no prediction.
        reason: why not.
    """

    host: str
    value: float | None
    reason: str = ""


@dataclass(frozen=True)
class Ranking:
    """Of the nodes for one pod.

    Attributes:
        nodes: as they were asked, in order.
        verdicts: one for each node.
        workload: of the extender's file; None: the pod is none of its concern.
    """

    nodes: Sequence[Mapping[str, Any]]
    verdicts: Sequence[Verdict]
    workload: WorkloadFields | None


@dataclass(frozen=True)
class Extender:
    """What nodes are ranked by. queries: None: the file asks Prometheus for nothing."""

    file: ExtenderFile
    queries: NodeQueries | None = None

    def rank(self, arguments: Mapping[str, Any], models: Mapping[str, Served]) -> Ranking:
        """See `rank`."""
        return rank(self.file, arguments, models, self.queries() if self.queries else NOTHING_MEASURED)


def require_known(file: ExtenderFile, models: Mapping[str, Served], where: str) -> None:
    """Refuses a file that does not fit the models that are served.

    Raises:
        InputError: a model, an output or a feature is not known, or features are missing.
    """
    for name, fields in file.workloads.items():
        place = f"({where}, workloads.{name})"
        if fields.model not in models:
            raise InputError(f"model must be one that is served, got {fields.model!r} {place}; "
                             f"{nearest(fields.model, models)}")
        if (predictor := models[fields.model].predictor) is None:
            continue  # what it needs shows when it comes back
        contract, inputs = predictor.contract, predictor.contract.input_names
        _output(fields, predictor, place)
        if wrong := [one for one in fields.features if one not in inputs]:
            raise InputError(f"feature must be an input of {fields.model}, got {wrong[0]!r} {place}; "
                             f"{nearest(wrong[0], inputs)}")
        if missing := [one for one in inputs if one not in fields.features]:
            raise InputError(f"features must include {', '.join(missing)}, inputs of the model for "
                             f"{contract.workload}, got {', '.join(fields.features)} {place}")


def rank(file: ExtenderFile, arguments: Mapping[str, Any], models: Mapping[str, Served],
         measured: Measured = NOTHING_MEASURED) -> Ranking:
    """Predicts for each node of ExtenderArgs. measured: what Prometheus says of the nodes.

    Raises:
        InputError: they are not what kube-scheduler sends to an extender that is not nodeCacheCapable.
    """
    pod, found = arguments.get("Pod"), arguments.get("Nodes")
    nodes = found.get("items") if isinstance(found, dict) else None
    if not isinstance(pod, dict):
        raise InputError(f"Pod must be an object, got {type(pod).__name__} (ExtenderArgs)")
    if not isinstance(nodes, list):
        raise InputError("Nodes must have a list of items, got none (ExtenderArgs); nodeCacheCapable must be false")
    hosts = [_host(node) for node in nodes]
    label = _texts(pod, "labels").get(file.pod_label)
    if label not in file.workloads:
        reason = f"pod must have a known label {file.pod_label} to be ranked, got {label!r:.60}"
        return Ranking(nodes, [Verdict(host, None, reason) for host in hosts], None)
    fields = file.workloads[label]
    served = models.get(fields.model, Served(None, reason="no such model"))
    if served.predictor is None:
        reason = f"{fields.model} is not served: {served.reason}"[:_REASON]
        return Ranking(nodes, [Verdict(host, None, reason) for host in hosts], fields)
    verdicts = [_verdict(host, node, pod, fields, served.predictor, measured)
                for host, node in zip(hosts, nodes, strict=True)]
    return Ranking(nodes, verdicts, fields)


def prioritized(ranking: Ranking) -> list[dict[str, Any]]:
    """HostPriorityList. Reason is not kube-scheduler's, whose decoder passes it over: it is for people."""
    return [{"Host": one.host, "Score": 0, "Reason": one.reason} if one.value is None or ranking.workload is None
            else {"Host": one.host, "Score": score(one.value, ranking.workload.best, ranking.workload.worst)}
            for one in ranking.verdicts]


def filtered(ranking: Ranking) -> dict[str, Any]:
    """ExtenderFilterResult."""
    failed = dict(_failed(ranking))
    kept = [node for node, one in zip(ranking.nodes, ranking.verdicts, strict=True) if one.host not in failed]
    return {"Nodes": {"metadata": {}, "items": kept}, "NodeNames": None, "FailedNodes": failed,
            "FailedAndUnresolvableNodes": {}, "Error": ""}


def score(value: float, best: float, worst: float) -> int:
    """Of a predicted value: MOST_SCORE at `best` and below, 0 at `worst` and above."""
    return math.floor(MOST_SCORE * min(1.0, max(0.0, (worst - value) / (worst - best))))


def _failed(ranking: Ranking) -> Iterator[tuple[str, str]]:
    fields = ranking.workload
    for one in ranking.verdicts if fields else ():
        assert fields is not None
        if one.value is None and fields.unknown == "refuse":
            yield one.host, one.reason
        elif one.value is not None and fields.most is not None and one.value > fields.most:
            yield one.host, f"predicted {one.value:.4g} is above {fields.most:g}"


def _verdict(host: str, node: Mapping[str, Any], pod: Mapping[str, Any], fields: WorkloadFields,
             predictor: Predictor, measured: Measured) -> Verdict:
    try:
        prediction = predictor.predict({name: _number(name, one, host, node, pod, measured)
                                        for name, one in fields.features.items()})
        if prediction.outside_box:
            raise InputError(f"{', '.join(prediction.outside_box)} must be inside of the proved box")
        return Verdict(host, prediction.columns[_output(fields, predictor, "")][0])
    except AssayError as error:
        return Verdict(host, None, str(error)[:_REASON])


def _number(name: str, feature: FeatureFields, host: str, node: Mapping[str, Any], pod: Mapping[str, Any],
            measured: Measured) -> float:
    if feature.constant is not None:
        return feature.constant
    if feature.node_query is not None:
        return measured.number(feature.node_query, (host, *_addresses(node)))
    for source, item, part in (("node_annotation", node, "annotations"), ("node_label", node, "labels"),
                               ("pod_annotation", pod, "annotations"), ("pod_label", pod, "labels")):
        if key := getattr(feature, source):
            text = _texts(item, part).get(key)
            if text is None or not _NUMBER.fullmatch(text):
                raise InputError(f"{name} must be a number in {source} {key}, got "
                                 f"{'none' if text is None else repr(text[:40])}")
            return float(text)
    raise InputError(f"{name} must come from somewhere")  # the file's model holds that it does


def _output(fields: WorkloadFields, predictor: Predictor, place: str) -> str:
    names = [item.name for item in predictor.contract.outputs]
    if fields.output is None and len(names) == 1:
        return names[0]
    if fields.output not in names:
        raise InputError(f"output must be one of {', '.join(names)}, got {fields.output or 'none'} {place}".strip())
    return fields.output


def _host(node: Any) -> str:
    name = node["metadata"].get("name") if isinstance(node, dict) and isinstance(node.get("metadata"), dict) else None
    if not isinstance(name, str):
        raise InputError(f"node must have a name in its metadata, got {node!r:.60} (ExtenderArgs)")
    return name


def _addresses(node: Mapping[str, Any]) -> Iterator[str]:
    """Of a node, as its status has them."""
    status = node.get("status")
    found = status.get("addresses") if isinstance(status, dict) else None
    for one in found if isinstance(found, list) else ():
        if isinstance(one, dict) and isinstance(address := one.get("address"), str):
            yield address


def _texts(item: Mapping[str, Any], part: str) -> Mapping[str, str]:
    """Labels or annotations of a pod or node: text -> text."""
    metadata = item.get("metadata")
    found = metadata.get(part) if isinstance(metadata, dict) else None
    return {key: value for key, value in found.items() if isinstance(value, str)} if isinstance(found, dict) else {}
