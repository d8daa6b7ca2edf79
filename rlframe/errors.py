"""Every exception that rlframe raises on purpose, with one base class and one form.

Each error says *where* (dotted key, file or place), what it *got*, what it *expected* and, where one exists, the
*remedy*. Errors can be copied and pickled, as Ray and subprocesses need.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

ALIKE, WORD_ALIKE = 0.85, 0.66
"""Minimum similarity of a mistyped name to the right one: as a whole, or word by word."""


NO_LITERAL = (
    'It is not a Python literal: put strings inside it in quotes, and all of it in quotes for the shell.'
)
"""Remedy for text that looks like a list or a dict."""


class RLFrameError(Exception):
    """Base class of all errors that rlframe raises on purpose."""

    exit_code = 1
    """Exit status of the command line after this error: 2 for invalid input, 1 for a failure during a run."""

    def __init__(
        self, message: str = '', *, where: str = '', got: Any = None, expected: str = '', remedy: str = ''
    ) -> None:
        super().__init__(message)
        self.message = str(message)  # gymnasium raises a worker's error with that error as its message
        self.where, self.got, self.expected, self.remedy = where, got, expected, remedy

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._rebuild, (type(self), dict(self.__dict__))

    @staticmethod
    def _rebuild(cls: type[RLFrameError], fields: dict[str, Any]) -> RLFrameError:
        error = cls.__new__(cls, fields['message'])
        error.__dict__.update(fields)
        error.args = (fields['message'],)
        return error

    def __str__(self) -> str:
        names_where = not self.where or self.message.startswith(self.where)
        text = self.message if names_where else f'{self.where}: {self.message}'
        if self.expected:
            text += f'; got {self.got!r}, expected {self.expected}'
        stop = '' if text.endswith(('.', '?')) else '.'
        return f'{text}{stop} {self.remedy}' if self.remedy else text


class ConfigError(RLFrameError, ValueError):
    """An invalid config file, key or command-line override."""

    exit_code = 2
    unknown_keys: tuple[str, ...] = ()
    """The keys in it that nothing declares."""


class ConfigErrors(ConfigError):  # noqa: N818  the plural is its name: it holds several ConfigErrors
    """Several independent mistakes in one config, reported together."""

    def __init__(self, errors: list[ConfigError], where: str = '') -> None:
        super().__init__(f'{len(errors)} mistakes in the config', where=where)
        self.errors = errors
        self.unknown_keys = tuple(key for error in errors for key in error.unknown_keys)

    def __str__(self) -> str:
        return '\n'.join(
            [
                f'{self.where}: {self.message}' if self.where else self.message,
                *(f'  {e}' for e in self.errors),
            ]
        )


class ConfigWarning(UserWarning):
    """A valid config that is probably a mistake."""


class RunWarning(UserWarning):
    """A run that may behave differently than its user expects."""


class RegistryError(ConfigError, KeyError):
    """A component name that is not registered, or is registered twice."""

    __str__ = ConfigError.__str__


class InterfaceError(ConfigError, TypeError):
    """A component class that lacks a method of its interface."""


class MissingDependencyError(ConfigError, ImportError):
    """An optional package that this config needs is not installed."""


class IncompatibleError(ConfigError):
    """A policy, a model and an env that do not fit together."""


class EnvError(ConfigError):
    """An env that cannot be created."""


class DeviceError(ConfigError):
    """A device that is not available on this machine."""


class ResourceError(ConfigError):
    """A request for more memory or cores than are available."""


class ExperimentDirError(ConfigError):
    """A run folder that cannot be used."""


class ExperimentExistsError(ExperimentDirError):
    """A run folder that was requested by name and already exists."""


class CheckpointError(ConfigError):
    """A checkpoint that is missing, damaged or incompatible."""


class CheckpointNotFoundError(CheckpointError):
    """No checkpoint at the given path."""


class CheckpointCorruptError(CheckpointError):
    """A checkpoint file that does not match its manifest."""


class CheckpointStateError(CheckpointCorruptError):
    """A part of a checkpoint's state is missing or invalid; the message names it."""


class CheckpointMismatchError(CheckpointError):
    """A checkpoint of another network, algorithm or env."""


class CheckpointVersionError(CheckpointError):
    """A checkpoint written in a format that this version cannot read."""


class UnsafeCheckpointError(CheckpointError):
    """A checkpoint that would run code if it were loaded."""


