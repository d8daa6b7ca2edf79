"""LoadedPolicy: a trained policy that acts, without the config that it was trained by and without its env."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.data.observation import ACTION_MASK, check_mask_values, fields_of, obs_dtype
from rlframe.data.timestep import Array
from rlframe.errors import ObservationError
from rlframe.export.artifact import Artifact, read_artifact
from rlframe.export.description import Restored, restore
from rlframe.export.observations import Bounds, FrameStacks, Kind, to_rows
from rlframe.utils.struct_array import struct_dtype

if TYPE_CHECKING:
    import gymnasium

MASK_FIELDS = {'observation', ACTION_MASK}
"""Parts of an observation with a mask separate from the env's own observation."""


def load_policy(
    path: str | Path, *, device: str | None = None, stack_frames: bool = True, trust: bool = False
) -> LoadedPolicy:
    """Loads an exported policy; see ``rlframe.load``."""
    artifact = read_artifact(path)
    restored = restore(artifact, device, trust)
    return LoadedPolicy(restored, artifact, stack_frames=stack_frames)


class LoadedPolicy:
    """Acts as the policy did in evaluations.

    Memory of earlier steps, a stack of frames or a recurrent state, is kept here for each env: call ``reset`` when an
    episode starts.

    Args:
        restored: The policy, with its weights.
        artifact: The artifact that it was loaded from.
        stack_frames: Whether frames are stacked here, if the policy sees several; else observations must be stacked
            already.
    """

    def __init__(self, restored: Restored, artifact: Artifact, *, stack_frames: bool = True) -> None:
        policy, spec, frames = restored
        self._mode, self._policy = policy.eval_mode, policy
        self.observation_space: gymnasium.Space[Any] = spec.observation_space
        """Observation space of the policy: with its action mask, and with the frames of a stack as its first axis."""
        self.action_space: gymnasium.Space[Any] = spec.action_space
        """Action space of ``act``."""
        self.description: Mapping[str, Any] = artifact.description
        """Content of ``policy.json``."""
        self.path = artifact.path
        """Path that it was loaded from."""
        self._kind: Kind = obs_dtype(spec.observation_space)
        self._bounds = Bounds(spec.observation_space)
        self._parts, self._action_space = fields_of(spec.observation_space), spec.action_space
        self._is_beside = set(self._parts) == MASK_FIELDS
        self._stacks = self._make_stacks() if stack_frames and frames > 1 else None
        self._given = self._given_kind()
        self.is_stateful = policy.is_recurrent or self._stacks is not None
        """Whether an action depends on the steps before it, so that ``reset`` has to be called."""
        self._env_num: int | None = None

    def act(self, obs: Any, action_mask: Any = None) -> Any:
        """Returns the action that the policy thinks best.

        Args:
            obs: One observation, or those of n envs with a leading axis (in each part if the space is a Dict or a
                Tuple; n observations can then also be a list).
            action_mask: Which actions are allowed, [A] or [n, A], if the policy was trained with masks and ``obs`` does
                not contain them; for a MultiDiscrete space, the concatenated masks of its dimensions, or a tuple of
                them.

        Returns:
            An action for ``env.step``, or an array of n.

        Raises:
            ObservationError: If the observation or the mask is not of the policy's space, or the number of envs changed
                without a reset.
            NonFiniteError: If it contains a NaN or an infinity.
            ActionMaskError: If the mask has other values than 0 and 1.
        """
        rows, is_one = self._rows(obs, action_mask)
        self._bounds.check(rows)
        action: Array = self._mode.forward(rows, np.arange(len(rows)))['action']
        if not is_one:
            return action
        is_array = action.ndim > 1 or type(self._action_space).__name__ == 'Box'
        return action[0, ...] if is_array else action[0].item()

    def reset(self, env_id: Any = None) -> None:
        """Lets episodes begin: forgets the frames and the recurrent state of the steps before.

        Args:
            env_id: Numbers of the envs whose episodes start, or a bool for each; all envs by default.
        """
        if env_id is None:
            self._env_num = None
        else:
            env_id = np.atleast_1d(np.asarray(env_id))
            env_id = np.flatnonzero(env_id) if env_id.dtype == np.bool_ else env_id.astype(np.int64)
        self._mode.reset(env_id)
        if self._stacks is not None:
            self._stacks.reset(env_id)

    def _make_stacks(self) -> FrameStacks:
        return FrameStacks(obs_dtype(self._parts['observation']) if self._is_beside else self._kind)

    def _given_kind(self) -> Kind:
        """Converts a user's observation to an array, with its mask."""
        if self._stacks is None:
            return self._kind
        if not self._is_beside:
            return self._stacks.frame
        mask = obs_dtype(self._parts[ACTION_MASK])
        return struct_dtype(
            {name: mask if name == ACTION_MASK else self._stacks.frame for name in self._parts}
        ), ()

    def _rows(self, obs: Any, action_mask: Any) -> tuple[Array, bool]:
        """Returns observations as the policy takes them, [n, ...], and whether it is a single one."""
        obs = self._with_mask(obs, action_mask)
        if ACTION_MASK in self._parts and isinstance(obs, Mapping) and ACTION_MASK in obs:
            check_mask_values(obs[ACTION_MASK], 'act()')
            obs = {**obs, ACTION_MASK: np.asarray(obs[ACTION_MASK], self._kind[0][ACTION_MASK].base)}
        given, is_one = to_rows(obs, self._given)
        if ACTION_MASK in self._parts:
            check_mask_values(given[ACTION_MASK], 'act()')  # those of a list
        self._check_count(len(given))
        if self._stacks is None:
            return given, is_one
        if not self._is_beside:
            return self._stacks.push(given), is_one
        rows = np.zeros(len(given), self._kind[0])
        rows['observation'], rows[ACTION_MASK] = self._stacks.push(given['observation']), given[ACTION_MASK]
        return rows, is_one

    def _with_mask(self, obs: Any, action_mask: Any) -> Any:
        """Returns observations with their separate mask inserted."""
        if action_mask is None:
            if self._is_beside and not isinstance(obs, list) and ACTION_MASK not in _names(obs):
                raise ObservationError(
                    'the policy was trained with action masks, and there is none: act(obs, action_mask)',
                    where=ACTION_MASK,
                    got=None,
                    expected=f'which of {self._kind[0][ACTION_MASK].shape[0]} actions are allowed',
                )
            return obs
        if ACTION_MASK not in self._parts:
            raise ObservationError(
                'the policy was trained without action masks and cannot obey one', where=ACTION_MASK
            )
        if isinstance(action_mask, tuple):
            action_mask = np.concatenate([np.asarray(part) for part in action_mask], -1)
        if self._is_beside:
            if ACTION_MASK in _names(obs):
                raise ObservationError(
                    'two masks were given: one in the observation and one as an argument', where=ACTION_MASK
                )
            return {'observation': obs, ACTION_MASK: action_mask}
        return {**dict(obs), ACTION_MASK: action_mask}

    def _check_count(self, count: int) -> None:
        if self.is_stateful and self._env_num not in (None, count):
            raise ObservationError(
                'the number of envs changed in the middle of their episodes',
                where='obs',
                got=count,
                expected=str(self._env_num),
                remedy='Call reset() where all episodes begin.',
            )
        self._env_num = count

    def __repr__(self) -> str:
        said = self.description
        return f'LoadedPolicy({said["policy"]["type"]} for {said["env"]}, from {self.path})'


def _names(obs: Any) -> tuple[str, ...]:
    """Returns the names of an observation's parts, if they have names."""
    if isinstance(obs, Mapping):
        return tuple(obs)
    return getattr(getattr(obs, 'dtype', None), 'names', None) or ()
