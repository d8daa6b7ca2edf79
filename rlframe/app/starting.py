"""A config for an env that nobody has tuned: ``rlframe train --env ENV``."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from easydict import EasyDict

from rlframe.config.compile import merge, user_tree
from rlframe.config.components import section_at, value_at
from rlframe.config.rules import ROWS, learns_from_data
from rlframe.data.observation import ACTION_MASK, check_maskable, fields_of, has_goals, is_text, plain_parts
from rlframe.data.team import is_team
from rlframe.data.timestep import EnvSpec
from rlframe.envs.worlds import World, find_world
from rlframe.errors import (
    ConfigError,
    EnvError,
    IncompatibleError,
    MissingDependencyError,
)
from rlframe.pipeline.memory_needs import row_nbytes
from rlframe.pipeline.recording import SHAPING
from rlframe.policy.parts.fit import check_fit, fitting
from rlframe.policy.parts.starting import Facts, Settings
from rlframe.policy.parts.tensor_acting import changed_methods
from rlframe.registry import POLICY_REGISTRY, import_named
from rlframe.utils.field import ABSENT, REQUIRED, Field, Options

if TYPE_CHECKING:
    from gymnasium import Space

    from rlframe.envs.base_env import EnvFactory

Overrides = Sequence[str] | Mapping[str, Any]

ON_POLICY_STEPS, OFF_POLICY_STEPS = 1_000_000, 200_000
"""Budgets in env steps: learning from a replay buffer needs fewer env steps, and more time for each."""
EVALUATIONS = 25
"""Evaluations within a budget."""
FIRST_STEPS = (200, 1000)
"""Fewest and most env steps between the first evaluations."""
GROWTH = 10
"""Share of the env steps so far, in percent, between later evaluations: a run that is solved early has as many points as a
long one, and a long one spends at most a tenth of its time on them."""
LONGEST_EPISODE = 3_000
"""Longest evaluated episode of an env without a time limit, in env steps: a policy may walk in circles there."""
GAMES, GAME_STEPS = 64, 250
"""Games of a round of an on-policy policy, and env steps of the budget for each: a game of Go of 9 x 9 takes some 120."""
HINDSIGHT: Settings = dict(
    discount_factor=0.95,
    collect=dict(collector=dict(mark_episodes=True)),
    other=dict(replay_buffer=dict(hindsight=dict(strategy='future'))),
)
"""Settings of an off-policy policy in an env that rewards goals."""
GRID_SIDE = 16
"""Images of integers with shorter sides than this are grids of symbols, which are embedded."""
FEW_NUMBERS = 4
"""An observation of no more numbers than these is small."""
READS_TEXTS = 'rlframe.envs.wrappers:TextAsBytes'
"""Wrapper that gives texts as bytes."""
NAMES = ('seed', 'exp_name', 'max_env_step', 'max_train_iter')
"""Options that ``compile_config`` takes by themselves."""


def starting_config(
    env: Any,
    policy: str | None = None,
    options: Mapping[str, Any] | None = None,
    max_env_step: Any = None,
    manager: str | None = None,
) -> tuple[EasyDict, EasyDict]:
    """Returns a config for an env that nobody has tuned.

    Args:
        env: An id of Gymnasium, EnvPool or PettingZoo, with or without the name of its world (``envpool:ID``,
            ``pettingzoo:ID``), ``module:Id``, ``module:Class``, a class or a function that returns an env.
        policy: Name of the policy, in any case; None: one that suits the action space.
        options: Further options of the section ``env``, such as ``kwargs``, ``wrappers`` and ``frame_stack``.
        max_env_step: The budget that the user gives; evaluations and exploration fit into it if it is smaller than the default.
        manager: Name of the env manager; None: one that suits the env.

    Returns:
        ``main_config`` and ``create_config``.

    Raises:
        EnvError: If the env is unknown (the nearest ids are named) or cannot be created.
        MissingDependencyError: If it needs a package that is not installed; with the way to install it.
        RegistryError: If there is no policy of that name.
        IncompatibleError: If the policy cannot act in the env; with those that can.
        ConfigError: If the policy learns from recorded data.
    """
    # the env
    world = find_world(env, manager)
    section, factory = _readable(world, world.with_options(options or {}))
    section = dict[str, Any](collector_env_num=8, evaluator_env_num=10, n_evaluator_episode=10) | section
    spec = factory.spec
    if spec.reward_threshold is not None:
        section['stop_value'] = spec.reward_threshold
    rewards_goals = has_goals(spec.observation_space) and _rewards_goals(factory)
    # the policy
    name = default_policy(spec, rewards_goals) if policy is None else POLICY_REGISTRY.name_in_any_case(policy)
    kind = POLICY_REGISTRY.get(name)
    _check(name, kind, spec)
    on_policy = bool(kind.config_fields()['on_policy'].default)
    of_rounds = on_policy or kind.samples_rounds
    budget = ON_POLICY_STEPS if of_rounds else OFF_POLICY_STEPS
    steps = int(min(budget, max_env_step)) if isinstance(max_env_step, int | float) else budget
    settings = _settings_of(kind, _facts(spec, steps))
    merge(settings, dict(eval=dict(evaluator=_evaluations(spec, steps))))
    if of_rounds:
        _make_rounds_even(settings, section['collector_env_num'])
    # the parts
    create: Settings = dict(
        env=dict(type=world.env),
        env_manager=dict(type=_manager(world, factory)),
        policy=dict(type=name),
        collector=dict(type=settings.get('collect', {}).get('collector', {}).get('type', 'sample')),
    )
    if on_policy and _acts_in_tensors(kind, factory):
        create['collector'] = dict(type='tensor')
        settings['normalize_obs'] = False
    if spec.player_num > 1:
        _play_against_oneself(settings, create, of_rounds, steps)
    if not on_policy:
        create['replay_buffer'] = dict(type=_buffer(kind))
        if rewards_goals and create['replay_buffer']['type'] != 'sequence' and not of_rounds:
            merge(settings, HINDSIGHT)
    main: Settings = dict(
        exp_name=f'{plain_name(spec.name)}_{plain_name(name)}',
        max_env_step=budget,
        env=dict(env_id=world.env_id, **section),
        policy=settings,
    )
    return EasyDict(main), EasyDict(create)


def _evaluations(spec: EnvSpec, steps: int) -> Settings:
    """Returns the settings of the evaluator for a budget in env steps."""
    first = max(min(FIRST_STEPS[1], max(steps // EVALUATIONS, FIRST_STEPS[0]), steps), 1)
    limits = {}
    if spec.max_episode_steps is None:
        # an evaluation may take as many env steps as training between two of them
        first = max(first, min(LONGEST_EPISODE, steps))
        limits = {'max_episode_len': LONGEST_EPISODE}
    return dict(eval_freq=f'{first} env steps, later {GROWTH} %') | limits


def _make_rounds_even(settings: Settings, env_num: int) -> None:
    """Makes every env give equally many steps of a round."""
    collect = settings.get('collect', {})
    if collect.get('n_sample') is not None:
        collect['n_sample'] = round(collect['n_sample'] / env_num) * env_num


def _manager(world: World, factory: EnvFactory) -> str:
    if not factory.only_vector:
        return world.manager or 'base'
    return 'torch_vector' if getattr(factory, 'gives_tensors', False) else 'gym_vector'


def _acts_in_tensors(kind: Any, factory: EnvFactory) -> bool:
    """Whether envs give tensors, and the policy can collect them without a copy to NumPy."""
    gives_tensors = getattr(factory, 'gives_tensors', False)
    return gives_tensors and hasattr(kind, '_get_tensor_mode') and not changed_methods(kind)


def _buffer(kind: Any) -> str:
    """Returns the replay buffer that suits an off-policy policy class."""
    if kind.is_recurrent or kind.replays_sequences:
        return 'sequence'
    priority = kind.config_fields().get('priority')
    return 'advanced' if priority is not None and priority.default else 'naive'


def _settings_of(kind: Any, facts: Facts) -> Settings:
    """Returns the settings of a policy class: those that it starts from, with the defaults of later subclasses."""
    fields = kind.config_fields()
    builtin: Any = next(base for base in kind.__mro__ if base.__module__.startswith('rlframe.'))
    stating = next((base for base in kind.__mro__ if 'starting' in vars(base)), object)
    settings = _of_atoms(fields) | (kind.starting(facts) if stating is not object else {})
    for base in reversed(kind.__mro__[: kind.__mro__.index(stating)]):
        merge(settings, copy.deepcopy(vars(base).get('config', {})))
    settings = _present(settings)
    if builtin is not kind:
        merge(settings, _changed(fields, builtin.config_fields()))
    return settings


def _present(settings: Settings) -> Settings:
    """Returns settings without those of options that the policy does not have."""
    return {
        name: _present(value) if isinstance(value, dict) else value
        for name, value in settings.items()
        if value is not ABSENT
    }


def _changed(fields: Options, before: Options) -> Settings:
    """Returns the options that a policy of the user has in addition to a built-in one, or with other defaults."""
    found: Settings = {}
    for name, field in fields.items():
        old = before.get(name)
        if isinstance(field, dict):
            below = _changed(field, old if isinstance(old, dict) else {})
            found |= {name: below} if below else {}
        elif field.default is not REQUIRED and (not isinstance(old, Field) or old.default != field.default):
            found[name] = field.default
    return found


def _play_against_oneself(settings: Settings, create: Settings, on_policy: bool, budget: int) -> None:
    """Lets one policy move for all players of a game, and measures it against random moves."""
    create['collector'] = dict(type='episode_1v1' if on_policy else 'sample_1v1')
    create['evaluator'] = dict(type='battle_interaction')
    settings['eval']['evaluator']['opponent'] = 'random'
    if on_policy:  # whole games, as players may make different numbers of moves
        games = max(min(GAMES, budget // GAME_STEPS), 1)
        settings['collect'] |= dict(n_sample=None, n_episode=games, collector=dict(get_train_sample=True))


def env_options(overrides: Overrides) -> dict[str, Any]:
    """Returns the overrides that change the observations or actions of an env, as options of its section.

    The modules that overrides name are imported, as they may register it.
    """
    tree = user_tree({}, {}, overrides)[0]
    import_named(tree)
    return {name: value for name, value in section_at(tree, ('env',)).items() if name in SHAPING}


def overridden_start(
    env: Any, policy: str | None, overrides: Overrides, max_env_step: int | None = None
) -> tuple[EasyDict, EasyDict]:
    """Returns the starting config of an env for overrides, which have yet to be laid over it."""
    options = env_options(overrides)
    tree = user_tree({}, {}, overrides)[0]
    manager, kind = (value_at(tree, key) for key in ('env.manager.type', 'policy.type'))
    steps = max_env_step or tree.get('max_env_step')
    main, create = starting_config(env, policy or kind, options, steps, manager)
    if value_at(tree, 'policy.model.core') and create.get('replay_buffer', {}).get('type') in ROWS:
        # a memory learns from sequences
        create.replay_buffer.type = 'sequence'
        merge(main.policy, dict(collect=dict(collector=dict(mark_episodes=True))))
    return main, create


def default_policy(spec: EnvSpec, rewards_goals: bool = False) -> str:
    """Returns the name of the policy that suits an env best, as far as its spaces tell, and whether it rewards goals.

    Raises:
        IncompatibleError: If no policy can act in it.
    """
    check_maskable(spec)
    fit = fitting(spec)
    if spec.player_num > 1 and 'dqn' in fit:
        return 'dqn'
    if rewards_goals and {'sac', 'dqn'} & set(fit):
        return 'sac' if 'sac' in fit else 'dqn'
    if is_team(spec) and 'mappo' in fit:
        return 'mappo'
    if 'ppo' in fit:
        return 'ppo'
    raise IncompatibleError(
        f'no default policy can act in {spec.name}: its action space is {spec.action_space!r}, its observation space'
        f' {spec.observation_space!r}',
        where='env.env_id',
        remedy=f'Policies that fit: {", ".join(fit) or "none"}. docs/support.md has a table of spaces.',
    )


def _check(name: str, kind: Any, spec: EnvSpec) -> None:
    """Checks that a policy can learn by acting in an env."""
    if hasattr(kind, 'supported_actions'):
        check_fit(kind, spec)
    if learns_from_data(name):
        actors = [other for other in fitting(spec) if not learns_from_data(other)]
        raise ConfigError(
            f'{name} learns from recorded data, not by acting in {spec.name}',
            where='policy.type',
            remedy=f'Policies that learn by acting: {", ".join(actors)}. To learn from data: rlframe train --data DATA'
            f' --policy {name}; rlframe collect records them.',
        )


# the env


def env_factory(env: str, options: Mapping[str, Any]) -> EnvFactory:
    """Returns the factory of an env of this id, with those of the given options that change observations and actions."""
    world = find_world(env)
    return _factory(world, {name: value for name, value in options.items() if name in SHAPING})


def _factory(world: World, section: Settings) -> EnvFactory:
    try:
        return world.factory(section)
    except ConfigError as error:
        error.where = f'env.{error.where.removeprefix("env.")}'
        raise


def _rewards_goals(factory: EnvFactory) -> bool:
    """Whether an env says what a goal is worth, so that a replay buffer can give steps other goals."""
    try:
        env = factory.make_judge()
    except (EnvError, MissingDependencyError):  # of an env that only EnvPool has
        return False
    found = env.has_wrapper_attr('compute_reward')
    env.close()
    return found


def _readable(world: World, section: Settings) -> tuple[Settings, EnvFactory]:
    """Returns the section ``env`` and its factory, without parts of observations that no network reads."""
    factory = _factory(world, section)
    if world.manager == 'env_pool' or factory.only_vector or 'wrappers' in section:
        return section, factory
    wrappers = _wrappers(factory.spec)
    if not wrappers:
        return section, factory
    section = section | {'wrappers': wrappers}
    return section, _factory(world, section)


def _wrappers(spec: EnvSpec) -> list[Any]:
    """Returns the wrappers that make texts beside a grid readable, and remove parts of observations that no network reads."""
    space = _own_space(spec)
    parts = fields_of(space)
    readable = [name for name, part in parts.items() if _is_readable(part)]
    if type(space).__name__ != 'Dict' or not readable or len(readable) == len(parts):
        return []
    texts = [name for name, part in parts.items() if _varies(part)] if _has_grid(_boxes(space)) else []
    found = [dict(type=READS_TEXTS)] if texts else []
    kept = [name for name in parts if name in readable or name in texts]
    return found if len(kept) == len(parts) else [*found, dict(type='FilterObservation', filter_keys=kept)]


def _varies(space: Space[Any]) -> bool:
    """Whether a space is of texts that differ, as MiniGrid's missions do if there are words to fill in."""
    return is_text(space) and getattr(space, 'ordered_placeholders', ()) is not None


