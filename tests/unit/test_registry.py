"""What a name leads to, and one clear message when it leads to nothing that can be used."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Protocol

import pytest

from broker.errors import Misconfigured
from broker.registry import Named

REGISTRY = {"floor": "math:floor", "ceil": "math:ceil"}


class Sized(Protocol):
    size: int

    def grow(self, by: int) -> None: ...


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes a module that a dotted path can name; its name."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(text: str) -> str:
        (tmp_path / "outside_module.py").write_text(text)
        monkeypatch.delitem(sys.modules, "outside_module", raising=False)
        return "outside_module"

    return write


def refusal(name: str, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(Misconfigured) as caught:
        Named(f'[x] name = "{name}"', name).made(REGISTRY, Sized, *args, **kwargs)
    message = str(caught.value)
    assert message.startswith(f'[x] name = "{name}": ')
    assert "; nothing was started; " in message
    return message


def test_a_name_leads_to_its_entry_and_a_path_to_itself() -> None:
    assert Named("", "floor").called(REGISTRY, 2.5) == 2
    assert Named("", "math:trunc").called(REGISTRY, 2.5) == 2


def test_a_path_without_an_attribute_means_make(module: Any) -> None:
    assert Named("", module("def make(n): return n + 1")).called(REGISTRY, 2) == 3


def test_an_unknown_name_is_answered_with_the_nearest_and_all_there_are() -> None:
    assert 'did you mean "floor"? known: floor, ceil, or module:attribute' in refusal("flor")


def test_a_missing_attribute_is_named(module: Any) -> None:
    assert "has no attribute 'mak'" in refusal(f"{module('make = 1')}:mak")


def test_a_module_that_fails_while_it_is_imported_is_told_with_its_line(module: Any) -> None:
    message = refusal(module("x = 1\n1 / 0"))
    assert "ZeroDivisionError: division by zero" in message
    assert "outside_module.py:2)" in message


def test_other_parameters_than_the_call_has_are_refused_and_nothing_is_called(module: Any) -> None:
    name = module("def make(*, seed): raise SystemExit")
    assert "it cannot be called as make(size=…): missing a required argument: 'seed'" in refusal(name, size=1)


def test_a_thing_without_what_is_promised_is_refused_with_all_it_lacks(module: Any) -> None:
    message = refusal(module("class Half:\n    size = 1\ndef make(): return Half()"))
    assert "it made a Half without grow; " in message
    assert "Sized promises" in message


def test_what_an_extension_raises_by_itself_comes_out_as_it_is(module: Any) -> None:
    with pytest.raises(KeyError, match="deep"):
        Named("", module("def make(): raise KeyError('deep')")).made(REGISTRY, Sized)
