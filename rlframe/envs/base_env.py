"""EnvFactory: creates the envs of a config's section ``env``."""

from __future__ import annotations

import math
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import numpy as np
from easydict import EasyDict

from rlframe.data.observation import fields_of, obs_dtype
from rlframe.data.timestep import Array, EnvSpec, spec_of
from rlframe.envs.faults import start_failed
from rlframe.envs.schedule import check_scheduled, first_values, is_no_schedule, schedule_problem
from rlframe.envs.state_objects import layers_of, members_of
from rlframe.errors import EnvError, RLFrameError
from rlframe.run.machine import demand_memory
from rlframe.scores import stop_value_problem
from rlframe.utils.field import Configurable, Section, option

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.vector import VectorEnv as GymVectorEnv

    from rlframe.envs.atari_vector import GameRows
    from rlframe.envs.goals import EnvGoals

    VectorEnv = GymVectorEnv[Any, Any, Any]

STACK_COPIES = 4
"""Arrays of the size of a stack that an env needs: the stack, its padding, and two bounds of its space."""
E = TypeVar('E')

LEARNING = {'NormalizeObservation': 'normalize_obs', 'NormalizeReward': 'normalize_reward'}
"""Wrappers of Gymnasium that learn statistics, and the options of a policy that do the same."""
SPACES = ('single_action_space', 'single_observation_space', 'action_space', 'observation_space')
"""Attributes of an env or a vector env that are spaces."""


def picture_of(draw: Callable[[], Any], name: str) -> Array:
    """Returns the rendered picture of an env, uint8 [H, W, 3].

    Args:
        draw: Its ``render``.
        name: Name of the env in an error.

    Raises:
        EnvError: If it renders nothing, or something other than a picture.
    """
    try:
        picture = np.asarray(draw())
    except RuntimeError as error:  # NotImplementedError is one
        raise _no_picture(name, f'{type(error).__name__}: {error}'.rstrip(': ')) from error
    if picture.dtype != np.uint8 or picture.ndim != 3:
        got = f'{picture.dtype} {list(picture.shape)}' if picture.shape else picture.item()
        raise _no_picture(name, got)
    return picture


def _no_picture(name: str, got: Any) -> EnvError:
    return EnvError(
        f'{name} cannot be rendered',
        where='env.env_id',
        got=got,
        expected="uint8 [H, W, 3] in the render mode 'rgb_array'",
        remedy='Leave --video out, and policy.eval.evaluator.render.render_freq at -1.',
    )


class PoolTask(NamedTuple):
    """An env of EnvPool."""

    task_id: str
    kwargs: dict[str, Any]
    """Options of ``envpool.make``."""
    rows: Callable[[int], GameRows] | None = None
    """Makes the rows of N envs; None: as they are."""


class EnvConfig(Section):
    """Options of every env."""

    collector_env_num: int = option(
        8, range='[1, inf)', unit='envs', doc='envs that training data comes from'
    )
    evaluator_env_num: int = option(
        5, range='[1, inf)', unit='envs', doc='envs that the policy is evaluated in', may_change=True
    )
    n_evaluator_episode: int = option(
        10, range='[1, inf)', unit='episodes', doc='episodes of one evaluation', may_change=True
    )
    stop_value: float | str | None = option(
        None,
        unit="return in the env's own unit",
        doc="mean return that ends training, up to rounding; None: its reward threshold; 'never': nothing but a budget does",
        check=stop_value_problem,
        may_change=True,
    )
    stop_success: float | None = option(
        None,
        range='(0, 1]',
        unit='share of episodes',
        doc='success rate that ends training, too',
        may_change=True,
    )
    frame_stack: int = option(
        1,
        range='[1, inf)',
        unit='env steps',
        doc='observations that the policy sees at a time, the newest last, along a new first axis',
    )
    action_mask: bool | None = option(
        None,
        doc="whether info['action_mask'] becomes part of the observation; None: if the first reset of an env gives one",
    )
    schedule: dict[str, Any] = option(
        {},
        doc='curriculum: attributes and methods of the training envs, each with a rule that gives its value',
        check=schedule_problem,
        reaches='code',
        harmless=is_no_schedule,
    )


