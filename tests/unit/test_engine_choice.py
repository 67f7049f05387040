"""What `auto` means, and that it says why."""

from __future__ import annotations

import pytest

from producers.engines.choice import ON_CPU, Choice, Facts, choose

TINY, SMALL, HUGE = 336_512, 134_515_008, 7_000_000_000


@pytest.mark.parametrize("parameters", [TINY, SMALL, HUGE])
def test_a_gpu_is_for_vllm(parameters: int) -> None:
    assert choose(Facts(parameters=parameters, gpus=1, has_vllm=True)).engine == "vllm"


@pytest.mark.parametrize("has_vllm", [False, True])
@pytest.mark.parametrize("parameters", [TINY, SMALL, HUGE])
def test_a_cpu_is_for_torch(parameters: int, has_vllm: bool) -> None:
    assert choose(Facts(parameters=parameters, gpus=0, has_vllm=has_vllm)).engine == "torch"


def test_a_gpu_without_vllm_says_what_is_missing() -> None:
    choice = choose(Facts(parameters=SMALL, gpus=2, has_vllm=False))
    assert choice == Choice("torch", choice.reason) and "vllm is not installed" in choice.reason


def test_the_reason_is_one_sentence_with_the_size() -> None:
    choice = choose(Facts(parameters=TINY, gpus=0, has_vllm=True))
    assert "0.3 M" in choice.reason and "\n" not in choice.reason


def test_the_table_is_in_order_of_size() -> None:
    sizes = [line.parameters for line in ON_CPU]
    assert sizes == sorted(sizes)
