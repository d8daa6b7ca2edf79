"""Rollout: the only place that connects a policy and an env."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from rlframe.data.timestep import (
    NO_INFO,
    Array,
    Batch,
    BoolArray,
    EnvSpec,
    IntArray,
    TimeStep,
    is_finite,
)
from rlframe.errors import IncompatibleError, NonFiniteError
from rlframe.utils.schema import check_state, dict_of, rows

DEFAULT_LENGTH = 27_000
"""Maximum env steps of an evaluated episode without a time limit: half an hour of Atari, the usual limit there."""
NO_ENV = np.zeros(0, np.int64)
NO_OUTPUT = Batch(action=NO_ENV)


class Step(NamedTuple):
    """The rows of one step: each row's obs, output and timestep belong together."""

    obs: Array
    """Observation that the action was chosen for, [n, ...]."""
    output: Batch
    """Output of the policy, [n]."""
    timestep: TimeStep
    """Result of the step, [n]."""
    done: BoolArray
    """True where the episode ended, [n]; those envs have begun the next one."""
    finished: IntArray
    """The envs whose episode ended."""
    abnormal: IntArray
    """Envs whose step was declared void by ``info['abnormal']``: no row has it, and they began a new episode."""


class Env(Protocol):
    """Interface of an env manager for a rollout."""

    spec: EnvSpec
    env_num: int
    obs: Array
    ready: IntArray
    alive: IntArray

    can_begin_anew: bool

    def step(self, action: Array, env_id: IntArray) -> TimeStep: ...
    def reset(self, env_id: IntArray | None = None, seed: Sequence[int | None] | None = None) -> None: ...


class Actor(Protocol):
    """Interface of a policy for a rollout: its collect or its eval face."""

    @property
    def forward(self) -> Callable[..., Batch]: ...
    @property
    def reset(self) -> Callable[[IntArray | None], None]: ...


