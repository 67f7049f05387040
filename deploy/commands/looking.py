"""`tidemill report`: what a run came to."""

from __future__ import annotations

from deploy.commands.printing import AsJson, RunName, console, print_json
from deploy.run_folder import find_run, runs_root


def report(run: RunName = "latest", as_json: AsJson = False) -> None:
    """What a run came to; works without its server."""
    from deploy.closing import closing_lines
    from deploy.curve import draw_curve
    from deploy.report import make_report, save_report

    folder = find_run(run, runs_root())
    facts = make_report(folder)
    save_report(folder, facts)
    if as_json:
        print_json(facts)
        return
    for sentence in closing_lines(folder, facts, draw_curve(folder)):
        console.print(sentence, highlight=False, markup=False, soft_wrap=True)
