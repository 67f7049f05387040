"""What a run file names, opened before anything starts: rules are imported and their signatures bound, prompts read,
options of what is shipped checked.

For: hearing at once what a role would say after a model was made. Not for: whether names lead anywhere (`names`),
calling a rule, whether the model can read the prompts (`initial_model`), or what needs torch: judges, engine, learner.
"""

from __future__ import annotations

import asyncio

from broker.errors import Misconfigured, Transient
from broker.settings import load_section
from consumers.rewards import rules_of
from consumers.settings import RewardSection
from deploy.plain_text import plain, shortened
from deploy.run_settings import RunSettings
from deploy.shipped_options import given, section_class
from producers.prompt_sources import create_sources

SHOWN = 60
"""Characters of a prompt."""


def open_options(settings: RunSettings) -> None:
    """Options of shipped engines, algorithms, learners and judges. Raises Misconfigured listing every problem."""
    problems: list[str] = []
    for place, name, options in given(settings):
        try:
            load_section(section_class(place, name), place, options)
        except Misconfigured as error:
            problems.append(str(error))
    if problems:
        raise Misconfigured("\n".join(problems))


def open_rules(reward: RewardSection, within_s: float) -> bool:
    """Whether they could be made in so long, in a process of their own, as they will be. Raises Misconfigured for one
    that cannot be.
    """
    return asyncio.run(rules_open(reward, within_s))


async def rules_open(reward: RewardSection, within_s: float) -> bool:
    pool = rules_of(reward)
    if pool is None:
        return True
    try:
        async with asyncio.timeout(within_s):
            await pool.start()
    except TimeoutError:
        return False
    except Transient:
        names = ", ".join(part.name for part in pool.parts)
        raise Misconfigured(
            f"[reward] parts: the process that imports {names} ended without a word; nothing was started; what the "
            "module printed stands above: nothing in it may end its process"
        ) from None
    finally:
        await pool.close()
    return True


def open_prompts(settings: RunSettings) -> str:
    """The first prompt and how many are held out, in a sentence. Raises Misconfigured and Poison, as the feeder would;
    what a source of one's own raises comes out as it is.
    """
    sources = create_sources(settings.prompts, seed=settings.run.seed)
    first = sources.at(0)
    held_out = sources.held_out(settings.prompts.eval.size)
    text, answer = first.prompt.text, first.prompt.answer
    right = f", answer {shown(answer)}" if answer else ""
    return f"prompts: {first.task} begins with {shown(text)}{right}; {len(held_out)} held out"


def shown(text: str) -> str:
    """On one line, both ends of a long one: a template often ends with what matters."""
    return plain(repr(shortened(text, SHOWN)))
