"""The reference of settings is what the sections say: nothing left out, each explained, and the page current."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from broker.errors import Misconfigured
from broker.settings import Section, load_section
from consumers.algorithms import ALGORITHMS
from consumers.learners import LEARNERS
from consumers.rewards import JUDGES
from deploy.run_settings import SECTIONS, RunSettings
from deploy.settings_reference import page, reference, settings_of
from deploy.shipped_options import OPTIONS, section_class
from producers.engines import ENGINES

DOCS = Path(__file__).parents[2] / "docs"
OF_SECTIONS = [one for one in reference() if not one.of]


def test_the_page_is_current() -> None:
    written = (DOCS / "settings.md").read_text()
    assert written == page(reference()), "make it anew: tidemill settings --markdown > docs/settings.md"


def test_every_key_of_every_section_is_there_and_explained() -> None:
    keys = {(one.section, one.key) for one in OF_SECTIONS}
    for section, kind in SECTIONS.items():
        assert {(section, key) for key in kind.model_fields} <= keys
    assert {one.section for one in OF_SECTIONS} == {*SECTIONS, "pools.NAME"}
    assert set(RunSettings.model_fields) == {*SECTIONS, "pools"}
    assert [one for one in reference() if not one.words.endswith(".")] == []


def test_whatever_is_shipped_has_its_options_there() -> None:
    assert set(OPTIONS["rollout.options"]) == set(ENGINES)
    assert set(OPTIONS["algorithm.options"]) == set(ALGORITHMS)
    assert set(OPTIONS["train.options"]) == set(LEARNERS)
    assert set(OPTIONS["reward.parts.options"]) == set(JUDGES)


@pytest.mark.parametrize(("place", "name"), [(place, name) for place, names in OPTIONS.items() for name in names])
def test_options_that_are_said_are_those_that_are_taken(place: str, name: str) -> None:
    kind = section_class(place, name)
    plain = {one.key for one in settings_of(kind, place) if "." not in one.key}
    with pytest.raises(Misconfigured) as caught:
        load_section(kind, place, {"no such option": 1})
    known = str(caught.value).partition("known keys: ")[2]
    assert plain == set(filter(None, known.split(", ")))


class Inner(Section):
    """One of its own."""

    share: float = Field(default=0.5, gt=0, le=1)
    """What of it.
    On two lines.
    """


class Outer(Section):
    """One that has all kinds of keys."""

    name: str = Field(default="a|b", pattern="^[ab|]+$")
    count: int | None = Field(default=None, ge=1)
    kind: Literal["one", "two"] = "one"
    pair: tuple[int, float] = (1, 0.5)
    inner: Inner = Inner()
    maybe: Inner | None = None
    several: list[Inner] = Field(default_factory=lambda: [Inner(share=0.25)], min_length=1)
    must: Annotated[bool, Field()]
    loose: dict[str, Any] = Field(default_factory=dict)


def test_values_and_defaults_read_as_in_a_run_file() -> None:
    said = {one.key: (one.values, one.default) for one in settings_of(Outer, "outer")}
    assert said == {
        "name": ("text like `^[ab|]+$`", '"a|b"'),
        "count": ("whole number ≥ 1 or none", "none"),
        "kind": ('"one", "two"', '"one"'),
        "pair": ("[whole number, number]", "[1, 0.5]"),
        "inner": ("table", ""),
        "inner.share": ("number > 0, ≤ 1", "0.5"),
        "maybe": ("table or none", "none"),
        "maybe.share": ("number > 0, ≤ 1", "0.5"),
        "several": ("list of tables (1 or more)", "[{ share = 0.25 }]"),
        "several[].share": ("number > 0, ≤ 1", "0.5"),
        "must": ("true, false", "required"),
        "loose": ("table", "{}"),
    }
    words = {one.key: one.words for one in settings_of(Outer, "outer")}
    assert words["inner.share"] == "What of it. On two lines."
    assert words["name"] == ""


def test_no_cell_of_the_page_tears_its_table() -> None:
    row = next(line for line in page(settings_of(Outer, "outer")).splitlines() if line.startswith("| `name`"))
    assert row.replace(chr(92) + "|", "").count("|") == 5
