"""d3rlpy's side of test_offline_conformance.py, run by the interpreter of an environment with d3rlpy 2.8.

usage: python d3rlpy_side.py FOLDER

Each NAME.given.npz in FOLDER has the weights to begin with under our names, the batches to learn from and the random
numbers to take in place of draws. NAME.answer.npz gets the losses and the weights after each update, and their defaults.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import d3rlpy
import numpy as np
import torch
from d3rlpy.models.torch.policies import ActionOutput, build_gaussian_distribution
from d3rlpy.models.torch.policies import build_squashed_gaussian_distribution as build_squashed
from d3rlpy.torch_utility import TorchMiniBatch
from torch.distributions import normal

Weights = dict[str, list[Any]]
"""Our name of a weight to the parameters of theirs that stand one behind the other in it."""
Draws = dict[str, np.ndarray]


# which weight is which


def mlp(prefix: str, body: Any, *heads: Any) -> Weights:
    """Maps the linear layers of a network, the last of which may be several heads, and its norms."""
    layers = [[part] for part in body.modules() if isinstance(part, torch.nn.Linear)] + [list(heads)]
    norms = [[part] for part in body.modules() if isinstance(part, torch.nn.LayerNorm)]
    return {
        f'{prefix}.{name}.{i}.{kind}': [getattr(part, kind) for part in parts]
        for name, each in (('layers', layers), ('norms', norms))
        for i, parts in enumerate(each)
        for kind in ('weight', 'bias')
    }


def critics(prefix: str, nets: Any) -> Weights:
    """Maps critics."""
    found: Weights = {}
    for i, net in enumerate(nets):
        found |= mlp(f'{prefix}.critic.nets.{i}', net.encoder, net._fc)
    return found


def both_critics(parts: Any) -> Weights:
    """Maps critics and their target networks."""
    return critics('model', parts.q_funcs) | critics('target_model', parts.targ_q_funcs)


def deterministic(parts: Any) -> Weights:
    """Maps an actor, critics, and the target networks of both."""
    policy, target = parts.policy, parts.targ_policy
    actors = mlp('model.actor', policy._encoder, policy._fc)
    return actors | mlp('target_model.actor', target._encoder, target._fc) | both_critics(parts)


def autoencoding(parts: Any) -> Weights:
    """Maps BCQ, which also has an autoencoder."""
    encoder, decoder = parts.vae_encoder, parts.vae_decoder
    vae = mlp('model.vae.encode', encoder._encoder, encoder._mu, encoder._logstd)
    return deterministic(parts) | vae | mlp('model.vae.decode', decoder._encoder, decoder._fc)


def normal_actor(parts: Any) -> Weights:
    """Maps a Gaussian actor whose deviation is a parameter, and critics."""
    policy = parts.policy
    actor = mlp('model.actor.net', policy._encoder, policy._mu) | {'model.actor.log_std': [policy._logstd]}
    return actor | both_critics(parts)


def with_values(parts: Any) -> Weights:
    """Maps IQL, which also values states."""
    return normal_actor(parts) | mlp('model.value', parts.value_func._encoder, parts.value_func._fc)


def squashed_actor(parts: Any) -> Weights:
    """Maps a tanh-Gaussian actor, and critics."""
    policy = parts.policy
    return mlp('model.actor', policy._encoder, policy._mu, policy._logstd) | both_critics(parts)


def q_net(parts: Any) -> Weights:
    """Maps action values."""
    net, target = parts.q_funcs[0], parts.targ_q_funcs[0]
    return mlp('model.encoder', net.encoder, net._fc) | mlp(
        'target_model.encoder', target.encoder, target._fc
    )


def imitating(parts: Any) -> Weights:
    """Maps action values, and what imitates the data."""
    return q_net(parts) | mlp('model.imitator', parts.imitator._encoder, parts.imitator._fc)


def cloning(parts: Any) -> Weights:
    """Maps an actor alone."""
    return mlp('model.actor', parts.imitator._encoder, parts.imitator._fc)


# what no option makes equal


def parameter_is_log_std(policy: Any, obs: Any, *_: Any) -> ActionOutput:
    """Lets the parameter of a Gaussian actor be its log deviation, in place of a number that a sigmoid maps into bounds."""
    mean = policy._mu(policy._encoder(obs))
    return ActionOutput(mean, torch.tanh(mean), policy._logstd.clamp(-5, 2))


def at_once(impl: Any, rows: int) -> None:
    """Lets the actor learn from critics and values as they were before the update."""

    def inner_update(batch: Any, grad_step: int) -> dict[str, float]:
        losses = {**vars(impl._compute_critic_grad(batch)), **vars(impl._compute_actor_grad(batch))}
        impl._modules.critic_optim.step()
        impl._modules.actor_optim.step()
        impl.update_critic_target()
        return {name: float(loss) for name, loss in losses.items()}

    policy = impl._modules.policy
    policy.forward = partial(parameter_is_log_std, policy)
    impl.inner_update = inner_update


def awac(impl: Any, rows: int) -> None:
    """Lets targets be values of draws of the actor, without an entropy; its loss is ours times the rows of a batch."""

    def compute_target(batch: Any) -> torch.Tensor:
        with torch.no_grad():
            action = build_gaussian_distribution(impl._modules.policy(batch.next_observations)).sample()
            return impl._targ_q_func_forwarder.compute_target(batch.next_observations, action, 'min')

    at_once(impl, rows)
    impl.compute_target = compute_target
    impl._modules.actor_optim.optim.param_groups[0]['eps'] *= rows


def drawn_target(impl: Any, rows: int) -> None:
    """Lets CQL's targets be values of draws of the actor, in place of its most likely action."""

    def compute_target(batch: Any) -> torch.Tensor:
        with torch.no_grad():
            action = build_squashed(impl._modules.policy(batch.next_observations)).sample()
            return impl._targ_q_func_forwarder.compute_target(batch.next_observations, action, 'min')

    impl.compute_target = compute_target


