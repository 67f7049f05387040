"""Every setting of a run file, as its section says it: key, values, default, and what it means.

For: `tidemill settings` and `docs/settings.md`, which it makes. Not for: checking anything (`run_check`). The words are
those below each key in its section, and nowhere else.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, get_args

from pydantic.fields import FieldInfo

from broker.settings import Section
from deploy.run_settings import SECTIONS
from deploy.settings_in_words import default_in_words, values_in_words
from deploy.shipped_options import OPTIONS, section_class
from scheduler.settings import PoolSection


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One key."""

    section: str
    """As in a run file, without brackets; `rollout.options` where it is an option of something shipped."""
    of: str
    """The engine, algorithm, learner or judge whose option it is; empty for all others."""
    key: str
    """`eval.size` for one of a nested section, `parts[].weight` for one of a list's entries."""
    values: str
    default: str
    words: str

    @property
    def heading(self) -> str:
        """What it stands under: `[train]`, `[train] options of deepspeed`."""
        section, _, place = self.section.partition(".")
        if not self.of:
            return f"[{self.section}]"
        return f"[{section}] {place} of {self.of}"


PAGE = """# Settings

Every key of a run file, made from the sections themselves (`tidemill settings --markdown > docs/settings.md`; a test
says when this page is not current). `tidemill settings train` prints one section; `settings.json` in a run's folder has
the values of that run. Any key can be said on the command line, as `train.lr=1e-4`; `none` takes a value away. What
sources and rules take as options are the parameters of their own ([extending](extending.md)).
"""
"""What stands above the tables."""


def reference() -> list[Setting]:
    """All of them, section by section, each followed by the options that stand in it."""
    return [setting for section in (*SECTIONS, "pools.NAME") for setting in of_section(section)]


def by_heading(settings: Iterable[Setting]) -> dict[str, list[Setting]]:
    """In their order."""
    return {heading: list(alike) for heading, alike in groupby(settings, lambda setting: setting.heading)}


def page(settings: Iterable[Setting]) -> str:
    """All of it in Markdown: a table for each heading."""
    parts = [PAGE]
    for heading, alike in by_heading(settings).items():
        level = "###" if alike[0].of else "##"
        rows = [[f"`{one.key}`", one.values, f"`{one.default}`" if one.default else "", one.words] for one in alike]
        table = [["key", "values", "default", "meaning"], ["---"] * 4, *rows]
        lines = (f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in table)
        parts.append("\n".join([f"{level} {heading}", "", *lines, ""]))
    return "\n".join(parts)


def of_section(section: str) -> Iterator[Setting]:
    yield from settings_of(SECTIONS.get(section, PoolSection), section)
    for place, shipped in OPTIONS.items():
        if place.partition(".")[0] == section:
            for name in shipped:
                yield from settings_of(section_class(place, name), place, of=name)


def settings_of(kind: type[Section], section: str, *, of: str = "", prefix: str = "") -> Iterator[Setting]:
    """Of one section class and those nested in it."""
    words = words_below(kind)
    for key, field in kind.model_fields.items():
        yield Setting(
            section=section,
            of=of,
            key=prefix + key,
            values=values_in_words(field),
            default=default_in_words(field),
            words=words.get(key, ""),
        )
        for nested, mark in nested_in(field):
            yield from settings_of(nested, section, of=of, prefix=f"{prefix}{key}{mark}.")


def nested_in(field: FieldInfo) -> Iterator[tuple[type[Section], str]]:
    """Sections inside a key, and `[]` where it holds a list of them."""
    is_list = getattr(field.annotation, "__origin__", None) is list
    for kind in inner(field.annotation):
        if isinstance(kind, type) and issubclass(kind, Section):
            yield kind, "[]" if is_list else ""


def inner(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) or (annotation,)


def words_below(kind: type[Section]) -> dict[str, str]:
    """Key → the text below it in the section, on one line."""
    (section,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(section, ast.ClassDef)
    found: dict[str, str] = {}
    for key, below in zip(section.body, section.body[1:], strict=False):
        match key, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = " ".join(text.split())
            case _:
                pass
    return found
