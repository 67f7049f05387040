"""Checking a run file answers at once: no settings module loads a library that takes seconds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("broker", "producers", "consumers", "scheduler", "deploy")
HEAVY = ("torch", "vllm", "transformers", "deepspeed", "peft", "datasets", "numpy", "redis", "celery")
SETTINGS = sorted(
    str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*settings.py")
)


def test_every_role_has_settings() -> None:
    assert {path.split("/")[0] for path in SETTINGS} == set(PACKAGES)


@pytest.mark.parametrize("path", SETTINGS)
def test_settings_load_no_heavy_library(path: str) -> None:
    module = path.removesuffix(".py").replace("/", ".")
    code = f"import {module}, sys; print(*(name for name in {HEAVY} if name in sys.modules))"
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True
    )
    assert answer.stdout.split() == []


def test_every_folder_of_modules_is_a_package_or_the_import_contracts_would_not_see_it() -> None:
    folders = {path.parent for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert [str(folder.relative_to(ROOT)) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []
