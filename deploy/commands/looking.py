"""`tidemill report`: what a run came to."""

from __future__ import annotations

from deploy.commands.printing import AsJson, RunName, console, print_json
from deploy.run_check import saved_run
from deploy.run_folder import find_run, runs_root


def report(run: RunName = "latest", as_json: AsJson = False) -> None:
    """What a run came to; works without its server. Writes report.json, report.html and pictures into its folder."""
    from deploy.closing import closing_lines
    from deploy.curve import draw_curve
    from deploy.dashboard.frozen import freeze
    from deploy.dashboard.pictures import draw_pictures
    from deploy.report import make_report, save_report

    folder = find_run(run, runs_root())
    facts = make_report(folder)
    save_report(folder, facts)
    if as_json:
        print_json(facts)
        return
    curve, pictures = draw_curve(folder), draw_pictures(folder)
    for sentence in closing_lines(folder, facts, curve):
        console.print(sentence, highlight=False, markup=False, soft_wrap=True)
    page = freeze(folder, saved_run(folder))
    shown = ", ".join(path.name for path in pictures)
    console.print(f"page: {page}" + (f" · {shown}" if shown else ""), highlight=False, markup=False, soft_wrap=True)
