"""`tidemill logs`: what a run's processes said."""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from collections import deque
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from broker.errors import Misconfigured
from deploy.commands.printing import AsJson, RunName
from deploy.run_folder import find_run, runs_root

LEVEL_NAMES = ("debug", "info", "warning", "error")


def logs(
    run: RunName = "latest",
    role: Annotated[str, typer.Option(help="of the trainer, rollout, reward, judge, feeder, slot, scheduler …")] = "",
    slot: Annotated[str, typer.Option(help="of one slot: its controllers and its worker")] = "",
    process: Annotated[str, typer.Option(help="of one process, as rollout-0")] = "",
    group: Annotated[str, typer.Option(help="about one prompt group")] = "",
    level: Annotated[str, typer.Option(help=f"at least: {', '.join(LEVEL_NAMES)}")] = "debug",
    tail: Annotated[int, typer.Option("--tail", "-n", help="only the last N; 0 for all")] = 0,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="and what is added from now on, until Ctrl-C")] = False,
    as_json: AsJson = False,
) -> None:
    """What the processes of a run said, in the order of time."""
    from deploy import log_lines

    if level not in LEVEL_NAMES:
        raise Misconfigured(f"--level {level!r} is no level; nothing was read; say one of {', '.join(LEVEL_NAMES)}")
    folder = find_run(run, runs_root())
    wanted = log_lines.Filter(role=role, slot=slot, process=process, group=group, level=level)
    story = log_lines.Story(folder, wanted)
    so_far = deque(story.so_far(), maxlen=tail) if tail else story.so_far()
    with contextlib.suppress(KeyboardInterrupt):
        show(itertools.chain(so_far, story.coming() if follow else ()), as_json=as_json)


def show(records: Iterator[dict[str, Any]], *, as_json: bool) -> None:
    from broker.log_words import in_words

    colours = sys.stdout.isatty()
    for record in records:
        print(json.dumps(record) if as_json else in_words(record, colours), flush=True)
