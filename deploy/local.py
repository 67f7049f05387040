"""The one-machine launcher: server, model, then trainer, producers, scorers and feeder, watched until the run ends.

For: `tidemill run` and `tidemill resume` without slots. Not for: what the roles do, or drawing. Everything is spawned
from the one thread that runs this loop, so `kill -9` of the launcher ends everything it started.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Generator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from broker import telemetry
from broker.cancellation import end
from broker.errors import Broken, Fenced, Misconfigured, TidemillError, Unavailable
from broker.measures import PROCESS_ENDS, PROCESSES
from broker.metrics import Metrics
from broker.metrics_endpoint import Endpoint, withdraw_dead
from broker.redis_broker import RedisBroker
from deploy.audit import audit
from deploy.cores import Share, Usable, usable_here
from deploy.crew import TRAINER, Crew, Happened, core_shares, left_in_order
from deploy.cross_checks import warnings_between
from deploy.dashboard.recorder import Recorder
from deploy.inspection import Records
from deploy.model_stage import ModelStage
from deploy.observer import Observer, former_launches, keep
from deploy.progress import Display
from deploy.run_settings import RunSettings
from deploy.server import RunServer
from deploy.slot_crew import name_run
from deploy.snapshot import PREPARING, Snapshot, goal_of
from deploy.watchdog import Watch, what_buries, who_holds
from scheduler.fleet_metrics import followed
from scheduler.respawn import StopRun

TICK_S = 0.05
LOOK_EVERY_S = 0.5
INTERRUPTED = 130
WORKER_S = 5.0
"""A slot's worker ends so much later than its controller at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """Why the launcher stopped."""

    exit_code: int
    reason: str


