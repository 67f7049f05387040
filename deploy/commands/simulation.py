"""`tidemill simulate`: a placement on virtual slots."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deploy.commands.printing import AsJson, console
from deploy.run_folder import find_run, runs_root


def simulate(
    workloads: Annotated[
        list[str] | None, typer.Argument(metavar="[WORKLOAD]...", help="by name, or all; drift if left out")
    ] = None,
    slots: Annotated[int, typer.Option(help="slots of the virtual fleet")] = 64,
    seeds: Annotated[int, typer.Option(min=1, help="runs of each system")] = 3,
    versions: Annotated[int, typer.Option(help="weight versions to train; 0 for the workload's own")] = 0,
    placement: Annotated[str, typer.Option(help="pressure, proportional, fixed, or a dotted path")] = "pressure",
    move_cost: Annotated[float, typer.Option(help="seconds a move takes; the workload's own if negative")] = -1.0,
    trace: Annotated[str, typer.Option(metavar="RUN", help="a recorded run as the workload")] = "",
    out: Annotated[Path | None, typer.Option(help="folder for simulation.json and a picture of each run")] = None,
    as_json: AsJson = False,
) -> None:
    """Try a placement on virtual slots: against static splits, co-location, a utilisation rule and an oracle."""
    from deploy.commands.bars import sentences
    from deploy.simulate_command import loads_named, perform, scheduler_of

    folder = find_run(trace, runs_root()) if trace else None
    loads = loads_named(workloads or ["drift"], folder, slots, versions, move_cost)
    with sentences("simulating", console) as told:
        perform(loads, slots, seeds, scheduler_of(placement, folder), out, console, told, as_json=as_json)