class EnvFactory(Configurable, ABC):
    """Makes the envs that a config's ``env`` section describes.

    Args:
        cfg: The section; missing options take their defaults.
    """

    cfg: EnvConfig

    only_vector = False
    """Whether the env exists in vector form only."""

    def __init__(self, cfg: EasyDict | dict[str, Any]) -> None:
        self.cfg = self.resolve_config(cfg)
        # shared with copies of the factory
        self._known: dict[str, EnvSpec] = {}
        self._known_layers = KnownLayers()
        self._gives_mask: bool | None = self.cfg.action_mask

    def for_training(self) -> Self:
        """Returns the factory of the envs for training, which may differ from the envs for evaluation."""
        return self

    @abstractmethod
    def make(self, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
        """Returns a new env."""

    def make_vector(self, env_num: int, render_mode: str | None = None) -> VectorEnv | None:
        """Returns N envs in their own vector form, or None where there is none."""
        return None

    def pool_task(self, render_mode: str | None = None) -> PoolTask:
        """Returns the task of EnvPool that equals the env.

        Raises:
            EnvError: If EnvPool cannot have it.
        """
        raise EnvError('EnvPool makes its own envs, not these', where='env.type', expected="'gym' or 'atari'")

    def create(self, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
        """Returns a new env with the wrappers that the options ask for: stacked frames, and its action mask.

        If it must find out whether the env has a mask, it resets one env and closes it again.

        Raises:
            EnvError: See ``check_layers``.
        """
        from rlframe.envs.action_mask import MaskedEnv, gives_mask, may_give_mask

        env = self._made(render_mode)
        if self._gives_mask is None:
            self._gives_mask = False
            if may_give_mask(env):
                self._gives_mask = gives_mask(env)
                env.close()
                env = self._made(render_mode)
        return MaskedEnv(env) if self._gives_mask else env

    def _made(self, render_mode: str | None) -> gymnasium.Env[Any, Any]:
        env = self.make(render_mode)
        check_layers([env], self._known_layers)
        return acting_by_rows(self._stacked(env))

    def create_vector(self, env_num: int, render_mode: str | None = None) -> VectorEnv | None:
        """Returns N envs in their own vector form, or None if none supports the options.

        Raises:
            EnvError: If the env exists in vector form only, and the options ask for single envs; see also
                ``check_layers``.
        """
        for name, is_asked in (
            ('frame_stack', self.cfg.frame_stack > 1),
            ('action_mask', self.cfg.action_mask),
            ('wrappers', self.cfg.get('wrappers')),
        ):
            if is_asked and self.only_vector:
                raise EnvError(
                    'this is for single envs, and there is a vector form only',
                    where=f'env.{name}',
                    remedy='Do it in the class, or the game, that env_id names.',
                )
            if is_asked:
                return None
        env = self.make_vector(env_num, render_mode)
        if env is not None:
            check_layers([env], self._known_layers)
        return acting_by_rows(env)

    def _stacked(self, env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
        if self.cfg.frame_stack == 1:
            return env
        from gymnasium.wrappers import FrameStackObservation

        check_stack_memory(env.observation_space, self.cfg.frame_stack)
        return FrameStackObservation(env, self.cfg.frame_stack)

    def first_schedule(self) -> dict[str, Any]:
        """Returns the values of ``env.schedule`` before training, by name."""
        return first_values(self.cfg.schedule)

    def make_judge(self) -> gymnasium.Env[Any, Any]:
        """Returns an env that judges steps by other goals, and is never stepped."""
        return self.create()

    def goals(self) -> EnvGoals:
        """Returns what judges steps by other goals.

        Raises:
            IncompatibleError: If the env has no ``compute_reward``.
        """
        from rlframe.envs.goals import EnvGoals

        return EnvGoals(self).find()

    @property
    def spec(self) -> EnvSpec:
        """The observation and action spaces of one player.

        The first read makes an env and closes it, unless a manager has made some already.

        Raises:
            EnvStartError: If the env's constructor fails.
        """
        if 'spec' not in self._known:
            try:
                env = (self.create_vector(1) if self.only_vector else None) or self.create()
            except RLFrameError:
                raise
            except Exception as error:
                raise start_failed(0, error) from error
            self._known['spec'] = spec_of(env)
            check_scheduled(env, self.cfg.schedule)
            env.close()
        spec = self._known['spec']
        return spec.player or spec

    @spec.setter
    def spec(self, spec: EnvSpec) -> None:
        self._known['spec'] = spec


def acting_by_rows(env: E) -> E:
    """Returns an env, or a vector env, whose actions are rows of numbers if they have parts; see ``Composite``.

    It is unchanged if they have none, or if a part cannot be in a row.
    """
    if getattr(env, 'gives_tensors', False):
        return env  # and refuses such actions itself
    single = getattr(env, 'single_action_space', None)
    space: Any = single if single is not None else getattr(env, 'action_space', None)
    if not fields_of(space):
        return env
    from rlframe.data.composite import Composite, by_rows
    from rlframe.envs.composite_env import CompositeEnv, CompositeVectorEnv

    rows: Any = by_rows(space)
    wrapper: Any = CompositeEnv if single is None else CompositeVectorEnv
    made: E = wrapper(env, rows) if isinstance(rows, Composite) else env
    return made


def check_stack_memory(frame: gymnasium.Space[Any], frame_stack: int) -> None:
    """Refuses stacks of frames that this machine's free memory cannot hold.

    Raises:
        ResourceError: With the needed and the free memory.
    """
    dtype, shape = obs_dtype(frame)
    nbytes = STACK_COPIES * frame_stack * math.prod(shape) * dtype.itemsize
    demand_memory(nbytes, 'a stack of frames', 'env.frame_stack')


class KnownLayers(weakref.WeakValueDictionary[int, Any]):
    """The layers of envs that still exist, by id; a copy for another process, where they do not exist, is empty."""

    def __reduce__(self) -> tuple[type[KnownLayers], tuple[()]]:
        return KnownLayers, ()


def check_layers(envs: Iterable[Any], known: KnownLayers | None = None) -> None:
    """Checks that new envs share no layer with each other or with earlier ones, and that none learns statistics.

    Raises:
        EnvError: If one shares or learns.
    """
    known = KnownLayers() if known is None else known
    for layer in (layer for env in envs for layer in _objects_of(env)):
        name = type(layer).__name__
        if known.get(id(layer)) is layer:
            raise EnvError(
                f'two envs share one {name} object, and would step and reset it in turn',
                where='env.env_id',
                got='the same one again',
                expected='a new env, with all that it wraps, at each call',
                remedy='Create it inside of the function or class that env.env_id names, without a cache.',
            )
        known[id(layer)] = layer
        bases = [base for base in type(layer).__mro__ if base.__module__.startswith('gymnasium.wrappers.')]
        options = [LEARNING[base.__name__] for base in bases if base.__name__ in LEARNING]
        if options and layer.update_running_mean:
            raise EnvError(
                'statistics that a wrapper learns are missing in evaluations and in an exported policy',
                where='env.wrappers',
                got=name,
                expected=f'policy.{options[0]}=True in its place',
            )


def _objects_of(env: Any) -> list[Any]:
    """Returns the wrappers and games within an env or a vector env, if they can be found again."""
    layers = layers_of(env)
    games = [getattr(game, 'unwrapped', game) for game in getattr(layers[-1], 'live_games', ())]
    found = (*layers, *members_of(layers[-1]), *games)
    return [each for each in found if type(each).__weakrefoffset__]


def seed_spaces(env: Any, seed: int | None) -> None:
    """Seeds the generators of an env's spaces, which are part of its state; unseeded, they use the system's entropy.

    Args:
        env: An env or a vector env; the spaces of all that it wraps are seeded as well.
        seed: Seed of the env's reset.
    """
    for layer in layers_of(env):
        for name in SPACES:
            if (space := getattr(layer, name, None)) is not None:
                space.seed(seed)
