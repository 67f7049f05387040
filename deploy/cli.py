"""`tidemill`: the command line.

For: which commands there are, and errors as one message with its exit code. Not for: what they do (`commands`).
Imports no heavy library: `--help` and `--check` answer at once.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from broker.errors import TidemillError, full_disk
from deploy.commands.dashboard import dashboard
from deploy.commands.fleet import scheduler, slots
from deploy.commands.groups import rescore, show
from deploy.commands.joining import join
from deploy.commands.logs import logs
from deploy.commands.looking import report
from deploy.commands.machine import doctor
from deploy.commands.records import audit, inspect
from deploy.commands.reference import settings
from deploy.commands.running import resume, run
from deploy.commands.server import redis
from deploy.commands.simulation import simulate
from deploy.commands.watching import status, top

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def say_version(asked: bool) -> None:
    if asked:
        print(f"tidemill {version('tidemill')}")
        raise typer.Exit


@app.callback()
def tidemill(
    _: Annotated[
        bool, typer.Option("--version", callback=say_version, is_eager=True, help="which one this is")
    ] = False,
) -> None:
    """Asynchronous RLHF through Redis streams. Begin with `tidemill run`, look with `tidemill status`."""


for command in (
    run,
    resume,
    status,
    top,
    logs,
    dashboard,
    report,
    show,
    rescore,
    inspect,
    slots,
    scheduler,
    join,
    audit,
    simulate,
    settings,
    doctor,
):
    app.command()(command)
# Its words belong to Redis, also those that begin with a dash.
app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})(redis)


def main() -> None:
    """Run the command; an error of ours is one message and its exit code, never a traceback."""
    try:
        app()
    except TidemillError as error:
        print(f"tidemill: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        if (meant := full_disk(error)) is None:
            raise
        print(f"tidemill: {meant}", file=sys.stderr)
        sys.exit(meant.exit_code)


if __name__ == "__main__":
    main()
