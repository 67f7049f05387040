"""The stage before any role starts: the initial model is built, warmed up, or taken from the cache.

For: running `python -m deploy.initial_model` as a child and telling what it says. Not for: making the model.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from broker.errors import Misconfigured
from deploy.cores import Share
from deploy.records import GrowingFile
from scheduler.controller_process import Command, ControllerProcess, thread_environment
from scheduler.respawn import Leave, Limits, StopRun

NAME = "initial-model"


class ModelStage:
    """The child process and its news."""

    def __init__(self, folder: Path, share: Share) -> None:
        self.output = folder / "logs" / f"{NAME}.out"
        self.news = GrowingFile(self.output)
        self.news.new_records()  # an earlier launch's
        self.detail = "importing torch"
        self.share: float | None = None
        """How much is done; None where nobody can tell."""
        command = Command(
            name=NAME,
            argv=(sys.executable, "-m", "deploy.initial_model", "--run", str(folder)),
            env=thread_environment(share.threads),
            cores=share.cores,
            output=self.output,
        )
        self.process = ControllerProcess(command, Limits(crashes=2))

    def last_words(self) -> str:
        """Its message, if it gave one; else the end of what it wrote, without its news."""
        lines = [line for line in self.process.last_words().splitlines() if not line.startswith("{")]
        messages = [place for place, line in enumerate(lines) if line.startswith(f"{Misconfigured.__name__}: ")]
        return "\n".join(lines[messages[-1] :] if messages else lines)

    def tick(self, now: float) -> tuple[list[str], Leave | StopRun | None]:
        """Sentences worth keeping, and the end once there is one."""
        decision = self.process.tick(now)
        sentences: list[str] = []
        for fact in self.news.new_records():
            self.detail, self.share = detail_of(fact), share_of(fact)
            if sentence := sentence_of(fact):
                sentences.append(sentence)
        return sentences, decision if isinstance(decision, Leave | StopRun) else None


def detail_of(fact: dict[str, Any]) -> str:
    """What the status line says beside the stage."""
    if "step" in fact:
        until = f"until {fact['until']:g}" if "until" in fact else ""
        return f"warm start: step {fact['step']}/{fact.get('of', '?')}, accuracy {fact['accuracy']:.3f} {until}".strip()
    doing = next((name for name in ("building", "checking") if name in fact), "")
    return f"{doing} {fact[doing]}" if doing else "made" if "ready" in fact else ""


def share_of(fact: dict[str, Any]) -> float | None:
    """A warm start ends by its accuracy or its steps, whichever comes first."""
    if "step" not in fact:
        return None
    return min(
        1.0, max(fact["step"] / fact.get("of", float("inf")), fact["accuracy"] / fact.get("until", float("inf")))
    )


def sentence_of(fact: dict[str, Any]) -> str:
    """What stays on the screen."""
    if "reused" in fact:
        return f"model: reused from {fact['reused']} (same settings)"
    return f"model: {fact['warning']}" if "warning" in fact else ""
