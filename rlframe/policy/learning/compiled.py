"""Faster updates: losses as machine code (``compile``), in another number format, and updates as CUDA graphs."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlframe.errors import ConfigError
from rlframe.policy.learning.device import PRECISION, autocast, check_modes, set_precision
from rlframe.policy.learning.graph import CUDA_GRAPH, CudaRecorder, GraphedUpdate, check_graph
from rlframe.policy.learning.optim import Optimizer
from rlframe.utils.field import Field
from rlframe.utils.lazy import LazyModule

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule('torch')

logger = logging.getLogger('rlframe.policy')

COMPILE = Field(
    False,
    doc='whether torch.compile turns the losses into machine code, which takes 5 to 25 seconds at the start of training; on CPUs,'
    ' updates of c51 and qrdqn then take half to two thirds of the time',
    may_change=True,
    reaches='process',  # the compiler
)
"""The option ``compile`` of every policy."""
UPDATE_OPTIONS = dict(compile=COMPILE, cuda_graph=CUDA_GRAPH, precision=PRECISION)
"""Options of every policy that change how fast it learns."""
THREADS = 'TORCHINDUCTOR_COMPILE_THREADS'
"""Environment variable for the number of torch.compile's workers: threads, or processes for Triton."""
COMPILERS = 'g++', 'clang++', 'c++'
"""Programs of which torch.compile needs one."""


def check_compile(name: str, parts: tuple[str, ...], core: str | None) -> list[ConfigError]:
    """Returns why the losses of a policy cannot be compiled.

    Args:
        name: Class of the policy.
        parts: Its methods that are compiled.
        core: Its recurrent core.
    """
    if not parts:
        reason = f'{name} has no losses that are compiled (compiled_parts)'
    elif core is not None:
        reason = 'batches of a recurrent core change their shapes, and each shape would be compiled anew'
    elif not any(map(shutil.which, [*os.environ.get('CXX', '').split()[:1], *COMPILERS])):
        reason = f'torch.compile needs a C++ compiler on the PATH ({", ".join(COMPILERS)})'
    else:
        return []
    return [ConfigError(reason, where='compile', got=True, expected='False')]


class Compiled:
    """A function of tensors as machine code, one for each of their shapes.

    The code depends on the shapes only, not on those seen before, so that a resumed run computes the same bits.

    Args:
        function: A function without effects.

    Raises:
        ConfigError: At the first call, if the compiler fails.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        _limit_workers()
        self._function, self._code = function, torch.compile(function, dynamic=False)
        self._is_ready = False

    def __call__(self, *args: Any) -> Any:
        return self._code(*args) if self._is_ready else self._first(*args)

    def _first(self, *args: Any) -> Any:
        _limit_workers()
        logger.info('torch.compile turns %s into machine code', self._function.__qualname__)
        # what is imported or cached at its first use would divide the graph
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())), torch.no_grad():
            self._function(*args)
        try:
            result = self._code(*args)
        except Exception as error:  # of the compiler: the function itself has just run
            raise ConfigError(
                f'torch.compile failed: {type(error).__name__}: {str(error)[:500]}',
                where='policy.compile',
                got=True,
                expected='False',
            ) from error
        self._is_ready = True
        return result


def _limit_workers() -> None:
    """Keeps the compiler from starting workers, which stay until the end, unless the user asked for some.

    The variable counts for all threads, if inductor is not imported yet; its setting only for the thread that makes it.
    """
    if os.environ.setdefault(THREADS, '1') == '1':
        from torch._inductor import config

        config.compile_threads = 1


def prepare_updates(policy: Any, cfg: Any, device: torch.device) -> None:
    """Makes the updates of a policy what ``compile``, ``precision`` and ``cuda_graph`` ask for.

    Args:
        policy: Its losses (``compiled_parts``) and its update (``captured_part``) are replaced.
        cfg: Its options.
        device: Where it learns.

    Raises:
        DeviceError: If the device cannot do it.
    """
    check_modes(cfg, device)
    set_precision(cfg.precision, device)
    for name in policy.compiled_parts:
        losses = getattr(policy, name)
        losses = Compiled(losses) if cfg.compile else losses
        if cfg.precision == 'bf16':
            losses = autocast(losses, device, has_cache=not cfg.cuda_graph)
        setattr(policy, name, losses)
    if cfg.cuda_graph:
        update, faces = getattr(policy, policy.captured_part), policy.learn_mode
        recorder = CudaRecorder(device)
        optimizers = [own for own in vars(policy).values() if isinstance(own, Optimizer)]
        optimizers += getattr(policy, '_optimizers', {}).values()
        graphed = GraphedUpdate(update, faces.state_dict, faces.load_state_dict, optimizers, recorder)
        setattr(policy, policy.captured_part, graphed)


def check_updates(policy: type[Any], cfg: Any) -> list[ConfigError]:
    """Returns why the updates of a policy cannot be what its options ask for.

    Args:
        policy: Its class.
        cfg: Its options.
    """
    core, errors = cfg.model.get('core'), []
    if cfg.compile:
        errors += check_compile(policy.__name__, policy.compiled_parts, core)
    if cfg.cuda_graph:
        errors += check_graph(policy)
    if cfg.precision == 'bf16' and not policy.compiled_parts:
        reason = f'{policy.__name__} names no losses that can be computed in it (compiled_parts)'
        errors.append(ConfigError(reason, where='precision', got='bf16', expected="'fp32' or 'tf32'"))
    return errors
