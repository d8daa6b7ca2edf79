"""Policies in modes of computing on devices: their runs, and what makes the host wait."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
import torch
from fakes import config_pair
from policies import tried_policies
from torch.utils._python_dispatch import TorchDispatchMode
from toys import toy_of_policy

from rlframe import config
from rlframe.errors import ConfigError
from rlframe.pipeline import SerialPipeline
from rlframe.registry import POLICY_REGISTRY

MODES: dict[str, dict[str, Any]] = {
    'eager': {},
    'compile': dict(compile=True),
    'cuda_graph': dict(cuda_graph=True),
    'tf32': dict(precision='tf32'),
    'bf16': dict(precision='bf16'),
    'cuda_graph bf16': dict(cuda_graph=True, precision='bf16'),
}
"""Names to options of a policy."""
REFUSED = {
    (name, mode) for name in ('r2d2', 'r2d3') for mode in ('compile', 'cuda_graph', 'cuda_graph bf16')
} | {('happo', mode) for mode in ('cuda_graph', 'cuda_graph bf16')}
"""Policies and modes that their configs refuse."""
NO_LOG = dict(hook=dict(log_show_after_iter=10**9, save_ckpt_after_iter=False, save_ckpt_after_run=False))
"""Options of a learner that reads no metrics."""
SYNC = 'called a synchronizing CUDA operation'
"""What torch says when an operation waits for the GPU."""
READS = ('_local_scalar_dense', 'nonzero', 'masked_select', 'equal', 'is_nonzero', 'unique', '_unique2')
"""Operations whose result the host needs: on a GPU, it would wait for them."""


class Cell(NamedTuple):
    """A policy in a mode on a device."""

    policy: str
    mode: str
    device: str

    def __str__(self) -> str:
        return f'{self.policy}-{self.mode}-{self.device}'


def policies() -> list[str]:
    """Returns the policies that come with rlframe: a new one is tested without a change here."""
    return [name for name in tried_policies() if POLICY_REGISTRY.is_builtin(name)]


def keeps_transitions(policy: str) -> bool:
    """Whether a policy learns from a replay buffer of transitions, which can be on a GPU; others take rounds or sequences."""
    cls: Any = POLICY_REGISTRY.get(policy)
    return not cls.default_config().on_policy and not cls.is_recurrent


def cells(cpu: Mapping[str, list[str]], *gpu_modes: str) -> list[Any]:
    """Returns the parameters of a test: each policy in each mode on a GPU, and some of them on the CPU.

    Args:
        cpu: Modes to the policies that are tried on the CPU.
        gpu_modes: Modes on a GPU; all by default, but those that the policy's config refuses.
    """
    here = [Cell(name, mode, 'cpu') for mode, names in cpu.items() for name in names]
    there = [Cell(name, mode, 'cuda') for name in policies() for mode in gpu_modes or MODES]
    marks = {'cpu': [pytest.mark.slow], 'cuda': [pytest.mark.gpu, pytest.mark.slow]}
    return [
        pytest.param(cell, marks=marks[cell.device], id=str(cell))
        for cell in (*here, *there)
        if (cell.policy, cell.mode) not in REFUSED
    ]


def why_skipped(cell: Cell) -> str:
    """Returns why a cell cannot be tried here, '' if it can."""
    if cell.device == 'cuda' and (why := why_no_cuda()):
        return why
    missing = MODES[cell.mode].keys() - POLICY_REGISTRY.get(cell.policy).default_config().keys()  # type: ignore[attr-defined]
    if missing:
        return f'{cell.policy} has no option policy.{min(missing)}'
    return ''


def why_no_cuda() -> str:
    """Returns why torch cannot use a GPU, '' if it can; a driver that is too old is a warning of torch's."""
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        is_there = torch.cuda.is_available()
    return (
        '' if is_there else f'no CUDA device: torch {torch.__version__}, built for CUDA {torch.version.cuda}'
    )


def config_of(cell: Cell, **sections: Any) -> Any:
    """Returns the compiled config of a cell's toy.

    Args:
        cell: The cell.
        sections: As for ``config_pair``; ``learn``, ``buffer`` and ``policy_`` are added to those of the toy.
    """
    options = toy_of_policy(cell.policy)
    for name in sections.keys() & {'learn', 'buffer', 'policy_'}:
        options[name] = options.get(name, {}) | sections.pop(name)
    own = dict(device=cell.device, cuda=None, **MODES[cell.mode])
    options['policy_'] = options.get('policy_', {}) | own
    main, create = config_pair(**options | sections)
    return config.compile_config(main, create, seed=0)


def refusal(cell: Cell) -> str:
    """Returns what the config of a cell is refused with, '' if it is accepted."""
    try:
        config_of(cell)
    except ConfigError as error:
        return str(error)
    return ''


@contextmanager
def warmed_up(cell: Cell, **sections: Any) -> Iterator[SerialPipeline]:
    """Gives the pipeline of a cell, once its replay buffer has enough for an update and one was done."""
    learn = sections.pop('learn', {}) | dict(learner=NO_LOG)
    with SerialPipeline(config_of(cell, learn=learn, **sections)) as pipeline:
        pipeline.evaluator.should_eval = lambda *_: False
        while not pipeline.progress.train_iter:
            pipeline.step()
        yield pipeline


def updates_of(pipeline: SerialPipeline) -> Callable[[], int]:
    """Returns a function that learns once from what was collected, and returns how many updates that took.

    With a replay buffer it samples a batch first; otherwise it takes the same round of data again. Metrics and
    priorities are not read: the learner's hooks and the replay buffer do that.
    """
    forward, buffer = pipeline.policy.learn_mode.forward, pipeline.replay_buffer
    if buffer is None:
        data = pipeline.collector.training_data(pipeline.collector.collect())
        return lambda: count_updates(forward(data))
    size = pipeline.cfg.policy.learn.batch_size

    def update() -> int:
        (batch,) = buffer.batches(1, size, pipeline.progress.train_iter)
        return count_updates(forward(batch))

    return update


def count_updates(answer: Any) -> int:
    """Does the updates that a policy answers with."""
    if isinstance(answer, Mapping):
        return 1
    return sum(1 for one in answer if one())


class _Reads(TorchDispatchMode):
    """Notes the operations that give a value to the host."""

    def __init__(self, found: list[str]) -> None:
        super().__init__()
        self._found = found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ in READS:
            self._found.append(func.overloadpacket.__name__)
        return func(*args, **kwargs or {})


@contextmanager
def host_waits(device: str) -> Iterator[list[str]]:
    """Gives a list to which a block adds the places where it waits for the GPU, or on the CPU would wait for one."""
    found: list[str] = []
    if device == 'cpu':
        with _Reads(found):
            yield found
        return
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # the mode itself is a prototype, torch says

        def note(message: Any, category: Any, file: str, line: int, *rest: Any) -> None:
            if SYNC in str(message):
                found.append(f'{file}:{line}')

        torch.cuda.set_sync_debug_mode('warn')
        warnings.simplefilter('always')
        warnings.showwarning = note
        try:
            yield found
        finally:
            torch.cuda.set_sync_debug_mode('default')
