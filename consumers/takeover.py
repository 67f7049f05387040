"""How a trainer comes into its run: fence the others, compare the server's ledger with the store, open, catch up.

For: start, restart, and a server that came back with less than it had. Not for: training.

What can be found, and what is done:
    no run, empty store          version 0 is written from the initial model, the run is opened
    the run, same server         a whole version on the ledger's head whose groups are open is committed; other orphans
    go the run, restarted server    the same, then a new incarnation is opened
    less than the store knows    (FLUSHALL, power failure: no run, or its tick is below the newest manifest's) the
    books of
                                 the newest manifest are restored; its open groups are admitted again by the feeder
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import structlog

from broker.admission import cap
from broker.contract import Announcement, Books, LedgerLine, RunState
from broker.errors import Broken, Fenced
from broker.redis_trainer import RedisTrainer
from broker.weights import Manifest, VersionStore, chain

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What admission needs to know."""

    groups: int
    staleness: int
    eval_cap: int
    dead_limit: int = 0

    @property
    def cap(self) -> int:
        return cap(self.groups, self.staleness)


async def take_over(
    broker: RedisTrainer, store: VersionStore, bounds: Bounds, write_first: Callable[[int], Manifest]
) -> Announcement:
    """Claim an epoch, bring server and store to agree, open the run; the live version is returned.

    `write_first(epoch)` writes version 0. Raises Fenced when another trainer claims a higher epoch meanwhile.
    """
    state = await broker.look()
    epoch = store.claim_epoch(state.epoch)
    state = await broker.claim(epoch)
    manifests = store.manifests()
    newest = max(manifests, key=lambda one: (one.version, one.epoch), default=None)
    if newest is None:
        if state.exists and state.live and state.live.version > 0:
            raise Broken(
                f"the server's run is at version {state.live.version}, but its store {store.root} is empty; "
                f"stopping; bring the store back"
            )
        first = write_first(epoch)
        await broker.open_run(**opening(bounds), announcement=first.announcement)
        return first.announcement
    if not state.exists or newest.books.tick > state.tick:
        return await restore(broker, store, bounds, manifests, newest)
    return await agree(broker, store, bounds, manifests, state)


def opening(bounds: Bounds) -> dict[str, int]:
    return {
        "cap": bounds.cap,
        "groups": bounds.groups,
        "staleness": bounds.staleness,
        "eval_cap": bounds.eval_cap,
        "dead_limit": bounds.dead_limit,
    }


async def agree(
    broker: RedisTrainer, store: VersionStore, bounds: Bounds, manifests: Sequence[Manifest], state: RunState
) -> Announcement:
    """The server knows at least what the store knows: open if need be, finish a commit that was under way."""
    if state.live is None:
        raise Broken("the run exists without a live version; stopping; this is a bug")
    changed = any(getattr(state, name) != value for name, value in opening(bounds).items())
    if not state.is_open or state.finished or changed:
        await broker.open_run(**opening(bounds), announcement=state.live)
    else:
        await broker.enter(timeout_s=10)
    live = state.live
    orphans = sorted(
        (one for one in manifests if one.version > live.version), key=lambda one: (one.version, one.epoch), reverse=True
    )
    for orphan in orphans:
        if (orphan.version, orphan.parent_epoch) == (live.version + 1, live.epoch) and await finish_commit(
            broker, orphan
        ):
            log.info("committed a version found whole", version=orphan.version, epoch=orphan.epoch)
            live = orphan.announcement
            break
    for orphan in orphans:
        if orphan.announcement != live:
            store.delete(orphan.path)
            log.info("deleted an orphaned version", version=orphan.version, epoch=orphan.epoch)
    return live


async def finish_commit(broker: RedisTrainer, orphan: Manifest) -> bool:
    """Commit a version whose trainer died between writing and committing, if all its groups are still open."""
    deliveries = await broker.open_entries(orphan.groups)
    if len(deliveries) != len(orphan.groups) or any(one.stream != "scored" for one in deliveries):
        return False
    try:
        await broker.commit(line_of(orphan), orphan.announcement, deliveries)
    except Fenced:
        raise
    except Broken as refused:
        log.info("not committed", version=orphan.version, reason=str(refused))
        return False
    return True


async def restore(
    broker: RedisTrainer, store: VersionStore, bounds: Bounds, manifests: Sequence[Manifest], newest: Manifest
) -> Announcement:
    """The server lost what the store knows: its books come from the newest manifest, which counts as committed."""
    lineage = chain(manifests, newest.version, newest.epoch)
    books = after_commit(newest)
    lines = [line_of(one) for one in lineage if one.version > 0]
    await broker.restore(books, lines, newest.announcement, **opening(bounds))
    for one in manifests:
        if one not in lineage and one.version >= newest.version:
            store.delete(one.path)
    log.warning(
        "the server had lost the run; restored it from the store",
        version=newest.version,
        open_groups=len(books.open),
        cursor=books.cursor,
        tick=books.tick,
    )
    return newest.announcement


def after_commit(manifest: Manifest) -> Books:
    """The manifest's books were read before its commit: its groups are trained now, and evaluations are asked for
    anew.
    """
    books = manifest.books
    trained = set(manifest.groups)
    open_now = {group: line for group, line in books.open.items() if group not in trained and line.kind == "train"}
    evaluating = sum(line.kind == "eval" for line in books.open.values())
    counts = dict(books.counts)
    counts["train.trained"] = books.count("train.trained") + len(trained)
    counts["train.open"] = len(open_now)
    counts["eval.admitted"] = books.count("eval.admitted") - evaluating
    counts["eval.open"] = 0
    return replace(books, tick=books.tick + 1, open=open_now, counts=counts)


def line_of(manifest: Manifest) -> LedgerLine:
    return LedgerLine(
        version=manifest.version,
        epoch=manifest.epoch,
        parent_epoch=manifest.parent_epoch,
        digest=manifest.digest,
        groups=manifest.groups,
    )
