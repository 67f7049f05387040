"""What asynchrony is worth: held-out accuracy over wall-clock of `long-tail` at each bound on staleness.

    make bench-staleness                                       # all: 50 runs, an hour to an hour and a half
    make bench-staleness ARGS="--seeds 0 1 --levels 0 1"       # a part; a later call goes on where it stopped

Each bound with the default off-policy correction and without any, all from one warm start, for a fixed number of
versions. Each run's curve is kept in `build/staleness`; what is there is not run again unless `--again` says so. Once
all are there, the results, the section of `benchmarks/staleness.md` and the picture are written; before, a table is
printed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from dataclasses import asdict
from pathlib import Path

from benchmarks.result import RESULTS, circumstances
from benchmarks.staleness_picture import draw
from benchmarks.staleness_run import WAY, Curve, measured, warm_model
from benchmarks.staleness_table import Case, Found, headline, result_of, tables, write_page

KEPT = Path("build/staleness")
LEVELS, SEEDS, VERSIONS = (0, 1, 2, 4), (0, 1, 2, 3, 4), 100


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS), metavar="SEED")
    parser.add_argument("--levels", nargs="+", type=int, default=list(LEVELS), metavar="BOUND")
    parser.add_argument("--ways", nargs="+", choices=list(WAY), default=list(WAY))
    parser.add_argument("--versions", type=int, default=VERSIONS)
    parser.add_argument("--kept", type=Path, default=KEPT, help="folder of curves and of the shared warm start")
    parser.add_argument("--again", action="store_true", help="measure anew what is kept")
    given = parser.parse_args()
    before = circumstances()
    curves = given.kept / f"{given.versions}-versions"
    curves.mkdir(parents=True, exist_ok=True)
    for seed in given.seeds:
        cases = list(itertools.product(given.levels, given.ways))
        for case in cases if seed % 2 == 0 else reversed(cases):  # what the machine does meanwhile shall favour none
            run_case(case, seed, given.versions, given.kept, curves, again=given.again)
    found = kept(curves)
    result = result_of(found, before, given.versions)
    print("\n".join(tables(result)))
    if is_whole(found) and given.versions == VERSIONS:
        write_page(result)
        print(draw(found, RESULTS / "staleness.png"))
        result.save(headline(result, found))
    else:
        print(draw(found, curves / "staleness.png"))
        result.save(f"in part; {headline(result, found)}", curves / "results")


def run_case(case: Case, seed: int, versions: int, folder: Path, curves: Path, *, again: bool) -> None:
    """Measure it into its file, if that is not there."""
    level, way = case
    path, began, load = file_of(curves, case, seed), time.monotonic(), circumstances().load_before
    if path.is_file() and not again:
        print(f"staleness {level}, {way}, seed {seed}: taken from {path}", flush=True)
        return
    model = warm_model(folder / "model", folder / "runs")
    curve = measured(folder / "runs", model, seed=seed, level=level, way=way, versions=versions)
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps({**asdict(curve), "load_before": load}, indent=1) + "\n")
    draft.rename(path)
    print(
        f"staleness {level}, {way}, seed {seed}: accuracy {curve.points[-1][1]:.3f} after {curve.seconds:.0f} s, "
        f"{curve.figures['versions_per_s']:.2f} versions/s ({time.monotonic() - began:.0f} s)",
        flush=True,
    )


def file_of(curves: Path, case: Case, seed: int) -> Path:
    return curves / f"{case[0]}-{case[1]}-{seed}.json"


def kept(curves: Path) -> Found:
    """Every curve that was ever measured into this folder: case → seed → curve."""
    found: dict[Case, dict[int, Curve]] = {}
    for path in sorted(curves.glob("*-*-*.json")):
        level, way, seed = path.stem.split("-")
        facts = json.loads(path.read_text())
        points = [(float(seconds), float(accuracy)) for seconds, accuracy in facts["points"]]
        curve = Curve(points=points, versions=facts["versions"], figures=facts["figures"])
        found.setdefault((int(level), way), {})[int(seed)] = curve
    return dict(sorted(found.items()))


def is_whole(found: Found) -> bool:
    """Whether all is there that stands in the results."""
    return all(set(SEEDS) <= set(found.get(case, {})) for case in itertools.product(LEVELS, WAY))


if __name__ == "__main__":
    main()
