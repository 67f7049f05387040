"""Policies: log-probs equal the model's own, whatever is shared or padded; what is exported opens as the same model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer, Gemma2Config, LlamaConfig, MistralConfig, set_seed

from broker.errors import Broken, Misconfigured
from broker.messages import Actions
from consumers.policies import create, gaussian, tiny_llama
from consumers.policies.causal_lm import CausalLm
from consumers.settings import Lora

SMALL: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
}
KINDS: dict[str, Any] = {
    "tied": None,  # the built-in model
    "untied": LlamaConfig(**SMALL, tie_word_embeddings=False),
    "sliding window": MistralConfig(**SMALL, sliding_window=4),
    "capped logits": Gemma2Config(**SMALL, final_logit_softcapping=3.0, query_pre_attn_scalar=8),
}
LORA = Lora(r=4, alpha=8, targets=["q_proj", "down_proj"])


def model_folder(folder: Path, kind: str) -> Path:
    if kind == "tied":
        tiny_llama.build(folder, dtype="float32", seed=3)
    else:
        set_seed(3)
        AutoModelForCausalLM.from_config(KINDS[kind]).save_pretrained(folder)
    return folder


@pytest.fixture(params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return model_folder(tmp_path / "model", request.param)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return model_folder(tmp_path / "tiny", "tied")


def tokens(seed: int, *lengths: int) -> list[Actions]:
    rng = np.random.default_rng(seed)
    return [rng.integers(3, 60, length).astype(np.int32) for length in lengths]


def rollouts(seed: int) -> tuple[list[Actions], list[Actions], list[float]]:
    """Three contexts of different lengths with four siblings each, of different lengths and temperatures."""
    contexts = [context for context in tokens(seed, 9, 2, 6) for _ in range(4)]
    continuations = tokens(seed + 1, 1, 5, 3, 7, 2, 1, 4, 4, 6, 3, 1, 2)
    return contexts, continuations, [1.0, 0.7, 1.3, 0.0] * 3


def one_by_one(
    model: Any, contexts: list[Actions], continuations: list[Actions], temperatures: list[float]
) -> torch.Tensor:
    """Log-probs by the model's plain forward, a sequence at a time."""
    found: list[torch.Tensor] = []
    for context, continuation, temperature in zip(contexts, continuations, temperatures, strict=True):
        ids = torch.from_numpy(np.concatenate([context, continuation])).long()
        logits = model(input_ids=ids[None]).logits[0, len(context) - 1 : -1].float() / (temperature or 1.0)
        found.append(torch.log_softmax(logits, -1).gather(1, ids[len(context) :, None])[:, 0])
    return torch.cat(found)


def test_logprobs_equal_the_models_own_forward(folder: Path) -> None:
    policy, batch = CausalLm(folder, dtype="float32"), rollouts(0)
    with torch.no_grad():
        assert torch.allclose(policy.logprobs(policy.module, *batch), one_by_one(policy.model, *batch), atol=2e-5)


@pytest.mark.parametrize("order", [range(12), [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7]], ids=["whole groups", "mixed"])
def test_sharing_contexts_changes_neither_logprobs_nor_gradients(tiny: Path, order: Sequence[int]) -> None:
    policy = CausalLm(tiny, dtype="float32")
    contexts, continuations, temperatures = rollouts(1)
    batch = (
        [contexts[row] for row in order],
        [continuations[row] for row in order],
        [temperatures[row] for row in order],
    )
    results: list[tuple[torch.Tensor, list[torch.Tensor]]] = []
    for share in (True, False):
        policy.module.can_share = share
        logprobs = policy.logprobs(policy.module, *batch)
        weights = torch.linspace(-1, 1, len(logprobs))
        results.append(
            (logprobs.detach(), list(torch.autograd.grad((logprobs * weights).sum(), list(policy.module.parameters()))))
        )
    assert torch.allclose(results[0][0], results[1][0], atol=2e-5)
    assert all(torch.allclose(one, other, atol=2e-5) for one, other in zip(results[0][1], results[1][1], strict=True))


def test_no_rollouts_have_no_logprobs(tiny: Path) -> None:
    policy = CausalLm(tiny, dtype="float32")
    assert policy.logprobs(policy.module, [], [], []).shape == (0,)


def test_the_built_in_model_is_an_ordinary_folder(tiny: Path) -> None:
    model, tokenizer = AutoModelForCausalLM.from_pretrained(tiny), AutoTokenizer.from_pretrained(tiny)
    assert sum(parameter.numel() for parameter in model.parameters()) == 336_512
    assert tokenizer("<s>12+34=")["input_ids"] == [1, 4, 5, 13, 6, 7, 17]
    assert tokenizer.decode([9, 7, 3, 2], skip_special_tokens=True) == "640"


