"""From a run's name to settings that can train, or one message listing everything that is wrong.

For: checking a run file once: every section by its own package, then all of them together. Not for: looking at the
machine or starting anything. Imports no heavy library, so checking takes a moment.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from broker.errors import Misconfigured
from broker.settings import Section, load_section, run_folder_settings
from deploy.cross_checks import problems_between
from deploy.names import unknown_names
from deploy.run_files import find_run_file, overlaid, read_run_file
from deploy.run_paths import rooted
from deploy.run_settings import SECTIONS, RunSettings
from scheduler.pools import resolved
from scheduler.settings import PoolSection


def load_run(name: str, overrides: Sequence[str] = ()) -> RunSettings:
    """The settings of a run file or a shipped run. Raises Misconfigured listing every problem, one a line."""
    path = find_run_file(name)
    values = rooted(read_run_file(path), path.parent)
    values.setdefault("run", {}).setdefault("name", path.stem)
    return checked(rooted(overlaid(values, overrides), Path.cwd()))


def saved_run(folder: Path) -> RunSettings:
    """The settings a run was started with. Raises Misconfigured when the folder is not a run's. For a look: what they
    name need not be here; whoever goes on with the run asks `check_whole` too.
    """
    return sections_of(run_folder_settings(folder))


def checked(values: Mapping[str, Any]) -> RunSettings:
    """Check each section, then all together. Raises Misconfigured listing every problem, one a line."""
    settings = sections_of(values)
    check_whole(settings)
    return settings


def sections_of(values: Mapping[str, Any]) -> RunSettings:
    """Check each section. Raises Misconfigured listing every problem, one a line."""
    problems: list[str] = []
    sections: dict[str, Any] = {}
    for name, content in values.items():
        try:
            sections[name] = section_of(name, content)
        except Misconfigured as error:
            problems += str(error).splitlines()
    if problems:
        raise Misconfigured("\n".join(problems))
    return RunSettings(**sections)


def check_whole(settings: RunSettings) -> None:
    """Whether this machine can run it: names lead somewhere, sections go together. Raises Misconfigured listing every
    problem, one a line.
    """
    if found := [*unknown_names(settings), *problems_between(settings)]:
        raise Misconfigured("\n".join(found))


def section_of(name: str, content: Any) -> Section | dict[str, PoolSection]:
    """One section, or all pools, checked."""
    if name == "pools":
        return pools_of(content)
    if name not in SECTIONS:
        near = difflib.get_close_matches(name, [*SECTIONS, "pools"], n=1)
        hint = f'did you mean "[{near[0]}]"?' if near else f"known sections: {', '.join([*SECTIONS, 'pools.*'])}"
        raise Misconfigured(f"[{name}]: unknown section; nothing was started; {hint}")
    return load_section(SECTIONS[name], name, mapping(f"[{name}]", content))


def mapping(where: str, content: Any) -> Mapping[str, Any]:
    """A section's keys and values. Raises Misconfigured for a single value in their place."""
    if not isinstance(content, Mapping):
        raise Misconfigured(
            f"{where} = {content!r} is no section; nothing was started; write {where} and keys below it"
        )
    return content


def pools_of(content: Any) -> dict[str, PoolSection]:
    pools = {
        name: load_section(PoolSection, f"pools.{name}", mapping(f"[pools.{name}]", pool))
        for name, pool in mapping("[pools]", content).items()
    }
    for name, pool in pools.items():
        resolved(name, pool)
    return pools
