"""What of a run's store may go: old checkpoints, batches no checkpoint needs, tensors nobody may ask for.

For: the trainer between two versions, and a person who wants the disk back. Not for: which versions are held (the
server knows, and answers in one step with forgetting the others).
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.contract import Announcement
from broker.trainer_contract import TrainerBroker
from broker.weights import TENSORS, VersionStore

CHECKPOINTS_KEPT = 2
"""The newest may be torn by a failing disk; the one before it still stands, with the batches after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What went, or would go, as paths in the store."""

    tensors: tuple[str, ...] = ()
    """Versions that may not be asked for any more; their batches and manifests stay."""
    versions: tuple[str, ...] = ()
    """Versions of which nothing stays: no checkpoint needs their batches."""
    checkpoints: tuple[str, ...] = ()


async def prune(
    trainer: TrainerBroker, store: VersionStore, live: Announcement, *, keep: int, dry_run: bool = False
) -> Pruned:
    """Delete what neither a checkpoint nor anybody needs; the newest `keep` versions and held ones stay whole.
    With `dry_run` only say it. Raises Fenced when another trainer has taken over.
    """
    checkpoints = store.checkpoints()
    newest = range(max(0, live.version - keep + 1), live.version + 1)
    gone = tuple(one.path for one in await trainer.forget_versions(newest, dry_run=dry_run))
    oldest = checkpoints[-CHECKPOINTS_KEPT:][0][0] if checkpoints else 0
    pruned = Pruned(
        tensors=gone,
        versions=tuple(
            one.path
            for one in store.manifests()
            if 0 < one.version < oldest and (one.path in gone or not (store.folder(one.path) / TENSORS).exists())
        ),
        checkpoints=tuple(f"checkpoints/{folder.name}" for _, _, folder in checkpoints[:-CHECKPOINTS_KEPT]),
    )
    if not dry_run:
        await delete(trainer, store, pruned, oldest)
    return pruned


async def delete(trainer: TrainerBroker, store: VersionStore, pruned: Pruned, oldest: int) -> None:
    """Files whose versions the server has forgotten already, and ledger lines before the oldest kept checkpoint."""
    for path in pruned.tensors:
        store.drop_tensors(path)
    for path in (*pruned.versions, *pruned.checkpoints):
        store.delete(path)
    if oldest > 0:
        await trainer.trim_ledger(oldest)