def _own_space(spec: EnvSpec) -> Space[Any]:
    """Returns the env's own observation space, without the action mask that rlframe adds to it."""
    parts = fields_of(spec.observation_space)
    return parts['observation'] if set(parts) == {'observation', ACTION_MASK} else spec.observation_space


def _is_readable(space: Space[Any]) -> bool:
    kinds = {type(leaf).__name__ for _, leaf in plain_parts(space)}
    return kinds <= {'Box', 'Discrete', 'MultiDiscrete', 'MultiBinary'}


def _facts(spec: EnvSpec, steps: int) -> Facts:
    parts = fields_of(spec.observation_space).items()
    own = [part for name, part in parts if name != ACTION_MASK] or [spec.observation_space]
    boxes = [box for part in own for box in _boxes(part)]
    return Facts(
        spec,
        steps,
        has_numbers=any(np.issubdtype(box.dtype, np.floating) for box in boxes),
        is_tabular=not boxes,
        is_small=0 < sum(math.prod(box.shape) for box in boxes) <= FEW_NUMBERS,
        has_grid=_has_grid(boxes),
        row_nbytes=row_nbytes,
    )


def _boxes(space: Space[Any]) -> list[Any]:
    return [leaf for _, leaf in plain_parts(space) if type(leaf).__name__ == 'Box']


