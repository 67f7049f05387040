"""Bring a learner to the live version: newest checkpoint the ledger confirms, then the recorded batches after it.

For: a trainer's restart. Not for: the books (`takeover`). Recorded batches are trained as recorded: they are not
judged for staleness again. On a CPU the result is bit for bit what was published; where it is not (a GPU, another
world size) the largest difference is logged and work goes on from the published tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import structlog

from broker.contract import Announcement
from broker.errors import Broken
from broker.messages import Group
from broker.weights import TENSORS, Manifest, VersionStore, chain, file_digest, read_batch
from consumers.learners.base import Learner

log = structlog.get_logger()

Train = Callable[[Sequence[Group], int, int], object]
"""(groups, version, seed): the very function that trained the batch first."""


def catch_up(learner: Learner, store: VersionStore, live: Announcement, train: Train) -> bool:
    """After this the learner is at `live`. True when the published tensors are there; False: they must be published
    again.

    Raises Broken when a batch that is needed is not in the store.
    """
    manifests = store.manifests()
    lineage = chain(manifests, live.version, live.epoch)
    start = newest_checkpoint(store, lineage, live)
    if start is not None:
        learner.load(start[1])
    begin = start[0] if start else 0
    steps = [one for one in lineage if one.version > begin]
    if len(steps) != live.version - begin:
        raise Broken(
            f"to reach version {live.version} from checkpoint {begin} the batches of {live.version - begin} versions "
            f"are needed, "
            f"{len(steps)} are in {store.root}; stopping; bring the store back or start a new run"
        )
    for one in steps:
        log.info("replaying", version=one.version, groups=len(one.groups))
        train(read_batch(store.folder(one.path)), one.version - 1, one.seed)
    return matches(learner, store, lineage[-1] if lineage else None)


def newest_checkpoint(store: VersionStore, lineage: Sequence[Manifest], live: Announcement) -> tuple[int, Path] | None:
    """A checkpoint counts only if the lineage of the ledger's head holds its version under its epoch."""
    confirmed = {(one.version, one.epoch) for one in lineage} | {(live.version, live.epoch)}
    for version, epoch, folder in reversed(store.checkpoints()):
        if (version, epoch) in confirmed:
            return version, folder
        log.warning("passing over a checkpoint the ledger does not confirm", version=version, epoch=epoch)
    return None


def matches(learner: Learner, store: VersionStore, head: Manifest | None) -> bool:
    """Whether the published tensors are there; if they differ from the replayed ones, the learner takes the
    published.
    """
    if head is None or not (store.folder(head.path) / TENSORS).is_file():
        return False
    with TemporaryDirectory() as scratch:
        learner.export()(Path(scratch))
        same = file_digest(Path(scratch) / TENSORS) == head.digest
    if not same:
        log.warning("replay differs from what was published; going on from the published tensors", version=head.version)
        learner.load_weights(store.folder(head.path))
    return True
