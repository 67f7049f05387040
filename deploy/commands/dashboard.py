"""`tidemill dashboard`: runs in a browser."""

from __future__ import annotations

from typing import Annotated

import typer

from deploy.commands.printing import console
from deploy.run_folder import find_run, runs_root


def dashboard(
    run: Annotated[str, typer.Argument(metavar="[RUN]", help="open at this run; all runs if left out")] = "",
    host: Annotated[
        str, typer.Option(help="address to listen on; any but a loopback one asks for a token")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one")] = 8300,
    token: Annotated[
        str,
        typer.Option(
            envvar="TIDEMILL_TOKEN", show_default=False, help="what browsers must show; better in the environment"
        ),
    ] = "",
) -> None:
    """Runs in a browser, living and finished; changes nothing."""
    from deploy.dashboard.serving import serve

    folder = find_run(run, runs_root()) if run else None
    serve(folder.parent if folder else runs_root(), folder, host, port, token, console)
