"""The dashboard's page keeps the limits of all other code: small files, short lines, nothing from afar."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "deploy" / "dashboard" / "page"
SOURCES = sorted(path for path in PAGE.iterdir() if path.suffix in {".js", ".css", ".html", ".svg"})


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_a_source_of_the_page_is_small_and_says_what_it_is_for(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert len(lines) < 300
    assert [line for line in lines if len(line) > 120] == []
    if path.suffix == ".js":
        assert lines[0].startswith("// ")
        assert "For: " in "".join(lines[:3])


def test_the_page_loads_nothing_from_elsewhere_and_every_module_it_names_is_there() -> None:
    for path in SOURCES:
        text = path.read_text().replace("http://www.w3.org/", "")
        assert not re.findall(r"https?://\S+", text), path.name
        for name in re.findall(r'from "\./([\w.]+)"|/static/([\w.]+)"', text):
            assert (PAGE / "".join(name)).is_file(), f"{path.name} names {name}"


def test_no_element_is_ever_made_from_text() -> None:
    """What a model wrote is shown as text, never parsed."""
    for path in SOURCES:
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", path.read_text()), (
            path.name
        )