def squashed_decoder(impl: Any, rows: int) -> None:
    """Lets the decoder end in a hyperbolic tangent."""
    decoder = impl._modules.vae_decoder
    forward = decoder.forward
    decoder.forward = lambda x, latent, _: forward(x, latent, False)  # which means the opposite there


def plain_logits(impl: Any, rows: int) -> None:
    """Lets the imitator's penalty be that of its outputs, in place of its log probabilities."""
    policy = impl._modules.imitator
    policy.forward = lambda x: SimpleNamespace(logits=policy._fc(policy._encoder(x)))


def norm_in_front(impl: Any, rows: int) -> None:
    """Lets a layer norm stand in front of a nonlinearity, in place of behind it."""
    for net in (*impl._modules.q_funcs, *impl._modules.targ_q_funcs):
        layers = list(net.encoder._layers)
        for i in range(1, len(layers), 3):
            layers[i : i + 2] = reversed(layers[i : i + 2])
        net.encoder._layers = torch.nn.Sequential(*layers)


def linear_actor(impl: Any, rows: int) -> None:
    """Lets the cloned actor end without a hyperbolic tangent."""
    policy = impl._modules.imitator

    def forward(x: Any, *_: Any) -> ActionOutput:
        mean = policy._fc(policy._encoder(x))
        return ActionOutput(mean, mean, None)

    policy.forward = forward


def unchanged(impl: Any, rows: int) -> None:
    """Changes nothing."""


# what they draw, in their order


def noise_of_target(draws: Draws) -> list[np.ndarray]:
    """Returns the noise of TD3's target."""
    return [draws['next_noise']]


def noise_of_awac(draws: Draws) -> list[np.ndarray]:
    """Returns the noise of AWAC's actions, [B, A] in the target and [1, B, A] here."""
    return [draws['next_noise'], draws['noise'][None]]


def noise_of_cql(draws: Draws) -> list[np.ndarray]:
    """Returns the noise of CQL's actions, those that are several sample by sample, [K, B, A]."""
    here, there = draws['several_noise'].swapaxes(1, 2)
    uniform = draws['several_uniform'].reshape(-1, here.shape[2])
    return [draws['next_noise'], here, there, uniform, draws['noise']]


def latents(draws: Draws) -> list[np.ndarray]:
    """Returns the latent numbers of BCQ's losses."""
    following = draws['next_latent']
    return [draws['latent'], following.reshape(-1, following.shape[2]), draws['acted_latent'][:, 0]]


def nothing(draws: Draws) -> list[np.ndarray]:
    """Returns nothing."""
    return []


@dataclasses.dataclass
class Learner:
    """How to read and change a learner of theirs."""

    weights: Callable[[Any], Weights]
    adjust: Callable[[Any, int], None] = unchanged
    drawn: Callable[[Draws], list[np.ndarray]] = nothing


