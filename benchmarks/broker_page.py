"""Tables and picture of `benchmarks.broker_capacity`, and the controllers' figures beside them. Not for: measuring."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.broker import ROLES
from benchmarks.capacity import GPU_TOKENS_PER_S, LINKS, SHARE, Cost, capacity, core_share
from benchmarks.message_sizes import SIBLINGS, parts_of
from benchmarks.plain_streams import LAYOUTS
from benchmarks.result import RESULTS, Result

PAGE = Path(__file__).parent / "broker.md"
PICTURE = RESULTS / "broker_capacity.png"
MARKS = ("<!-- tables: written by the benchmark -->", "<!-- end of tables -->")
TARGETS = {"addition": 0.15, "smollm2-sentiment": 0.02}
"""Run → most that the broker may take of its processor time."""
CONTROLLERS = (1, 8, 64, 256)


def write_tables(result: Result, page: Path = PAGE) -> None:
    """Between the two marks of the page."""
    before, _, rest = page.read_text().partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    page.write_text("\n".join([before + MARKS[0], *tables(result), MARKS[1] + after]))


def tables(result: Result) -> list[str]:
    taken = result.circumstances
    load = ", ".join(f"{one:.1f}" for one in taken.load_before)
    lines = [f"Taken {taken.date[:10]} on {taken.cores} cores ({taken.cpu}), load before: {load}."]
    for title, body in (
        ("Against plain commands", rates(result)),
        ("Who spends it", spenders(result)),
        ("Of a run's processor time", shares(result)),
        ("What one server carries", words(result)),
        ("With more controllers", list(controllers())),
    ):
        lines += ["", f"### {title}", "", *body]
    return lines


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    names = list(heads)
    marks = ["---", *["---:"] * (len(names) - 1)]
    return [f"| {' | '.join(row)} |" for row in (names, marks, *rows)]


def rates(result: Result) -> list[str]:
    """Groups a second and the server's time, ours and both plain forms."""
    heads = ["body", "groups/s", "server µs"]
    for layout in LAYOUTS:
        heads += [f"plain, {layout}: groups/s", "server µs", "our rate of it", "its server time of ours"]
    rows: list[list[str]] = []
    for size in result.settings["sizes"]:
        speed, us = (result.median(f"{size}: broker", name) for name in ("groups_per_s", "server_us_per_group"))
        row = [size, f"{speed:,.0f}", f"{us:,.0f}"]
        for layout in LAYOUTS:
            plain = f"{size}: plain, {layout}"
            fast, cheap = (result.median(plain, name) for name in ("groups_per_s", "server_us_per_group"))
            row += [f"{fast:,.0f}", f"{cheap:,.0f}", f"{speed / fast:.0%}", f"{cheap / us:.0%}"]
        rows.append(row)
    return table(heads, rows)


def spenders(result: Result) -> list[str]:
    """Processor time of one group: the server's and each role's client."""
    parts = ("server", "clients", *ROLES)
    rows = (
        [size, *(f"{result.median(f'{size}: broker', f'{part}_us_per_group'):,.0f}" for part in parts)]
        for size in result.settings["sizes"]
    )
    return table(["body", "server, µs a group", "clients together", *ROLES], rows)


def shares(result: Result) -> list[str]:
    heads = ["run", "steps/s", "groups a step", "KB a group", "all roles, ms a step", "server", "clients, at work"]
    heads += ["clients, waiting", "the broker's share", "aim"]
    rows: list[list[str]] = []
    for name in result.settings["runs"]:

        def median(figure: str, name: str = name) -> float:
            return result.median(name, figure)

        broker = f"**{median('broker_share'):.1%}**"
        rows.append(
            [
                f"`{name}`",
                f"{median('steps_per_s'):.2f}",
                f"{median('groups_per_step'):.1f}",
                f"{median('body_bytes') / 1024:.1f}",
                f"{median('all_ms_per_step'):,.1f}",
                *(f"{median(f'{part}_ms_per_step'):,.2f}" for part in ("server", "clients", "waiting")),
                broker,
                f"≤ {TARGETS[name]:.0%}",
            ]
        )
    left_out = [name for name in TARGETS if name not in result.settings["runs"]]
    return [*table(heads, rows), *(f"\nNot measured: {', '.join(left_out)}." for _ in left_out[:1])]


def cost_of(result: Result, size: str) -> Cost:
    """Of a group whose size is told in tokens."""

    def median(figure: str) -> float:
        return result.median(f"{size}: broker", figure)

    tokens, body = result.settings["tokens"][size], result.settings["bytes"][size]
    traffic = median("server_in_bytes_per_group"), median("server_out_bytes_per_group")
    return Cost(SIBLINGS * tokens, median("server_us_per_group"), *traffic, body)


