"""One comparison of simulated fleets in parts, each kept in a file, so that hours of it may be interrupted.

For: `benchmarks/simulation.py`. Not for: short comparisons, which need none (`scheduler.simulation.comparison`). Parts
are the static split of a workload and every system on one seed; those of other code or another workload are not used.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from scheduler.settings import SchedulerSection
from scheduler.simulation.comparison import Comparison, Played, gathered, played, side_by_side
from scheduler.simulation.outcome import Outcome
from scheduler.simulation.static_search import best_static
from scheduler.simulation.workload import Cargo, Workload

ROOT = Path(__file__).parent.parent
OURS = "pressure"

Part = dict[str, Any]


def compared(
    load: Workload, slots: int, seeds: Sequence[int], folder: Path, *, processes: int
) -> tuple[Comparison, float]:
    """The comparison, and how many seconds of one core it took in all; parts found in `folder` are not played again."""
    place = folder / f"{load.name}-{slots}-{load.versions}-{fingerprint(load)}"
    place.mkdir(parents=True, exist_ok=True)
    split = kept(place / "split.json", partial(searched, load, slots, seeds[0]))
    print(f"{load.name}, {slots} slots: best static split {split['split']}, {split['cpu_s']:.0f} s", flush=True)
    play = partial(seed_kept, place, load, slots, split["split"], seeds[0])
    parts = [split]

    def outcomes(part: Part) -> Played:
        parts.append(part)
        return [Outcome(**one) for one in part["outcomes"]], part["fluid"]

    told = partial(print, flush=True)
    found = gathered(load, slots, OURS, split["split"], map(outcomes, side_by_side(play, seeds, processes)), told)
    return found, sum(part["cpu_s"] for part in parts)


def kept(path: Path, make: Callable[[], Part]) -> Part:
    """The part in that file; made and written if there is none, with the seconds that took."""
    if not path.exists():
        began = time.process_time()
        part = make() | {"cpu_s": time.process_time() - began}
        unfinished = path.with_suffix(".part")
        unfinished.write_text(json.dumps(part))
        unfinished.rename(path)
    return json.loads(path.read_text())


def searched(load: Workload, slots: int, seed: int) -> Part:
    return {"split": best_static(Cargo(load, seed, slots))}


def seed_kept(place: Path, load: Workload, slots: int, split: Mapping[str, int], recorded: int, seed: int) -> Part:
    return kept(place / f"seed-{seed}.json", partial(seed_played, load, slots, split, recorded, seed))


def seed_played(load: Workload, slots: int, split: Mapping[str, int], recorded: int, seed: int) -> Part:
    outcomes, fluid = played(load, slots, split, SchedulerSection(placement=OURS), recorded, seed)
    return {"outcomes": [asdict(one) for one in outcomes], "fluid": fluid}


def fingerprint(load: Workload) -> str:
    """Of all that a part depends on: the workload and the code that plays it, which is what has been loaded here."""
    loaded = (module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == "scheduler")
    code = sorted(Path(file) for file in loaded if file)
    told = [
        repr(load),
        *(path.read_text() for path in (*code, ROOT / "broker/admission.py", ROOT / "broker/shares.py")),
    ]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:8]
