"""Checks the Kubernetes manifests of deploy/ without a cluster: `make deploy-check`.

    python -m deploy.manifests

Each is held against the published schemas of two Kubernetes releases, strictly (an unknown field is an error), and
against what an administrator asks for: no secret in it, no root, requests and limits, a fixed image, and that whatever
it refers to is made here or by a command of docs/recipes/run-on-a-cluster.md.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs/recipes/run-on-a-cluster.md"
RELEASES = ("1.33", "1.37")  # 1.33: the first with pods/resize, which the actuator needs
# Without a published schema in the package: read by an operator, by kustomize
CUSTOM = {"monitoring.coreos.com/v1": {"PodMonitor"}, "kustomize.config.k8s.io/v1beta1": {"Kustomization"}}
_PLACEHOLDERS = {"NAMESPACE": "shop", "DEPLOYMENT": "web"}  # of kubernetes-rbac.yaml
_MADE = re.compile(r"kubectl create (?:secret generic|configmap) ([a-z0-9-]+)|kubectl -n \w+ create "
                   r"(?:secret generic|configmap) ([a-z0-9-]+)")
_SECRET = re.compile(r"PASSWORD|TOKEN|SECRET|PRIVATE", re.IGNORECASE)


@dataclass(frozen=True)
class Manifest:
    """One document. where: file and name, for messages."""

    path: Path
    content: Mapping[str, Any]

    @property
    def where(self) -> str:
        """"state.yaml, Job prepare-state"."""
        return f"{self.path.name}, {self.content['kind']} {self.content.get('metadata', {}).get('name', '')}".strip()


def manifests(folder: Path = HERE) -> Iterator[Manifest]:
    """All documents below a folder that are Kubernetes' own: with apiVersion and kind."""
    for path in sorted(folder.rglob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        for placeholder, value in _PLACEHOLDERS.items():
            text = text.replace(placeholder, value)
        for document in yaml.safe_load_all(text):
            if isinstance(document, dict) and {"apiVersion", "kind"} <= document.keys():
                yield Manifest(path, document)


def problems(folder: Path = HERE, page: Path = PAGE) -> list[str]:
    """What is wrong, a line each; empty where nothing is."""
    found = list(manifests(folder))
    made = {(one.content["kind"], one.content["metadata"]["name"]) for one in found if "metadata" in one.content}
    by_hand = {first or second for first, second in _MADE.findall(page.read_text(encoding="utf-8"))}
    said = []
    for one in found:
        checks = [*_schema(one.content), *_secrets(one.content), *_pod(one.content),
                  *_references(one.content, made, by_hand)]
        if one.content["kind"] == "Job" and "ttlSecondsAfterFinished" not in one.content["spec"]:
            checks.append("expected ttlSecondsAfterFinished, as a Job cannot be applied again with another image")
        if one.content["kind"] == "Kustomization":
            checks += _listed(one)
        said += [f"{one.where}: {problem}" for problem in checks]
    return said


def _schema(content: Mapping[str, Any]) -> Iterator[str]:
    if content["kind"] not in CUSTOM.get(content["apiVersion"], ()):
        for release in RELEASES:
            yield from _of_release(release, json.dumps(content))


@cache  # the package reads its schemas anew for each document
def _of_release(release: str, document: str) -> tuple[str, ...]:
    content = json.loads(document)
    try:
        kubernetes_validate.validate(content, release, strict=True)
    except kubernetes_validate.ValidationError as error:
        return (f"expected what Kubernetes {release} takes, got {error.message} at {'.'.join(map(str, error.path))}",)
    except kubernetes_validate.SchemaNotFoundError:
        return (f"expected a kind of Kubernetes {release}, got {content['apiVersion']} {content['kind']}",)
    return ()


def _secrets(content: Mapping[str, Any]) -> Iterator[str]:
    if content["kind"] == "Secret":
        yield "expected no Secret, which is made by hand"
    for container in _containers(content):
        for entry in container.get("env", ()):
            if _SECRET.search(entry["name"]) and "value" in entry:
                yield f"expected {entry['name']} to come from a Secret, got a value"


def _pod(content: Mapping[str, Any]) -> Iterator[str]:
    for pod in _pods(content):
        if pod.get("securityContext", {}).get("runAsNonRoot") is not True:
            yield "expected runAsNonRoot: true"
        if "automountServiceAccountToken" not in pod:
            yield "expected automountServiceAccountToken to be said, either way"
    for container in _containers(content):
        name, image = container["name"], container["image"]
        for which in ("requests", "limits"):
            if missing := {"cpu", "memory"} - container.get("resources", {}).get(which, {}).keys():
                yield f"{name}: expected {which} of cpu and memory, got none of {' and '.join(sorted(missing))}"
        if container.get("securityContext", {}).get("allowPrivilegeEscalation") is not False:
            yield f"{name}: expected allowPrivilegeEscalation: false"
        # kustomization.yaml gives the project's own images their tag
        if not image.startswith("registry.example/") and (":" not in image or image.endswith(":latest")):
            yield f"{name}: expected an image with a version, got {image}"


def _references(content: Mapping[str, Any], made: set[tuple[str, str]], by_hand: set[str]) -> Iterator[str]:
    for pod in _pods(content):
        account = pod.get("serviceAccountName")
        if account and ("ServiceAccount", account) not in made:
            yield f"expected service account {account} to be made here, got none"
        claims = [volume["persistentVolumeClaim"]["claimName"] for volume in pod.get("volumes", ())
                  if "persistentVolumeClaim" in volume]
        yield from (f"expected claim {claim} to be made here, got none" for claim in claims
                    if ("PersistentVolumeClaim", claim) not in made)
        named = {volume[kind][key] for volume in pod.get("volumes", ())
                 for kind, key in (("configMap", "name"), ("secret", "secretName")) if kind in volume}
        named |= {entry["valueFrom"]["secretKeyRef"]["name"] for container in _containers(content)
                  for entry in container.get("env", ()) if "valueFrom" in entry}
        yield from (f"expected {name} to be made by a command of {PAGE.name}, got none" for name in named - by_hand)


def _listed(kustomization: Manifest) -> Iterator[str]:
    there = {path.name for path in kustomization.path.parent.glob("*.yaml")} - {kustomization.path.name}
    listed = set(kustomization.content["resources"])
    yield from (f"expected {name} to be there, got no such file" for name in sorted(listed - there))
    yield from (f"expected {name} to be listed, got no such resource" for name in sorted(there - listed))


def _pods(content: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The pod's spec of whatever starts pods."""
    spec = content.get("spec", {})
    template = spec.get("jobTemplate", {}).get("spec", spec).get("template")
    if template:
        yield template["spec"]


def _containers(content: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for pod in _pods(content):
        yield from (*pod.get("initContainers", ()), *pod["containers"])


def main() -> int:
    """Exit code 1 where something is wrong."""
    said = problems()
    for line in said:
        print(line, file=sys.stderr)
    if not said:
        count = sum(1 for _ in manifests())
        print(f"{count} manifests fit Kubernetes {' and '.join(RELEASES)} and what is asked of them")
    return int(bool(said))


if __name__ == "__main__":
    sys.exit(main())
