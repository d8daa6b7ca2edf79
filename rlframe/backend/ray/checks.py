"""Checks for unsupported arguments of Ray collection, before an actor is started."""

from __future__ import annotations

import contextlib
import functools
import inspect
import numbers
import re
from typing import Any

from rlframe.backend.ray.constructor.compat import FORM, OF_TENSORDICTS
from rlframe.errors import ConfigError
from rlframe.worker.collector.base_serial_collector import SerialCollector


def check_steps_envs(kind: Any) -> None:
    """Checks that a collector has envs to step in actors.

    Raises:
        ConfigError: If it has none.
    """
    if not issubclass(kind, SerialCollector):
        raise ConfigError(
            f'{kind.__name__} steps no envs, so it cannot run in actors',
            where='policy.collect.collector.backend',
            got='ray',
            expected="'local'",
        )


def checked_total_frames(total: Any) -> int:
    """Returns the number of frames after which the iteration ends; -1: never.

    Raises:
        ConfigError: If it is not a valid number.
    """
    if total is None:
        return -1
    is_number = isinstance(total, numbers.Real) and not isinstance(total, bool) and total == total // 1
    if not is_number or (total < 1 and total != -1):
        raise ConfigError(
            'bad value',
            where='total_frames',
            got=total,
            expected='an int >= 1, or -1 or None for an endless iteration',
        )
    return int(total)


def check_policy(policy: Any) -> None:
    """Checks that a policy is a policy and not a factory of policies.

    Raises:
        ConfigError: If it cannot be called with observations, or takes a tensordict.
    """
    if policy is None or (hasattr(policy, 'collect_mode') and not isinstance(policy, type)):
        return
    if _takes_tensordict(policy):
        raise ConfigError(
            'this takes a tensordict', where='policy', got=policy, expected=FORM, remedy=OF_TENSORDICTS
        )
    made_by = policy.func if isinstance(policy, functools.partial) else policy
    takes_obs = callable(policy) and not isinstance(made_by, type)
    if takes_obs:
        with contextlib.suppress(ValueError):  # some functions written in C have no signature
            takes_obs = _can_be_called(inspect.signature(policy))
    if not takes_obs:
        is_factory = callable(policy)
        raise ConfigError(
            'this cannot be called with observations alone' if is_factory else 'this is not a policy',
            where='policy',
            got=policy,
            expected=FORM,
            remedy='If it creates a policy, pass the policy that it returns.' if is_factory else '',
        )


def _takes_tensordict(policy: Any) -> bool:
    """Whether a policy has keys of a tensordict, or says so by the name or the type of its first argument."""
    if hasattr(policy, 'in_keys') and hasattr(policy, 'out_keys'):
        return True
    with contextlib.suppress(TypeError, ValueError):
        called = inspect.signature(getattr(policy, 'forward', policy))
        first = next(iter(called.parameters.values()), None)
        words = (first.name, str(first.annotation)) if first is not None else ()
        return any(re.search(r'^td$|tensor_?dict', word, re.IGNORECASE) for word in words)
    return False


def _can_be_called(signature: inspect.Signature) -> bool:
    try:
        signature.bind(None)
    except TypeError:
        return False
    return True
