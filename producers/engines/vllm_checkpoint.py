"""Whether a file holds all tensors of the model that is served.

For: looking at a version before vLLM touches its model, because vLLM keeps a layer's old weights, with no more than a
line in its log, when the new ones lack it, and is lost when a file ends half-way. Not for: loading (`vllm_transfer`),
nor the bytes (a version's digest tells).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open

from broker.errors import Broken, Misconfigured, Transient

TENSORS = "model.safetensors"

HEAD = "lm_head.weight"
"""A model with tied embeddings may be saved with it or without."""

Shapes = Mapping[str, tuple[int, ...]]


def model_shapes(folder: Path) -> Shapes:
    """Name → shape of all tensors in a model folder. Raises Misconfigured when it has none."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise Misconfigured(
            f"{folder} holds no *.safetensors; nothing was started; [model] init must name a folder that does"
        )
    return {name: shape for file in files for name, shape in file_shapes(file).items()}


def file_shapes(path: Path) -> Shapes:
    """Read from the file's head. Raises OSError or SafetensorError."""
    with safe_open(path, framework="np") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 (not a mapping)


def checked(folder: Path, expected: Shapes, *, tied: bool) -> Path:
    """The version's file. Raises Transient when it is not there or not whole, Broken when it is another model's."""
    path = folder / TENSORS
    try:
        found = file_shapes(path)
    except (OSError, SafetensorError) as error:
        raise Transient(
            f"{path}: {error}; the weights served stay as they are and the load is tried again; if it lasts, the "
            "trainer's publishing or the shared disk is at fault"
        ) from error
    problems = differences(found, expected, tied=tied)
    if problems:
        raise Broken(
            f"{path} does not hold this model's tensors: {'; '.join(problems[:3])} ({len(problems)} in all); the "
            "weights served stay as they are; trainer and engine must start from the same model folder"
        )
    return path


def differences(found: Shapes, expected: Shapes, *, tied: bool) -> list[str]:
    """One line for each tensor that is missing, unknown or of another shape."""
    names = sorted({*found, *expected} - ({HEAD} if tied else set()))
    return [
        f"{name} is {describe(found.get(name))}, here {describe(expected.get(name))}"
        for name in names
        if found.get(name) != expected.get(name)
    ]


def describe(shape: tuple[int, ...] | None) -> str:
    return "missing" if shape is None else str(list(shape))
