"""Tables and picture of `benchmarks.controllers`. Not for: measuring."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.result import Result

HERE = Path(__file__).parent
PAGE = HERE / "controllers.md"
PICTURE = HERE.parent / "docs" / "images" / "controllers.png"
MARKS = ("<!-- tables: written by the benchmark -->", "<!-- end of tables -->")
COLOURS = {"parallel": "tab:blue", "central": "tab:orange"}
FIGURES = (
    "groups_per_s",
    "handover_p50_ms",
    "handover_p99_ms",
    "middle_us_per_group",
    "all_us_per_group",
    "middle_mb",
)


@dataclass(frozen=True, slots=True)
class Look:
    """Where a case's figures are found."""

    result: Result

    def names(self, pace: str) -> list[tuple[str, str, int, int]]:
        """(case, architecture, KB, controllers)"""
        found = self.result.settings["cases"]
        return [(name, how, size, number) for name, how, size, which, number in found if which == pace]

    def line(self, how: str, size: int, pace: str, figure: str) -> tuple[list[int], list[float]]:
        """Controllers, and the figure for each."""
        here = [one for one in self.names(pace) if one[1:3] == (how, size) and figure in self.result.samples[one[0]]]
        return [one[3] for one in here], [self.result.median(one[0], figure) for one in here]

    def busiest(self, name: str) -> str:
        share, memory = self.result.median(name, "busiest_share"), self.result.median(name, "busiest_mb")
        return f"{self.result.settings['busiest'][name]} {share:.0%}, {memory:,.0f} MB"


def write_tables(result: Result, page: Path = PAGE) -> None:
    """Between the two marks of the page."""
    before, _, rest = page.read_text().partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    page.write_text("\n".join([before + MARKS[0], *tables(result), MARKS[1] + after]))


def tables(result: Result) -> list[str]:
    look, taken = Look(result), result.circumstances
    load = ", ".join(f"{one:.1f}" for one in taken.load_before)
    where = f"{taken.cores} cores ({taken.cpu}), load before: {load}"
    spent = f"{result.settings['window_s']:g} s a case, {result.settings['seconds']} s in all"
    lines = [f"Taken {taken.date[:10]} on {where}; {spent}."]
    codec = ", ".join(f"{us:,.0f} µs ({size} KB)" for size, us in result.settings["codec_us"].items())
    lines += ["", f"Decoding a group once and encoding it once, which the central controller is spared: {codec}."]
    for pace, title in (("saturated", "As fast as they can"), ("paced", "Paced")):
        lines += ["", f"### {title}", "", *table(look, pace)]
    lines += [
        "",
        "### Nothing to do",
        "",
        "| | controllers | the middle | all processes |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, how, _, number in look.names("idle"):
        middle, every = result.median(name, "middle_share"), result.median(name, "all_share")
        lines.append(f"| {how} | {number} | {middle:.1%} of a core | {every:.1%} of a core |")
    return lines


HEADS = {
    "as": "---",
    "KB": "---:",
    "controllers": "---:",
    "offered/s": "---:",
    "groups/s": "---:",
    "hand-over p50, p99": "---:",
    "µs a group: middle, all": "---:",
    "waited for a core: middle, controllers": "---:",
    "busiest process": "---",
    "middle's memory": "---:",
}


def table(look: Look, pace: str) -> list[str]:
    shown = [head for head in HEADS if head != "offered/s" or pace == "paced"]
    rows = [shown, [HEADS[head] for head in shown]]
    rate = look.result.settings["paced_groups_per_s_of_a_rollout_controller"]
    for name, how, size, number in look.names(pace):
        cells = {"as": how, "KB": f"{size}", "controllers": f"{number}", "busiest process": look.busiest(name)}
        cells["offered/s"] = f"{rate * ((number + 1) // 2):,.0f}"
        cells["groups/s"] = "none"
        waited = [look.result.median(name, f"{who}_waited_share") for who in ("middle", "controller")]
        cells["waited for a core: middle, controllers"] = f"{waited[0]:.0%}, {waited[1]:.0%}"
        if "groups_per_s" in look.result.samples[name]:
            speed, p50, p99, middle, every, memory = (look.result.median(name, figure) for figure in FIGURES)
            cells |= {"groups/s": f"{speed:,.0f}", "hand-over p50, p99": f"{p50:,.1f}, {p99:,.1f} ms"}
            cells |= {"µs a group: middle, all": f"{middle:,.0f}, {every:,.0f}", "middle's memory": f"{memory:,.0f} MB"}
        rows.append([cells.get(head, "") for head in shown])
    return [f"| {' | '.join(row)} |" for row in rows]


def draw(result: Result, path: Path = PICTURE) -> Path:
    """Three rows (speed, hand-over, cost in the middle), a column per size; a PNG under 200 KB."""
    from matplotlib.figure import Figure  # half a second, and only here
    from matplotlib.ticker import NullLocator

    look = Look(result)
    sizes = sorted({one[2] for one in look.names("paced")})
    numbers = sorted({one[3] for pace in ("saturated", "paced") for one in look.names(pace)})
    rows = (
        ("saturated", "groups_per_s", "groups/s, as fast as they can"),
        ("paced", "handover_p99_ms", "p99 hand-over, ms, paced"),
        ("saturated", "middle_us_per_group", "µs per group in the middle"),
    )
    figure = Figure(figsize=(10, 8), layout="constrained")
    for row, (pace, what, title) in zip(figure.subplots(3, len(sizes), sharex=True, sharey="row"), rows, strict=True):
        for axes, size in zip(row, sizes, strict=True):
            for how, colour in COLOURS.items():
                axes.plot(*look.line(how, size, pace, what), color=colour, marker="o", label=how)
            axes.set(xscale="log", yscale="log")
            axes.set_xticks(numbers, [str(number) for number in numbers])
            axes.xaxis.set_minor_locator(NullLocator())
            axes.set_title(f"{title}, {size} KB", fontsize="small", loc="left")
            axes.grid(alpha=0.3, which="both")
            if pace == "saturated" and what == "groups_per_s":
                axes.legend(fontsize="small")
            if what == "middle_us_per_group":
                axes.set_xlabel("controllers")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80)
    return path
