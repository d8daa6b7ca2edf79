"""Any Gymnasium env from config: an id, ``module:id``, a class or a factory, with wrappers."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import pkgutil
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rlframe.envs.base_env import EnvConfig, EnvFactory, PoolTask
from rlframe.envs.env_checks import MINIGRID, NAMESPACES, are_plain_arguments, are_plain_wrappers, is_plain_id
from rlframe.errors import ConfigError, EnvError, MissingDependencyError
from rlframe.registry import ENV_REGISTRY, nearest
from rlframe.utils.field import REQUIRED, option
from rlframe.utils.lazy import LazyModule

if TYPE_CHECKING:
    import gymnasium as gym
else:
    gym = LazyModule('gymnasium')


EXTRAS = {
    'ale/': 'atari',
    'ale_py': 'atari',
    'cv2': 'atari',
    'box2d': 'box2d',
    'mujoco': 'mujoco',
    'minigrid': 'minigrid',
    'minatar': 'minatar',
    'highway': 'highway',
    'robotics': 'robotics',
    'popgym': 'popgym',
    'mpe2': 'mpe2',
    'lbforaging': 'lbforaging',
    'rware': 'rware',
    'overcooked': 'overcooked',
    'mo_gymnasium': 'mo-gymnasium',
    'shimmy': 'dm-control',
    'vizdoom': 'vizdoom',
    'envpool': 'envpool',
    'pettingzoo': 'pettingzoo',
}
"""Words in an id, an error or the name of a module that identify the extra of rlframe that installs the env."""
MODULES = {
    'highway_env': ('highway-', 'merge-', 'roundabout-', 'parking-', 'intersection-', 'racetrack-'),
    'gymnasium_robotics': (
        'Fetch',
        'HandManipulate',
        'HandReach',
        'AntMaze',
        'PointMaze',
        'Adroit',
        'FrankaKitchen',
    ),
    'panda_gym': ('Panda',),
    'miniworld': ('MiniWorld-',),
    'shimmy': ('dm_control/', 'GymV21', 'GymV26'),
    'PyFlyt.gym_envs': ('PyFlyt/',),
    'flappy_bird_gymnasium': ('FlappyBird-',),
    'sumo_rl': ('sumo-rl-',),
    'vizdoom.gymnasium_wrapper': ('Vizdoom',),
    'mo_gymnasium': ('mo-',),
    'popgym': ('popgym-',),
    'metaworld': ('Meta-World/',),
    'lbforaging': ('Foraging-',),
    'rware': ('rware-',),
}
"""Modules of other packages that register envs when imported, by the prefix of their ids."""
ENVPOOL_IDS = re.compile(
    r'(MetaWorld|MyoSuite|Jumanji|MuJoCoPlayground|gfootball)/|\w+(Easy|Hard)-v0'
    r'|(AcrobotSwingup|BallInCup|Cartpole|Cheetah|Finger|FishSwim|HopperHop|Humanoid(Stand|Walk|Run)|Manipulator|Quadruped'
    r'|Reacher(Easy|Hard)|Swimmer6|Walker(Run|Stand|Walk))'
)
"""Beginnings of the ids of EnvPool's families: MetaWorld, MyoSuite, Jumanji, Procgen, dm_control and others."""


class GymConfig(EnvConfig):
    """Options of ``GymEnvFactory``."""

    env_id: Any = option(
        REQUIRED,
        doc="Gymnasium id such as 'CartPole-v1', 'module:id', 'module:Class', a class or a factory",
        reaches='code',
        harmless=is_plain_id,
    )
    kwargs: dict[str, Any] = option(
        {}, doc='passed on to the env', reaches='code', harmless=are_plain_arguments
    )
    wrappers: list[Any] = option(
        [],
        doc="wrappers, innermost first: 'module:Class' or dict(type='module:Class', **kwargs)",
        reaches='code',
        harmless=are_plain_wrappers,
    )