class Rollout:
    """Steps envs under a policy and hands out every finished step.

    It resets finished envs. The caller decides what to record, when to stop and what to log. The arrays of a ``Step``
    belong to the env manager: copy what must outlast the next step.

    Args:
        env: The envs.
        policy: Chooses the actions.
        episode_seed: Returns the seed of the next episode of each given env; by default, envs continue with their own
            generators.
        limit: Cuts episodes that are too long. Envs that can only be reset together continue their episode until all
            envs are reset.

    Raises:
        IncompatibleError: If the env has several players, and the policy is that of one.
    """

    def __init__(
        self,
        env: Env,
        policy: Actor,
        episode_seed: Callable[[IntArray], Sequence[int | None]] | None = None,
        limit: EpisodeLimit | None = None,
    ) -> None:
        if env.spec.player_num != getattr(policy, 'player_num', 1):
            raise IncompatibleError(
                f'{env.spec.name} has {env.spec.player_num} players, but this policy acts for one player',
                where='policy',
                remedy="Envs of several players need collector.type='sample_1v1' or 'episode_1v1' and"
                " evaluator.type='battle_interaction'.",
            )
        self._env, self._episode_seed, self._limit = env, episode_seed, limit
        self._whole: IntArray | None = None  # last ids that were seen to name all envs in order
        self.policy = policy
        # obs and output that each busy env was last acted on with, [N, ...]
        self._slots: dict[str, Array] = {}

    @property
    def policy(self) -> Actor:
        """The policy that chooses the actions; another may take over at any time."""
        return self._policy

    @policy.setter
    def policy(self, policy: Actor) -> None:
        self._policy = policy
        self._on_rows = getattr(policy.forward, 'on_rows', None)  # a call less at every step

    def step(self, env_id: IntArray | None = None, **settings: Any) -> Step:
        """Acts once in every ready env, or in those given, and returns the envs that have finished a step.

        These may be others, or none, if envs do not wait for each other.

        Args:
            env_id: Envs to act in, all ready, [n]; if empty, waits for busy envs.
            settings: Arguments of the policy's ``forward``, such as ``eps``.

        Raises:
            NonFiniteError: If an action of the policy is NaN or infinite; no env was stepped.
        """
        # act
        env = self._env
        acting = env.ready if env_id is None else env_id
        obs = env.obs if acting is self._whole or self._is_whole(acting) else env.obs[acting]
        forward = self._on_rows or self._policy.forward
        output = forward(obs, acting, **settings) if len(acting) else NO_OUTPUT
        _check_finite(output, acting)

        # step the envs
        timestep = env.step(output['action'], acting)
        if timestep.env_id is not acting:
            obs, output = self._pair(acting, obs, output, timestep.env_id)
        done = timestep.done
        finished = timestep.env_id[done] if True in done.tolist() else NO_ENV
        step = Step(obs, output, timestep, done, finished, NO_ENV)
        if timestep.info and timestep.info[0] is not NO_INFO:
            normal = np.array([not info.get('abnormal') for info in timestep.info])
            if not normal.all():
                step = rows_of(step, normal, timestep.env_id[~normal])
        if self._limit is not None:
            step = self._limit.apply(step)

        # begin new episodes
        restarting = np.concatenate([step.finished, step.abnormal]) if len(step.abnormal) else step.finished
        if self._limit is not None and len(self._limit.cut) and not env.can_begin_anew:
            restarting = np.setdiff1d(restarting, self._limit.cut)
        if len(restarting):
            env.reset(restarting, self._episode_seed(restarting) if self._episode_seed else None)
            self._policy.reset(restarting)
        return step

    def _is_whole(self, acting: IntArray) -> bool:
        """Whether these are all envs in order, so that their observations need no picking out."""
        if len(acting) != self._env.env_num or (acting[:-1] > acting[1:]).any():
            return False
        self._whole = acting
        return True

    def _pair(self, acting: IntArray, obs: Array, output: Batch, answered: IntArray) -> tuple[Array, Batch]:
        """Stores the inputs of the acting envs and returns the stored inputs of the envs that answered."""
        columns = {'obs': obs, **dict(output.items())} if len(acting) else {}
        for name, column in columns.items():
            if name not in self._slots:
                self._slots[name] = np.zeros((self._env.env_num, *column.shape[1:]), column.dtype)
            self._slots[name][acting] = column
        rows = {name: slots[answered] for name, slots in self._slots.items()}
        return rows.pop('obs', obs), Batch.unchecked(rows, len(answered))

    def state_dict(self) -> dict[str, Any]:
        """Returns the inputs of the busy envs."""
        return {name: slots.copy() for name, slots in self._slots.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the state from ``state_dict()``."""
        check_state(state, dict_of(rows(self._env.env_num)))
        self._slots = {name: slots.copy() for name, slots in state.items()}


def _check_finite(output: Batch, env_id: IntArray) -> None:
    """Checks the output of a policy, [n]; only its actions must be finite: a masked one may have the logit -inf."""
    for name, column in output.items():
        if not isinstance(column, np.ndarray) or is_finite(column):
            continue
        bad = np.isnan(column) if name != 'action' else ~np.isfinite(column)
        rows = np.flatnonzero(bad.reshape(len(column), -1).any(1))
        if len(rows):
            raise NonFiniteError(
                f"env {int(env_id[rows[0]])}: the policy's {name} is {column[rows[0]]}",
                remedy='Has its network diverged? Lower policy.learn.learning_rate or policy.learn.grad_clip_norm.',
            )


def rows_of(step: Step, keep: BoolArray, abnormal: IntArray) -> Step:
    """Returns the rows ``keep`` [n] of a step; ``abnormal`` are the envs whose step was discarded."""
    timestep = step.timestep
    kept = TimeStep(
        timestep.obs[keep],
        timestep.reward[keep],
        timestep.terminated[keep],
        timestep.truncated[keep],
        [info for info, is_kept in zip(timestep.info, keep, strict=True) if is_kept],
        timestep.env_id[keep],
    )
    done = step.done[keep]
    return Step(step.obs[keep], step.output[keep], kept, done, kept.env_id[done], abnormal)


class EpisodeLimit:
    """Marks steps as truncated when an episode reaches the maximum length.

    Args:
        spec: Spec of the envs; an env with its own time limit gets no other one by default.
        env_num: Number of envs, N.
        max_episode_len: Longest episode in env steps; None: none for envs with a time limit, else ``DEFAULT_LENGTH``.
    """

    def __init__(self, spec: EnvSpec, env_num: int, max_episode_len: int | None = None) -> None:
        if max_episode_len is None and spec.max_episode_steps is None:
            max_episode_len = DEFAULT_LENGTH
        self.max_episode_len = max_episode_len
        self.env_step = 0
        """Env steps so far, over all envs."""
        self.cut: IntArray = np.zeros(0, np.int64)
        """The envs whose episode was cut in the last step, [n]."""
        self._lengths = np.zeros(env_num, np.int64)

    def begin(self) -> None:
        """Counts new episodes in all envs."""
        self._lengths[:] = 0

    def apply(self, step: Step) -> Step:
        """Counts a step and returns it, with the rows of cut episodes marked as truncated."""
        env_id = step.timestep.env_id
        self.env_step += len(env_id)
        self._lengths[env_id] += 1
        longest = np.inf if self.max_episode_len is None else self.max_episode_len
        is_over = (self._lengths[env_id] >= longest) & ~step.done
        self.cut = env_id[is_over]
        if len(self.cut):
            timestep = step.timestep._replace(truncated=step.timestep.truncated | is_over)
            done = timestep.done
            step = step._replace(timestep=timestep, done=done, finished=env_id[done])
        self._lengths[step.finished] = self._lengths[step.abnormal] = 0
        return step
