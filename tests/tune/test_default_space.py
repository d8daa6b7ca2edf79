"""Default search spaces: every policy has one, whose values its config accepts; what the user set is not searched."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import pytest
from error_texts import raises
from policies import learns_from_data, needs_data
from runs import ROOT

from rlframe.app.starting import starting_config
from rlframe.config import compile_config, config_pair, section_at
from rlframe.data import EnvSpec
from rlframe.envs.worlds import find_world
from rlframe.errors import ConfigError
from rlframe.policy.parts.fit import misfit
from rlframe.policy.parts.starting import COMMON, SearchSpace
from rlframe.policy.ppo import PPOPolicy
from rlframe.registry import POLICY_REGISTRY
from rlframe.tune.default_space import default_space
from rlframe.tune.space import check_space, ends
from rlframe.tune.trial import TrialBase, compile_trial

ENVS = 'CartPole-v1', 'Pendulum-v1', 'rlframe/Moving-v0'
"""Envs with discrete, continuous and hybrid actions."""


def space_of(policy: str) -> SearchSpace:
    space: SearchSpace = POLICY_REGISTRY.get(policy).search_space
    return space


@cache
def specs() -> dict[str, EnvSpec]:
    return {env: find_world(env).factory(find_world(env).with_options({})).spec for env in ENVS}


def pair_of(policy: str) -> tuple[Any, Any]:
    """Returns the config that ``tune --env`` starts from, for an env that suits the policy."""
    if learns_from_data(policy):
        files = (ROOT / 'configs' / f'{env}_{policy}.py' for env in ('cartpole', 'pendulum'))
        return config_pair(str(next(file for file in files if file.exists())))
    fits = (env for env, spec in specs().items() if not misfit(POLICY_REGISTRY.get(policy), spec))
    main, create = starting_config(next(fits), policy)
    if needs_data(policy):
        main.policy.other.replay_buffer.init_from = 'data.npz'  # nothing reads it
    return main, create


@pytest.mark.parametrize(
    'policy', [name for name in POLICY_REGISTRY.names() if POLICY_REGISTRY.is_builtin(name)]
)
def test_every_policy_has_a_space_whose_ends_and_draws_its_config_accepts(policy: str) -> None:
    pair = pair_of(policy)
    cfg = compile_config(*pair)
    space, source = default_space(cfg)
    assert source == space_of(policy).source
    rates = {'policy.learn.learning_rate', 'policy.learn.learning_rate_actor'}
    assert rates & space.keys() and (
        policy in ('bc', 'bco', 'dt', 'ibc') or any(key.endswith('discount_factor') for key in space)
    )
    assert all(len(ends(domain)) >= 2 and not any(map(math.isnan, ends(domain))) for domain in space.values())
    base = TrialBase(*pair)
    assert len(check_space(base, space)) > 2 * len(space)
    options = {key: domain.sample() for key, domain in space.items()}
    found = compile_trial({'config': base, **options})
    for key, value in options.items():
        *path, last = key.split('.')
        assert section_at(found, path)[last] == value


def test_own_spaces_name_options_that_exist() -> None:
    for name in POLICY_REGISTRY.names():
        space = space_of(name)
        for key in space.domains if space is not COMMON else ():
            found: Any = POLICY_REGISTRY.get(name).config_fields()
            *path, last = key.split('.')
            for part in path:
                found = found.get(part, {}) if isinstance(found, dict) else found.default
            found = found if isinstance(found, dict) else found.default
            assert last in found if isinstance(found, dict) else name == 'rainbow', f'{name}: {key}'


def test_a_policy_of_your_own_has_the_space_of_its_base_or_the_common_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(POLICY_REGISTRY, '_classes', dict(POLICY_REGISTRY._classes))
    POLICY_REGISTRY.register('own_ppo', type('OwnPPO', (PPOPolicy,), {}))
    assert space_of('own_ppo') is PPOPolicy.search_space and space_of('bc') is COMMON
    space, _ = default_space(compile_config(*pair_of('bc')))
    assert space.keys() == {'policy.learn.learning_rate', 'policy.learn.batch_size'}


def test_what_the_user_set_or_the_config_leaves_unset_is_not_searched() -> None:
    cfg = compile_config(*pair_of('ppo'))
    fixed = ('policy.learn.clip_ratio', 'batch_size', 'seed')
    space, _ = default_space(cfg, fixed)
    assert default_space(cfg)[0].keys() - space.keys() == {
        'policy.learn.clip_ratio',
        'policy.learn.batch_size',
    }
    pair = starting_config(ENVS[0], 'ppo', max_env_step=11_000)
    short, _ = default_space(compile_config(*pair, max_env_step=11_000))
    assert ends(short['policy.collect.n_sample']) == [256, 512, 1024]
    game = compile_config(*starting_config('pettingzoo:classic.tictactoe_v3', 'ppo'))
    assert game.policy.collect.n_sample is None and 'policy.collect.n_sample' not in default_space(game)[0]
    with raises(ConfigError):
        default_space(compile_config(*pair_of('bc')), ('learning_rate', 'policy.learn.batch_size'))
    with raises(ConfigError):
        default_space(cfg, (), 'defualt')


def test_the_page_on_tuning_has_every_space() -> None:
    policies: dict[str, list[str]] = {}
    spaces = {name: space_of(name) for name in POLICY_REGISTRY.names() if POLICY_REGISTRY.is_builtin(name)}
    for name, space in spaces.items():
        policies.setdefault(f'{space}', []).append(f'`{name}`')
    page = (ROOT / 'docs' / 'tuning.md').read_text(encoding='utf-8')
    for space in spaces.values():
        domains = ', '.join(f'`{key}={domain}`' for key, domain in space.domains.items())
        row = f'| {", ".join(policies[f"{space}"])} | {space.source} | {domains} |'
        assert row in page, 'copy this row to docs/tuning.md'