def test_the_built_in_model_is_the_same_for_a_seed_and_leaves_the_global_generator_alone(tmp_path: Path) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        tiny_llama.build(tmp_path / name, dtype="float32", seed=seed)
    contents = [(tmp_path / name / "model.safetensors").read_bytes() for name in "abc"]
    assert contents[0] == contents[1] != contents[2]
    assert torch.equal(before, torch.get_rng_state())


def changed(policy: CausalLm) -> CausalLm:
    """As if trained."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in policy.module.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return policy


@pytest.mark.parametrize("lora", [None, LORA], ids=["whole", "lora"])
def test_a_saved_folder_opens_as_the_model_that_was_trained(folder: Path, tmp_path: Path, lora: Lora | None) -> None:
    policy, batch = changed(CausalLm(folder, dtype="float32", lora=lora, seed=1)), rollouts(2)
    policy.save_pretrained(tmp_path / "saved")
    opened = AutoModelForCausalLM.from_pretrained(tmp_path / "saved").eval()
    with torch.no_grad():
        assert torch.allclose(one_by_one(opened, *batch), policy.logprobs(policy.module, *batch), atol=5e-5)


@pytest.mark.parametrize("lora", [None, LORA], ids=["whole", "lora"])
def test_a_published_version_can_be_taken_back_exactly_and_exporting_disturbs_nothing(
    tiny: Path, tmp_path: Path, lora: Lora | None
) -> None:
    policy = changed(CausalLm(tiny, dtype="float32", lora=lora, seed=1))
    before = {name: parameter.detach().clone() for name, parameter in policy.module.named_parameters()}
    policy.export()(tmp_path)
    published = policy.published(tmp_path)
    trained = {name: before[name] for name, parameter in policy.module.named_parameters() if parameter.requires_grad}
    assert published.keys() == trained.keys()
    assert all(torch.equal(published[name], trained[name]) for name in trained)
    assert all(torch.equal(parameter, before[name]) for name, parameter in policy.module.named_parameters())


def test_engines_find_every_tensor_under_its_hugging_face_name_and_a_tied_one_once(tiny: Path, tmp_path: Path) -> None:
    CausalLm(tiny, dtype="float32", lora=LORA).export()(tmp_path)
    with (
        safe_open(tmp_path / "model.safetensors", framework="pt") as ours,
        safe_open(tiny / "model.safetensors", "pt") as theirs,
    ):
        names = sorted(ours.keys())
        assert names == sorted(theirs.keys())
        assert "lm_head.weight" not in names


def test_fresh_adapters_change_nothing_and_only_they_train(tiny: Path) -> None:
    plain, adapted = CausalLm(tiny, dtype="float32"), CausalLm(tiny, dtype="float32", lora=LORA)
    with torch.no_grad():
        assert torch.equal(plain.logprobs(plain.module, *rollouts(3)), adapted.logprobs(adapted.module, *rollouts(3)))
    assert all(("lora_" in name) == parameter.requires_grad for name, parameter in adapted.module.named_parameters())


def test_a_version_of_another_model_is_refused(tiny: Path, tmp_path: Path) -> None:
    other = CausalLm(model_folder(tmp_path / "other", "untied"), dtype="float32")
    other.export()(tmp_path)
    with pytest.raises(Broken, match="written for another model"):
        CausalLm(tiny, dtype="float32").published(tmp_path)


def test_lora_targets_that_are_not_there_are_refused(tiny: Path) -> None:
    with pytest.raises(Misconfigured, match="nothing was started"):
        CausalLm(tiny, dtype="float32", lora=Lora(targets=["no_such_layer"]))


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="cannot open it as a causal language model"):
        CausalLm(tmp_path, dtype="float32")


def test_an_unknown_policy_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="known: causal_lm, gaussian"):
        create("causal", tmp_path, dtype="float32", lora=None, seed=0, device="cpu")


def test_a_vector_policys_logprobs_are_those_of_the_normal_distribution(tmp_path: Path) -> None:
    gaussian.build(tmp_path, gaussian.Sizes(context=3, action=2), seed=0)
    policy = gaussian.Gaussian(tmp_path)
    rng = np.random.default_rng(0)
    context, actions = rng.normal(size=(1, 3)).astype(np.float32), rng.normal(size=(4, 2)).astype(np.float32)
    with torch.no_grad():
        found = policy.logprobs(policy.module, [context], [actions], [0.25])
        previous = torch.from_numpy(np.concatenate([np.zeros((1, 2), np.float32), actions[:-1]]))
        mean = policy.module.mean(torch.cat([torch.from_numpy(context).expand(4, 3), previous], -1))
    expected = torch.distributions.Normal(mean, 0.5).log_prob(torch.from_numpy(actions)).sum(-1)
    assert torch.allclose(found, expected, atol=1e-6)
