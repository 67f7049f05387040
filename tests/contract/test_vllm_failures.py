"""Engine `vllm` when it cannot go on, or not even start: it says so, with the mend."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("vllm") is None:
    pytest.skip("vllm is not installed (deploy/setup.sh with VLLM=0 leaves it out)", allow_module_level=True)

from torch import Tensor

from broker.errors import Broken, Misconfigured
from producers.engines.vllm import make
from producers.engines.vllm_core import VllmCore
from producers.settings import RolloutSection
from tests.contract.engine_cases import group, publish


def test_an_update_that_fails_half_way_is_the_end_of_sampling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from producers.engines import vllm_transfer

    whole = vllm_transfer.tensors

    def torn(path: str) -> Iterator[tuple[str, Tensor]]:
        yield from islice(whole(path), 5)
        raise OSError("planted")

    publish("llama-untied", 0, tmp_path)
    core = make(tmp_path, RolloutSection(max_rows=8, options={"kv_cache_mb": 8}), seed=0)
    assert isinstance(core, VllmCore)
    try:
        core.load(tmp_path, 0)
        core.add(group(1))
        monkeypatch.setattr(vllm_transfer, "tensors", torn)
        for call in (lambda: core.load(tmp_path, 1), core.step):
            with pytest.raises(Broken, match=r"version 1.*half-way.*planted"):
                call()
    finally:
        core.close()


def test_the_mend_is_refused_on_a_version_it_was_not_tested_with(monkeypatch: pytest.MonkeyPatch) -> None:
    import vllm

    from producers.engines.vllm_tied_head import check_version

    check_version()
    monkeypatch.setattr(vllm, "__version__", "0.33.0")
    with pytest.raises(Misconfigured, match=r"vLLM 0\.33\.0 .* tested with 0\.32\.0 only"):
        check_version()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"tensor_paralel_size": 2}, 'did you mean "tensor_parallel_size"'),
        ({"logprobs_mode": "raw_logprobs"}, "the engine needs 'processed_logprobs'"),
    ],
)
def test_arguments_that_vllm_does_not_know_or_that_break_the_engine_are_refused(
    tmp_path: Path, arguments: Mapping[str, Any], words: str
) -> None:
    publish("llama-untied", 0, tmp_path)
    with pytest.raises(Misconfigured, match=words):
        make(tmp_path, RolloutSection(options={"arguments": arguments}), seed=0)


def test_a_temperature_vllm_would_not_sample_at_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"temperature = 0\.005"):
        make(tmp_path, RolloutSection(temperature=0.005), seed=0)


def test_a_folder_vllm_cannot_open_is_said_to_be_so(tmp_path: Path) -> None:
    publish("llama-untied", 0, tmp_path)
    text = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(text.replace("LlamaForCausalLM", "Nothing").replace('"llama"', '"nothing"'))
    with pytest.raises(Misconfigured, match="vLLM did not start"):
        make(tmp_path, RolloutSection(), seed=0)
