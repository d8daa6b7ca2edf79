"""The collector of training samples that stay on a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rlframe.data.faces import TensorMode, attribute_of
from rlframe.data.staging import numbered
from rlframe.data.timestep import Batch, FloatArray, IntArray
from rlframe.errors import IncompatibleError, NonFiniteError
from rlframe.registry import SERIAL_COLLECTOR_REGISTRY
from rlframe.utils.field import Field
from rlframe.utils.lazy import LazyModule
from rlframe.utils.schema import TENSOR, array, check_state
from rlframe.utils.seed import env_seed, restore_generator
from rlframe.worker.collector.base_serial_collector import SerialCollector
from rlframe.worker.collector.episode_log import too_long

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule('torch')

Columns = dict[str, 'torch.Tensor']

ACTIONS = 'actions'
"""Purpose of the seed of the generator that draws actions."""
NO_INFOS = Field(
    None,
    type=(str, list, type(None)),
    doc='None: infos of envs of tensors are not read',
    check=lambda value: '' if value is None else 'None: infos of envs of tensors are not read',
)
NO_COLUMNS = Field(
    [],
    doc='[]: infos of envs of tensors are not read',
    check=lambda names: '[]: infos of envs of tensors are not read' if names else '',
)
NO_MARKS = Field(False, choices=(False,), doc='False: these rows go to no replay buffer')


def to_tensor_transitions(
    data: Batch | Sequence[Mapping[str, Any]], shallow_copy_next_obs: bool = True
) -> Batch | list[dict[str, Any]]:
    """Turns numpy transitions into tensors; float64 becomes float32.

    A ``Batch`` becomes a ``Batch`` of tensors that shares memory where it can. A list of dicts, which must be one
    trajectory in order, becomes a list of new dicts.

    Args:
        data: The transitions.
        shallow_copy_next_obs: For a list: ``next_obs`` of each row is the very tensor ``obs`` of the following one, so
            that each observation is kept once; only the last row has its own.
    """
    import torch

    def tensor(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            value = torch.as_tensor(value)
        return value.float() if isinstance(value, torch.Tensor) and value.dtype == torch.float64 else value

    if isinstance(data, Batch):
        return data.map(tensor)
    rows = [{name: tensor(value) for name, value in row.items() if name != 'next_obs'} for row in data]
    for i, row in enumerate(data):
        if 'next_obs' in row:
            shared = shallow_copy_next_obs and i + 1 < len(rows)
            rows[i]['next_obs'] = rows[i + 1]['obs'] if shared else tensor(row['next_obs'])
    return rows


class Block(NamedTuple):
    """The data of one call of ``block``."""

    rows: Batch
    """Columns [T, N, ...], tensors on the device."""
    episodes: FloatArray
    """Return, length and success (NaN) of the ended episodes, [n, 3]."""
    lengths: IntArray
    """Env steps of the running episodes, [N]."""


class TensorRollout:
    """Acts and steps on a device; only the end of a block waits for it.

    Args:
        env: A manager with ``device``, ``device_obs``, ``device_step`` and ``device_steps``.
        policy: Collect face of a policy.
        seed: Seed of the actions, which a ``torch.Generator`` on the device draws.

    Raises:
        IncompatibleError: If the policy cannot act by tensors, or not on the device of the envs.
    """

    def __init__(self, env: Any, policy: Any, seed: int) -> None:
        self._env = env
        self.policy = policy
        self._generator = torch.Generator(env.device).manual_seed(seed)
        # undiscounted return of each running episode, [N]
        self._return = torch.zeros(env.env_num, dtype=torch.float64, device=env.device)
        self.why_inexact = ''
        """Why the run does not continue exactly after a restore; empty if it does."""

    @property
    def policy(self) -> Any:
        """The policy that chooses the actions; another may take over between two blocks."""
        return self._policy

    @policy.setter
    def policy(self, policy: Any) -> None:
        self._mode = _mode_of(policy, self._env.device)
        self._policy = policy

    def block(
        self, steps: int, settings: Mapping[str, Any], on_step: Callable[[], None] | None = None
    ) -> Block:
        """Takes ``steps`` steps of each env, and calls ``on_step`` after each; the policy's ``forward`` gets ``settings``.

        Raises:
            NonFiniteError: If a reward, an observation or an output of the policy is NaN or infinite.
        """
        rows: Columns = {}
        ends: Columns = {}
        for t in range(steps):
            obs, before = self._env.device_obs, self._env.device_steps
            action, columns = self._mode.forward(obs, self._generator, **settings)
            # before the step, in which an env may write to its own tensors
            _put(rows, t, steps, obs=obs, **columns)
            step = self._env.device_step(action)
            done = step.terminated | step.truncated
            _put(rows, t, steps, reward=step.reward, terminated=step.terminated, truncated=step.truncated)
            is_over = done.reshape(-1, *(1,) * (step.obs.ndim - 1))
            _put(rows, t, steps, next_obs=torch.where(is_over, step.final_obs, step.obs))
            self._return += step.reward
            _put(ends, t, steps, return_=self._return, length=before + 1)
            self._return.masked_fill_(done, 0.0)
            if on_step is not None:
                on_step()
        batch = Batch(rows)
        _check_finite(batch)
        lengths: IntArray = self._env.device_steps.cpu().numpy()
        return Block(batch, _episodes(batch, ends), lengths)

    def samples(self, rows: Batch) -> Batch:
        """Turns the rows of a block [T, N, ...] into the policy's training samples [M, ...]."""
        return self._mode.get_train_sample(rows)

    def forget(self, env_id: IntArray) -> None:
        """Begins anew to sum up the returns of these envs."""
        self._return[torch.as_tensor(env_id, device=self._return.device)] = 0.0

    def state_dict(self) -> dict[str, Any]:
        """Returns the generator of the actions and the returns of the running episodes."""
        return {'generator': self._generator.get_state(), 'return': self._return.cpu().numpy().copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the state from ``state_dict()``; the generator of another type of device cannot be restored."""
        check_state(state, {'generator': TENSOR, 'return': array('f', tuple(self._return.shape))})
        self._return = torch.as_tensor(state['return']).to(self._return.device, torch.float64, copy=True)
        if not restore_generator(self._generator, state['generator']):
            self.why_inexact = (
                f'actions were not drawn on {self._env.device.type}, whose generator draws others'
            )


def _put(columns: Columns, t: int, steps: int, **rows: torch.Tensor) -> None:
    """Copies rows into step ``t`` of columns [steps, ...]; a column is allocated at its first row."""
    for name, row in rows.items():
        if name not in columns:
            columns[name] = torch.empty((steps, *row.shape), dtype=row.dtype, device=row.device)
        columns[name][t].copy_(row)


def _episodes(rows: Batch, ends: Mapping[str, torch.Tensor]) -> FloatArray:
    """Returns return, length and success (NaN) of the episodes that ended in a block, oldest first, [n, 3]."""
    at = (rows['terminated'] | rows['truncated']).nonzero(as_tuple=True)
    found = torch.stack([ends['return_'][at], ends['length'][at].double()], 1).cpu().numpy()
    return np.concatenate([found, np.full((len(found), 1), np.nan)], 1)


def _check_finite(rows: Batch) -> None:
    """Checks the columns [T, N, ...] of a block; one flag of all of them is read."""
    floats = [(name, column) for name, column in rows.items() if column.is_floating_point()]
    if bool(torch.stack([column.isfinite().all() for _, column in floats]).all()):
        return
    bad = {name: (~column.isfinite()).nonzero() for name, column in floats}
    first = {name: at[0, :2].tolist() for name, at in bad.items() if len(at)}
    name = min(first, key=lambda name: first[name][0])
    step, env = first[name]
    is_policy = name not in ('obs', 'next_obs', 'reward')
    raise NonFiniteError(
        f'env {env}, step {step} of the round: {"the policy" if is_policy else "the env"} gave {name}'
        f' {rows[name][step, env].tolist()}',
        remedy='Has its network diverged? Lower policy.learn.learning_rate or policy.learn.grad_clip_norm.'
        if is_policy
        else 'Nothing of this round was stored; the env must give finite numbers.',
    )


def _mode_of(policy: Any, device: torch.device) -> TensorMode:
    """Returns the interface of a policy for tensors on a device.

    Raises:
        IncompatibleError: If it has none.
    """
    mode: TensorMode | None = attribute_of(policy, 'tensor_mode')
    if mode is None:
        raise IncompatibleError(
            "the collector 'tensor' needs a policy that acts by tensors and learns from fresh data, such as ppo or pqn",
            where='policy.type',
            remedy="collector.type='sample' works with every policy.",
        )
    if numbered(mode.device) != numbered(device):
        raise IncompatibleError(
            f'the envs are on {device} and the policy is on {mode.device}',
            where='policy.device',
            got=str(mode.device),
            expected=repr(str(device)),
            remedy='Or set env.kwargs.device, if the class of the envs takes a device.',
        )
    return mode


@SERIAL_COLLECTOR_REGISTRY.register('tensor')
class TensorSerialCollector(SerialCollector):
    """Collects ``n_sample / N`` steps of each of N envs of tensors, for a policy that learns from fresh data.

    Observations, actions and training samples stay on the device of envs and policy, and no step waits for it. Returns and
    lengths of episodes are read once per call.
    """

    config = dict(info_metrics=NO_INFOS, info_columns=NO_COLUMNS, mark_episodes=NO_MARKS)

    def reset_env(self, _env: Any = None) -> None:
        if _env is not None and not hasattr(_env, 'device_step'):
            raise IncompatibleError(
                f"the collector 'tensor' steps envs of tensors, and {type(_env).__name__} has none",
                where='env.manager.type',
                expected="'torch_vector'",
                got=type(_env).__name__,
            )
        super().reset_env(_env)

    def _begin(self) -> None:
        if self._env is None or self._policy is None:
            return
        seed = env_seed(self._seed, self._rank, 0, ACTIONS)
        self._rollout = TensorRollout(self._env, self._policy, seed)
        self._log.begin(self._env.env_num)
        self._recorder = self._make_recorder(self._env.env_num)  # always empty: each call takes its own rows

    def collect(
        self, n_sample: int | None = None, train_iter: int = 0, policy_kwargs: Mapping[str, Any] | None = None
    ) -> Batch:
        """Collects training samples.

        Args:
            n_sample: Number of env steps of all envs; by default, the policy's ``n_sample``.
            train_iter: Train iterations so far, stored in the column ``collect_iter``, an array.
            policy_kwargs: Arguments of the policy's ``forward``.

        Returns:
            The policy's training samples, tensors on the device.

        Raises:
            EpisodeTooLongError: If an env does not end its episode.
            ValueError: If the number of samples is unknown, less than 1 or not divisible by the number of envs.
        """
        target = self._target(n_sample)
        env_num = self._env.env_num
        steps, rest = divmod(target, env_num)
        if rest or not steps:
            raise ValueError(
                f'collection takes the same number of steps of each env: n_sample={target} is not divisible by'
                f' {env_num} envs'
            )
        start = perf_counter()
        block = self._rollout.block(steps, policy_kwargs or {}, self.on_step)
        samples: Batch = self._rollout.samples(block.rows)
        self._log.seconds += perf_counter() - start
        self._count(block)
        self._log.report(train_iter, self._more_metrics)
        return samples.replace(collect_iter=np.full(len(samples), train_iter, np.int32))

    def _count(self, block: Block) -> None:
        """Counts the steps and episodes of a block."""
        self._log.count(block.rows['reward'].numel(), len(block.episodes))
        self._log.add(block.episodes)
        limit = self._cfg.max_episode_len
        if block.lengths.max() > limit:
            raise too_long(block.lengths, limit, 'policy.collect.collector')

    @property
    def unsaved(self) -> Mapping[int, str]:
        why = self._rollout.why_inexact
        return super().unsaved or (dict.fromkeys(range(self._env.env_num), why) if why else {})

    def _forget(self, env_id: IntArray) -> bool:
        if len(env_id):
            self._rollout.forget(env_id)
        return super()._forget(env_id)