class Launch:
    """One launch of one run folder."""

    def __init__(self, folder: Path, settings: RunSettings, display: Display, *, started: float) -> None:
        """`started`: when the person asked, by the monotonic clock."""
        self.folder = folder
        self.settings = settings
        self.display = display
        names = {"process": "launcher", "role": "launcher"}
        self.log = telemetry.configure(folder, **names, console=False, settings=settings.telemetry)
        self.metrics = Metrics()
        self.endpoint = Endpoint(self.metrics, **names)
        self.server = RunServer(folder, settings.broker)
        self.interrupts = 0
        self.started = started
        self.kept_s = float("-inf")
        self.former = former_launches(folder)  # before this launch keeps a look of its own

    async def run(self) -> Ending:
        """consumes: exits, heartbeats, signals   produces: started, restarted and ended processes
        waits for: the trainer's end, a reason to stop, or Ctrl-C   unblocked by: any of these
        """
        usable = usable_here()
        shares = self.shares(usable)
        self.introduce(shares, usable.count)
        with self.signals():
            try:
                self.show_stage("waiting for the server")
                url = await self.server.open()
                self.log.info("server answers")
                model = await self.make_model(Share(threads=usable.count))
                return model or await self.run_roles(Crew.of(self.folder, self.settings, shares, url), url)
            finally:
                self.server.close()

    @property
    def has_fleet(self) -> bool:
        """Whether slots do its work: they outlive a run."""
        return self.settings.scheduler.slots > 0

    def shares(self, usable: Usable) -> dict[str, Share]:
        """What it starts, each with its part of the machine."""
        return core_shares(self.settings, usable)

    def introduce(self, shares: dict[str, Share], cores: int) -> None:
        self.say(f"cores: {cores} usable; " + ", ".join(f"{name} {share}" for name, share in shares.items()))
        for warning in warnings_between(self.settings, cores):
            self.say(f"warning: {warning}")
        self.show_stage("starting")

    async def make_model(self, share: Share) -> Ending | None:
        """The model stage; None when the model is there."""
        if (self.folder / "model").is_dir():
            return None
        stage = ModelStage(self.folder, share)
        stage.process.start(time.monotonic())
        try:
            while not self.interrupts:
                sentences, end = stage.tick(time.monotonic())
                for sentence in sentences:
                    self.say(sentence)
                self.show_stage(PREPARING, stage.detail, stage.share)
                if isinstance(end, StopRun):
                    words = stage.last_words()
                    return Ending(exit_code=end.exit_code, reason=f"the initial model {end.reason}\n{words}")
                if end is not None:
                    return None
                await asyncio.sleep(TICK_S)
            return self.interrupted()
        finally:
            stage.process.fence()
            while not stage.process.is_over:
                stage.process.tick(time.monotonic())
                await asyncio.sleep(TICK_S)

    async def run_roles(self, crew: Crew, url: str) -> Ending:
        broker = await RedisBroker.connect(url, self.folder.name)
        observer = Observer(self.folder, self.settings, broker, started=self.started, former=self.former)
        self.metrics.ask(lambda: [(PROCESSES, {}, len(crew.alive))])
        try:
            self.endpoint.join(self.folder, self.settings.model_dump(mode="json"))
            if self.has_fleet:
                await name_run(self.folder, url)
            crew.start(time.monotonic())
            self.log.info("processes started", names=crew.alive)
            ending = await self.watch(crew, observer)
        except TidemillError as error:
            ending = Ending(exit_code=error.exit_code, reason=str(error))
        finally:
            await self.end(crew, observer)
            await broker.close()
            self.endpoint.close()
            withdraw_dead(self.folder)
        return await self.audited(ending, url)

    async def audited(self, ending: Ending, url: str) -> Ending:
        """Hold the books against what lies there; a run whose books are wrong has not ended well."""
        try:
            checks = audit(Records(url, self.folder.name), self.folder / "store")
        except Unavailable as error:
            self.say(f"warning: the books could not be checked ({error}); `tidemill audit` does it later")
            return ending
        wrong = [check for check in checks if not check.holds]
        if not wrong:
            return ending
        reason = f"{ending.reason}; the books are wrong: " + "; ".join(map(str, wrong))
        return Ending(exit_code=ending.exit_code or Broken.exit_code, reason=f"{reason}; `tidemill audit` shows all")

    async def watch(self, crew: Crew, observer: Observer) -> Ending:
        """Until there is a reason to end: every tick the processes, every half second the whole run."""
        looking = asyncio.create_task(self.look_on(crew, observer))
        try:
            while not self.interrupts:
                for happened in crew.tick(time.monotonic()):
                    if ending := await self.consequence(happened, crew, observer):
                        return ending
                if looking.done():
                    return looking.result()
                await asyncio.sleep(TICK_S)
            return self.interrupted()
        finally:
            await end([looking])

    async def look_on(self, crew: Crew, observer: Observer) -> Ending:
        """Show and keep what is seen, until it stands still for too long."""
        watch = Watch()
        with contextlib.closing(Recorder(self.folder)) as recorder:
            while True:
                if self.server.keep(time.monotonic()):
                    self.say("the embedded server had died; it is back, on its data")
                snapshot, now = await observer.look(), time.monotonic()
                self.display.show(snapshot)
                observer.save(snapshot)
                recorder.note(snapshot, observer.facts.fleet.decision)
                if snapshot.finished and self.has_fleet:
                    return Ending(exit_code=0, reason=snapshot.finished)  # no slot's worker ends with the run
                crew.note_progress(snapshot.processes)
                watch = watch.after(snapshot, now)
                stands = watch.still_s(now) > self.settings.run.watchdog_s
                if stands and (ending := self.stands_still(snapshot, watch.still_s(now))):
                    return ending
                buried = watch.buried_in_a_row(snapshot)
                if buried and (ending := self.buries_all(snapshot, buried)):
                    return ending
                await asyncio.sleep(LOOK_EVERY_S)

    async def consequence(self, happened: Happened, crew: Crew, observer: Observer) -> Ending | None:
        """What the end of one process means for the run."""
        name, decision = happened.name, happened.decision
        self.metrics.count(PROCESS_ENDS, name=name, followed=followed(decision))
        self.log.info("process ended", name=name, decision=type(decision).__name__, reason=decision.reason)
        if isinstance(decision, StopRun):
            return Ending(exit_code=decision.exit_code, reason=f"{name} {decision.reason}\n{happened.last_words}")
        if not left_in_order(happened):
            self.say(f"{name} {decision.reason}" + (f" ({happened.last_words})" if happened.last_words else ""))
            return None
        finished = (await observer.look()).finished
        if finished:
            return Ending(exit_code=0, reason=finished)
        if crew.was_fenced(name):
            if name == TRAINER:
                return Ending(exit_code=Fenced.exit_code, reason=f"{name} {decision.reason}; {self.after_fencing()}")
            return None
        crew.start_again(name, time.monotonic())
        self.say(f"{name} {decision.reason}, but the run goes on; starting it again")
        return None

    def after_fencing(self) -> str:
        return (
            "everything this launcher started ends, and the other trainer keeps the run; "
            f"if nobody runs it any more, go on with `tidemill resume {self.folder.name}`"
        )

    def stands_still(self, snapshot: Snapshot, seconds: float) -> Ending | None:
        reason = (
            f"no progress for {seconds:.0f} s (run.watchdog_s = {self.settings.run.watchdog_s:g}): "
            f"{who_holds(snapshot)}; the run stops, nothing is lost; "
            f"see {self.folder}/logs, then `tidemill resume {self.folder.name}`"
        )
        return Ending(exit_code=Broken.exit_code, reason=reason)

    def buries_all(self, snapshot: Snapshot, number: int) -> Ending | None:
        """Nothing is learned from groups that all end in `dead`, and the prompts would be used up."""
        mend = f"mend that, then `tidemill resume {self.folder.name}`, beside it `tidemill inspect dead replay --all`"
        reason = f"{what_buries(snapshot, number)}; the run stops, the groups stay; {mend}"
        return Ending(exit_code=Misconfigured.exit_code, reason=reason)

    async def end(self, crew: Crew, observer: Observer) -> None:
        """Drain everybody by the deadline; a further Ctrl-C ends them at once. Nobody is left when this returns."""
        margin_s = WORKER_S if self.has_fleet else 0.0
        crew.drain(time.monotonic(), self.settings.broker.drain_s + margin_s)
        while crew.alive:
            if self.interrupts > 1:
                crew.fence()
            crew.tick(time.monotonic())
            self.display.show(leaving(observer, crew))
            await asyncio.sleep(TICK_S)
        last = await observer.look()
        self.display.show(replace(last, live=False, stage=last.stage if last.finished else "stopped"))
        observer.save(last)

    def show_stage(self, stage: str, detail: str = "", share: float | None = None) -> None:
        """A look at a run that no server knows of yet; while its model is made others find it in the folder."""
        elapsed_s = self.former[0] + time.monotonic() - self.started
        named = Snapshot(run=self.folder.name, goal=goal_of(self.settings), elapsed_s=elapsed_s)
        snapshot = replace(named, stage=stage, detail=detail, share=share)
        self.display.show(snapshot)
        if stage == PREPARING and elapsed_s - self.kept_s >= LOOK_EVERY_S:
            self.kept_s = elapsed_s
            keep(self.folder, asdict(snapshot))

    def say(self, sentence: str) -> None:
        self.display.say(sentence)
        self.log.info("said", sentence=sentence)

    @contextlib.contextmanager
    def signals(self) -> Generator[None]:
        """Ctrl-C and its kin are counted; the loop acts on them."""
        loop = asyncio.get_running_loop()
        caught = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        for number in caught:
            loop.add_signal_handler(number, self.interrupt)
        try:
            yield
        finally:
            for number in caught:
                loop.remove_signal_handler(number)

    def interrupt(self) -> None:
        self.interrupts += 1
        if self.interrupts == 1:
            at_most = f"at most {self.settings.broker.drain_s:g} s"
            self.say(f"stopping: each process finishes or gives back what it holds ({at_most}); again to end at once")

    def interrupted(self) -> Ending:
        return Ending(exit_code=INTERRUPTED, reason=f"interrupted; go on with `tidemill resume {self.folder.name}`")


def leaving(observer: Observer, crew: Crew) -> Snapshot:
    """The run while its processes leave, and how many have."""
    alive, all_of_them = crew.alive, len(crew.processes)
    snapshot = observer.snapshot("ending", f"waiting for {', '.join(alive)}")
    return replace(snapshot, share=1 - len(alive) / all_of_them)
