"""What Prometheus may ask of a process: every metric's name, kind, labels and meaning, in one table.

For: whoever counts (`metrics`), and the table in `docs/metrics.md`. Not for: counting. Names follow Prometheus: base
units, `_total` for what only rises. Every sample also says `run`, `role`, `process` and `slot`, where there is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MOMENTS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Seconds: from a round trip to the server to a long drain."""
LONG = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)
"""Seconds: from a short group to a large model's step."""
VERSIONS = (0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One metric."""

    name: str
    """Without `tidemill_`; a counter's without `_total`."""
    kind: Literal["counter", "gauge", "histogram"]
    says: str
    by: str
    """Roles that say it."""
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def shown(self) -> str:
        """Its name as Prometheus knows it."""
        return f"tidemill_{self.name}{'_total' if self.kind == 'counter' else ''}"


def counter(name: str, says: str, by: str, *labels: str) -> Measure:
    return Measure(name=name, kind="counter", says=says, by=by, labels=labels)


def gauge(name: str, says: str, by: str, *labels: str) -> Measure:
    return Measure(name=name, kind="gauge", says=says, by=by, labels=labels)


def histogram(name: str, says: str, by: str, *labels: str, buckets: tuple[float, ...] = MOMENTS) -> Measure:
    return Measure(name=name, kind="histogram", says=says, by=by, labels=labels, buckets=buckets)


WORKING = "feeder, rollout, reward, judge, trainer, rank"
READING = "rollout, reward, judge"

# What the heartbeat carries too
STATE_SECONDS = counter("state_seconds", "seconds busy, waiting, or loading (until it takes work)", WORKING, "state")
GROUPS = counter("groups", "groups finished: admitted, rolled out, scored or trained, by role", WORKING)
GROUP_SECONDS = counter("group_busy_seconds", "seconds of work those groups took, each its share", WORKING)
TOKENS = counter("tokens", "actions sampled (rollout) or trained on (trainer)", "rollout, trainer")
HELD = gauge("groups_in_hand", "groups read and not settled", WORKING)
READY = gauge("ready", "1 once it takes work", WORKING)
VERSION = gauge("weight_version", "weight version it works with", "rollout, trainer, rank")

# Reading and settling
HANDLING = histogram("group_seconds", "seconds from taking a group up to its outcome", READING, buckets=LONG)
HAND_OVER = histogram(
    "hand_over_seconds", "seconds an entry lay in its stream before it was taken up", f"{READING}, trainer", "stream"
)
SETTLING = histogram("settle_seconds", "seconds of one settling round trip", READING)
SETTLED = counter(
    "settled_groups",
    "groups settled: forwarded, retired, buried, recycled, tried_again, given_back",
    READING,
    "outcome",
)
LEASES_LOST = counter("leases_lost", "groups another reader had settled or taken over first", READING)
ADOPTED = counter("adopted_groups", "groups taken over from a dead reader", READING)

# Weights
LOADING = histogram("weight_load_seconds", "seconds to verify, load and compare one version", "rollout", buckets=LONG)
SYNCING = histogram(
    "weight_sync_seconds", "seconds from hearing of a version up to serving it", "rollout", buckets=LONG
)
LOADED_BYTES = counter("weight_load_bytes", "bytes of the versions loaded", "rollout")
LAG = gauge("version_lag", "versions between the newest announced and the one served", "rollout")
CANARIES = counter("canary_failures", "loads whose log-probs differed from the trainer's", "rollout")
PUBLISHED_BYTES = counter("weight_publish_bytes", "bytes of the versions published", "trainer")

# Training
STEPS = counter("steps", "versions trained", "trainer")
STEP_SECONDS = histogram(
    "step_seconds",
    "seconds of a step's parts: train; before it wait, and publish where that held the learner up",
    "trainer",
    "part",
    buckets=LONG,
)
STALENESS = histogram("staleness_versions", "staleness of each trained group, in versions", "trainer", buckets=VERSIONS)
REWARD = gauge("reward", "mean reward of the last batch", "trainer")
LEARNING = gauge("learning", "what the learner said of the last step: loss, kl, grad_norm, …", "trainer", "quantity")
ACCURACY = gauge("accuracy", "held-out accuracy of the last measured version", "trainer")

# The run, asked of the server at the moment of the scrape
SERVER_UP = gauge("server_up", "1 if the server answered this scrape", "feeder")
SERVER_MEMORY = gauge("server_memory_bytes", "memory the server uses of what counts against its limit", "feeder")
SERVER_REFUSED = counter(
    "server_refused_writes", "writes refused for want of memory since the server started", "feeder"
)
SERVER_LIMIT = gauge("server_memory_limit_bytes", "its maxmemory; 0 for none", "feeder")
FATES = counter(
    "run_groups", "the run's books: groups admitted, trained, retired (with the reason), buried",
    "feeder", "kind", "fate", "reason",
)  # fmt: skip
OPEN = gauge("run_open_groups", "open groups", "feeder", "kind")
BACKLOG = gauge("backlog_groups", "undelivered and pending entries of each stream", "feeder", "stream")
PENDING = gauge("pending_groups", "entries of each stream that were read and are not settled", "feeder", "stream")
DEAD = gauge("dead_letters", "buried groups that lie in the dead stream", "feeder")
DEAD_LIMIT = gauge("dead_letters_limit", "dead letters at which admission stops; 0 for none", "feeder")
LIVE = gauge("run_version", "live weight version; -1 before there is one", "feeder")
EVERYWHERE = gauge(
    "run_weight_sync_seconds",
    "seconds from the announcement of the live version until the last engine served it; absent until then",
    "feeder",
)
FINISHED = gauge("run_finished", "1 once the run has ended", "feeder")

# Slots and who moves them
SLOTS = gauge("slots", "slots by pool and state, as last seen", "scheduler", "pool", "state")
SLOTS_WANTED = gauge("slots_wanted", "slots each pool should have", "scheduler", "pool")
LEADING = gauge("scheduler_leading", "1 while it holds the lease", "scheduler")
CYCLES = counter("scheduler_cycles", "decisions made, also to stay", "scheduler")
MOVES = counter("moves", "moves ordered", "scheduler", "source", "target")
MOVE_SECONDS = histogram(
    "move_seconds", "seconds from the order to a controller that takes work", "slot", "source", "target", buckets=LONG
)
SLOT_STATE = gauge("slot_state", "1 for the state it is in", "slot", "pool", "state")
SPARE_READY = gauge("spare_ready", "1 while a spare waits to become the next controller", "slot")
CONTROLLER_ENDS = counter("controller_ends", "ends of its controllers, by what followed", "slot", "pool", "followed")

# One machine
PROCESSES = gauge("processes", "processes of the run that live now", "launcher")
PROCESS_ENDS = counter("process_ends", "ends of the run's processes, by what followed", "launcher", "name", "followed")

MEASURES: tuple[Measure, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Measure))
"""All of them, in this order."""
