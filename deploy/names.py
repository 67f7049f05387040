"""Whether the names in a run file lead anywhere: sources, engine, rewards, algorithm, learner, placement.

For: the nearest name, or what a dotted path lacks, in the same message as all other problems. Not for: loading what
they name: a module is found and parsed, never imported, and whatever else is wrong with it is said by the role that
loads it.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Collection, Iterator
from importlib.util import find_spec
from pathlib import Path

from deploy.run_settings import RunSettings


def unknown_names(settings: RunSettings) -> list[str]:
    """One message per name that is neither registered nor the path of something that is there."""
    found = ((where, name, problem_with(name, known)) for where, name, known in names(settings))
    return [f'{where} = "{name}" {problem}' for where, name, problem in found if problem]


def names(settings: RunSettings) -> Iterator[tuple[str, str, Collection[str]]]:
    """(where it stands, the name, the registry)"""
    from consumers.algorithms import ALGORITHMS
    from consumers.learners import LEARNERS
    from consumers.rewards import JUDGES, REWARDS
    from producers.engines import ENGINES
    from producers.prompt_sources import SOURCES
    from scheduler.placements import PLACEMENTS

    source = settings.prompts.source
    for part in [{"source": source}] if isinstance(source, str) else source:
        yield "[prompts] source", str(part.get("source", "")), SOURCES
    yield "[rollout] engine", settings.rollout.engine, [*ENGINES, "auto"]
    for reward in settings.reward.parts:
        yield "[reward] parts: name", reward.name, [*REWARDS, *JUDGES]
    yield "[algorithm] name", settings.algorithm.name, ALGORITHMS
    yield "[train] learner", settings.train.learner, LEARNERS
    yield "[scheduler] placement", settings.scheduler.placement, PLACEMENTS


def problem_with(name: str, known: Collection[str]) -> str:
    """Why the name leads nowhere, and the mend; empty when it leads somewhere."""
    if name in known:
        return ""
    module, _, attribute = name.partition(":")
    try:
        spec = find_spec(module) if module else None
    except ModuleNotFoundError:
        spec = None
    except Exception as error:  # noqa: BLE001 - a package is imported to find a module in it, and may raise anything
        return f"cannot be looked up: {type(error).__name__}: {error}; nothing was started; correct its package"
    if spec is None:
        return f"leads nowhere; nothing was started; {mend(name, known)}"
    return lacks(Path(spec.origin or ""), attribute or "make")


def mend(name: str, known: Collection[str]) -> str:
    if near := difflib.get_close_matches(name, known, n=1):
        return f'did you mean "{near[0]}"? known: {", ".join(known)}'
    if ":" in name:
        return (
            f"put the folder that holds {name.partition(':')[0].partition('.')[0]} on PYTHONPATH, or correct the name"
        )
    return f"known: {', '.join(known)}, or module:attribute"


def lacks(path: Path, attribute: str) -> str:
    """What a module's text lacks; empty when it has the attribute, or when only running it could tell."""
    if path.suffix != ".py":
        return ""
    try:
        tree = ast.parse(path.read_bytes(), filename=path.name)
    except (SyntaxError, ValueError) as error:
        return f"does not parse: {path}: {error}; nothing was started; correct the module"
    defined = set(defined_in(tree))
    if {attribute, "*", "__getattr__"} & defined:
        return ""
    near = difflib.get_close_matches(attribute, defined, n=1)
    hint = f'did you mean "{near[0]}"?' if near else "name a function or class of that module"
    return f'leads nowhere: {path} has no "{attribute}"; nothing was started; {hint}'


def defined_in(node: ast.AST) -> Iterator[str]:
    """Names a module binds when it is run, also inside `if` and `try`; `*` where it imports whatever there is."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield child.name
        elif isinstance(child, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in child.names)
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield child.id
        else:
            yield from defined_in(child)
