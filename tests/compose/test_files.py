"""What `docker compose` makes of the shipped files: it needs its client, and no engine."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from typing import Any

from tests.compose.cluster import ROOT, SERVICES

BESIDE = ("secret", "prometheus", "flower")
GPU = ("-f", "docker-compose.yml", "-f", "docker-compose.gpu.yml")


def services(env: Mapping[str, str], *files: str, **said: str) -> dict[str, dict[str, Any]]:
    """Every service of every profile, as compose understands it."""
    words = ["docker", "compose", *files, "--profile", "*", "config", "--format", "json"]
    done = subprocess.run(words, cwd=ROOT, env={**env, **said}, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, "compose warns of what it read"
    return json.loads(done.stdout)["services"]


def test_the_files_are_sound_and_open_to_this_machine_alone(environment: dict[str, str]) -> None:
    found = services(environment)
    assert set(found) == {*SERVICES, *BESIDE}
    ports = [port for service in found.values() for port in service.get("ports", ())]
    assert len(ports) >= 4
    assert {port["host_ip"] for port in ports} == {"127.0.0.1"}


def test_one_service_builds_the_image_and_nobody_looks_for_it_elsewhere(environment: dict[str, str]) -> None:
    ours = {name: one for name, one in services(environment).items() if one["image"].startswith("tidemill:")}
    assert {one["image"] for name, one in ours.items() if name != "flower"} == {"tidemill:cpu"}
    assert {name for name, one in ours.items() if "build" in one} == {"run", "flower"}
    assert {one["pull_policy"] for one in ours.values()} == {"never"}


def test_with_vllm_it_is_another_image(environment: dict[str, str]) -> None:
    found = services(environment, VLLM="1")
    assert found["run"]["build"]["args"] == {"VLLM": "1"}
    assert {found[name]["image"] for name in SERVICES if name != "redis"} == {"tidemill:cpu-vllm"}


def test_with_gpus_slots_see_them_and_every_role_has_the_image_that_can_use_them(environment: dict[str, str]) -> None:
    with_gpus, without = services(environment, *GPU), services(environment)
    assert {with_gpus[name]["image"] for name in SERVICES if name != "redis"} == {"tidemill:gpu"}
    assert with_gpus["run"]["build"]["args"] == {"DEVICE": "gpu", "VLLM": "1"}
    [device] = with_gpus["slot"]["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["count"], device["capabilities"]) == ("nvidia", -1, ["gpu"])
    differing = {"image", "build", "deploy", "shm_size"}
    for name, service in with_gpus.items():
        same = {key: value for key, value in service.items() if key not in differing}
        assert same == {key: value for key, value in without[name].items() if key not in differing}, name
        assert "reservations" not in service.get("deploy", {}).get("resources", {}) or name == "slot"
    assert with_gpus["slot"]["deploy"]["replicas"] == without["slot"]["deploy"]["replicas"]
