"""The paths a run file names: absolute from the start, so that a run can be resumed from anywhere, and looked for.

For: `[model] init` where it is a folder, and every option of a prompt source called `path` or `…_path`. Not for: what
lies there (whoever reads it says that).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from broker.errors import Misconfigured
from consumers.initial_weights import PACKAGE, TINY_LLAMA, check_folder, package_file
from deploy.run_files import Values
from deploy.run_settings import RunSettings


def rooted(values: Values, base: Path) -> Values:
    """A copy in which relative paths begin at `base`; values of another form stay for the check that refuses them."""
    result = dict(values)
    match values.get("model"):
        case {"init": str(init), **others} if is_folder(init):
            result["model"] = {**others, "init": absolute(init, base)}
        case _:
            pass
    match values.get("prompts"):
        case dict(prompts):
            result["prompts"] = {key: rooted_prompts(key, value, base) for key, value in prompts.items()}
        case _:
            pass
    return result


def rooted_prompts(key: str, value: Any, base: Path) -> Any:
    """`options`, or each of a list of sources; the rest of `[prompts]` as it is."""
    if key == "options" and isinstance(value, dict):
        return rooted_options(value, base)
    if key == "source" and isinstance(value, list):
        return [rooted_options(part, base) if isinstance(part, dict) else part for part in value]
    return value


def rooted_options(options: dict[str, Any], base: Path) -> dict[str, Any]:
    return {key: absolute(value, base) if is_path(key, value) else value for key, value in options.items()}


def is_path(key: str, value: Any) -> bool:
    return (key == "path" or key.endswith("_path")) and isinstance(value, str) and value != ""


def is_folder(init: str) -> bool:
    """Whether `[model] init` names a folder, not a recipe or a package."""
    return init != TINY_LLAMA and not init.startswith(PACKAGE)


def absolute(path: str, base: Path) -> str:
    return str((base / Path(path).expanduser()).resolve())


def check_paths(settings: RunSettings) -> None:
    """Raises Misconfigured for a path with nothing behind it, and for a model folder or package that lacks a part."""
    for path in data_paths(settings):
        if not Path(path).exists():
            raise Misconfigured(
                f"[prompts] path = {path}: there is nothing there; nothing was started; correct the path (a relative "
                "one begins at the folder of the run file, or where the command is given)"
            )
    if settings.model.init.startswith(PACKAGE):
        package_file(settings.model.init.removeprefix(PACKAGE))
    if is_folder(settings.model.init):
        check_folder(Path(settings.model.init))


def data_paths(settings: RunSettings) -> Iterator[str]:
    source = settings.prompts.source
    for options in [settings.prompts.options] if isinstance(source, str) else source:
        yield from (value for key, value in options.items() if is_path(key, value))
