"""`tidemill show`, `rescore`: single groups of a run."""

from __future__ import annotations

from typing import Annotated

import typer

from broker.errors import Misconfigured
from broker.messages import Kind
from deploy.commands.printing import AsJson, RunName, RunOption, console, print_json
from deploy.run_check import saved_run
from deploy.run_folder import find_run, runs_root

KINDS: dict[str, Kind | None] = {"train": "train", "eval": "eval", "all": None}


def show(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="its id, such as addition/0/17 or eval/5/3")],
    run: RunOption = "latest",
    as_json: AsJson = False,
) -> None:
    """A group's whole life: prompt, answers with the versions that sampled them, rewards, its way, and its end."""
    from deploy import show as finding
    from deploy.commands.bars import bytes_read
    from deploy.life_in_words import words

    folder = find_run(run, runs_root())
    with bytes_read("indexing groups") as progress:
        life = finding.show(folder, saved_run(folder).broker, group, progress)
    if as_json:
        print_json(life)
        return
    for line in words(life, folder.name):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def rescore(
    run: RunName = "latest",
    reward: Annotated[
        list[str] | None,
        typer.Option(metavar="PART", help="a rule or judge by name or module:attribute, or a table as in a run file"),
    ] = None,
    kind: Annotated[str, typer.Option(help="train, eval or all")] = "all",
    newest: Annotated[int, typer.Option(min=0, help="only so many groups; 0 for all")] = 0,
    examples: Annotated[int, typer.Option(min=0, help="completions to show that differ most")] = 5,
    as_json: AsJson = False,
) -> None:
    """Stored answers through another reward, compared with the one they had; generates nothing, needs no server."""
    from deploy import rescore as scoring
    from deploy.commands.bars import things_done
    from deploy.rescored_in_words import words

    if not reward or kind not in KINDS:
        raise Misconfigured(
            f"rescore --reward {reward or ''} --kind {kind}: nothing was scored; say --reward NAME, once for each "
            f"part, and --kind {', '.join(KINDS)}"
        )
    folder = find_run(run, runs_root())
    with things_done("scoring groups") as progress:
        found = scoring.rescore(
            folder, scoring.parts_of(reward), kind=KINDS[kind], newest=newest, examples=examples, progress=progress
        )
    if as_json:
        print_json(found)
        return
    for line in words(found):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
