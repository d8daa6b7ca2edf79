"""Handles an env that fails: raises the error, replaces the env, or continues without it."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np

from rlframe.data.timestep import IntArray
from rlframe.errors import (
    ActionError,
    EnvContractError,
    EnvCrashedError,
    EnvStartError,
    IncompatibleError,
    NonFiniteError,
    RLFrameError,
    StallError,
)
from rlframe.run.exit_guard import place_of
from rlframe.utils.schema import TEXT, check_state, list_of

logger = logging.getLogger(__name__)

E = TypeVar('E', bound=RLFrameError)

SHOWN_CAUSES = 5
"""Maximum number of causes that the error at the end of a budget names."""

SHOWN_ENVS = 8
"""Maximum number of envs whose place the error about a vector env names."""

FATAL = (ActionError, EnvContractError, IncompatibleError, NonFiniteError, StallError)
"""Errors that end the run under every setting: a new env would fail the same way, or the failing env is unknown."""


class Fault(NamedTuple):
    """A failure of one or more envs."""

    error: EnvCrashedError
    """The error."""
    env_id: tuple[int, ...]
    """The failed envs; all envs of a process if it is unknown which of them failed."""
    others: tuple[int, ...] = ()
    """The other envs of the same process, which are lost too."""


def crashed(
    env: int, what: str, episode: int, step: int, error: BaseException, in_worker: bool = False
) -> EnvCrashedError:
    """Returns the error about an exception of an env; the exception is its cause.

    Args:
        env: Env id.
        what: The call that raised, such as ``step()``.
        episode: Running episode, counted from 1.
        step: Env step of the episode, counted from 1; 0 if there was none.
        error: The exception.
        in_worker: Whether the error is raised in another process: its text then includes the traceback.
    """
    place = f'env {env}, episode {episode}, step {step}' if step else f'env {env}, episode {episode}'
    return _error_about(EnvCrashedError, f'{place}: {what}', error, in_worker)


def vector_crashed(what: str, episodes: IntArray, steps: IntArray, error: BaseException) -> EnvCrashedError:
    """Returns the error about an exception of a vector env, which does not tell which of its envs failed.

    Args:
        what: The call that raised, ``reset()`` or ``step()``.
        episodes: Running episode of each env, counted from 1, [N].
        steps: Env steps of these episodes that are over, [N].
        error: The exception.
    """
    more = ' ...' if len(steps) > SHOWN_ENVS else ''
    at = f'episodes {episodes[:SHOWN_ENVS].tolist()}{more}, after {steps[:SHOWN_ENVS].tolist()}{more} env steps'
    who = f'one of the envs of a vector env ({at})'
    return _error_about(EnvCrashedError, f'{who}: {what}', error, False)


def start_failed(env: int, error: BaseException, in_worker: bool = False) -> EnvStartError:
    """Returns the error about an exception of an env's constructor; see ``crashed``."""
    return _error_about(EnvStartError, f'env {env}: its constructor', error, in_worker)


def _error_about(kind: type[E], who: str, error: BaseException, in_worker: bool) -> E:
    text = f'{who} raised {type(error).__name__}: {error}{place_of(error)}'
    if in_worker:
        text += '\n' + ''.join(traceback.format_exception(error)).rstrip()
    described = kind(text)
    described.__cause__ = error
    return described


class FaultBudget:
    """Decides how to handle each fault, and counts them.

    Args:
        on_error: ``raise``, ``restart`` or ``drop``.
        max_restarts: Maximum number of faults of all envs together that the run survives.
    """

    def __init__(self, on_error: str, max_restarts: int) -> None:
        self.on_error, self.max_restarts = on_error, max_restarts
        self.causes: list[str] = []
        """Faults so far, oldest first."""

    def handle(self, error: EnvCrashedError) -> str:
        """Records a fault.

        Returns:
            ``restart`` or ``drop``.

        Raises:
            EnvCrashedError: The same error if faults end the run; an error with all causes if there were too many.
        """
        if self.on_error == 'raise':
            raise error
        self.causes.append(str(error).partition('\n')[0])
        if len(self.causes) > self.max_restarts:
            listed = ''.join(f'\n  {cause}' for cause in self.causes[-SHOWN_CAUSES:])
            count = len(self.causes)
            done = 'replaced' if self.on_error == 'restart' else 'dropped'
            raise EnvCrashedError(
                f'{count} env{"s were" if count > 1 else " was"} lost, {self.max_restarts} may be {done}; the last ones:{listed}',
                where='env.manager.max_restarts',
                remedy='Fix the env, or raise the limit.',
            ) from error
        logger.warning('%s: %s', 'new env' if self.on_error == 'restart' else 'env dropped', error)
        return self.on_error

    def state_dict(self) -> dict[str, Any]:
        """Returns the faults so far."""
        return {'causes': list(self.causes)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``."""
        check_state(state, {'causes': list_of(TEXT)})
        self.causes = list(state['causes'])


def restart_seed(seed: int | None, restarts: int) -> int | None:
    """Returns the first seed of an env's replacement: f(first seed of the env, number of replacements), below 2**32."""
    return None if seed is None else int(np.random.SeedSequence([seed, restarts]).generate_state(1)[0])


def checkpoint_seed(seed: int | None, episodes: int) -> int | None:
    """Returns an env's seed when it restarts at a checkpoint: f(its first seed, episodes started), below 2**32."""
    return None if seed is None else int(np.random.SeedSequence([seed, episodes, 1]).generate_state(1)[0])
