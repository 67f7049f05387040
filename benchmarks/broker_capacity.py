"""What the broker costs and how much one server carries: `make bench-broker_capacity`, some seven minutes.

Three hops of each size through the broker and, side by side in the same minute, as plain commands; then `addition` and
`smollm2-sentiment` for real, to see how much of their processor time the broker takes. `--quick` is a look within two
minutes, without the real runs; it writes nothing unless told where. `benchmarks/broker.md` says how to read it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from benchmarks import broker, broker_runs, plain_streams
from benchmarks.broker import Load
from benchmarks.broker_page import PICTURE, cost_of, draw, tables, write_tables
from benchmarks.capacity import LINKS, capacity
from benchmarks.message_sizes import SIBLINGS, with_actions
from benchmarks.result import RESULTS, Result, circumstances, gathered

TOKENS = {f"{SIBLINGS} x {tokens:,} tokens": tokens for tokens in (1024, 4096, 16384)}
"""Of one rollout; such a group is as large as the codec makes it."""
SIZES: Mapping[str, Load] = {
    "1 KB": Load(body_bytes=1 << 10, total=8192),
    "32 KB": Load(body_bytes=32 << 10, total=4096),
    "256 KB": Load(body_bytes=256 << 10, total=1024),
    **{
        name: Load(body_bytes=with_actions(tokens).bytes, total=total)
        for (name, tokens), total in zip(TOKENS.items(), (2048, 1024, 256), strict=True)
    },
}
PLAIN_BYTES = 256 << 20
"""Of bodies, in one plain case; at most PLAIN_GROUPS."""
PLAIN_GROUPS = 16384

Samples = dict[str, list[dict[str, float]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=3, help="of each size")
    parser.add_argument("--quick", action="store_true", help="one repeat, no real runs")
    parser.add_argument(
        "--runs", nargs="*", choices=list(broker_runs.RUNS), help="real runs; default: all that can run here"
    )
    parser.add_argument("--out", type=Path, help="write figures and picture there, and nothing else")
    given = parser.parse_args()
    runs = given.runs if given.runs is not None else [] if given.quick else broker_runs.possible()
    before, samples = circumstances(), Samples()
    with ProcessPoolExecutor(len(broker.ROLES), mp_context=get_context("spawn")) as pool:
        broker.measured(Load(body_bytes=1 << 10, total=256), pool)  # processes start, libraries load
        for _ in range(1 if given.quick else given.repeats):
            through_sizes(samples, pool)
        for name in runs:
            with tempfile.TemporaryDirectory(prefix="bench-") as root:
                for _ in range(broker_runs.RUNS[name].repeats):
                    note(samples, name, broker_runs.measured(name, Path(root), pool))
    result = Result(
        name="broker_capacity",
        measures="three hops through the broker against plain commands; its share of real runs; tokens/s of one server",
        circumstances=before,
        settings={
            "sizes": list(SIZES),
            "bytes": {name: load.body_bytes for name, load in SIZES.items()},
            "tokens": TOKENS,
            "runs": runs,
            "read": broker.READ,
            "appendfsync": "everysec",
        },
        samples={case: gathered(found) for case, found in samples.items()},
    )
    report(result, given.out, whole=not given.quick and runs == broker_runs.possible())


def through_sizes(samples: Samples, pool: ProcessPoolExecutor) -> None:
    """Each size once, ours and both plain forms one after another."""
    for name, load in SIZES.items():
        note(samples, f"{name}: broker", broker.measured(load, pool))
        groups = min(PLAIN_GROUPS, PLAIN_BYTES // load.body_bytes)
        for layout in plain_streams.LAYOUTS:
            note(samples, f"{name}: plain, {layout}", plain_streams.measured(load.body_bytes, groups, layout))


def note(samples: Samples, case: str, found: dict[str, float]) -> None:
    samples.setdefault(case, []).append(found)
    print(f"{time.strftime('%X')} {case}: {json.dumps(found)}", flush=True)


def report(result: Result, out: Path | None, *, whole: bool) -> None:
    """Figures, tables and picture; in part only to the terminal, or where `out` says."""
    print("\n".join(tables(result)))
    if out:
        result.save(headline(result), out)
        print(draw(result, out / PICTURE.name))
    elif whole:
        result.save(headline(result), RESULTS)
        write_tables(result)
        print(draw(result))


def headline(result: Result) -> str:
    said: list[str] = []
    for size in result.settings["sizes"]:
        if size in result.settings["tokens"]:
            continue
        ours, plain = (f"{size}: broker", f"{size}: plain, apart")
        us, bare = result.median(ours, "server_us_per_group"), result.median(plain, "server_us_per_group")
        said.append(
            f"{size}: server {us:,.0f} µs ({bare:,.0f} by plain commands), clients "
            f"{result.median(ours, 'clients_us_per_group'):,.0f} µs a group"
        )
    said += [f"{result.median(run, 'broker_share'):.1%} of the time of `{run}`" for run in result.settings["runs"]]
    link, speed = next(iter(LINKS.items()))
    for size in result.settings["tokens"]:
        found = capacity(cost_of(result, size), speed)
        said.append(f"{size}: one server carries {found.tokens_per_s / 1e6:,.1f} M tokens/s on {link}")
    return "; ".join(said)


if __name__ == "__main__":
    main()
