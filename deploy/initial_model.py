"""`python -m deploy.initial_model --run DIR`: the model a run starts from, built or taken from the cache.

For: the stage before any role starts. Not for: version 0 (the trainer publishes it). A model is cached by a digest of every
setting that shapes it, and reused by later runs, which say so. Progress goes to standard output as JSON lines.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from broker.errors import Misconfigured, TidemillError
from broker.settings import ModelSection, RunSection, WarmStart, load_section, run_folder_settings
from producers.settings import PromptsSection

FORMAT = 1
"""Raised when the recipe below changes, so that no older model is taken for a newer one."""


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def digest_of(model: ModelSection, prompts: PromptsSection, seed: int) -> str:
    """Names the cached model: the prompts matter only where the warm start trains on them."""
    shaping: dict[str, Any] = {"format": FORMAT, "model": model.model_dump(mode="json"), "seed": seed}
    if model.warm_start:
        shaping["prompts"] = prompts.model_dump(mode="json", exclude={"passes"})
    if Path(model.init).expanduser().is_dir():
        shaping["files"] = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(Path(model.init).expanduser().iterdir())]
    return hashlib.sha256(json.dumps(shaping, sort_keys=True).encode()).hexdigest()[:16]


def prepare(folder: Path) -> None:
    """Make `folder/model`, whole or not at all. Raises Misconfigured."""
    from consumers.initial_weights import build, copy_folder

    raw = run_folder_settings(folder)
    run, model = load_section(RunSection, "run", raw["run"]), load_section(ModelSection, "model", raw["model"])
    prompts = load_section(PromptsSection, "prompts", raw["prompts"])
    if (folder / "model").is_dir():
        return say(stage="model", reused="run")
    cached = folder.parent / ".cache" / "models" / digest_of(model, prompts, run.seed)
    if not cached.is_dir():
        draft = cached.with_name(f".{cached.name}.{time.time_ns()}")
        say(stage="model", building=model.init)
        build(model.init, draft, dtype=model.dtype, seed=run.seed)
        if model.warm_start:
            warm(draft, model.warm_start, prompts, run.seed)
        if not cached.is_dir():
            draft.rename(cached)
    else:
        say(stage="model", reused=str(cached))
    copy_folder(cached, folder / "model")
    say(stage="model", ready=str(folder / "model"))


def warm(folder: Path, settings: WarmStart, prompts: PromptsSection, seed: int) -> None:
    """Supervised steps on the source's own answers. Raises Misconfigured when it has none."""
    from consumers.warm_start import Example, warm_start
    from producers.encoding import Encoder
    from producers.prompt_sources import create_sources
    from producers.prompt_sources.base import SourcePrompt

    source, encoder = create_sources(prompts, seed=seed), Encoder(folder)

    def example(prompt: SourcePrompt) -> Example:
        if not prompt.answer:
            raise Misconfigured("[model] warm_start needs a prompt source whose prompts carry answers; remove warm_start or change the source")
        answer = np.append(encoder.encode(prompt.answer), encoder.end_token).astype(np.int32)
        return Example(encoder.context_of(prompt.text), answer)

    def batch_at(step: int, size: int) -> Sequence[Example]:
        begin = source.warm_start_offset + step * size
        return [example(source.at(cursor).prompt) for cursor in range(begin, begin + size)]

    held_out = [example(one.prompt) for one in source.held_out(prompts.eval.size or 512)]
    accuracy = warm_start(
        folder,
        settings,
        batch_at,
        held_out,
        progress=lambda step, accuracy: say(stage="warm_start", step=step, of=settings.max_steps, accuracy=accuracy, until=settings.until),
    )
    if accuracy < settings.until:
        say(stage="warm_start", warning=f"accuracy {accuracy:.3f} after {settings.max_steps} steps, wanted {settings.until}; going on")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.initial_model", description=__doc__)
    parser.add_argument("--run", type=Path, required=True)
    try:
        prepare(parser.parse_args(arguments).run.resolve())
    except TidemillError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