@ENV_REGISTRY.register('gym')
class GymEnvFactory(EnvFactory):
    """Creates Gymnasium envs."""

    cfg: GymConfig
    _is_pooled = False
    """Whether EnvPool makes the envs, so that ``kwargs`` are its options."""

    def make(self, render_mode: str | None = None) -> gym.Env[Any, Any]:
        """Returns a new env.

        Raises:
            EnvError: If the id is unknown (the nearest ones are named) or its constructor fails.
            MissingDependencyError: If a package that it needs is not installed.
        """
        kwargs = self._kwargs(render_mode)
        env_id = self.cfg.env_id
        if self.only_vector:
            manager = 'torch_vector' if self.gives_tensors else 'gym_vector'
            raise EnvError(
                f'{env_id!r} is a vector env', where='env.env_id', remedy=f'Set env_manager.type={manager!r}.'
            )
        env = make_by_id(env_id, kwargs) if isinstance(env_id, str) else _call(env_id, kwargs)
        for wrapper in self.cfg.wrappers:
            env = _wrap(env, wrapper)
        return env

    def make_judge(self) -> gym.Env[Any, Any]:
        """Returns an env that computes rewards of goals; an id of EnvPool is made by the package that registers it, if known."""
        env_id = self.cfg.env_id
        is_foreign = isinstance(env_id, str) and (self._is_pooled or env_id not in gym.registry)
        module = module_of(env_id) if is_foreign else ''
        return make_by_id(f'{module}:{env_id}', {}) if module and is_installed(module) else self.create()

    def pool_task(self, render_mode: str | None = None) -> PoolTask:
        self._is_pooled = True
        task_id = self.cfg.env_id
        kwargs = self._kwargs(render_mode)
        if not isinstance(task_id, str):
            raise EnvError(
                'EnvPool makes its own envs', where='env.env_id', got=task_id, expected='a task id'
            )
        if self.cfg.wrappers:
            raise EnvError(
                'envs of EnvPool cannot be wrapped',
                where='env.wrappers',
                remedy="env.kwargs takes EnvPool's own options, such as max_episode_steps.",
            )
        if self.cfg.frame_stack > 1:
            raise EnvError(
                'EnvPool stacks frames itself',
                where='env.frame_stack',
                got=self.cfg.frame_stack,
                expected="1, and stack_num in env.kwargs, or env.type='atari'",
            )
        return PoolTask(task_id, kwargs)

    def __getstate__(self) -> dict[str, Any]:
        """Stores the registration of the env, for a process that has not run the code that registers it."""
        name = self.cfg.env_id.rpartition(':')[2] if isinstance(self.cfg.env_id, str) else ''
        return {**vars(self), '_registered': gym.registry.get(name)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        registered = state.pop('_registered')
        vars(self).update(state)
        if registered is not None:
            gym.registry.setdefault(registered.id, registered)

    def _kwargs(self, render_mode: str | None) -> dict[str, Any]:
        return {**self.cfg.kwargs, **({} if render_mode is None else {'render_mode': render_mode})}

    @property
    def _vector_class(self) -> Any:
        """The ``VectorEnv`` class that ``env_id`` is or names, or None."""
        target = self.cfg.env_id
        if isinstance(target, str):
            module, _, name = target.rpartition(':')
            target = getattr(import_named(module), name, None) if module else None
        return target if isinstance(target, type) and issubclass(target, gym.vector.VectorEnv) else None

    @property
    def only_vector(self) -> bool:  # type: ignore[override]  # only known once the module is imported
        return self._vector_class is not None

    @property
    def gives_tensors(self) -> bool:
        """Whether ``env_id`` is or names envs of tensors, a ``TensorVectorEnv``."""
        return bool(getattr(self._vector_class, 'gives_tensors', False))

    def make_vector(self, env_num: int, render_mode: str | None = None) -> Any:
        """Returns N envs as one vector env: a ``VectorEnv`` class called with ``num_envs``, or an id's own vector form.

        Raises:
            EnvError: If it cannot be made.
        """
        kwargs = self._kwargs(render_mode)
        env_id = self.cfg.env_id
        if (vector_class := self._vector_class) is not None:
            return vector_class(num_envs=env_num, **kwargs)
        registered = gym.registry.get(env_id) if isinstance(env_id, str) else None
        if getattr(registered, 'vector_entry_point', None) is None:
            return None
        try:
            return gym.make_vec(env_id, num_envs=env_num, vectorization_mode='vector_entry_point', **kwargs)
        except gym.error.Error as error:
            raise EnvError(f'cannot make {env_id!r} as a vector env: {error}', where='env.env_id') from error


def make_by_id(env_id: str, kwargs: Mapping[str, Any]) -> gym.Env[Any, Any]:
    """Creates the env of ``id``, ``module:id`` or ``module:Class``."""
    module, _, name = env_id.rpartition(':')
    found = import_named(module) if module else None
    if name not in gym.registry:
        if found is not None and hasattr(found, name):
            return _call(getattr(found, name), kwargs)
        import_namespace(name)
    try:
        spec = copy.copy(gym.spec(name))
        spec.order_enforce = (
            False  # the manager never steps an env before its reset, and checks the first steps itself
        )
        return gym.make(spec, disable_env_checker=True, **kwargs)
    except gym.error.DependencyNotInstalled as error:
        raise missing(env_id, str(error)) from error
    except (gym.error.Error, TypeError, ImportError) as error:
        is_near = name not in gym.registry and not ENVPOOL_IDS.match(name)
        is_near = is_near and bool(module or not module_of(name))  # its package is not imported
        near = nearest(name, gym.registry) if is_near else ''
        why = str(error).partition(' Did you mean')[0].rstrip('.')  # Gymnasium names no version
        raise EnvError(
            f'cannot make {env_id!r}: {why}.{near}',
            where='env.env_id',
            remedy='' if near or module or name in gym.registry else _module_advice(name),
        ) from error


def _call(factory: Callable[..., Any], kwargs: Mapping[str, Any]) -> gym.Env[Any, Any]:
    if not callable(factory):
        raise ConfigError(
            'bad value', where='env.env_id', got=factory, expected='an id, a class or a factory'
        )
    env = factory(**kwargs)
    if not isinstance(env, gym.Env):
        raise EnvError(
            f'{factory!r} made a {type(env).__name__}',
            where='env.env_id',
            remedy='It must return a gymnasium.Env.',
        )
    return env


def _wrap(env: gym.Env[Any, Any], wrapper: Any) -> gym.Env[Any, Any]:
    options = dict(wrapper) if isinstance(wrapper, Mapping) else {'type': wrapper}
    kind = options.pop('type', None)
    if isinstance(kind, str):
        module, _, name = kind.rpartition(':')
        try:
            kind = getattr(import_named(module or 'gymnasium.wrappers'), name)
        except AttributeError as error:
            raise ConfigError(
                f'no wrapper {name!r} in {module or "gymnasium.wrappers"}', where='env.wrappers'
            ) from error
    if not callable(kind):
        raise ConfigError(
            'bad value', where='env.wrappers', got=wrapper, expected="'module:Class' or dict(type=...)"
        )
    wrapped: gym.Env[Any, Any] = kind(env, **options)
    return wrapped


def import_named(module: str) -> Any:
    """Returns a module that the user named.

    Raises:
        EnvError, MissingDependencyError: If it cannot be imported.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        what = f'no module named {error.name!r}'
        if extra_of(error.name or ''):
            raise missing(module, what) from error
        raise EnvError(what, where='env.env_id', remedy='Is it installed?') from error


def _module_advice(name: str) -> str:
    """Returns advice on how to name the module that registers an env id unknown to Gymnasium, or which package has it."""
    if ENVPOOL_IDS.match(name):
        return f'EnvPool has such envs: pip install "rlframe[envpool]", and name it envpool:{name}.'
    module = module_of(name)
    which = 'If a package registers it'
    if module:
        package = module.partition('.')[0]
        extra = extra_of(module)
        wanted = f'rlframe[{extra}]' if extra else package
        install = '' if is_installed(module) else f' (not installed: pip install "{wanted}")'
        which = f'The package {package}{install} registers such ids'
    return f"{which}: name its module before the id, env.env_id='{module or 'module'}:{name}', or in import_names."


def module_of(name: str) -> str:
    """Returns the module of another package that registers such an id when it is imported; an empty string if none is known."""
    return next((module for module, starts in MODULES.items() if name.startswith(starts)), '')


def is_installed(module: str) -> bool:
    """Whether the package of a module is installed; it is not imported."""
    return importlib.util.find_spec(module.partition('.')[0]) is not None


def import_namespace(name: str) -> bool:
    """Imports the package that registers an id, in any case; returns whether rlframe knows the package."""
    namespace = name.partition('/')[0].lower() if '/' in name else ''
    modules = {known.lower(): module for known, module in NAMESPACES.items()}
    is_minigrid = name.lower().startswith(tuple(start.lower() for start in MINIGRID))
    module = modules.get(namespace) or ('minigrid' if is_minigrid else '')
    if module:
        found = import_needed(module, name)
        is_known = any(known.lower().startswith(f'{namespace}/') for known in gym.registry)
        if not is_known and hasattr(found, 'register_envs'):
            found.register_envs()  # minatar does not register its envs by itself
    return bool(module)


def extra_of(text: str) -> str:
    """Returns the extra of rlframe that an id, an error or a module is about; an empty string if there is none."""
    return next((extra for word, extra in EXTRAS.items() if word in text.lower()), '')


def how_to_install(*texts: str) -> str:
    """Returns the command that installs the first extra that a text names; an empty string if no text names one."""
    if game := re.match(r'pettingzoo\.(\w+)\.', texts[0]):
        return f'To install it: pip install "pettingzoo[{game[1]}]"'
    extra = next(filter(None, map(extra_of, texts)), '')
    return f'To install it: pip install "rlframe[{extra}]"' if extra else ''


def import_needed(module: str, env_id: str, where: str = 'env.env_id') -> Any:
    """Returns a module that an env needs.

    Raises:
        MissingDependencyError: If it cannot be imported; with the way to install it.
        EnvError: If its package is there, and has no such module; with the nearest one, perhaps another version of a game.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package, _, name = (error.name or '').rpartition('.')
        if package and f'{module}.'.startswith(f'{error.name}.'):  # so the package was imported
            path = getattr(importlib.import_module(package), '__path__', [])
            beside = [other.name for other in pkgutil.iter_modules(path)]
            if name not in beside:
                raise EnvError(f'{package} has no {name!r}.{nearest(name, beside)}', where=where) from error
        raise missing(env_id, str(error), where, module) from error


def missing(what: Any, why: str, where: str = 'env.env_id', module: str = '') -> MissingDependencyError:
    """Returns the error about a package that an env needs, with the way to install it, unless the reason has one."""
    return MissingDependencyError(
        f'{what!r} needs a package that is not installed: {why}',
        where=where,
        remedy='' if 'pip install' in why else how_to_install(module, repr(what), why),
    )
