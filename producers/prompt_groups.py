"""Prompts become groups: encoded, sized, seeded. The same id always becomes the same group.

For: everything the feeder says to the broker about a prompt. Not for: when to say it (`feeder`), or which prompt a
cursor means (`prompt_sources`).

A prompt that cannot be sampled (no token, longer than the model's context less `max_tokens`, letters the tokenizer
does not know) is refused before the run begins, when it is a held-out prompt or one of the first `LOOKED_AT`. A long
run is not stopped by one such prompt later on: it is admitted like any other, the engine refuses it, and it is buried
with the numbers, counted in the books and kept for a person to look at.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from broker.errors import Misconfigured, Poison
from broker.messages import Group, Kind, Prompt
from broker.settings import RunSection
from producers.encoding import Encoder
from producers.prompt_sources import create_sources
from producers.prompt_sources.sources import EVALUATION, Drawn, Sources
from producers.settings import PromptsSection, RolloutSection

LOOKED_AT = 64
"""Training prompts checked before the run begins, besides all held-out ones."""


class PromptGroups:
    """Groups by cursor, by evaluation, by id."""

    def __init__(
        self, encoder: Encoder, sources: Sources, prompts: PromptsSection, rollout: RolloutSection, seed: int
    ) -> None:
        self.encoder, self.sources = encoder, sources
        self.evaluation, self.rollout, self.seed = prompts.eval, rollout, seed
        self.stop = encoder.stop_ids(rollout.stop)
        self.held_out = sources.held_out(prompts.eval.size)

    @classmethod
    def of(cls, folder: Path, run: RunSection, prompts: PromptsSection, rollout: RolloutSection) -> PromptGroups:
        """Those of a run's settings and its model `folder`. Raises Misconfigured for whatever a person must change."""
        groups = cls(Encoder(folder), create_sources(prompts, seed=run.seed), prompts, rollout, run.seed)
        groups.check()
        return groups

    def check(self) -> None:
        """Raises Misconfigured for a prompt that cannot be sampled, looking at those that come first."""
        total = self.sources.total
        first = range(LOOKED_AT if total is None else min(LOOKED_AT, total))
        for drawn in [*self.held_out, *map(self.sources.at, first)]:
            if problem := self.why_unfit(drawn):
                raise Misconfigured(f"prompt {drawn.id} ({shortened(drawn.prompt.text)}): {problem}")

    def why_unfit(self, drawn: Drawn) -> str:
        """Why the model cannot continue this prompt, and the mend; empty when it can."""
        text, limit = drawn.prompt.text, self.encoder.context
        tokens, most = len(self.encoder.context_of(text)), self.rollout.max_tokens
        if not tokens:
            return "it has no tokens; no prompt was admitted; remove it from the data"
        if limit is not None and tokens + most > limit:
            return (
                f"{tokens} tokens and [rollout] max_tokens = {most} are {tokens + most}, and the model's context is "
                f"{limit}; no prompt was admitted; shorten the prompt to {max(0, limit - most)} tokens, remove it, or "
                "lower max_tokens"
            )
        if unknown := self.encoder.unreadable(text):
            return (
                f"the model's tokenizer does not know {unknown!r}; no prompt was admitted; change the prompts, or "
                "take a model that reads them ([model] init)"
            )
        return ""

    def ended(self, cursor: int) -> bool:
        return self.sources.ended(cursor)

    def training(self, cursor: int, count: int) -> list[Group]:
        """Up to `count` groups from `cursor` on; fewer at the end. Raises Misconfigured for data that went bad."""
        places = range(cursor, cursor + count)
        return [self.train_group(self.drawn(place)) for place in places if not self.sources.ended(place)]

    def drawn(self, cursor: int) -> Drawn:
        try:
            return self.sources.at(cursor)
        except Poison as bad:
            raise Misconfigured(f"{bad}; the run stops before prompt {cursor}") from bad

    def measuring(self, version: int, places: range) -> list[Group]:
        """Evaluation groups of `version`; asked for more than there are, it begins again at the first prompt."""
        if places and not self.held_out:
            raise Misconfigured(
                f"version {version} is to be measured, but [prompts] eval.size = 0 gives no held-out prompts; "
                "stopping; resume with the settings the run began with"
            )
        return [self.eval_group(version, place) for place in places]

    def by_id(self, group: str) -> Group:
        """Raises Misconfigured for an id these sources do not give (the run's settings were changed)."""
        kind, _, rest = group.partition("/")
        if kind != EVALUATION:
            return self.train_group(self.sources.of(group))
        version, _, place = rest.partition("/")
        return self.measuring(int(version), range(int(place), int(place) + 1))[0]

    def train_group(self, drawn: Drawn) -> Group:
        return self.group(drawn.id, "train", drawn, size=self.rollout.group_size, temperature=self.rollout.temperature)

    def eval_group(self, version: int, place: int) -> Group:
        drawn, how = self.held_out[place % len(self.held_out)], self.evaluation
        group = f"{EVALUATION}/{version}/{place}"
        return self.group(group, "eval", drawn, size=how.group_size, temperature=how.temperature)

    def group(self, group: str, kind: Kind, drawn: Drawn, *, size: int, temperature: float) -> Group:
        prompt = Prompt(
            text=drawn.prompt.text,
            actions=self.encoder.context_of(drawn.prompt.text),
            size=size,
            seed=seed_of(self.seed, group),
            temperature=temperature,
            max_actions=self.rollout.max_tokens,
            stop=self.stop,
            task=drawn.task,
            answer=drawn.prompt.answer,
            meta=drawn.prompt.meta,
        )
        return Group(id=group, kind=kind, prompt=prompt)

    def cursor_value(self, cursor: int) -> str:
        """What the books say beside the cursor: how far each source has been read, as JSON."""
        return json.dumps({"cursor": cursor, "read": self.sources.read(cursor), "size": self.sizes()})

    def sizes(self) -> dict[str, int | None]:
        return {source.name: source.size for source in self.sources.sources}

    def check_cursor(self, value: str) -> None:
        """Raises Misconfigured when the books were written with other sources, data or shares: ids would mean other
        prompts."""
        if not value:
            return
        before = json.loads(value)
        now = json.loads(self.cursor_value(before["cursor"]))
        if before != now:
            raise Misconfigured(
                f"the run has read {value}; with the sources as they are now it would be {json.dumps(now)}, so its "
                "prompts would not be the same; nothing was admitted; resume with the [prompts] and the data the run "
                "began with"
            )


def seed_of(run_seed: int, group: str) -> int:
    """31 bits from the run's seed and the group's id: the same rollouts from the same weights, whoever samples them."""
    return int.from_bytes(hashlib.sha256(f"{run_seed}/{group}".encode()).digest()[:4], "little") >> 1


def shortened(text: str, longest: int = 40) -> str:
    return repr(text if len(text) <= longest else text[: longest - 1] + "…")
