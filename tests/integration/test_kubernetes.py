"""The Kubernetes files, as far as they can be tried without a cluster: built by kubectl, held against Kubernetes' own
schemas, against the local cluster of compose, which runs for real, and against what our programs read and answer.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import typer
import yaml

from deploy.cli import app
from deploy.run_check import load_run
from scheduler.devices import VISIBLE
from scheduler.slots import LEAVE_S
from tests.integration.manifests import (
    FOLDER,
    WORKLOADS,
    Object,
    built,
    container,
    environment,
    first_containers,
    of_kind,
    pod,
    pod_labels,
    roles,
    secrets_asked,
    selects,
)

ROOT = FOLDER.parents[1]
IMAGES = ROOT / "deploy" / "images"
KINDS = ("", "cpu")
"""Folders that are applied as they are: slots with GPUs, and one machine without."""
OLDEST = "1.27"
"""Kubernetes, whose stateful sets may count from 1."""
BASH = ("bash", "-eo", "pipefail", "-c")
ROLE_WAITS_S = 600
"""A role whose server is away ends by itself after so long."""


@pytest.fixture(scope="module", params=KINDS, ids=["gpu", "cpu"])
def objects(request: pytest.FixtureRequest) -> list[Object]:
    return built(FOLDER / request.param)


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """Services of the local cluster, by name."""
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]


@pytest.mark.parametrize("version", [OLDEST, kubernetes_validate.latest_version()])
def test_every_object_is_one_that_kubernetes_knows_to_the_last_field(objects: list[Object], version: str) -> None:
    for one in objects:
        kubernetes_validate.validate(one, version, strict=True)


def test_a_field_that_is_misspelt_is_seen(objects: list[Object]) -> None:
    slot = dict(of_kind(objects, "StatefulSet")["slot"])
    with pytest.raises(kubernetes_validate.ValidationError, match="replica"):
        kubernetes_validate.validate({**slot, "spec": {**slot["spec"], "replica": 2}}, OLDEST, strict=True)


def test_the_roles_are_those_of_compose_with_the_same_commands_and_health(
    objects: list[Object], compose: dict[str, Any]
) -> None:
    """The dashboard is asked over HTTP by both, here by the cluster itself."""
    ours = {name: one for name, one in compose.items() if one.get("image", "tidemill:").startswith("tidemill:")}
    del ours["flower"]
    assert set(roles(objects)) == set(ours)
    for name, workload in roles(objects).items():
        typed = re.sub(r"\$\{\w+_PORT:-(\d+)}", r"\1", re.sub(r"\$\{RUN:-\w+}", "$RUN", ours[name]["command"]))
        assert words_of(workload) == shlex.split(typed)
        for probe in ("readinessProbe", "livenessProbe"):
            if name == "dashboard":
                assert container(workload)[probe]["httpGet"] == {"path": "/health", "port": "http"}
            else:
                assert container(workload)[probe]["exec"]["command"] == ours[name]["healthcheck"]["test"][1:]


def words_of(workload: Object) -> list[str]:
    """What a container runs; a shell is there only to split RUN into words."""
    words = container(workload)["args"]
    return shlex.split(words[2].removeprefix("exec ")) if words[:2] == ["sh", "-c"] else words


def test_every_command_is_one_that_our_programs_understand(objects: list[Object]) -> None:
    command = typer.main.get_command(app)
    for workload in roles(objects).values():
        program, *words = words_of(workload)
        if program == "tidemill":
            run = environment(objects, workload)["RUN"].split()
            given = [part for word in words for part in (run if word == "$RUN" else [word])]
            parent = command.make_context("tidemill", given[:1], resilient_parsing=True)
            child = command.get_command(parent, given[0])  # type: ignore[attr-defined]  # a group
            child.make_context(given[0], given[1:], parent=parent)
            if given[0] == "run":
                assert load_run(run[0], run[1:]).run.name
        elif program == "python":
            assert words[0] == "-m" and (ROOT / words[1] / "__main__.py").is_file()
        else:
            assert os.access(IMAGES / "bin" / program, os.X_OK)


def test_every_variable_is_one_that_something_reads(objects: list[Object], compose: dict[str, Any]) -> None:
    packages = ("broker", "scheduler", "producers", "consumers", "deploy")
    sources = "".join(path.read_text() for package in packages for path in (ROOT / package).rglob("*.py"))
    sources += "".join(path.read_text() for path in (IMAGES / "bin").iterdir())
    for name, workload in of_kind(objects, *WORKLOADS).items():
        told = environment(objects, workload)
        command = " ".join([*container(workload).get("args", []), *container(workload).get("command", [])])
        unread = {one for one in told if f'"{one}"' not in sources and f"${{{one}" not in sources}
        assert all(re.search(rf"\$\{{?{one}\b", command) or one == "RUN" for one in unread), (name, unread)
    assert set(compose["run"]["environment"]) <= set(environment(objects, roles(objects)["run"]))


def test_whatever_is_named_exists(objects: list[Object]) -> None:
    """Secret: as the folder's own first lines make it."""
    made = re.findall(r"create secret generic (\S+) --from-file=(\S+)=", (FOLDER / "kustomization.yaml").read_text())
    for workload in of_kind(objects, *WORKLOADS).values():
        assert [ask[:2] for ask in secrets_asked(workload) if not ask[2] and ask[:2] not in made] == []
        volumes = pod(workload)["volumes"] + workload["spec"].get("volumeClaimTemplates", [])
        there = {one.get("name") or one["metadata"]["name"] for one in volumes}
        used = [mount for one in (container(workload), *first_containers(workload)) for mount in one["volumeMounts"]]
        assert {mount["name"] for mount in used} == there
        claims = {one["persistentVolumeClaim"]["claimName"] for one in volumes if "persistentVolumeClaim" in one}
        assert claims <= set(of_kind(objects, "PersistentVolumeClaim"))
        assert workload["spec"].get("serviceName", "slot") in of_kind(objects, "Service")
        told = environment(objects, workload)
        if file := told.get("TIDEMILL_BROKER_PASSWORD_FILE"):
            mounts = {mount["name"]: mount["mountPath"] for mount in container(workload)["volumeMounts"]}
            assert file == f"{mounts['password']}/redis-password"
            host = re.fullmatch(r"redis://tidemill@(\w+):(\d+)/0", told["TIDEMILL_BROKER_URL"])
            assert host and of_kind(objects, "Service")[host[1]]["spec"]["ports"][0]["port"] == int(host[2])


