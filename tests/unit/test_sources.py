"""Sources by name and by path, drawn together: ids lead back to prompts, and mistakes in the run file are told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from broker.errors import Misconfigured
from producers.prompt_sources import create_sources
from producers.prompt_sources.base import SourcePrompt
from producers.prompt_sources.sources import Sources
from producers.settings import EvalPrompts, PromptsSection


class Numbers:
    """A source from outside: prompts `0`, `1`, …, without shuffling."""

    def __init__(self, *, seed: int, name: str = "numbers", size: int | None = None, kept: int = 0) -> None:
        self.name, self.size, self.kept, self.seed = name, size, kept, seed

    def prompt(self, pass_number: int, index: int) -> SourcePrompt:
        return SourcePrompt(text=f"{pass_number}:{index}")

    def held_out(self, size: int) -> Sequence[SourcePrompt]:
        return [SourcePrompt(text=f"kept {place}") for place in range(min(size, self.kept))]


PATH = f"{__name__}:Numbers"


def outside(*parts: dict[str, Any], **settings: Any) -> PromptsSection:
    return PromptsSection(source=[{"source": PATH, **part} for part in parts], **settings)


def test_every_cursor_has_an_id_of_its_own_that_leads_back_to_its_prompt() -> None:
    sources = create_sources(outside({"name": "a", "size": 3, "weight": 2}, {"name": "b"}), seed=0)
    drawn = [sources.at(cursor) for cursor in range(60)]
    assert len({one.id for one in drawn}) == 60
    assert [sources.of(one.id) for one in drawn] == drawn
    assert [one.id for one in drawn[:4]] == ["a/0/0", "b/0/0", "a/0/1", "a/0/2"]
    assert "a/13/0" in {one.id for one in drawn}


def test_exact_passes_end() -> None:
    sources = create_sources(outside({"size": 5}, passes=3), seed=0)
    assert sources.total == 15
    assert [sources.ended(cursor) for cursor in (14, 15)] == [False, True]
    assert {sources.at(cursor).id for cursor in range(15)} == {
        f"numbers/{turn}/{index}" for turn in range(3) for index in range(5)
    }


def test_the_warm_start_draws_where_no_pass_ends_and_no_run_comes() -> None:
    sources = create_sources(outside({"size": 5}, passes=1), seed=0)
    assert sources.at(sources.warm_start_offset).id.startswith("numbers/2199023")


def test_held_out_prompts_must_be_as_many_as_asked_for() -> None:
    sources = create_sources(outside({"kept": 9}), seed=0)
    assert [drawn.prompt.text for drawn in sources.held_out(2)] == ["kept 0", "kept 1"]
    with pytest.raises(Misconfigured, match=r"eval\.size = 10 needs 10 held-out prompts of numbers, which has 9"):
        sources.held_out(10)


def test_a_factory_that_has_no_use_for_it_is_not_told_how_many_are_held_out() -> None:
    settings = outside({"kept": 4}, eval=EvalPrompts(size=4))
    assert len(create_sources(settings, seed=0).held_out(4)) == 4


@pytest.mark.parametrize("group", ["c/0/1", "a/0", "a/0/9", "a/x/1", "eval/3/1", "a/0/-1"])
def test_an_id_of_other_sources_is_told(group: str) -> None:
    with pytest.raises(Misconfigured, match=f"group {group} is none of these sources' \\(a\\)"):
        create_sources(outside({"name": "a", "size": 5}), seed=0).of(group)


@pytest.mark.parametrize(
    ("source", "options", "problem"),
    [
        ("adition", {}, 'did you mean "addition"'),
        ("nowhere.at_all:make", {}, "No module named 'nowhere'"),
        (f"{__name__}:Nobody", {}, "Nobody"),
        ("addition", {"digit": 3}, 'has no option "digit"; nothing was started; did you mean "digits"'),
        ("jsonl", {}, 'needs the option "path"'),
        ("addition", {"digits": 0}, "numbers have 1 digit or more"),
        ("spelling", {"longest": 200}, "counts have two digits"),
        ("addition", {"name": "a/b"}, 'name = "a/b" cannot stand in an id'),
        ("addition", {"name": "eval"}, 'not "eval"'),
        ([], {}, "each must be above 0"),
        ([{"weight": 2}], {}, "each entry needs its own `source`"),
        ([{"source": "addition"}], {"digits": 2}, "its options beside it"),
        ([{"source": "addition"}, {"source": "addition"}], {}, "give each its own `name`"),
        ([{"source": "addition", "weight": -1}], {}, "each must be above 0"),
    ],
)
def test_mistakes_in_the_run_file_are_told(source: Any, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(Misconfigured, match=problem):
        create_sources(PromptsSection(source=source, options=options), seed=0)


def test_two_sources_in_one_place_are_read_by_their_names() -> None:
    sources = Sources([Numbers(seed=0, name="a"), Numbers(seed=0, name="b")], [1, 3])
    assert sources.read(8) == {"a": 2, "b": 6}
