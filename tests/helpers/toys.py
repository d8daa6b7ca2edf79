"""Toys: what each policy learns in seconds, as sections for ``fakes.config_pair``."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
from policies import learns_from_data, needs_data, recorded_transitions, round_of
from zoo import TargetEnv

from rlframe.envs import BaseEnvManager
from rlframe.policy.dqn import DQNPolicy
from rlframe.policy.ppo import PPOPolicy
from rlframe.policy.td3 import TD3Policy
from rlframe.registry import POLICY_REGISTRY

SOLVED = dict(env_id='zoo:IdentityEnv', env=dict(stop_value=7.9, n_evaluator_episode=10))
"""The env of policies with discrete actions, in which 8 is the best possible return."""
HIT = dict(env_id='zoo:TargetEnv', env=dict(stop_value=7.2, n_evaluator_episode=10))
"""The env of policies with continuous actions only, in which random actions bring 2.1."""


CHOSEN = HIT | dict(env_id='zoo:HybridEnv')
"""The env of policies with hybrid actions only, in which random actions bring 0.5."""


def sections(policy: str, options: dict[str, Any]) -> dict[str, Any]:
    """Returns the sections of a toy, with its env, from options of the section ``policy``."""
    cls: Any = POLICY_REGISTRY.get(policy)
    own = ('model', 'learn', 'collect', 'other')
    found: dict[str, Any] = {name: options[name] for name in own if name in options}
    found |= dict(policy=policy, policy_={name: value for name, value in options.items() if name not in own})
    has_buffer = not cls.default_config().on_policy and not learns_from_data(policy)
    if (cls.is_recurrent or cls.replays_sequences) and has_buffer:
        found |= dict(buffer=dict(type='sequence'), collector=dict(type='sample', mark_episodes=True))
    envs = {'Discrete': SOLVED, 'Box': HIT, 'Hybrid': CHOSEN}
    return found | envs[cls.supported_actions.split(', ')[0]]


REPLAY = dict(priority=True, priority_IS_weight=True, nstep=2)
VARIANTS: dict[str, dict[str, Any]] = {
    'td3 hybrid': sections('td3', TD3Policy.toy | dict(other=dict(eps=0.3))) | CHOSEN,
    'dqn advanced': sections('dqn', DQNPolicy.toy | REPLAY) | dict(buffer=dict(type='advanced')),
    'td3 advanced': sections('td3', TD3Policy.toy | REPLAY) | dict(buffer=dict(type='advanced')),
    'ppo options': sections(
        'ppo',
        PPOPolicy.toy
        | dict(
            normalize_obs=True,
            normalize_reward=True,
            model=dict(share_encoder=True, activation='relu'),
            learn=dict(
                batch_size=64,
                learning_rate=3e-3,
                value_norm=True,
                value_clip=0.5,
                target_kl=0.05,
                advantage_norm='round',
                epoch_per_collect=8,
                entropy_weight=dict(type='linear', start=0.01, end=0.0, decay=5000),
            ),
        ),
    ),
}
FROM_DATA = {name for name in POLICY_REGISTRY.names() if learns_from_data(name)}
"""Policies that learn from a file."""
WITH_DATA = set(filter(needs_data, POLICY_REGISTRY.names()))
"""Policies that learn from a file, and act."""
TOYS = {
    name: sections(name, POLICY_REGISTRY.get(name).toy)
    for name in POLICY_REGISTRY.names()
    if name not in FROM_DATA | WITH_DATA
} | VARIANTS
"""A name that begins with the policy to its sections."""
DQN, PPO = ({key: value for key, value in TOYS[name].items() if key not in SOLVED} for name in ('dqn', 'ppo'))
"""Those of DQN and PPO for another env."""


def toy(name: str) -> dict[str, Any]:
    """Returns the sections of a toy, with its env and the mean return that solves it."""
    return dict(TOYS[name])


def toy_of_policy(policy: str) -> dict[str, Any]:
    """Returns the toy of a policy; one that learns from data does so from a file in the working directory.

    Raises:
        KeyError: If it states none.
    """
    if not (options := POLICY_REGISTRY.get(policy).toy):
        raise KeyError(f'no toy of {policy!r}: its class states none')
    found = sections(policy, options)
    if policy in WITH_DATA:
        path = str(recorded(Path('records.npz'), found['env_id'], share=1.0))
        found['buffer'] = found.get('buffer', {}) | dict(init_from=path)
        if not round_of(policy, 1):
            found['collect'] = dict(n_sample=None, n_episode=4)
            found['collector'] = dict(type='episode')
    if policy in FROM_DATA:
        found |= dict(
            collector=dict(type='dataset', data=str(recorded(Path('records.npz'), found['env_id'])))
        )
        found['collect'] = dict(n_sample=None, collector={}) | found.get('collect', {})
    return found


def recorded(file: Path, env_id: str, steps: int = 200, share: float = 0.5) -> Path:
    """Writes what a player does that acts well in a share of its steps, in ``IdentityEnv`` or one of its kind."""
    module, name = env_id.split(':')
    manager = BaseEnvManager([getattr(importlib.import_module(module), name)] * 4)
    manager.reset(seed=range(4))
    np.savez(file, **dict(recorded_transitions(manager, PartlyRight(manager, share), steps).items()))
    manager.close()
    return file


class PartlyRight:
    """Acts at random or, in a share of its steps, does what is right."""

    def __init__(self, manager: Any, share: float) -> None:
        self._share = share
        self._space = manager.spec.action_space
        self._space.seed(0)
        self._rng = np.random.default_rng(0)

    def forward(self, obs: Any, env_id: Any) -> dict[str, Any]:
        is_right = self._rng.random(len(obs)) < self._share
        drawn = np.stack([self._space.sample() for _ in obs])
        right = obs.argmax(1)
        if not hasattr(self._space, 'n'):
            right = TargetEnv.targets[right][:, None]
            is_right = is_right[:, None]
        return {'action': np.where(is_right, right, drawn).astype(self._space.dtype)}