def test_every_selector_finds_what_it_is_for_and_nothing_else(objects: list[Object]) -> None:
    labels = {name: pod_labels(one) for name, one in of_kind(objects, *WORKLOADS).items()}
    for name, workload in of_kind(objects, "Deployment", "StatefulSet").items():
        chosen = workload["spec"]["selector"]["matchLabels"]
        assert [one for one, theirs in labels.items() if selects(chosen, theirs)] == [name]
    for name, service in of_kind(objects, "Service").items():
        assert [one for one, theirs in labels.items() if selects(service["spec"]["selector"], theirs)] == [name]
    policies = of_kind(objects, "NetworkPolicy")
    everyone = policies["tidemill"]["spec"]["podSelector"]["matchLabels"]
    assert everyone and all(selects(everyone, theirs) for theirs in labels.values())
    assert policies["tidemill"]["spec"]["ingress"] == [{"from": [{"podSelector": {"matchLabels": everyone}}]}]


def test_pods_may_do_no_more_than_they_must(objects: list[Object]) -> None:
    """Kubernetes' "restricted" standard; and the account is the image's own."""
    account = re.search(r"useradd --uid (\d+)", (IMAGES / "Dockerfile").read_text())
    for name, workload in of_kind(objects, *WORKLOADS).items():
        whole = pod(workload)["securityContext"]
        assert whole["runAsNonRoot"] and whole["seccompProfile"] == {"type": "RuntimeDefault"}
        for one in (container(workload), *first_containers(workload)):
            assert one["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
            assert one["resources"]["requests"].keys() == {"cpu", "memory"}
        assert not pod(workload)["automountServiceAccountToken"]
        assert account and (name == "redis" or whole["runAsUser"] == int(account[1]) == whole["fsGroup"])


def test_nobody_is_cut_off_while_it_drains_or_killed_while_its_own_rules_still_work(
    objects: list[Object], compose: dict[str, Any]
) -> None:
    assert compose["run"]["init"], "somebody collects what has died"
    for workload in roles(objects).values():
        assert pod(workload)["terminationGracePeriodSeconds"] > LEAVE_S
        patience = container(workload)["livenessProbe"]
        assert patience["periodSeconds"] * patience["failureThreshold"] > ROLE_WAITS_S
        assert pod(workload)["shareProcessNamespace"]


def test_slots_have_gpus_where_there_are_some_and_an_image_made_for_it() -> None:
    for kind, asks in (("", {"nvidia.com/gpu": 1}), ("cpu", {})):
        objects = built(FOLDER / kind)
        for name, workload in roles(objects).items():
            limits = container(workload)["resources"]["limits"]
            gpus = {what: number for what, number in limits.items() if what.startswith("nvidia")}
            assert gpus == (asks if name == "slot" else {})
            assert container(workload)["image"] == f"tidemill:{kind or 'gpu'}"
            assert (VISIBLE in environment(objects, workload)) == bool(gpus)


def test_the_gpu_of_a_pod_is_number_0_whichever_slot_it_is(tmp_path: Path) -> None:
    """With stand-ins for the driver's program and for Celery, which says what it was given."""
    objects = built(FOLDER)
    slot = roles(objects)["slot"]
    assert slot["spec"]["ordinals"] == {"start": 1}, "slot-1 is the first"
    for name, script in (("nvidia-smi", "echo 'GPU 0: stand-in'"), ("celery", 'echo "gpu=$CUDA_VISIBLE_DEVICES" "$@"')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    for place, pool in (("slot-1", "train"), ("slot-3", "rollout")):
        told = {**environment(objects, slot), "TIDEMILL_PLACE": place, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        said = subprocess.run(
            [IMAGES / "bin" / "enter.sh", IMAGES / "bin" / container(slot)["args"][0]],
            env=told,
            capture_output=True,
            text=True,
            check=True,
        )
        assert said.stdout.startswith("gpu=0 ") and said.stdout.endswith(f"--slot {place} --initial-pool {pool}\n")


def test_a_server_of_ones_own_takes_the_place_of_ours_by_the_overlay_that_its_file_shows(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "deploy" / "kubernetes")
    lines = (FOLDER / "external-redis" / "kustomization.yaml").read_text().splitlines()
    mine = tmp_path / "clusters" / "mine"
    mine.mkdir(parents=True)
    shown = [line.removeprefix("#   ") for line in lines if line.startswith("#   ")]
    (mine / "kustomization.yaml").write_text("\n".join(shown))
    objects = built(mine)
    assert "redis" not in of_kind(objects, "StatefulSet", "Service")
    told = environment(objects, roles(objects)["slot"])
    assert told["TIDEMILL_BROKER_URL"] == "redis://tidemill@redis.example:6379/0"
    assert told[VISIBLE] == "0"
    for one in objects:
        kubernetes_validate.validate(one, OLDEST, strict=True)


def test_operations_types_what_kubectl_understands_and_names_what_is_there() -> None:
    text = (ROOT / "docs" / "operations.md").read_text().split("\n## Kubernetes\n", 1)[1].split("\n## ", 1)[0]
    typed = [line.partition("  #")[0].strip() for line in text.split("```")[1].strip().splitlines()]
    objects = {f"{one['kind'].lower()}/{one['metadata']['name']}" for one in built(FOLDER / "cpu")}
    lines = [line for line in typed if line.partition(" ")[0] == "kubectl"]
    named = [re.search(r" (\w+/\w+)( |$)", line) for line in lines]
    folders = [re.search(r" apply -k (\S+)$", line) for line in lines]
    assert any(named) and any(folders)
    assert [found[1] for found in named if found and found[1] not in objects] == []
    assert all((ROOT / found[1] / "kustomization.yaml").is_file() for found in folders if found)
    label = re.search(r" -l ([^ =]+)=(\S+)$", lines[-1])
    workloads = of_kind(built(FOLDER), *WORKLOADS).values()
    assert label and all(one["metadata"]["labels"][label[1]] == label[2] for one in workloads)
    (secret,) = [line for line in typed if "create secret" in line]
    done = subprocess.run([*BASH, f"{secret} --dry-run=client -o yaml"], capture_output=True, text=True, check=True)
    assert list(yaml.safe_load(done.stdout)["data"]) == ["redis-password"]
