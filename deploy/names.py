"""Whether the names in a run file lead anywhere: sources, engine, rewards, algorithm, learner.

For: the nearest name in the same message as all other problems. Not for: loading what they name; a dotted path is only
looked up, and whatever is wrong inside it is said by the role that loads it.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from importlib.util import find_spec

from deploy.run_settings import RunSettings


def unknown_names(settings: RunSettings) -> list[str]:
    """One message per name that is neither registered nor the path of something importable."""
    return [unknown(where, name, known) for where, name, known in names(settings) if not leads_somewhere(name, known)]


def names(settings: RunSettings) -> Iterator[tuple[str, str, Collection[str]]]:
    """(where it stands, the name, the registry)"""
    from consumers.algorithms import ALGORITHMS
    from consumers.learners import LEARNERS
    from consumers.rewards import REWARDS
    from producers.engines import ENGINES
    from producers.prompt_sources import SOURCES

    source = settings.prompts.source
    for part in [{"source": source}] if isinstance(source, str) else source:
        yield "[prompts] source", str(part.get("source", "")), SOURCES
    yield "[rollout] engine", settings.rollout.engine, [*ENGINES, "auto"]
    for reward in settings.reward.parts:
        yield "[reward] parts: name", reward.name, REWARDS
    yield "[algorithm] name", settings.algorithm.name, ALGORITHMS
    yield "[train] learner", settings.train.learner, LEARNERS


def leads_somewhere(name: str, known: Collection[str]) -> bool:
    if name in known:
        return True
    module = name.partition(":")[0]
    try:
        return bool(module) and find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def unknown(where: str, name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f'did you mean "{near[0]}"?' if near else f"known: {', '.join(known)}, or module:attribute"
    return f'{where} = "{name}" leads nowhere; nothing was started; {hint}'
