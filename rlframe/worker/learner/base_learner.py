"""BaseLearner: updates a policy and runs the hooks around each update."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from easydict import EasyDict

from rlframe.data import Batch
from rlframe.data.timestep import to_array
from rlframe.errors import BufferUnderflowError, ConfigError, NonFiniteError
from rlframe.option_names import named
from rlframe.registry import LEARNER_REGISTRY, with_type
from rlframe.run.metrics import ScalarWriter
from rlframe.run.progress import Progress, TrainIter
from rlframe.run.read_checkpoint import CKPT, RESUMABLE, SUFFIX, load_checkpoint
from rlframe.run.write_checkpoint import save_checkpoint
from rlframe.utils.every import Every
from rlframe.utils.field import Configurable, Section, option
from rlframe.utils.schema import COUNT, DICT, Kind, check_state, dict_of, loading, part
from rlframe.worker.learner.learner_hook import (
    ITER_POSITIONS,
    POSITIONS,
    LearnerHook,
    add_learner_hook,
    are_plain_hooks,
    build_learner_hook_by_cfg,
    check_hooks,
    hook_errors,
)

MONITOR_WINDOW = 1000
"""Most iterations that a mean of training variables is taken over."""
STATE = {'policy': DICT, 'progress': DICT, 'learned_at?': COUNT}


def _is_series(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(isinstance(item, int | float) for item in value)
    return getattr(value, 'ndim', 0) == 1


def _series(values: Sequence[Any]) -> Any:
    """Returns values as one tensor, on the device of the newest value, or as a list if they are no tensors."""
    import torch

    if not isinstance(values[-1], torch.Tensor):
        return list(values)
    return torch.stack([torch.as_tensor(value, device=values[-1].device) for value in values])


MONITOR_STATE = dict_of(Kind('a list of numbers, or a tensor of them', _is_series))


class Monitor:
    """Keeps the training variables of the iterations since they were last shown; tensors are read only when asked."""

    def __init__(self) -> None:
        self._values: dict[str, deque[Any]] = {}

    def add(self, variables: Mapping[str, Any]) -> None:
        """Notes the variables of one iteration."""
        for name, value in variables.items():
            if name not in self._values:
                self._values[name] = deque(maxlen=MONITOR_WINDOW)
            self._values[name].append(value)

    def replace_last(self, variables: Mapping[str, Any]) -> None:
        """Corrects the last noted values."""
        for name, value in variables.items():
            self._values[name][-1] = value

    def means(self) -> dict[str, float]:
        """Returns the mean of each variable since the last ``take_means``."""
        return {
            name: sum(values) / len(values) if isinstance(values, list) else float(values.double().mean())
            for name, values in self.state_dict().items()
        }

    def state_dict(self) -> dict[str, Any]:
        """Returns the values noted since the last ``take_means``."""
        return {name: _series(values) for name, values in self._values.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``."""
        check_state(state, MONITOR_STATE)
        self._values = {name: deque(row, maxlen=MONITOR_WINDOW) for name, row in state.items() if len(row)}

    def take_means(self) -> dict[str, float]:
        """Returns the means and begins anew."""
        means = self.means()
        self._values = {}
        return means


class LoaderConfig(Section):
    """Section ``dataloader`` of a learner."""

    num_workers: int = option(0, range='[0, inf)', ignored='start() fetches batches itself', may_change=True)


class LearnerConfig(Section):
    """Options of ``BaseLearner``."""

    train_iterations: int = option(
        10**9, range='[1, inf)', unit='train iterations', doc='number of updates of start()', may_change=True
    )
    dataloader: LoaderConfig
    log_policy: bool = option(True, doc='whether to log the network', may_change=True)
    is_multitask_pipeline: bool = option(False, doc='whether every rank logs', may_change=True)
    only_monitor_rank0: bool = option(True, doc='whether only rank 0 logs', may_change=True)
    hook: dict[str, Any] = option(
        dict(
            load_ckpt_before_run='',
            log_show_after_iter=100,
            save_ckpt_after_iter=10000,
            save_ckpt_after_run=True,
        ),
        doc='hooks, as build_learner_hook_by_cfg reads them',
        check=check_hooks,
        may_change=True,
        reaches='code',
        harmless=are_plain_hooks,
    )


