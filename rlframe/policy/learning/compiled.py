"""Losses as machine code: the option ``compile`` of a policy."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from typing import Any

from rlframe.errors import ConfigError
from rlframe.utils.field import Field
from rlframe.utils.lazy import LazyModule

torch = LazyModule('torch')
logger = logging.getLogger('rlframe.policy')

COMPILE = Field(
    False,
    doc='whether torch.compile turns the losses into machine code, which takes 5 to 25 seconds at the start of training; on CPUs,'
    ' updates of c51 and qrdqn then take half to two thirds of the time',
)
"""The option ``compile`` of every policy."""
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
        os.environ.setdefault('TORCHINDUCTOR_COMPILE_THREADS', '1')  # or else it keeps processes of its own
        self._function, self._code = function, torch.compile(function, dynamic=False)
        self._is_ready = False

    def __call__(self, *args: Any) -> Any:
        return self._code(*args) if self._is_ready else self._first(*args)

    def _first(self, *args: Any) -> Any:
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
