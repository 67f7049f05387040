"""`tidemill join`: work for whatever run the fleet works for, on any host."""

from __future__ import annotations

from typing import Annotated

import typer


def join(
    role: Annotated[str, typer.Argument(metavar="feeder|reward")],
    name: Annotated[str, typer.Option(help="of the process; the role and this host's name if left out")] = "",
) -> None:
    """Work as the fleet's feeder or as one of its reward workers; waits for a run, and ends with it."""
    from deploy.join import begin
    from deploy.place import place_of

    begin(role, name or place_of(role))
