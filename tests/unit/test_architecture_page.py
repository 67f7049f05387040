"""`docs/architecture.md` names every module there is, and no file that is not there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
PACKAGES = ("broker", "producers", "consumers", "scheduler", "deploy")


def modules() -> list[Path]:
    found = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    return sorted(path.relative_to(ROOT) for path in found if path.name != "__init__.py")


def test_every_module_is_named() -> None:
    unnamed = [str(path) for path in modules() if not re.search(rf"`(\w+/)*{path.stem}(\.py)?`", PAGE)]
    assert unnamed == [], "name them in docs/architecture.md, under Every module"


def test_every_file_that_is_named_is_there() -> None:
    named = set(re.findall(r"`([\w/]+\.(?:py|md|lua))`", PAGE))
    files = [str(path) for package in (*PACKAGES, "docs", "benchmarks") for path in (ROOT / package).rglob("*.*")]
    assert [name for name in sorted(named) if not any(file.endswith(f"/{name}") for file in files)] == []
