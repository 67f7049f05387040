"""What a folder of `deploy/kubernetes` builds to, and its parts by name.

For: `test_kubernetes`. Not for: what must hold of them. `kubectl kustomize` asks no cluster.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

Object = dict[str, Any]
FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
WORKLOADS = ("Deployment", "StatefulSet", "Job")
PART = "app.kubernetes.io/component"


@cache
def lack() -> str:
    """Why nothing can be built here; empty when it can."""
    if not shutil.which("kubectl"):
        return "kubectl is not installed"
    said = subprocess.run(["kubectl", "version", "--client"], capture_output=True, text=True, check=False).stdout
    return "" if "Kustomize Version: v5" in said else f"kubectl is too old ({said.strip()}; 1.27 builds them)"


def built(folder: Path) -> list[Object]:
    """Its objects. Skips where no kubectl can build them."""
    if lack():
        pytest.skip(f"{lack()}, so the Kubernetes files are not built")
    done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    return list(yaml.safe_load_all(done.stdout))


def of_kind(objects: list[Object], *kinds: str) -> dict[str, Object]:
    return {one["metadata"]["name"]: one for one in objects if one["kind"] in kinds}


def pod(workload: Object) -> Object:
    return workload["spec"]["template"]["spec"]


def pod_labels(workload: Object) -> Mapping[str, str]:
    return workload["spec"]["template"]["metadata"]["labels"]


def container(workload: Object) -> Object:
    (one,) = pod(workload)["containers"]
    return one


def first_containers(workload: Object) -> list[Object]:
    """Those that must have ended well before the container starts."""
    return pod(workload).get("initContainers", [])


def roles(objects: list[Object]) -> dict[str, Object]:
    """Workloads that run our image, by what they are."""
    return {pod_labels(one)[PART]: one for one in of_kind(objects, *WORKLOADS).values() if PART in pod_labels(one)}


def environment(objects: list[Object], workload: Object) -> dict[str, str]:
    """A container's variables: plain values as they are, others by where they come from."""
    maps = of_kind(objects, "ConfigMap")
    found: dict[str, str] = {}
    for source in container(workload).get("envFrom", []):
        found |= maps[source["configMapRef"]["name"]]["data"]
    for one in container(workload).get("env", []):
        found[one["name"]] = one.get("value", str(one.get("valueFrom")))
    return found


def secrets_asked(workload: Object) -> Iterator[tuple[str, str, bool]]:
    """(Secret, key, whether it may be missing) of every use."""
    for volume in pod(workload)["volumes"]:
        for item in volume.get("secret", {}).get("items", []):
            yield volume["secret"]["secretName"], item["key"], False
    for one in container(workload).get("env", []):
        if asked := one.get("valueFrom", {}).get("secretKeyRef"):
            yield asked["name"], asked["key"], asked.get("optional", False)


def selects(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return selector.items() <= labels.items()