@LEARNER_REGISTRY.register('base')
class BaseLearner(Configurable):
    """Updates a policy and runs the hooks around each update.

    Args:
        cfg: Options of the learner.
        policy: Learn face of a policy; can be set later as ``learner.policy``.
        tb_logger: Writes metrics; None writes none. The caller closes it.
        dist_info: Rank and world size; by default those of torch.distributed, if it is in use.
        exp_name: Folder of checkpoints that the learner saves by itself.
        instance_name: Name of this learner, for the log.
        progress: Counters shared with the other workers; its own if not given.
    """

    _cfg: LearnerConfig

    @classmethod
    def check_config(cls, cfg: LearnerConfig) -> list[ConfigError]:
        return hook_errors(cfg.hook)

    def __init__(
        self,
        cfg: EasyDict | Mapping[str, Any] | None,
        policy: Any = None,
        tb_logger: ScalarWriter | None = None,
        dist_info: tuple[int, int] | None = None,
        exp_name: str = 'default_experiment',
        instance_name: str = 'learner',
        *,
        progress: Progress | None = None,
    ) -> None:
        self._cfg = self.resolve_config(cfg)
        self.tb_logger = tb_logger
        """Writer of metrics, or None."""
        self.rank, self.world_size = dist_info if dist_info is not None else _dist_info()
        self.exp_name, self.instance_name = exp_name, instance_name
        self.logger = logging.getLogger(f'rlframe.{instance_name}')
        """The text log."""
        self.monitor = Monitor()
        """Means of training variables."""
        self.log_buffer: dict[str, dict[str, Any]] = {'scalar': {}, 'scalars': {}, 'histogram': {}}
        """Measurements of the last iteration."""
        self.priority_info: dict[str, Any] = {}
        """Priorities of the last batch, for the replay buffer; empty if the policy gives none."""
        self.only_monitor_rank0 = self._cfg.only_monitor_rank0 and not self._cfg.is_multitask_pipeline
        """Whether only rank 0 logs."""
        self.get_data: Callable[[int], Any] | None = None
        """Fetches a batch of a given size, for ``start``; set it before."""
        self.checkpoint_fn: Callable[[str], Any] | None = None
        """Saves a named checkpoint in place of the learner, if other workers have state to save too."""
        self._progress = progress if progress is not None else Progress()
        self._envstep = -1  # of the last train(), if the counters are not shared
        self.learned_at = 0
        """Env steps at the last update."""
        self._finished = self._closed = self._hooks_shown = False
        self._loader: Iterator[Any] | None = None
        self.ckpt_name = ''
        """Name of the last checkpoint, empty before the first."""
        hooks = {**self._cfg.hook}
        if self.world_size > 1:
            hooks['log_reduce_after_iter'] = True
        self._hooks = build_learner_hook_by_cfg(hooks)
        self._policy: Any = None
        if policy is not None:
            self.policy = policy

    group: Any = None
    """The ``LearnerAggregator`` of the learners that share its updates; None: there are no others."""

    @property
    def policy(self) -> Any:
        """Learn face of the policy."""
        return self._policy

    @policy.setter
    def policy(self, policy: Any) -> None:
        self._policy = policy
        self.monitor = Monitor()
        if self._cfg.log_policy:
            self.info(policy.info())

    @property
    def train_iter(self) -> int:
        """Gradient steps so far."""
        return self._progress.train_iter

    @property
    def last_iter(self) -> TrainIter:
        """Gradient steps so far, under DI-engine's name, with its ``val``, ``add`` and ``update``."""
        return TrainIter(self._progress)

    @property
    def collector_envstep(self) -> int:
        """Env steps so far."""
        return self._envstep if self._envstep >= 0 else self._progress.envstep

    @collector_envstep.setter
    def collector_envstep(self, value: int) -> None:
        self._envstep = value

    @property
    def learn_info(self) -> dict[str, Any]:
        """Information for the commander."""
        return {
            'learner_step': self._progress.train_iter,
            'priority_info': self.priority_info,
            'learner_done': self._finished,
        }

    def train(
        self, data: Any, envstep: int = -1, policy_kwargs: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """Updates the policy by a batch.

        A policy may return one dict of training variables, or an iterable of dicts, or of functions that each do one
        update and return its dict. Hooks run before and after every update; the latter see the counter already
        increased.

        Args:
            data: A batch, as the policy's ``forward`` takes it: usually a ``Batch``; a list of mappings, one for each
                row, is converted to one.
            envstep: Env steps so far.
            policy_kwargs: Further arguments of ``forward``.

        Returns:
            The training variables of each update.

        Raises:
            ValueError: If the mappings of a list do not fit together.
        """
        self._envstep = envstep
        if not self._hooks_shown:
            self._show_hooks()
        if self._hooks['before_iter']:
            self._run_hooks('before_iter')
        outputs: list[dict[str, Any]] = []
        try:
            answer = self._policy.forward(_stacked(data), **(policy_kwargs or {}))
            for update in (answer,) if isinstance(answer, Mapping) else answer:
                if outputs:
                    self._run_hooks('before_iter')
                outputs.append(self._finish_iter(dict(update() if callable(update) else update), data))
        except NonFiniteError as error:
            last = (
                f'the last checkpoint is {self.ckpt_name}' if self.ckpt_name else 'there is no checkpoint yet'
            )
            error.message = f'train_iter {self.train_iter}: {error.message}; {last}'
            raise
        return outputs

    def _finish_iter(self, variables: dict[str, Any], data: Any) -> dict[str, Any]:
        priority = variables.pop('priority', None)
        self.priority_info = {} if priority is None else _priority_info(priority, data)
        if '[' in ''.join(variables):
            self.log_buffer = _sorted_by_kind(variables)
        else:
            self.log_buffer = {'scalar': variables, 'scalars': {}, 'histogram': {}}
        self.monitor.add(self.log_buffer['scalar'])
        self._progress.train_iter += 1
        self._run_hooks('after_iter')
        self.learned_at = self.collector_envstep
        return variables

    def start(self, *args: Any, **kwargs: Any) -> None:
        """Does ``train_iterations`` updates on data from ``get_data``, with all hooks.

        Raises:
            BufferUnderflowError: If ``get_data`` returns None.
        """
        if self._loader is None:
            self.setup_dataloader()
        assert self._loader is not None  # setup_dataloader made it
        self.call_hook('before_run')
        for _ in range(self._cfg.train_iterations):
            if self._closed:
                break
            batch = next(self._loader, None)
            if batch is None:
                raise BufferUnderflowError(
                    f'train_iter {self.train_iter}: learner.get_data returned None, as a replay buffer with too little data does',
                    where='learner.get_data',
                    remedy='Collect more before start(), or wait in get_data until there is a batch.',
                )
            self.train(batch)
        self._finished = True
        self.call_hook('after_run')

    def setup_dataloader(self) -> None:
        """Prepares the batches that ``start`` trains on.

        Raises:
            ValueError: If ``get_data`` was not set.
        """
        if self.get_data is None:
            raise ValueError('set learner.get_data, a function of the batch size, before start()')
        get_data = self.get_data
        size = self._policy.get_attribute('batch_size')
        self._loader = iter(lambda: get_data(size), None)

    def call_hook(self, name: str) -> None:
        """Runs the hooks of a position: before_run, after_run, before_iter or after_iter."""
        if name not in POSITIONS:
            raise ValueError(f'no hook position {name!r}; positions: {", ".join(POSITIONS)}')
        self._run_hooks(name)

    def _is_due(self, every: int | str) -> bool:
        """Whether hooks with this interval run in this train iteration: the first one after a multiple of it."""
        train_iter = self._progress.train_iter
        if isinstance(every, int):
            return train_iter % every == 0
        each = Every.of(every)
        now, before = each.now(train_iter, self.collector_envstep), each.now(train_iter - 1, self.learned_at)
        return each.ends(now) > each.ends(before)

    def _run_hooks(self, position: str) -> None:
        for hook in self._hooks[position]:
            if position in ITER_POSITIONS and not self._is_due(hook.every):
                continue
            try:
                hook(self)
            except Exception as error:
                error.add_note(f'raised in the hook {hook!r} at train_iter {self.train_iter}')
                raise

    def register_hook(self, hook: LearnerHook) -> None:
        """Adds a hook."""
        add_learner_hook(self._hooks, hook)
        self._hooks_shown = False

    @property
    def hooks(self) -> dict[str, list[LearnerHook]]:
        """The hooks by position, in the order in which they run."""
        return self._hooks

    def _show_hooks(self) -> None:
        self._hooks_shown = True
        table = '; '.join(
            f'{position}: {", ".join(map(repr, hooks))}' for position, hooks in self._hooks.items() if hooks
        )
        self.info(f'hooks {table}')

    def info(self, s: str) -> None:
        """Logs a message."""
        self.logger.info('[RANK%d] %s', self.rank, s)

    def debug(self, s: str) -> None:
        """Logs a message of interest to developers."""
        self.logger.debug('[RANK%d] %s', self.rank, s)

    def save_checkpoint(self, ckpt_name: str | None = None) -> None:
        """Saves a checkpoint, ``iteration_<train_iter>`` if no name is given.

        It contains the policy and the counters, in ``<exp_name>/ckpt/``; in a pipeline, everything else too.
        """
        self.ckpt_name = (ckpt_name or f'{RESUMABLE}{self.train_iter}').removesuffix(SUFFIX)
        if self.checkpoint_fn is not None:
            self.checkpoint_fn(self.ckpt_name)
            return
        path = save_checkpoint(Path(self.exp_name) / CKPT / self.ckpt_name, {'learner': self.state_dict()})
        self.info(f'saved {path}')

    def load_checkpoint(self, path: str) -> None:
        """Loads policy and counters from a checkpoint of ``save_checkpoint`` or of a pipeline.

        Raises:
            CheckpointError: If it is missing or damaged.
        """
        state, _ = load_checkpoint(path, buffer=False)
        with loading(path):
            self.load_state_dict(state.get('learner', state))  # a pipeline's checkpoint has both at its top
        self.info(f'loaded {path}, train_iter {self.train_iter}')

    def hook_state(self) -> dict[str, int]:
        """Returns the env steps at the last update, which hooks with an interval in env steps depend on."""
        return {'envstep': self.learned_at}

    def load_hook_state(self, state: Mapping[str, Any]) -> None:
        """Restores the state from ``hook_state()``."""
        check_state(state, {'envstep': COUNT})
        self.learned_at = state['envstep']

    def state_dict(self) -> dict[str, Any]:
        """Returns the policy's complete state and the counters."""
        return {
            'policy': self._policy.state_dict(),
            'progress': self._progress.state_dict(),
            'learned_at': self.learned_at,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``."""
        check_state(state, STATE)
        with part('policy'):
            self._policy.load_state_dict(state['policy'])
        with part('progress'):
            self._progress.load_state_dict(state['progress'])
        self.learned_at = state.get('learned_at', self._progress.envstep)

    def close(self) -> None:
        """Ends ``start`` after the running iteration, and the other learners; may be called twice."""
        self._closed = True
        if self.group is not None:
            self.group.close()


def _stacked(data: Any) -> Any:
    """Converts a list of mappings to a ``Batch`` of numpy columns; returns anything else unchanged."""
    if not (isinstance(data, list | tuple) and data and all(isinstance(row, Mapping) for row in data)):
        return data
    return Batch.from_rows(data).map(to_array)


def _priority_info(priority: Any, data: Any) -> dict[str, Any]:
    """Pairs priorities with the places that the batch was drawn from."""
    names = ('replay_buffer_idx', 'replay_unique_id')
    if isinstance(data, list):
        found = {name: [row[name] for row in data] for name in names if data and name in data[0]}
    else:
        found = {name: data[name] for name in names if name in data}
    return {'priority': priority, **found}


def _sorted_by_kind(variables: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Sorts training variables by the mark in their names: ``[scalars]``, ``[histogram]`` or none."""
    kinds: dict[str, dict[str, Any]] = {'scalar': {}, 'scalars': {}, 'histogram': {}}
    for name, value in variables.items():
        kind = next((k for k in ('scalars', 'histogram') if f'[{k}]' in name), 'scalar')
        kinds[kind][name.replace(f'[{kind}]', '')] = value
    return kinds


def _dist_info() -> tuple[int, int]:
    """Returns rank and world size of this process."""
    import torch.distributed as dist

    return (
        (dist.get_rank(), dist.get_world_size()) if dist.is_available() and dist.is_initialized() else (0, 1)
    )


def create_learner(cfg: Mapping[str, Any] | str, **kwargs: Any) -> BaseLearner:
    """Builds the learner named by ``cfg``, by ``cfg.type`` or, as in DI-engine, by ``cfg.learner_type``."""
    section, arguments = named(LEARNER_REGISTRY, cfg, kwargs)
    section = with_type(section, 'learner_type')
    return LEARNER_REGISTRY.build(section, cfg=section, **arguments)