def _has_grid(boxes: Sequence[Any]) -> bool:
    """Whether there are images among some parts of observations, and all are small grids of symbols."""
    images = [box for box in boxes if len(box.shape or ()) in (3, 4)]
    grids = [box for box in images if np.issubdtype(box.dtype, np.integer) and _side(box) < GRID_SIDE]
    return bool(grids) and len(grids) == len(images)


def _side(box: Space[Any]) -> int:
    """Returns the longest side of an image, whose channels are the first or the last of its three axes."""
    first, *_, last = (box.shape or ())[-3:]
    return int(max(first, last))


def plain_name(name: str) -> str:
    """Returns a name in lower case with underscores for everything but letters and digits."""
    return re.sub('[^a-z0-9]+', '_', name.lower()).strip('_') or 'env'


# the policy


def encoder_settings(kind: Any, spec: EnvSpec, sizes: list[int]) -> Settings:
    """Returns the section ``model`` of a policy, as far as the policy has these options."""
    known = kind.config_fields().get('model', {})
    found = {name: value for name, value in _facts(spec, 1).encoder(sizes).items() if name in known}
    return {'model': found} if found else {}


def _of_atoms(fields: Mapping[str, Any]) -> Settings:
    """Returns the settings of policies whose networks tell returns within a fixed range of values apart."""
    atoms = fields.get('model', {}).get('n_atom')
    return {'normalize_reward': True} if atoms is not None and atoms.default else {}
