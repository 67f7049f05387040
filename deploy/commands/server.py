"""`tidemill redis`: a Redis command on a run's server."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from deploy.commands.printing import RunOption
from deploy.run_check import saved_run
from deploy.run_folder import find_run, runs_root


def redis(
    arguments: Annotated[list[str], typer.Argument(metavar="COMMAND [ARGUMENT]...")],
    run: RunOption = "latest",
) -> None:
    """A Redis command on a run's server; {} stands for the run (`XLEN tm:{}:scored`), {group} for an open group."""
    from deploy.redis_command import ask, stock_command, words_for
    from deploy.redis_reply import shown_reply
    from deploy.server import reachable

    folder = find_run(run, runs_root())
    with reachable(folder, saved_run(folder).broker) as url:
        words = words_for(url, folder.name, arguments)
        print(stock_command(url, words), file=sys.stderr)
        print(shown_reply(words, ask(url, words)))
