"""Recurrent cores: unrolling equals stepping, whatever the lengths, the order and the padding."""

from __future__ import annotations

import pytest
import torch

from rlframe.model.core import Core, Unroll

LENGTHS = (4, 1, 6)


def sequences() -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the step and the sequence of each row."""
    step = torch.cat([torch.arange(length) for length in LENGTHS])
    return step, torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS))


def by_steps(core: Core, features: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    """Goes through the rows one by one, as acting does."""
    step, sequence = sequences()
    outputs, states = [], list(state)
    for row in range(len(step)):
        output, after = core.step(features[row : row + 1], states[sequence[row]][None])
        states[sequence[row]] = after[0]
        outputs.append(output)
    return torch.cat(outputs)


@pytest.fixture(params=['gru', 'lstm'])
def core(request: pytest.FixtureRequest) -> Core:
    torch.manual_seed(0)
    core = Core(request.param, 3, 5)
    for name, parameter in core.rnn.named_parameters():
        if 'bias' in name:
            torch.nn.init.normal_(parameter)
    return core


def test_unrolling_sequences_equals_their_steps_and_so_do_the_gradients(core: Core) -> None:
    features = torch.randn(sum(LENGTHS), 3, requires_grad=True)
    state = torch.randn(len(LENGTHS), *core.state_shape, requires_grad=True)
    inputs, weight = [features, state, *core.parameters()], torch.randn(sum(LENGTHS), 5)
    unrolled = core(features, Unroll(*sequences(), max(LENGTHS), state), state)
    stepped = by_steps(core, features, state)
    torch.testing.assert_close(unrolled, stepped, rtol=1e-5, atol=1e-5)
    gradients = [torch.autograd.grad((weight * output).sum(), inputs) for output in (unrolled, stepped)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_more_padding_and_sequences_of_others_change_nothing(core: Core) -> None:
    features, state = torch.randn(sum(LENGTHS), 3), torch.randn(len(LENGTHS), *core.state_shape)
    step, sequence = sequences()
    whole = core(features, Unroll(step, sequence, max(LENGTHS), state), state)
    longer = core(features, Unroll(step, sequence, max(LENGTHS) + 7, state), state)
    alone = core(features[:4], Unroll(step[:4], sequence[:4], 4, state[:1]), state[:1])
    torch.testing.assert_close(longer, whole, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(alone, whole[:4], rtol=1e-5, atol=1e-6)