def words(result: Result) -> list[str]:
    """Capacity as tokens a second, and one row's arithmetic in full."""
    costs = {size: cost_of(result, size) for size in result.settings["tokens"]}
    heads = ["group", "bytes a token: kept, in, out", "server µs", "groups/s, core full"]
    heads += [f"groups/s, {link} full" for link in LINKS] + [
        "tokens/s by core",
        *(f"tokens/s, {link}" for link in LINKS),
    ]
    heads += [f"GPUs at {GPU_TOKENS_PER_S:,.0f} tokens/s, {SHARE:.0%} used, {link}" for link in LINKS]
    rows: list[list[str]] = []
    for size, cost in costs.items():
        found = [capacity(cost, speed) for speed in LINKS.values()]
        by = [one / cost.tokens for one in (cost.body_bytes, cost.in_bytes, cost.out_bytes)]
        rows.append(
            [
                size,
                ", ".join(f"{one:.1f}" for one in by),
                f"{cost.server_us:,.0f}",
                f"{found[0].by_core:,.0f}",
                *(f"{one.by_link:,.0f}" for one in found),
                f"{cost.tokens * found[0].by_core / 1e6:,.1f} M",
                *(f"{one.tokens_per_s / 1e6:,.1f} M ({one.ends})" for one in found),
                *(f"{one.gpus():,.0f}" for one in found),
            ]
        )
    return [*table(heads, rows), "", *(arithmetic(size, cost) for size, cost in list(costs.items())[:1])]


def arithmetic(size: str, cost: Cost) -> str:
    name, link = next(iter(LINKS.items()))
    found = capacity(cost, link)
    fuller, fleet = max(cost.in_bytes, cost.out_bytes), 64 * GPU_TOKENS_PER_S
    return (
        f"The first row in full: a group of {size} is {cost.tokens:,} tokens and {cost.body_bytes:,.0f} bytes. "
        f"It takes {cost.server_us:,.0f} µs of the server's core: 1,000,000 / {cost.server_us:,.0f} = "
        f"{found.by_core:,.0f} groups/s. {fuller:,.0f} bytes of it leave the server, to be scored and to be trained: "
        f"{link:,.0f} / {fuller:,.0f} = {found.by_link:,.0f} groups/s on {name}. The smaller is the {found.ends}'s, so "
        f"one server carries {cost.tokens:,} x {found.groups_per_s:,.0f} = {found.tokens_per_s:,.0f} tokens/s. Planned "
        f"at {SHARE:.0%}: {found.gpus():,.0f} GPUs that sample {GPU_TOKENS_PER_S:,.0f} tokens/s each. 64 of them take "
        f"{core_share(cost, fleet):.1%} of its core. 1 GB of its memory holds {1e9 / cost.body_bytes:,.0f} open groups "
        "((η + 1) · B are open at most); its append-only file grows by "
        f"{cost.in_bytes * fleet / cost.tokens / 1e6:,.1f} MB/s under them, between rewrites."
    )


def controllers() -> Iterator[str]:
    """How the server's time for a group grows with those who pull from it, as `bench-controllers` found it last."""
    path = RESULTS / "controllers.json"
    if not path.is_file():
        yield "Not measured yet: `make bench-controllers`."
        return
    told: dict[str, Any] = json.loads(path.read_text())
    sizes = sorted({size for _, _, size, _, _ in told["settings"]["cases"]})
    rows: list[list[str]] = []
    for number in CONTROLLERS:
        row = [str(number)]
        for size in sizes:
            us = told["medians"][f"parallel, {size} KB, saturated, {number} controllers"]["middle_us_per_group"][
                "median"
            ]
            tokens = len(parts_of(size << 10).rollouts.actions)
            row.append(f"{us:,.0f} µs: {1e6 / us:,.0f} groups/s, {tokens / us:,.2f} M tokens/s")
        rows.append(row)
    yield from table(["controllers", *(f"{size} KB" for size in sizes)], rows)
    yield ""
    yield (
        f"Server's processor time of a group, taken {told['circumstances']['date'][:10]} by `make bench-controllers`, "
        "four in hand each, all processes on the same cores; behind it what a full core carries."
    )


def draw(result: Result, path: Path = PICTURE) -> Path:
    """A PNG under 150 KB."""
    from matplotlib.figure import Figure  # half a second, and only here

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    spent, carried = figure.subplots(1, 2)
    sizes = sorted(result.settings["sizes"], key=lambda size: result.settings["bytes"][size])
    kb = [result.settings["bytes"][size] / 1024 for size in sizes]
    for label, case, name, style in (
        ("broker: its clients", "broker", "clients_us_per_group", "o:"),
        ("broker: server", "broker", "server_us_per_group", "o-"),
        ("plain, whole: server", "plain, whole", "server_us_per_group", "s--"),
        ("plain, apart: server", "plain, apart", "server_us_per_group", "^--"),
    ):
        spent.plot(kb, [result.median(f"{size}: {case}", name) for size in sizes], style, label=label)
    spent.set(xscale="log", yscale="log", xlabel="KB a group")
    spent.set_title("µs of processor time a group, three hops", loc="left", fontsize="medium")
    costs = [cost_of(result, size) for size in result.settings["tokens"]]
    each = [cost.tokens // SIBLINGS for cost in costs]
    carried.plot(each, [cost.tokens * 1e6 / cost.server_us for cost in costs], "o-", label="its core full")
    for link, speed in LINKS.items():
        full = [cost.tokens * capacity(cost, speed).by_link for cost in costs]
        carried.plot(each, full, "s--", label=f"{link} full")
    carried.axhline(64 * GPU_TOKENS_PER_S, color="grey", linewidth=0.8)
    carried.annotate(f"64 GPUs at {GPU_TOKENS_PER_S:,.0f} tokens/s", (each[0], 64 * GPU_TOKENS_PER_S), va="bottom")
    carried.set(xscale="log", yscale="log", xlabel=f"tokens a rollout, {SIBLINGS} rollouts a group")
    carried.set_title("tokens/s that one server carries", loc="left", fontsize="medium")
    for axes in (spent, carried):
        axes.grid(alpha=0.3, which="both")
        axes.legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)
    return path
