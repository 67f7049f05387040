"""Drawing: the distribution recorded is the one drawn from, and a row's numbers depend on the row alone."""

from __future__ import annotations

import numpy as np
import torch

from producers.engines.torch_sampler import sample, streams, tempered, uniforms

SEED = 11


def test_a_rows_numbers_do_not_depend_on_the_rows_beside_it() -> None:
    rows, place = streams(SEED, 6), np.arange(6)
    together = uniforms(rows, place)
    alone = [uniforms(rows[i : i + 1], place[i : i + 1])[0] for i in range(6)]
    np.testing.assert_array_equal(together, alone)


def test_siblings_seeds_and_places_give_different_numbers() -> None:
    drawn = [uniforms(streams(seed, 50), np.full(50, place)) for seed in range(50) for place in range(50)]
    assert len(np.unique(np.concatenate(drawn))) > 0.99 * 50**3


def test_the_numbers_are_spread_evenly() -> None:
    drawn = np.concatenate(
        [uniforms(streams(seed, 64), np.full(64, place)) for seed in range(40) for place in range(40)]
    )
    counts = np.histogram(drawn, bins=64, range=(0, 1))[0]
    expected = len(drawn) / 64
    assert ((counts - expected) ** 2 / expected).sum() < 120  # χ² with 63 degrees of freedom: 1 in 10⁵
    assert drawn.min() >= 0 and drawn.max() < 1


def test_neighbouring_places_are_not_correlated() -> None:
    rows = streams(SEED, 4096)
    first, second = uniforms(rows, np.zeros(4096, np.int64)), uniforms(rows, np.ones(4096, np.int64))
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.06


def test_actions_come_as_often_as_their_log_probs_say() -> None:
    logits = torch.tensor([1.0, 0.0, -1.0, 2.0, -30.0])
    rows, temperature = 40_000, 0.7
    numbers = torch.from_numpy(uniforms(streams(SEED, rows), np.zeros(rows, np.int64)))
    actions, logprobs = sample(logits.expand(rows, -1), torch.full((rows,), temperature), numbers)
    expected = torch.softmax(logits / temperature, 0)
    torch.testing.assert_close(torch.bincount(actions, minlength=5) / rows, expected, atol=0.01, rtol=0)
    torch.testing.assert_close(logprobs, expected.log()[actions], atol=1e-5, rtol=0)


def test_rows_of_different_temperatures_are_drawn_together() -> None:
    logits = torch.randn(4, 9, generator=torch.Generator().manual_seed(SEED))
    temperatures = torch.tensor([0.0, 1.0, 0.5, 2.0])
    actions, logprobs = sample(logits, temperatures, torch.full((4,), 0.4))
    assert actions[0] == logits[0].argmax()
    expected = tempered(logits, temperatures).gather(1, actions[:, None])[:, 0]
    torch.testing.assert_close(logprobs, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(tempered(logits, temperatures)[0], torch.log_softmax(logits[0], 0))


def test_the_largest_number_still_draws_a_possible_action() -> None:
    logits = torch.full((1, 8), -torch.inf)
    logits[0, 3] = 0.0
    for number in (0.0, 1 - 2**-24):
        actions, logprobs = sample(logits, torch.ones(1), torch.tensor([number]))
        assert actions.tolist() == [3] and logprobs.tolist() == [0.0]
