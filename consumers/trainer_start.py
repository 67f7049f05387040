"""Wiring of the trainer: learner, store, take-over, replay, loop.

For: turning settings into a running `Trainer`. Not for: what it does then.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from broker.archive import archive_of
from broker.contract import Announcement, Books
from broker.errors import Fenced
from broker.measures import PUBLISHED_BYTES
from broker.metrics_endpoint import measured
from broker.redis_trainer import RedisTrainer
from broker.role_process import beating, loaded
from broker.settings import (
    BrokerSection,
    ModelSection,
    RunSection,
    TelemetrySection,
    WeightsSection,
    broker_url,
    load_section,
    telemetry_section,
)
from broker.stop_rule import parse
from broker.telemetry import Meter
from broker.weights import Manifest, VersionStore, chain, read_batch, read_manifest
from consumers.algorithms import create as create_algorithm
from consumers.hand import Hand
from consumers.learners import create as create_learner
from consumers.learners.base import Learner
from consumers.learners.rank_processes import ranks_beside
from consumers.measurement import Measurement
from consumers.preload import preload
from consumers.publication import Publication
from consumers.replay import catch_up
from consumers.settings import AlgorithmSection, TrainSection
from consumers.step_metrics import StepMetrics
from consumers.step_record import StepRecord
from consumers.takeover import Bounds, take_over
from consumers.trainer_consumer import Trainer

if TYPE_CHECKING:
    from consumers.scalars import Scalars

log = structlog.get_logger()

ABANDONED_S = 3600.0
"""A version that has been half written for so long is nobody's."""


async def train(folder: Path, name: str, raw: dict[str, Any], meter: Meter, stop: asyncio.Event) -> None:
    """Come into the run, catch up with it, train until its end."""
    broker = await RedisTrainer.connect(broker_url(load_section(BrokerSection, "broker", raw["broker"])), folder.name)
    ranks = load_section(TrainSection, "train", raw["train"]).ranks
    telling = measured(folder, raw, name, "trainer", meter)
    async with beating(broker, name, "trainer", meter), telling, ranks_beside(folder, ranks):
        await loaded(stop, preload, "trainer", folder, raw)
        log.info("imported")
        meter.stage = "loading the learner"
        learner = await loaded(stop, learner_of, folder, raw)
        log.info("learner loaded")
        meter.stage = "taking the run over"
        trainer = await trainer_of(folder, name, raw, broker, learner, meter, stop)
        log.info("run open", version=trainer.live.version)
        meter.stage = "replaying"
        store = trainer.publication.store
        store.clear_drafts(older_than_s=ABANDONED_S, now=time.time())
        if not await asyncio.to_thread(catch_up, learner, store, trainer.live, trainer.train):
            trainer.live = await republish(broker, store, trainer.publication, trainer.live)
        log.info("caught up", version=trainer.live.version)
        drawn = draw(trainer, folder, telemetry_section(raw))
        trainer.records.recover(chain(store.manifests(), trainer.live.version, trainer.live.epoch), store)
        meter.version = trainer.live.version
        await trainer.run()
        await asyncio.to_thread(learner.close)
        if drawn is not None:
            drawn.close()
    await broker.close()


def draw(trainer: Trainer, folder: Path, settings: TelemetrySection) -> Scalars | None:
    """From now on each step and evaluation is counted, and drawn for TensorBoard if that is wanted."""
    metrics, publication = trainer.meter.metrics, trainer.publication
    metrics.ask(lambda: [(PUBLISHED_BYTES, {}, publication.written_bytes)])
    counts, scalars = StepMetrics(metrics), None
    if settings.tensorboard:
        from consumers.scalars import Scalars

        scalars = Scalars(folder, goes_on_at=trainer.live.version + 1)
    hearers = [one for one in (counts, scalars) if one is not None]
    trainer.records.hears = [one.step for one in hearers]
    trainer.measurement.hears = [one.evaluation for one in hearers]
    return scalars


