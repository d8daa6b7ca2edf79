"""SimbaV2's features and weights have length 1, and its networks compute what the paper says."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from error_texts import raises
from policy_toys import BOX, random_rows, small

from rlframe.errors import ConfigError
from rlframe.model.hypersphere import UnitLinear


def made(widths: tuple[int, ...] = (8,), **options: Any) -> Any:
    model = {'encoder_hidden_size_list': list(widths), 'critic_hidden_size_list': [8, 8], 'n_atom': 11}
    return small('simbav2', BOX, model=model, normalize_obs=False, normalize_reward=False, **options)


def unit(rows: Any) -> Any:
    """Divides rows by their length."""
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_the_actor_computes_what_the_paper_says() -> None:
    policy = made()
    net = policy.model.actor
    for parameter in net.parameters():
        parameter.detach().mul_(0.5).add_(0.1 * torch.randn_like(parameter))
    obs = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    value = {name: each.detach().double().numpy() for name, each in net.named_parameters()}
    # scalers are stored as numbers of the size of their scale: sqrt(2 / 8) and half of it, 1 / sqrt(8)
    h = (
        unit(np.concatenate([obs, np.full((5, 1), 3.0)], 1))
        @ value['embed.weight'].T
        * value['scaler.weight']
    )
    h = unit(h)
    hidden = np.maximum(h @ value['blocks.0.widen.weight'].T * value['blocks.0.scaler.weight'], 0)
    output = unit(hidden @ value['blocks.0.narrow.weight'].T)
    share = value['blocks.0.share.weight'] * (1 / 2) * np.sqrt(8)  # 1 / (blocks + 1) at first
    h = unit(h + share * (output - h))

    def head(i: int) -> Any:
        first = h @ value[f'heads.{i}.first.weight'].T * value[f'heads.{i}.scaler.weight']
        return first @ value[f'heads.{i}.last.weight'].T + value[f'heads.{i}.bias']

    mean, log_std = net(torch.as_tensor(obs))
    np.testing.assert_allclose(mean.detach().numpy(), head(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        log_std.detach().numpy(), -10 + 6 * (1 + np.tanh(head(1))), rtol=1e-4, atol=1e-5
    )


def test_weights_have_length_one_before_and_after_updates() -> None:
    policy = made()
    layers = [layer for layer in policy.model.modules() if isinstance(layer, UnitLinear)]
    assert len(layers) == (1 + 2 + 4) + 2 * (1 + 4 + 2)
    for _ in range(3):
        for layer in layers:
            torch.testing.assert_close(layer.weight.norm(dim=1), torch.ones(layer.out_features))
        policy.learn_mode.forward(random_rows(6, actions=None))


def test_the_target_entropy_is_half_of_that_of_sac() -> None:
    assert made().update.target_entropy() == -1.0


def test_blocks_of_different_widths_are_refused() -> None:
    with raises(ConfigError):
        made(widths=(8, 16))
    with raises(ConfigError):
        made(widths=())
