"""The interfaces of a policy for a learner, a collector, an evaluator and a commander."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rlframe.data.observation import pack_rows, zero_obs
from rlframe.data.timestep import Array, Batch, EnvSpec, IntArray, TimeStep

if TYPE_CHECKING:
    import torch

ACTING, STATISTICS = 'acting', 'statistics'
"""Names of the acting state, beside weights and data, and of the statistics before and after collection."""
Metrics = dict[str, Any]
"""Names to floats or 0-d tensors; tensors are read only when they are shown, so no update waits for a device."""
Forward = Callable[..., Batch]
"""Acts on observations [n, ...] in the envs [n]."""
Learn = Callable[..., Metrics | Iterable[Callable[[], Metrics]]]
ProcessTransition = Callable[[Array, Batch, TimeStep], dict[str, Array]]
GetTrainSample = Callable[[Batch], Batch]
Reset = Callable[[IntArray | None], None]
GetAttribute = Callable[[str], Any]
SetAttribute = Callable[[str, Any], None]
StateDict = Callable[[], dict[str, Any]]
LoadStateDict = Callable[[Mapping[str, Any]], None]


class LearnMode(NamedTuple):
    """Interface of a policy for a learner."""

    forward: Learn
    reset: Reset
    info: Callable[[], str]
    monitor_vars: Callable[[], list[str]]
    get_attribute: GetAttribute
    set_attribute: SetAttribute
    state_dict: StateDict
    load_state_dict: LoadStateDict


class CollectMode(NamedTuple):
    """Interface of a policy for a collector."""

    forward: Callable[..., Any]
    """See ``forward_by_env``."""
    process_transition: ProcessTransition
    get_train_sample: GetTrainSample
    reset: Reset
    get_attribute: GetAttribute
    set_attribute: SetAttribute
    state_dict: StateDict
    load_state_dict: LoadStateDict
    acts_at_random: bool = False
    """Whether actions are random; a collector that acts in other processes acts at random there, too."""


class TensorMode(NamedTuple):
    """Interface of an on-policy policy for a collector whose rows are tensors on the policy's device.

    It is the attribute ``tensor_mode`` of a collect face.
    """

    device: torch.device
    """Device of the policy; all tensors are there."""
    forward: Callable[..., tuple[torch.Tensor, dict[str, torch.Tensor]]]
    """Acts: maps observations [N, ...] and a ``torch.Generator`` to actions of the env [N, ...], and to the columns that a row
    needs in addition, [N, ...]."""
    get_train_sample: GetTrainSample
    """Turns a block of columns [T, N, ...] into training samples [M, ...]."""


class EvalMode(NamedTuple):
    """Interface of a policy for an evaluator."""

    forward: Callable[..., Any]
    """See ``forward_by_env``."""
    reset: Reset
    get_attribute: GetAttribute
    set_attribute: SetAttribute
    state_dict: StateDict
    load_state_dict: LoadStateDict


class CommandMode(NamedTuple):
    """Interface of a policy for a commander."""

    get_setting_learn: Callable[[Mapping[str, Any]], dict[str, Any]]
    get_setting_collect: Callable[[Mapping[str, Any]], dict[str, Any]]
    get_setting_eval: Callable[[Mapping[str, Any]], dict[str, Any]]


class ForwardByEnv(partial[Any]):
    """A ``forward`` that also takes a dict of observations; see ``forward_by_env``."""

    @property
    def on_rows(self) -> Forward:
        """Acts on rows; used by callers that have rows at every step."""
        forward: Forward = self.args[0]
        return forward


class Acting(NamedTuple):
    """State that acting changes, excluding the weights: sent to a copy that acts, and back."""

    state: Callable[[], dict[str, Any]]
    load_state: Callable[[Mapping[str, Any]], None]
    statistics: Callable[[], dict[str, Any]]
    """Running statistics, which copies gather apart."""
    absorb: Callable[[Mapping[str, Any], Mapping[str, Any]], None]
    """Adds the statistics that a copy gathered between two calls of ``statistics``."""


def by_env(forward: Forward, spec: EnvSpec) -> ForwardByEnv:
    """Returns a ``forward`` that also takes a dict of observations; see ``forward_by_env``."""
    return ForwardByEnv(forward_by_env, forward, spec)


def forward_by_env(
    forward: Forward, spec: EnvSpec, /, obs: Any, env_id: IntArray | None = None, **settings: Any
) -> Any:
    """Acts on the observations of some envs.

    Args:
        forward: Acts on rows.
        spec: Spaces of the env.
        obs: Observations as rows, [n, ...], or a dict from env id to observation.
        env_id: Env of each row, [n]; with a dict its keys are these.
        settings: Further arguments of ``forward``, such as ``eps``.

    Returns:
        A ``Batch`` with ``action`` [n, ...] and more; for a dict, a dict from env id to a dict with the same keys.

    Raises:
        TypeError: If rows come without their env ids.
        ValueError: If an observation is not in the observation space; its env is named.
    """
    if env_id is not None:
        return forward(obs, env_id, **settings)
    if not isinstance(obs, Mapping):
        raise TypeError(
            f'forward takes observations [n, ...] and their env ids [n], or a dict from env id to observation; got'
            f' {type(obs).__name__} and no env ids'
        )
    if not obs:
        return {}
    output = forward(_packed(obs, spec), np.array(list(obs), np.int64), **settings)
    return {env: dict(output[i]) for i, env in enumerate(obs)}


def _packed(obs: Mapping[Any, Any], spec: EnvSpec) -> Array:
    """Returns the observations of a dict as rows, [n, ...]."""
    rows = zero_obs(spec.observation_space, len(obs))
    for i, (env, one) in enumerate(obs.items()):
        try:
            pack_rows([one], rows[i : i + 1])
        except (TypeError, ValueError, LookupError) as error:
            raise ValueError(
                f'env {env}: the observation is not of the space {spec.observation_space!r}: {error}'
            ) from error
    return rows


def attribute_of(face: Any, name: str, default: Any = None) -> Any:
    """Returns an attribute of a policy; ``default`` if it has none of that name."""
    try:
        return face.get_attribute(name)
    except AttributeError:
        return default


def acting_of(face: Any) -> Any:
    """Returns the ``Acting`` of a policy, which transfers its acting state; None if the policy has none."""
    return attribute_of(face, 'acting')


class ActingExtras:
    """Measures what a call of ``collect`` changes in a policy beside its memory of episodes; in lockstep, all of it."""

    def __init__(self, face: Any, in_lockstep: bool) -> None:
        self._acting = acting_of(face)
        self._in_lockstep = in_lockstep
        self._before = {} if self._acting is None or in_lockstep else dict(self._acting.statistics())

    def take(self) -> dict[str, Any]:
        """Returns the extras to send with the collected data."""
        if self._acting is not None and self._in_lockstep:
            return {ACTING: self._acting.state()}
        if not self._before:
            return {}
        return {STATISTICS: [{'before': self._before, 'after': dict(self._acting.statistics())}]}


def absorb_extras(face: Any, extras: Mapping[str, Any]) -> None:
    """Brings the policy that is trained to the state that its collectors report by ``ActingExtras``."""
    acting = acting_of(face) if extras else None
    if acting is None:
        return
    if ACTING in extras:
        acting.load_state(extras[ACTING])
    for change in extras.get(STATISTICS, ()):
        acting.absorb(change['before'], change['after'])