def learner_of(folder: Path, raw: dict[str, Any]) -> Learner:
    arguments = learner_arguments(folder, raw)
    return create_learner(arguments["settings"].learner, **arguments)


def learner_arguments(folder: Path, raw: dict[str, Any]) -> dict[str, Any]:
    """What the learner of a run is made from, the same on every rank."""
    return {
        "model_folder": folder / "model",
        "settings": load_section(TrainSection, "train", raw["train"]),
        "algorithm": load_section(AlgorithmSection, "algorithm", raw["algorithm"]),
        "model": load_section(ModelSection, "model", raw["model"]),
        "seed": load_section(RunSection, "run", raw["run"]).seed,
    }


async def trainer_of(
    folder: Path,
    name: str,
    raw: dict[str, Any],
    broker: RedisTrainer,
    learner: Learner,
    meter: Meter,
    stop: asyncio.Event,
) -> Trainer:
    """A trainer that has taken the run over; its learner is still where its checkpoint or the initial model is."""
    run, settings = load_section(RunSection, "run", raw["run"]), load_section(TrainSection, "train", raw["train"])
    keep, held_out = load_section(WeightsSection, "weights", raw["weights"]).keep, raw["prompts"]["eval"]
    publication = Publication(broker, store := VersionStore(folder / "store"), learner, keep)
    bounds = bounds_of(settings, load_section(BrokerSection, "broker", raw["broker"]), held_out["size"])
    evaluations, goal = folder / "evaluations.jsonl", parse(run.stop_when)
    measurement = Measurement(evaluations, held_out["size"], held_out["every"], goal)

    async def retake() -> Announcement:
        await give_way(broker)
        live = await take_over(broker, store, bounds, lambda epoch: first_version(publication, epoch))
        await measurement.first(broker, live.version)
        return live

    return Trainer(
        broker=broker,
        learner=learner,
        hand=Hand(broker, settings, bounds.cap, meter, archive_of(folder, name, run)),
        algorithm=create_algorithm(load_section(AlgorithmSection, "algorithm", raw["algorithm"])),
        publication=publication,
        measurement=measurement,
        records=StepRecord(folder / "steps.jsonl"),
        settings=settings,
        live=await retake(),
        run_seed=run.seed,
        steps=run.steps,
        retake=retake,
        meter=meter,
        stop=stop,
    )


def bounds_of(settings: TrainSection, broker: BrokerSection, held_out: int) -> Bounds:
    return Bounds(
        groups=settings.groups,
        staleness=settings.staleness,
        eval_cap=max(1, held_out),
        dead_limit=broker.dead_limit,
    )


async def give_way(broker: RedisTrainer) -> None:
    """One that was away, and replaced meanwhile, must not throw its successor out. Raises Fenced."""
    now = (await broker.look()).epoch
    if now > broker.epoch > 0:
        raise Fenced(f"taking the run over again: refused, a trainer with epoch {now} has taken over; this one stops")


def first_version(publication: Publication, epoch: int) -> Manifest:
    """Version 0: the initial model, under this trainer's epoch."""
    books = Books(tick=0, cursor=0, cursor_value="", open={}, counts={})
    return publication.write(0, epoch, epoch, (), seed=0, books=books)


async def republish(
    broker: RedisTrainer, store: VersionStore, publication: Publication, live: Announcement
) -> Announcement:
    """The live version's tensors were lost: rebuilt by replay, they are announced again under our epoch."""
    lost = read_manifest(store.folder(live.path))
    groups = read_batch(store.folder(live.path))
    manifest = await asyncio.to_thread(
        publication.write, live.version, broker.epoch, lost.parent_epoch, groups, seed=lost.seed, books=lost.books
    )
    await broker.announce(manifest.announcement)
    log.warning("rebuilt the live version, its tensors were lost", version=live.version, epoch=broker.epoch)
    return manifest.announcement