class CheckpointWriteError(RLFrameError):
    """A checkpoint that could not be written; the previous one is kept."""


class ExperimentLockedError(ExperimentDirError):
    """A run folder that another live process writes to."""


class SerializationError(ConfigError):
    """An object that cannot be sent to another process."""


class EnvStartError(EnvError):
    """An env whose constructor or first reset fails."""


class EnvCrashedError(RLFrameError):
    """An env that raised, or whose process ended, during use."""


class EnvTimeoutError(EnvCrashedError, TimeoutError):
    """An env that did not answer in time."""


class ActorFailedError(RLFrameError):
    """An exception of a worker that cannot be recreated in this process."""


class MessageError(ConfigError):
    """A message between roles of parallel mode that does not obey the protocol."""


class RequestRefusedError(ConfigError):
    """A request that the coordinator of parallel mode refused."""

    is_fatal = True
    """Whether the worker has to end; if not, another request may be accepted."""


class NotJoinedError(RequestRefusedError):
    """A request of a worker that the coordinator does not know, or no longer: it may join again."""

    is_fatal = False


class PayloadError(RLFrameError):
    """Arrays that cannot be sent with a message: too large, or of an unsupported type."""


class CoordinatorLostError(RLFrameError):
    """A coordinator of parallel mode that cannot be reached, or stopped answering."""


class WorkerLostError(RLFrameError):
    """Workers that died, hung, left or could not be started, so that training cannot go on."""


class RunEndedError(RLFrameError):
    """An attempt of code in a run, such as an env, to end the process."""


class TrialStoppedError(RLFrameError, RuntimeError):
    """Use of a trial after it was stopped."""


class StallError(RLFrameError, TimeoutError):
    """A supervised run that makes no progress."""


class EpisodeTooLongError(RLFrameError):
    """An episode longer than the config allows."""


class EnvContractWarning(UserWarning):
    """An env that deviates from Gymnasium's API in a way that can be tolerated."""


class EnvContractError(RLFrameError):
    """An env that violates Gymnasium's API while it runs."""


class NonFiniteError(RLFrameError, FloatingPointError):
    """A NaN or infinity where a finite number is required."""


class ObservationError(RLFrameError, ValueError):
    """An observation outside the space that a policy was trained on."""


class ActionError(RLFrameError, ValueError):
    """An action of a policy that the env's action space does not contain."""


class ActionMaskError(EnvContractError):
    """An action mask that allows no action although the episode continues, or has other values than 0 and 1."""


class BufferUnderflowError(RLFrameError):
    """A request for more samples than the replay buffer contains."""


class HookError(RLFrameError, ValueError):
    """An invalid declaration of a hook of a learner or of a whole run."""

    exit_code = 2


@contextmanager
def named_during(what: str) -> Iterator[None]:
    """Prefixes the message of every rlframe error raised in the block with ``what`` and a colon."""
    try:
        yield
    except RLFrameError as error:
        if not error.message.startswith(f'{what}: '):
            error.message = f'{what}: {error.message}'
            error.args = (error.message,)
        raise


def nearest_name(word: str, known: Iterable[Any]) -> str:
    """Returns the known name that ``word`` misspells or begins, or an empty string.

    Names that only share a word, such as ``learning_rate_policy`` and ``learning_rate_critic``, are different names.
    """
    names = {str(name).lower(): str(name) for name in known}
    word = word.lower()
    close = difflib.get_close_matches(word, names, n=5, cutoff=0.6)
    longer = [name for name in names if len(word) > 2 and name.startswith(word)]
    found = [*longer, *(name for name in close if _is_misspelt(word, name)), '']
    return names.get(found[0], '')


def _is_misspelt(name: str, other: str) -> bool:
    words, others = (
        [part.rstrip('0123456789') or part for part in each.split('_')] for each in (name, other)
    )
    if len(words) == len(others):
        return all(_ratio(*pair) >= WORD_ALIKE for pair in zip(words, others, strict=True))
    return _ratio(''.join(words), ''.join(others)) >= ALIKE


def _ratio(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()


def nearest(word: str, known: Iterable[Any]) -> str:
    """Returns `` Did you mean 'x'?`` for the known word that ``word`` misspells or begins, or an empty string."""
    name = nearest_name(word, known)
    return f' Did you mean {name!r}?' if name else ''
