"""`python -m deploy.initial_model --run DIR`: the model a run starts from, built or taken from the cache.

For: the stage before any role starts. Not for: version 0 (the trainer publishes it). A model is cached by a digest of
every setting that shapes it, and reused by later runs, which say so. Progress goes to standard output as JSON lines.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from broker.errors import Misconfigured, TidemillError, full_disk
from broker.settings import ModelSection, RunSection, WarmStart, load_section, run_folder_settings
from producers.settings import PromptsSection, RolloutSection

if TYPE_CHECKING:
    from consumers.warm_start import Example
    from producers.encoding import Encoder
    from producers.prompt_sources.base import SourcePrompt

FORMAT = 3
"""Raised when a recipe changes (the built-in model, the warm start), so that an older model is not taken for it."""

HELD_OUT = 512
"""Prompts that measure the warm start of a run without evaluation."""


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def digest_of(model: ModelSection, prompts: PromptsSection, seed: int) -> str:
    """Names the cached model: prompts matter only where the warm start trains on them, a folder by its files."""
    shaping: dict[str, Any] = {"format": FORMAT, "model": model.model_dump(mode="json"), "seed": seed}
    if model.warm_start:
        shaping["prompts"] = prompts.model_dump(mode="json", include={"source", "options"}) | {
            "size": prompts.eval.size
        }
    folder = Path(model.init).expanduser()
    if folder.is_dir():
        facts = [(path.name, path.stat()) for path in sorted(folder.iterdir())]
        shaping["files"] = [(str(folder.resolve()), name, fact.st_size, fact.st_mtime_ns) for name, fact in facts]
    return hashlib.sha256(json.dumps(shaping, sort_keys=True).encode()).hexdigest()[:16]


def prepare(folder: Path) -> None:
    """Make `folder/model`, whole or not at all, and see that it can read the prompts. Raises Misconfigured."""
    from consumers.initial_weights import link_folder
    from producers.prompt_groups import PromptGroups

    if (folder / "model").is_dir():
        return
    raw = run_folder_settings(folder)
    run, model = load_section(RunSection, "run", raw["run"]), load_section(ModelSection, "model", raw["model"])
    prompts = load_section(PromptsSection, "prompts", raw["prompts"])
    cached = folder.parent / ".cache" / "models" / digest_of(model, prompts, run.seed)
    if cached.is_dir():
        say(stage="model", reused=str(cached))
    else:
        make(cached, model, prompts, run.seed)
    say(stage="model", checking="the first prompts")
    PromptGroups.of(cached, run, prompts, load_section(RolloutSection, "rollout", raw["rollout"]))
    link_folder(cached, folder / "model")
    say(stage="model", ready=str(folder / "model"))


def make(cached: Path, model: ModelSection, prompts: PromptsSection, seed: int) -> None:
    """Built beside its place and renamed into it; when two launches build the same model, the first to end is kept."""
    from consumers.initial_weights import build

    cached.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cached.parent, prefix=f".{cached.name}.") as draft:
        made = Path(draft) / "initial"
        build(model.init, made, dtype=model.dtype, seed=seed, say=lambda words: say(stage="model", building=words))
        if model.warm_start:
            warmed = Path(draft) / "warm"
            warm(made, warmed, model, model.warm_start, prompts, seed)
            made = warmed
        try:
            made.rename(cached)
        except OSError:
            if not cached.is_dir():
                raise


def warm(
    source: Path, target: Path, model: ModelSection, settings: WarmStart, prompts: PromptsSection, seed: int
) -> None:
    """Supervised steps on the sources' own answers. Raises Misconfigured when they have none."""
    from consumers.warm_start import warm_start
    from producers.encoding import Encoder
    from producers.prompt_sources import create_sources

    sources, encoder = create_sources(prompts, seed=seed), Encoder(source)

    def batch_at(step: int, size: int) -> list[Example]:
        begin = sources.warm_start_offset + step * size
        return [example_of(sources.at(cursor).prompt, encoder) for cursor in range(begin, begin + size)]

    def progress(step: int, accuracy: float) -> None:
        say(stage="warm_start", step=step, of=settings.max_steps, accuracy=accuracy, until=settings.until)

    held_out = [example_of(one.prompt, encoder) for one in sources.held_out(prompts.eval.size or HELD_OUT)]
    accuracy = warm_start(source, target, settings, batch_at, held_out, dtype=model.dtype, progress=progress)
    if accuracy < settings.until:
        say(
            stage="warm_start",
            warning=f"held-out accuracy is {accuracy:.3f} after all {settings.max_steps} steps of the warm start, "
            f"{settings.until:g} was wanted; going on with it; raise model.warm_start.max_steps",
        )


def example_of(prompt: SourcePrompt, encoder: Encoder) -> Example:
    from consumers.warm_start import Example

    if not prompt.answer:
        raise Misconfigured(
            f"[model] warm_start: the prompt {prompt.text[:60]!r} has no answer to learn from; nothing was started; "
            "set model.warm_start=none, or choose a source with answers"
        )
    answer = np.append(encoder.encode(prompt.answer), encoder.end_token).astype(np.int32)
    return Example(encoder.context_of(prompt.text), answer)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.initial_model", description=__doc__)
    parser.add_argument("--run", type=Path, required=True)
    try:
        prepare(parser.parse_args(arguments).run.resolve())
    except Exception as error:
        meant = error if isinstance(error, TidemillError) else full_disk(error)
        if meant is None:
            raise
        print(f"{type(meant).__name__}: {meant}", file=sys.stderr)
        return meant.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