LEARNERS = {
    'TD3PlusBC': Learner(deterministic, drawn=noise_of_target),
    'ReBRAC': Learner(deterministic, norm_in_front, noise_of_target),
    'IQL': Learner(with_values, at_once),
    'AWAC': Learner(normal_actor, awac, noise_of_awac),
    'CQL': Learner(squashed_actor, drawn_target, noise_of_cql),
    'BCQ': Learner(autoencoding, squashed_decoder, latents),
    'DiscreteCQL': Learner(q_net),
    'DiscreteBCQ': Learner(imitating, plain_logits),
    'BC': Learner(cloning, linear_actor),
    'DiscreteBC': Learner(cloning),
}


def given(arrays: list[np.ndarray]) -> ExitStack:
    """Lets their updates take these numbers, one array after the other, in place of draws."""

    def following(shape: Any) -> torch.Tensor:
        array = torch.tensor(arrays.pop(0))
        assert array.shape == torch.Size(shape), (array.shape, shape)
        return array

    stack = ExitStack()
    for where, name, draw in (
        (torch, 'randn', lambda *shape, **_: following(shape[0] if len(shape) == 1 else shape)),
        (normal, '_standard_normal', lambda shape, dtype, device: following(shape)),
        (torch.Tensor, 'uniform_', lambda tensor, low, high: tensor.copy_(following(tensor.shape))),
    ):
        stack.enter_context(mock.patch.object(where, name, draw))
    return stack


def mini_batch(rows: dict[str, np.ndarray]) -> TorchMiniBatch:
    """Returns their batch of our columns."""
    columns = {name: torch.tensor(rows[name].reshape(len(rows['obs']), -1)) for name in rows}
    zeros = torch.zeros(len(rows['obs']), 1)
    return TorchMiniBatch(
        observations=columns['obs'],
        actions=columns['action'],
        rewards=columns['reward'],
        next_observations=columns['next_obs'],
        next_actions=columns['next_action'],
        returns_to_go=zeros,
        terminals=columns['terminated'].double(),
        intervals=zeros + 1,
        device='cpu',
    )


def under(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """Returns the arrays whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def answer(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Returns losses and weights after each update, and defaults."""
    task = json.loads(str(arrays.pop('task')))
    kind = getattr(d3rlpy.algos, f'{task["peer"]}Config')
    learner = LEARNERS[task['peer']]
    fields = dataclasses.fields(kind)
    arguments = task['arguments']
    for name in (field.name for field in fields if field.name.endswith('encoder_factory')):
        arguments[name] = d3rlpy.models.VectorEncoderFactory(task['sizes'], **arguments.get(name, {}))
    algorithm = kind(**arguments).create(device=False)
    first = under(arrays, '0/')
    actions = task['classes'] or first['action'].shape[1]
    algorithm.create_impl(first['obs'].shape[1:], actions)
    impl = algorithm.impl
    learner.adjust(impl, len(first['obs']))
    # weights
    named = learner.weights(impl._modules)
    for name, value in under(arrays, 'weights/').items():
        parts = named.get(name, [])
        pieces = np.split(value, len(parts)) if parts else []
        for part, piece in zip(parts, pieces, strict=True):
            part.data.copy_(torch.tensor(piece).view_as(part))
    # updates
    found: dict[str, Any] = {}
    for number in range(task['updates']):
        rows = under(arrays, f'{number}/')
        drawn = learner.drawn(under(rows, 'draws/'))
        batch = mini_batch({name: column for name, column in rows.items() if '/' not in name})
        with given(drawn):
            losses = impl.update(batch, task['start'] + number)
        assert not drawn, 'numbers that nobody asked for'
        found |= {f'{number}/losses/{name}': value for name, value in losses.items()}
        for name, parts in named.items():
            whole = torch.cat([part.data.view(-1, *part.shape[1:]) for part in parts])
            found[f'{number}/weights/{name}'] = whole.numpy().copy()
    defaults = {field.name: field.default for field in fields if field.default is not dataclasses.MISSING}
    return found | {'defaults': json.dumps(defaults)}


def main() -> None:
    """Answers all files of a folder, and calculates with float64 where their code says float32."""
    torch.set_default_dtype(torch.float64)
    torch.float32 = torch.float64
    torch.Tensor.float = torch.Tensor.double
    (folder,) = map(Path, sys.argv[1:])
    for path in sorted(folder.glob('*.given.npz')):
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
        np.savez(path.with_name(path.name.replace('.given.', '.answer.')), **answer(arrays))


if __name__ == '__main__':
    main()
