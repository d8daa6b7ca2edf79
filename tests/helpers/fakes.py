"""Envs, managers, policies and writers whose every value tells where it comes from: a swapped row is a visible number."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np

from rlframe.data import Batch, TimeStep
from rlframe.envs import BaseEnvManager, IEnvManager
from rlframe.envs.base_env import EnvFactory
from rlframe.envs.vector_env import GymVectorEnvManager
from rlframe.policy import CollectMode, CommandMode, EvalMode, LearnMode
from rlframe.registry import ENV_MANAGER_REGISTRY

NUMBER, EPISODE, STEP = 0, 1, 2  # columns of a CountingEnv's obs


def counted_reward(number: Any, episode: Any, step: Any) -> Any:
    """The reward of the step that led to the obs (number, episode, step); exact in float32."""
    return 100_000 * number + 1000 * episode + step


class CountingEnv(gymnasium.Env):
    """Its obs is (env number, episode, step), episodes and steps counted from 0.

    Args:
        number: Which env it is.
        lengths: Steps of an episode: of each, of each in turn (the last one for ever), or by number of the episode.
        ending: 'terminated', 'truncated', or a function of the episode that says which.
        info: What a step says beside it, a function of (number, episode, step, done).
        reward: A function of (number, episode, step).
    """

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(
        self,
        number: int = 0,
        lengths: int | Sequence[int] | Callable[[int], int] = 5,
        ending: str | Callable[[int], str] = 'terminated',
        info: Callable[[int, int, int, bool], dict[str, Any]] | None = None,
        reward: Callable[[int, int, int], float] = counted_reward,
    ) -> None:
        self.number, self.episode, self.step_number, self.frames = number, -1, 0, 0
        self.seeds: list[int | None] = []
        self._lengths, self._ending, self._info, self._reward = lengths, ending, info, reward
        self.is_closed = False

    def length(self) -> int:
        if callable(self._lengths):
            return self._lengths(self.episode)
        if isinstance(self._lengths, int):
            return self._lengths
        return self._lengths[min(self.episode, len(self._lengths) - 1)]

    def _obs(self) -> np.ndarray:
        return np.array([self.number, self.episode, self.step_number], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.episode += 1
        self.step_number = 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        assert self.step_number < self.length(), 'stepped after the end of an episode'
        self.step_number += 1
        self.frames += 1
        done = self.step_number >= self.length()
        ending = self._ending if isinstance(self._ending, str) else self._ending(self.episode)
        here = (self.number, self.episode, self.step_number)
        info = self._info(*here, done) if self._info is not None else {}
        return (
            self._obs(),
            float(self._reward(*here)),
            done and ending == 'terminated',
            done and ending == 'truncated',
            info,
        )

    def render(self) -> np.ndarray:
        return np.full((4, 6, 3), 10 * self.episode + self.step_number, np.uint8)

    def close(self) -> None:
        self.is_closed = True


def counting_manager(env_num: int, **options: Any) -> BaseEnvManager:
    """Returns a manager of counting envs; an option given as a list of functions is one per env."""

    def own(i: int) -> dict[str, Any]:
        return {
            name: value[i] if isinstance(value, list) and callable(value[0]) else value
            for name, value in options.items()
        }

    return BaseEnvManager([partial(CountingEnv, i, **own(i)) for i in range(env_num)])


def vector_manager(make: Sequence[Callable[[], Any]], autoreset: str = 'NEXT_STEP') -> GymVectorEnvManager:
    """Returns a manager of these envs as a vector env that begins episodes in this way."""
    mode = gymnasium.vector.AutoresetMode[autoreset]
    return GymVectorEnvManager(lambda: gymnasium.vector.SyncVectorEnv(make, autoreset_mode=mode))


def manager_of(kind: tuple[str, dict[str, Any]], factory: EnvFactory, env_num: int) -> IEnvManager:
    """Returns a manager of a registered kind with options; ``autoreset`` is that of ``vector_manager``."""
    name, options = kind
    if 'autoreset' in options:
        return vector_manager([factory.create] * env_num, **options)
    return ENV_MANAGER_REGISTRY.get(name).from_factory(factory, env_num, options)


def envs_of(manager: Any) -> list[CountingEnv]:
    """Returns the envs inside a manager; envs of tensors are one."""
    if hasattr(manager, 'device_step'):
        return [manager._env.tensors]
    return list(getattr(manager, 'inner', manager).envs.values())


def frames_of(manager: Any) -> int:
    """Returns how often the envs of a manager were stepped."""
    return sum(env.frames for env in envs_of(manager))


class ShuffledEnvManager(IEnvManager):
    """Answers for a random part of the busy envs, in random order, and keeps the others busy."""

    def __init__(self, inner: BaseEnvManager, seed: int = 0) -> None:
        self.inner, self._rng = inner, np.random.default_rng(seed)
        self.env_num, self.spec = inner.env_num, inner.spec
        self._pending: dict[int, Any] = {}

    @classmethod
    def from_factory(cls, factory: Any, env_num: int, cfg: Any = None, render_mode: Any = None) -> Any:
        return cls(BaseEnvManager.from_factory(factory, env_num, None, render_mode))

    @property
    def obs(self) -> np.ndarray:
        return self.inner.obs

    @property
    def ready(self) -> np.ndarray:
        return self._rng.permutation([i for i in range(self.env_num) if i not in self._pending])

    @property
    def closed(self) -> bool:
        return self.inner.closed

    def launch(self) -> None:
        self.inner.launch()

    def reset(self, env_id: Any = None, seed: Any = None) -> None:
        if env_id is None:
            self._pending = {}
        self.inner.reset(env_id, seed)

    def step(self, action: np.ndarray, env_id: np.ndarray) -> TimeStep:
        assert not set(env_id.tolist()) & set(self._pending), 'a busy env was stepped'
        self._pending |= dict(zip(env_id.tolist(), action, strict=True))
        busy = self._rng.permutation(list(self._pending))
        answered = busy[: self._rng.integers(1, len(busy) + 1)]
        return self.inner.step(np.array([self._pending.pop(int(i)) for i in answered]), answered)

    def render(self, env_id: int) -> np.ndarray:
        return self.inner.render(env_id)

    def state_dict(self) -> dict[str, Any]:
        return self.inner.state_dict() | {'pending': {str(i): a for i, a in self._pending.items()}}

    def load_state_dict(self, state: Any) -> np.ndarray:
        lost = self.inner.load_state_dict(state)
        self._pending = {int(i): a for i, a in state['pending'].items() if int(i) not in lost}
        return lost

    def restart_lost(self) -> np.ndarray:
        return self.inner.restart_lost()

    def close(self) -> None:
        self.inner.close()


class ScriptedPolicy:
    """A policy whose output repeats what it was given: columns ``told`` (the obs) and ``acted`` (the env id).

    Args:
        updates: What the learn face answers: a function of the batch, or a fixed answer.
        settings: What the command face answers.
        facts: Attributes such as ``n_sample``, ``on_policy``, ``nstep``, ``discount_factor``, ``batch_size``.
    """

    def __init__(self, updates: Any = None, settings: Any = None, **facts: Any) -> None:
        self.facts, self._updates, self._settings = facts, updates, settings or {}
        self.resets: list[Any] = []
        self.blocks: list[Batch] = []
        self.given_settings: list[dict[str, Any]] = []
        self.state = 0

    def get_attribute(self, name: str) -> Any:
        try:
            return self.facts[name]
        except KeyError:
            raise AttributeError(name) from None

    def set_attribute(self, name: str, value: Any) -> None:
        self.facts[name] = value

    def reset(self, env_id: Any = None) -> None:
        self.resets.append(None if env_id is None else sorted(int(i) for i in env_id))

    def state_dict(self) -> dict[str, Any]:
        return {'state': self.state}

    def load_state_dict(self, state: Any) -> None:
        self.state = state['state']

    def forward(self, obs: np.ndarray, env_id: np.ndarray, **settings: Any) -> Batch:
        self.given_settings.append(settings)
        return Batch(action=np.zeros(len(env_id), np.int64), told=obs.copy(), acted=env_id.copy())

    def process_transition(self, obs: Any, output: Batch, timestep: TimeStep) -> dict[str, Any]:
        return {
            'obs': obs,
            'next_obs': timestep.obs,
            'action': output['action'],
            'reward': timestep.reward,
            'terminated': timestep.terminated,
            'truncated': timestep.truncated,
            'told': output['told'],
            'acted': output['acted'],
            'env_id': timestep.env_id,
        }

    def get_train_sample(self, block: Batch) -> Batch:
        self.blocks.append(block)
        real = block['mask'] if 'mask' in block else np.ones(block['reward'].shape, bool)
        return Batch({name: column[real] for name, column in block.items() if name != 'mask'})

    def learn(self, data: Any, **settings: Any) -> Any:
        self.given_settings.append(settings)
        self.state += 1
        answer = self._updates(data) if callable(self._updates) else self._updates
        return {'total_loss': 1.0} if answer is None else answer

    @property
    def _named(self) -> tuple[Any, ...]:
        """What every face ends with."""
        return self.get_attribute, self.set_attribute, self.state_dict, self.load_state_dict

    @property
    def collect_mode(self) -> CollectMode:
        return CollectMode(
            self.forward, self.process_transition, self.get_train_sample, self.reset, *self._named
        )

    @property
    def eval_mode(self) -> EvalMode:
        return EvalMode(self.forward, self.reset, *self._named)

    @property
    def learn_mode(self) -> LearnMode:
        return LearnMode(
            self.learn, self.reset, lambda: 'scripted policy', lambda: ['total_loss'], *self._named
        )

    @property
    def command_mode(self) -> CommandMode:
        return CommandMode(
            lambda info: dict(self._settings),
            lambda info: {**self._settings, 'told': dict(info)},
            lambda info: dict(self._settings),
        )


class Terminal(io.StringIO):
    """What is shown on a terminal."""

    def isatty(self) -> bool:
        return True


class FakeBoard:
    """A ``tb_logger`` that remembers."""

    def __init__(self) -> None:
        self.scalars: list[tuple[str, float, int]] = []
        self.histograms: list[tuple[str, Any, int]] = []
        self.videos: list[tuple[str, np.ndarray, int]] = []

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self.scalars.append((tag, value, step))

    def add_histogram(self, tag: str, values: Any, step: int) -> None:
        self.histograms.append((tag, values, step))

    def add_video(self, tag: str, video: np.ndarray, step: int) -> None:
        self.videos.append((tag, video, step))

    def last(self, tag: str) -> float:
        """Returns the value that was written last."""
        return [value for name, value, _ in self.scalars if name == tag][-1]

    def tags(self) -> set[str]:
        """Returns all tags."""
        return {tag for tag, _, _ in self.scalars}


def config_pair(
    policy: str = 'dqn', env_id: Any = 'CartPole-v1', manager: str = 'base', **sections: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns a small main and create config.

    Args:
        policy: Type of the policy.
        env_id: The env.
        manager: Type of the env manager.
        sections: ``env``, ``learn``, ``collect``, ``other``, ``model`` and ``evaluator`` add to these sections, ``policy_`` to
            the policy's own keys, ``buffer``, ``collector`` and ``manager_`` to ``create_config``; anything else is a top-level key.
    """
    n_sample, batch_size = (8, 16) if policy == 'dqn' else (64, 32)
    env = dict(env_id=env_id, collector_env_num=4, evaluator_env_num=2, n_evaluator_episode=2, stop_value=1e9)
    main: dict[str, Any] = dict(
        exp_name='toy',
        env=env | sections.pop('env', {}),
        policy=dict(
            cuda=False,
            model=dict(encoder_hidden_size_list=[16]) | sections.pop('model', {}),
            learn=dict(batch_size=batch_size, learner=dict(hook=dict(log_show_after_iter=4)))
            | sections.pop('learn', {}),
            collect=dict(n_sample=n_sample, collector=dict(collect_print_freq=8))
            | sections.pop('collect', {}),
            eval=dict(evaluator=dict(eval_freq=20) | sections.pop('evaluator', {})),
            other=sections.pop('other', {}),
        )
        | sections.pop('policy_', {}),
    )
    create: dict[str, Any] = dict(
        env=dict(type='gym'),
        env_manager=dict(type=manager) | sections.pop('manager_', {}),
        policy=dict(type=policy),
        collector=dict(type='sample') | sections.pop('collector', {}),
    )
    if policy == 'dqn':
        main['policy']['other'] = dict(replay_buffer=dict(replay_buffer_size=500)) | main['policy']['other']
        create['replay_buffer'] = dict(type='naive')
    if 'buffer' in sections:
        create['replay_buffer'] = dict(type='naive') | sections.pop('buffer')
    return main | sections, create
