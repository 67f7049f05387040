"""The operators' short tasks: look at a run's weight versions, verify one, export one, prune what nobody needs.

    celery -A scheduler.slots call tidemill.versions
    celery -A scheduler.slots result ID

For: work of seconds on files, done by any worker that sees the store. Not for: work of the run (a controller's), GPUs
(`forked_child`), or deciding what may go (`broker.pruning`). `run` is a run's folder; left out, it is the run that the
fleet works for.
"""

# Celery is untyped: its decorators are not what the checker takes them for.
# pyright: reportUntypedFunctionDecorator=false

from __future__ import annotations

import asyncio
import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from celery import shared_task

from broker.errors import Misconfigured
from broker.fleet import FLEET, FLEET_VARIABLE, Fleet, Served
from broker.pruning import prune
from broker.redis_trainer import RedisTrainer
from broker.settings import URL_VARIABLE, WeightsSection, load_section, run_folder_settings
from broker.weights import TENSORS, Manifest, VersionStore, check_tensors

NEWEST = "newest"
"""Stands for the newest version in the store."""


@shared_task(name="tidemill.versions")
def versions(run: str = "") -> list[dict[str, Any]]:
    """The versions in a run's store, oldest first, and whether their tensors are still there."""
    store = store_of(run)
    return [
        {"version": one.version, "epoch": one.epoch, "path": one.path, "tensors": has_tensors(store, one)}
        for one in store.manifests()
    ]


@shared_task(name="tidemill.verify_version")
def verify_version(version: int | str, run: str = "") -> dict[str, Any]:
    """Whether a version's tensors are whole. Raises Misconfigured for one that is not there, Broken for a torn one."""
    store = store_of(run)
    manifest = whole_version(store, version)
    check_tensors(store.folder(manifest.path), manifest.digest)
    return {"version": manifest.version, "epoch": manifest.epoch, "digest": manifest.digest}


@shared_task(name="tidemill.export_version")
def export_version(version: int | str, to: str, run: str = "") -> dict[str, Any]:
    """A version as a Hugging Face folder: the run's config and tokenizer, the version's tensors, verified as they lie
    there. `to` must be new; it appears whole or not at all. Raises Misconfigured, Broken.
    """
    store, target = store_of(run), Path(to).expanduser()
    manifest, model = whole_version(store, version), store.root.parent / "model"
    if not target.is_absolute() or target.exists():
        wrong = "exists already" if target.exists() else "is no absolute path, and a worker's folder is not yours"
        raise Misconfigured(f'to = "{to}" {wrong}; nothing was exported; name a new folder by its absolute path')
    if not model.is_dir():
        raise Misconfigured(
            f"{model.parent} has no model folder to take config and tokenizer from; nothing was exported"
        )
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        shutil.copytree(model, draft, ignore=shutil.ignore_patterns("*.safetensors*"))
        shutil.copyfile(store.folder(manifest.path) / TENSORS, draft / TENSORS)
        check_tensors(draft, manifest.digest)
        draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return {"version": manifest.version, "epoch": manifest.epoch, "to": str(target), "digest": manifest.digest}


@shared_task(name="tidemill.prune_versions")
def prune_versions(keep: int = 0, dry_run: bool = True) -> dict[str, Any]:
    """What the run that the fleet works for may lose now, and with `dry_run` false its end. The live version, held
    ones, the newest `keep` (0: as the run says) and whatever two checkpoints need stay. Raises Misconfigured.
    """
    served = served_run()
    settings = load_section(WeightsSection, "weights", run_folder_settings(Path(served.folder))["weights"])
    if keep < 0:
        raise Misconfigured(f"keep = {keep}; nothing was pruned; say 1 or more, or 0 for the run's {settings.keep}")
    pruned = asyncio.run(pruned_by_hand(served, keep or settings.keep, dry_run=dry_run))
    return {"run": served.run, "keep": keep or settings.keep, "dry_run": dry_run, **pruned}


async def pruned_by_hand(served: Served, keep: int, *, dry_run: bool) -> dict[str, Any]:
    """As the trainer does it, under its epoch: with another one's claim in between nothing happens."""
    trainer = await RedisTrainer.connect(served.url, served.run)
    try:
        state = await trainer.stand_in()
        assert state.live is not None, "an open run has a live version"
        store = VersionStore(Path(served.folder) / "store")
        return asdict(await prune(trainer, store, state.live, keep=keep, dry_run=dry_run))
    finally:
        await trainer.close()


def store_of(run: str) -> VersionStore:
    """The store of a run's folder. Raises Misconfigured when the folder is none, as this worker sees it."""
    folder = Path(run).expanduser() if run else Path(served_run().folder)
    run_folder_settings(folder)
    if not (folder / "store").is_dir():
        raise Misconfigured(f"{folder} has no store yet; nothing was done; ask again when its trainer has begun")
    return VersionStore(folder / "store")


def served_run() -> Served:
    """The run that the fleet works for. Raises Misconfigured when there is none."""

    async def ask() -> Served | None:
        fleet = Fleet.at(os.environ.get(URL_VARIABLE, ""), os.environ.get(FLEET_VARIABLE, FLEET))
        try:
            return await fleet.served()
        finally:
            await fleet.close()

    served = asyncio.run(ask())
    if served is None:
        raise Misconfigured("the fleet has no run; nothing was done; say run=FOLDER, or start `tidemill run --slots N`")
    return served


def whole_version(store: VersionStore, version: int | str) -> Manifest:
    """The version of that number, or the newest. Raises Misconfigured with those whose tensors are there."""
    there = [one for one in store.manifests() if has_tensors(store, one)]
    found = [one for one in there if version in (one.version, NEWEST)]
    if not found:
        known = ", ".join(str(one.version) for one in there) or "none"
        raise Misconfigured(
            f'version {version!r} has no tensors in {store.root}; nothing was done; there are: {known}, or "{NEWEST}"'
        )
    return found[-1]


def has_tensors(store: VersionStore, manifest: Manifest) -> bool:
    return (store.folder(manifest.path) / TENSORS).is_file()
