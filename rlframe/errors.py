"""Every exception that rlframe raises on purpose, with one root and one form.

Each error says *where* (dotted key, file or place), what it *got*, what it *expected* and, where one exists,
the *remedy*. They survive ``copy.copy`` and pickle, which is how Ray and subprocesses hand them on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class RLFrameError(Exception):
    """Root of all errors that rlframe raises on purpose."""

    exit_code = 1
    """Exit status of the command line when this error ends it: 2 for bad input, 1 for a failure in a run."""

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
    """A config file, key or command-line override that cannot be used."""

    exit_code = 2


class ConfigErrors(ConfigError):  # noqa: N818  the plural is its name: it holds several ConfigErrors
    """Several independent mistakes of one config, reported together."""

    def __init__(self, errors: list[ConfigError], where: str = '') -> None:
        super().__init__(f'{len(errors)} mistakes in the config', where=where)
        self.errors = errors

    def __str__(self) -> str:
        return '\n'.join(
            [
                f'{self.where}: {self.message}' if self.where else self.message,
                *(f'  {e}' for e in self.errors),
            ]
        )


class ConfigWarning(UserWarning):
    """A config that can be used but probably does not do what was meant."""


class RunWarning(UserWarning):
    """A run that may not do what its user expects."""


class RegistryError(ConfigError, KeyError):
    """A component name that is not registered, or is registered twice."""

    __str__ = ConfigError.__str__


class InterfaceError(ConfigError, TypeError):
    """A class of a component that lacks a method of its interface."""


class MissingDependencyError(ConfigError, ImportError):
    """An optional package that this config needs is not installed."""


class IncompatibleError(ConfigError):
    """A policy, a model and an env that do not fit together."""


class EnvError(ConfigError):
    """An env that cannot be made."""


class DeviceError(ConfigError):
    """A device that this machine does not have."""


class ResourceError(ConfigError):
    """More memory or more cores than there are."""


class ExperimentDirError(ConfigError):
    """A run folder that cannot be used."""


class ExperimentExistsError(ExperimentDirError):
    """A run folder that was asked for by name and exists already."""


class CheckpointError(ConfigError):
    """A checkpoint that is missing, damaged or made for something else."""


class CheckpointNotFoundError(CheckpointError):
    """No checkpoint at the place that was named."""


class CheckpointCorruptError(CheckpointError):
    """A checkpoint file that is not what its manifest says."""


class CheckpointStateError(CheckpointCorruptError):
    """A part of a checkpoint's state is missing or invalid; the message names it."""


class CheckpointMismatchError(CheckpointError):
    """A checkpoint of another network, algorithm or env."""


class CheckpointVersionError(CheckpointError):
    """A checkpoint written in a format that this version cannot read."""


class UnsafeCheckpointError(CheckpointError):
    """A checkpoint that would run code if it were loaded."""


class CheckpointWriteError(RLFrameError):
    """A checkpoint that could not be written; the one before it is still there."""


class ExperimentLockedError(ExperimentDirError):
    """A run folder that another live process writes to."""


class SerializationError(ConfigError):
    """Something that cannot be handed to another process."""


class EnvStartError(EnvError):
    """An env whose constructor or first reset fails."""


class EnvCrashedError(RLFrameError):
    """An env that raised, or whose process ended, while it was used."""


class EnvTimeoutError(EnvCrashedError, TimeoutError):
    """An env that did not answer in time."""


class ActorLostError(RLFrameError):
    """Ray actors that died, hung or could not be started, more often than the config allows."""


class ActorFailedError(RLFrameError):
    """An exception in a Ray actor that cannot be had in this process."""


class RunEndedError(RLFrameError):
    """Code of a run, such as an env, tried to end the process."""


class TrialStoppedError(RLFrameError, RuntimeError):
    """A trial was used after it had been stopped."""


class StallError(RLFrameError, TimeoutError):
    """A run that makes no progress, in a process that somebody supervises."""


class EpisodeTooLongError(RLFrameError):
    """An episode that goes on beyond the length that the config allows."""


class EnvContractWarning(UserWarning):
    """An env that keeps Gymnasium's contract only loosely."""


class EnvContractError(RLFrameError):
    """An env that breaks Gymnasium's contract while it runs."""


class NonFiniteError(RLFrameError, FloatingPointError):
    """A NaN or an infinity where a number must be."""


class ObservationError(RLFrameError, ValueError):
    """An observation that is not of the space that a policy was trained on."""


class ActionError(RLFrameError, ValueError):
    """A policy handed out an action that the env's action space does not contain."""


class ActionMaskError(EnvContractError):
    """An env whose action mask allows no action while its episode goes on."""


class BufferUnderflowError(RLFrameError):
    """More samples were asked for than the replay buffer holds."""


class HookError(RLFrameError, ValueError):
    """A learner hook that is declared wrongly."""

    exit_code = 2


@contextmanager
def named_during(what: str) -> Iterator[None]:
    """Prefixes the message of every rlframe error that the block raises with ``what`` and a colon."""
    try:
        yield
    except RLFrameError as error:
        if not error.message.startswith(f'{what}: '):
            error.message = f'{what}: {error.message}'
            error.args = (error.message,)
        raise
