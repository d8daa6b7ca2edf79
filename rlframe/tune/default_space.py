"""Default search spaces: the options of a policy that are worth a search, and the ranges that others search."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from ray import tune

from rlframe.config import full_key, value_at
from rlframe.config.schema import ExperimentConfig
from rlframe.errors import ConfigError
from rlframe.registry import POLICY_REGISTRY
from rlframe.tune.space import parse_domain

DEFAULT = 'default'
"""Name of the default space on the command line and in ``make_tuner``."""
ROUNDS = 10
"""Fewest rounds of collection within the budget: larger values of n_sample are not drawn."""
SAMPLES, SCHEDULER = 16, 'asha'
"""How many samples of a default space are drawn, and which trials end early, if nobody says so."""


class Space(NamedTuple):
    """The options of a policy that a search varies."""

    source: str
    """The paper or library whose ranges they are."""
    domains: dict[str, str]
    """Keys below ``policy``, with their domains as ``--search`` takes them. Keys that a config does not set are left out."""


ZOO = 'RL Baselines3 Zoo, hyperparams_opt.py of 2025'
DISCOUNTS = 'choice(0.9,0.95,0.98,0.99,0.995,0.999,0.9999)'

COMMON = Space(
    'common: learning rate, discount factor and batch size',
    {
        'learn.learning_rate': 'loguniform(1e-5,1e-2)',
        'learn.learning_rate_actor': 'loguniform(1e-5,1e-2)',
        'learn.learning_rate_critic': 'loguniform(1e-5,1e-2)',
        'discount_factor': DISCOUNTS,
        'collect.discount_factor': DISCOUNTS,
        'learn.batch_size': 'choice(16,32,64,128,256,512)',
    },
)
"""Of a policy without a space of its own."""

PPO = Space(
    f'{ZOO}; n_sample is its n_steps times 8 envs, numbers near 1 are drawn evenly',
    {
        'learn.learning_rate': 'loguniform(1e-5,2e-3)',
        'learn.batch_size': 'choice(32,64,128,256,512)',
        'learn.epoch_per_collect': 'choice(1,5,10,20)',
        'learn.clip_ratio': 'choice(0.1,0.2,0.3,0.4)',
        'learn.entropy_weight': 'loguniform(1e-8,0.1)',
        'learn.grad_clip_norm': 'uniform(0.3,2)',
        'collect.n_sample': 'choice(256,512,1024,2048,4096,8192,16384)',
        'collect.discount_factor': 'uniform(0.97,0.9999)',
        'collect.gae_lambda': 'uniform(0.9,0.9999)',
    },
)
OF_ROUNDS = ('learn.epoch_per_collect', 'collect.n_sample')
PPO_OFFPOLICY = Space(
    f'{ZOO}; updates in place of epochs',
    {key: domain for key, domain in PPO.domains.items() if key not in OF_ROUNDS}
    | {'learn.update_per_collect': 'choice(16,32,64,128,256)'},
)
OF_PPO_ONLY = ('learn.batch_size', 'learn.epoch_per_collect', 'learn.clip_ratio')
A2C = Space(PPO.source, {key: domain for key, domain in PPO.domains.items() if key not in OF_PPO_ONLY})
PQN = Space(
    'as PPO; every lambda, of which Gallici et al. (2024), arXiv 2407.04811, compare some',
    {
        **{key: PPO.domains[key] for key in ('learn.learning_rate', 'learn.batch_size', 'collect.n_sample')},
        'learn.epoch_per_collect': 'choice(1,2,4,8)',
        'discount_factor': 'uniform(0.97,0.9999)',
        'collect.q_lambda': 'uniform(0,1)',
    },
)
DQN = Space(
    f'{ZOO}, learning rates up to 0.01 in place of 1; its 1 to 1/8 updates for each of 8 env steps',
    {
        'learn.learning_rate': 'loguniform(1e-5,1e-2)',
        'learn.batch_size': 'choice(16,32,64,100,128,256,512)',
        'learn.update_per_collect': 'choice(1,2,4,8)',
        'learn.target_update_freq': 'lograndint(1,20001)',
        'discount_factor': DISCOUNTS,
        'other.eps.end': 'uniform(0,0.2)',
    },
)
QRDQN = Space(DQN.source, {**DQN.domains, 'model.num_quantiles': 'randint(5,201)'})
RAINBOW = Space(f'{DQN.source}; n of Hessel et al. (2018), fig. 5', {**DQN.domains, 'nstep': 'choice(1,3,5)'})
SAC = Space(
    f'{ZOO}, learning rates up to 0.01 in place of 1',
    {
        'learn.learning_rate_actor': 'loguniform(1e-5,1e-2)',
        'learn.learning_rate_critic': 'loguniform(1e-5,1e-2)',
        'learn.batch_size': 'choice(16,32,64,128,256,512,1024,2048)',
        'learn.target_theta': 'choice(0.001,0.005,0.01,0.02,0.05,0.08)',
        'discount_factor': DISCOUNTS,
    },
)
CROSSQ = Space(
    f'{SAC.source}; no target networks',
    {key: domain for key, domain in SAC.domains.items() if key != 'learn.target_theta'},
)
TD3 = Space(SAC.source, {**SAC.domains, 'collect.noise_sigma': 'uniform(0,1)'})
TQC = Space(
    f'{SAC.source}; fewer dropped quantiles than the fewest quantiles',
    {**SAC.domains, 'model.num_quantiles': 'randint(5,51)', 'learn.dropped_quantiles': 'randint(0,5)'},
)

SPACES = {
    'PPOPolicy': PPO,
    'PPOOffPolicy': PPO_OFFPOLICY,
    'A2CPolicy': A2C,
    'PQNPolicy': PQN,
    'QPolicy': DQN,
    'QRDQNPolicy': QRDQN,
    'IQNPolicy': QRDQN,
    'FQFPolicy': QRDQN,
    'RainbowPolicy': RAINBOW,
    'QACPolicy': SAC,
    'DDPGPolicy': TD3,
    'TD3Policy': TD3,
    'CrossQPolicy': CROSSQ,
    'TQCPolicy': TQC,
}
"""Spaces of policy classes and of their subclasses. What depends on the budget or on the memory (random steps at the start,
the decay of epsilon, sizes of buffers and networks) is in none."""


def space_of(policy: str) -> Space:
    """Returns the default space of a policy: that of its class, of a base class, or the common one.

    Raises:
        RegistryError: If there is no policy of that name.
    """
    bases = [base.__name__ for base in POLICY_REGISTRY.get(policy).__mro__]
    return next((SPACES[name] for name in bases if name in SPACES), COMMON)


def default_space(
    cfg: ExperimentConfig, fixed: Collection[str] = (), name: str = DEFAULT
) -> tuple[dict[str, Any], str]:
    """Returns the default search space of a config's policy, and its source.

    Options that ``cfg`` lacks or that are None are not searched, nor are those in ``fixed``, keys that the user set, dotted
    or short.

    Raises:
        ConfigError: If there is no space of that name, or nothing is left to search.
    """
    if name != DEFAULT:
        raise ConfigError(
            'no such search space', where='param_space', got=name, expected=f'a dict, or {DEFAULT!r}'
        )
    space = space_of(cfg.policy.type)
    found = {}
    given = {full_key(key) for key in fixed}
    for key, text in space.domains.items():
        names = {f'policy.{key}', key.rpartition('.')[2]}
        if value_at(cfg.policy, key) is not None and not given & names:
            found[f'policy.{key}'] = parse_domain(text)
    if (size := found.get('policy.collect.n_sample')) is not None:
        fitting = [number for number in size.categories if number * ROUNDS <= cfg.max_env_step]
        found['policy.collect.n_sample'] = tune.choice(fitting or size.categories[:1])
    if not found:
        raise ConfigError(
            f'nothing is left of the default space of {cfg.policy.type}: {", ".join(space.domains)}',
            where='--search default',
            remedy='Leave out the options that fix it, or name options to search.',
        )
    return found, space.source
