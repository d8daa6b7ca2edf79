"""LoadedPolicy: a trained policy that acts, without the config that it was trained by and without its env."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe import config
from rlframe.data.composite import by_rows, mask_row
from rlframe.data.observation import ACTION_MASK, fields_of, has_mask, obs_dtype, zero_obs
from rlframe.data.space_json import space_from_json, space_to_json
from rlframe.data.team import LAST_ACTION, OWN, is_team, of_one
from rlframe.data.timestep import Array, EnvSpec
from rlframe.errors import CheckpointCorruptError, ObservationError
from rlframe.export.artifact import DESCRIPTION, Source, made_without_unknown, read_artifact
from rlframe.export.function import Bounds, FrameStacks, Kind, names_of, to_rows
from rlframe.registry import MODEL_REGISTRY, POLICY_REGISTRY
from rlframe.run.checkpoint_tree import BAD_TREE, compare_states
from rlframe.run.checkpoint_tree import describe as describe_error
from rlframe.utils.field import Field, Options
from rlframe.utils.files import remedy_of
from rlframe.utils.lazy import LazyModule
from rlframe.utils.schema import loading, part

if TYPE_CHECKING:
    import gymnasium
    import torch

    from rlframe.policy import Policy
else:
    torch = LazyModule('torch')

MASK_FIELDS = {'observation', ACTION_MASK}
"""Parts of an observation with a mask separate from the env's own observation."""


def describe(source: Source) -> dict[str, Any]:
    """Returns the content of ``policy.json``, with the policy's state as arrays and tensors."""
    policy, cfg, spec = source.policy, source.cfg.policy, source.spec
    state = dict(policy.collect_mode.state_dict())
    statistics = {name: np.asarray(value).tolist() for name, value in state.pop('normalizer', {}).items()}
    return {
        'env': spec.name,
        'policy': {'type': cfg['type'], 'import_names': _modules(policy), 'options': _acting(policy, cfg)},
        'observation_space': space_to_json(spec.observation_space),
        'action_space': space_to_json(spec.action_space),
        'preprocessing': {
            'frame_stack': source.frame_stack,
            'action_mask': has_mask(spec.observation_space),
            'statistics': statistics,
        },
        'checkpoint': source.measured,
        'state': state,
    }


def is_described(source: Source) -> bool:
    """Whether the description of a policy creates its network."""
    spec, options, state, _ = _read(describe(source))
    return not compare_states(state['model'], _created(options, spec).model.state_dict(), '')


def reaching(description: Mapping[str, Any]) -> list[config.Reaching]:
    """Returns the values in a description that reach beyond the folder, such as modules to import.

    Only modules of rlframe are imported for this.
    """
    said = description['policy']
    if not isinstance(said['type'], str):
        raise TypeError('the type of the policy is not a string')
    options, kind = said['options'], said['type']
    policy = {**options, 'type': kind, 'import_names': said['import_names']}
    model = options.get('model')
    found = list(config.named_modules({'policy': policy}))
    if config.foreign_type(kind, POLICY_REGISTRY):
        return [*found, config.Reaching('policy.type', kind, 'code')]
    if isinstance(model, Mapping) and config.foreign_type(model.get('type'), MODEL_REGISTRY):
        found.append(config.Reaching('policy.model.type', model['type'], 'code'))
    cls = POLICY_REGISTRY.get(kind)
    keys = {each.key for each in found}
    declared = config.declared_reaching(policy, cls.config_fields(), 'policy.')
    return [*found, *(each for each in declared if each.key not in keys)]


def _read(said: Mapping[str, Any]) -> tuple[EnvSpec, dict[str, Any], dict[str, Any], int]:
    """Returns the spec, the policy's options and state, and the size of a stack of frames."""
    obs, action = (space_from_json(said[name]) for name in ('observation_space', 'action_space'))
    policy = said['policy']
    before = said['preprocessing']
    state = dict(said['state'])
    options = {**policy['options'], 'type': policy['type'], 'import_names': policy['import_names']}
    statistics = {name: np.asarray(value) for name, value in before['statistics'].items()}
    if statistics:
        state['normalizer'] = statistics
    return EnvSpec(obs, by_rows(action), name=str(said['env'])), options, state, int(before['frame_stack'])


def _created(options: dict[str, Any], spec: EnvSpec) -> Policy:
    """Creates a policy, whose initial weights are unused."""
    from rlframe.pipeline.memory_needs import blank_network
    from rlframe.policy import create_policy

    blank_network(options, spec)
    return create_policy(options, spec, enable_field=('eval',))  # type: ignore[arg-type]  # any mapping serves


def _acting(policy: Policy, cfg: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of a policy that its class declares, as plain values without secrets."""
    is_on_cpu = cfg['device'] == 'cpu' or cfg['cuda'] is False
    fields = {name: field for name, field in policy.config_fields().items() if name != 'model'}
    options = _declared(cfg, fields) | {'model': cfg['model']}  # an own network has options of its own
    data: dict[str, Any] = config.config_data(options, {})['main_config']
    return data | {'device': 'cpu' if is_on_cpu else 'auto', 'cuda': None, 'init_from': None}


def _modules(policy: Policy) -> list[str]:
    """Returns the modules, other than rlframe's, that have the classes of a policy and its network."""
    found = {type(part).__module__ for part in (policy, policy.model)}
    return sorted(name for name in found if name.partition('.')[0] not in ('rlframe', '__main__'))


def _declared(values: Mapping[str, Any], options: Options) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, option in options.items():
        if isinstance(option, Field):
            found[name] = values[name]
        else:
            found[name] = _declared(values[name], option)
    return found


def load_policy(
    path: str | Path, *, device: str | None = None, stack_frames: bool = True, trust: bool = False
) -> LoadedPolicy:
    """Loads an exported policy; see ``rlframe.load``."""
    artifact = read_artifact(path)
    where = artifact.path / DESCRIPTION
    try:
        spec, options, state, frames = _read(artifact.description)
        found = [] if artifact.manifest.is_own else reaching(artifact.description)
    except BAD_TREE as error:
        message = f'this is not what rlframe wrote: {describe_error(error)}'
        raise CheckpointCorruptError(message, where=str(where), remedy=remedy_of(error)) from error
    remedy = 'If you trust it: rlframe.load(path, trust=True).'
    config.refuse_or_warn(found, str(artifact.path), trust, remedy)
    with loading(where), part('state'):
        given = options if device is None else {**options, 'device': device}
        policy = made_without_unknown(partial(_created, spec=spec), given, artifact.manifest)
        policy.collect_mode.load_state_dict(state)
    return LoadedPolicy(policy, spec, artifact.description, artifact.path, frames if stack_frames else 1)


class LoadedPolicy:
    """Acts as the policy did in evaluations.

    Memory of earlier steps, a stack of frames or a recurrent state, is kept here for each env: call ``reset`` when an
    episode starts.

    ``spec`` are the spaces of the env as the policy sees them, ``description`` the content of ``policy.json``, ``path`` the
    folder of the policy, and ``frames`` the observations that are stacked here.
    """

    def __init__(
        self, policy: Policy, spec: EnvSpec, description: Mapping[str, Any], path: Path, frames: int = 1
    ) -> None:
        self._mode = policy.eval_mode
        self.policy = policy
        """The policy itself, with its network, for example to learn from."""
        self.observation_space: gymnasium.Space[Any] = spec.observation_space
        """Observation space of the policy: with its action mask, and with the frames of a stack as its first axis."""
        self._rows_space: Any = spec.action_space
        self.action_space: gymnasium.Space[Any] = getattr(spec.action_space, 'whole', spec.action_space)
        """Action space of ``act``."""
        self.description = description
        """Content of ``policy.json``."""
        self.path = path
        """Path that it was loaded from."""
        self._kind: Kind = obs_dtype(spec.observation_space)
        self._bounds = Bounds(spec.observation_space)
        self._parts = fields_of(spec.observation_space)
        self._is_beside = set(self._parts) == MASK_FIELDS
        unstacked = (ACTION_MASK,) if self._is_beside else ()
        self._stacks = FrameStacks(self._kind, unstacked) if frames > 1 else None
        self._given = self._kind if self._stacks is None else self._stacks.frame
        self.is_stateful = policy.is_recurrent or self._stacks is not None
        """Whether an action depends on the steps before it, so that ``reset`` has to be called."""
        self._env_num: int | None = None

    def act(self, obs: Any, action_mask: Any = None) -> Any:
        """Returns the action that the policy thinks best.

        Args:
            obs: One observation, or those of n envs with a leading axis (in each part if the space is a Dict or a
                Tuple; n observations can then also be a list). Parts of a dict that training left out are dropped.
            action_mask: Which actions are allowed, [A] or [n, A], if the policy was trained with masks and ``obs`` does
                not contain them; for a MultiDiscrete space, the concatenated masks of its dimensions, or a tuple of
                them.

        Returns:
            An action for ``env.step``, or an array of n; if it has parts, n in each.

        Raises:
            ObservationError: If the observation or the mask is not of the policy's space, or the number of envs changed
                without a reset.
            NonFiniteError: If it contains a NaN or an infinity.
            ActionMaskError: If the mask has other values than 0 and 1.
        """
        rows, is_one = self._rows(obs, action_mask)
        self._bounds.check(rows)
        action = self.act_on_rows(rows)
        if self._rows_space is not self.action_space:
            return self._rows_space.of_rows(action[0] if is_one else action)
        if not is_one:
            return action
        is_array = action.ndim > 1 or type(self.action_space).__name__ == 'Box'
        return action[0, ...] if is_array else action[0].item()

    def act_on_rows(self, rows: Array) -> Array:
        """Returns the actions of n envs, [n, ...], for observations as the policy takes them."""
        action: Array = self._mode.forward(rows, np.arange(len(rows)))['action']
        return action

    def agent(self, number: int) -> LoadedAgent:
        """Returns the policy of one agent of a team, which needs only what that agent sees; it acts by a copy of the team's.

        Raises:
            ObservationError: If the policy is none of a team, or there is no such agent.
        """
        own = deepcopy(self)
        own.reset()
        return LoadedAgent(own, number)

    def reset(self, env_id: Any = None) -> None:
        """Lets episodes begin: forgets the frames and the recurrent state of the steps before.

        ``env_id`` are the numbers of the envs whose episodes start, or a bool for each; all envs by default.
        """
        if env_id is None:
            self._env_num = None
        else:
            env_id = np.atleast_1d(np.asarray(env_id))
            env_id = np.flatnonzero(env_id) if env_id.dtype == np.bool_ else env_id.astype(np.int64)
        self._mode.reset(env_id)
        if self._stacks is not None:
            self._stacks.reset(env_id)

    def _rows(self, obs: Any, action_mask: Any) -> tuple[Array, bool]:
        """Returns observations as the policy takes them, [n, ...], and whether it is a single one."""
        given, is_one = to_rows(self._with_mask(obs, action_mask), self._given)
        self._check_count(len(given))
        return (given if self._stacks is None else self._stacks.push(given)), is_one

    def _with_mask(self, obs: Any, action_mask: Any) -> Any:
        """Returns observations with their separate mask inserted."""
        if action_mask is None:
            if self._is_beside and not isinstance(obs, list) and ACTION_MASK not in names_of(obs):
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
        if isinstance(action_mask, dict) or (
            isinstance(action_mask, tuple) and self._rows_space is not self.action_space
        ):
            action_mask = mask_row(self.action_space, action_mask)  # of one env
        elif isinstance(action_mask, tuple):
            action_mask = np.concatenate([np.asarray(part) for part in action_mask], -1)
        if self._is_beside:
            if ACTION_MASK in names_of(obs):
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


class LoadedAgent:
    """Acts as one agent of a team did in evaluations, by what it alone sees; call ``reset`` when an episode starts.

    It remembers what it did in the step before.

    Args:
        team: The policy of the team, which nobody else acts with.
        number: Which agent it is, in the order of the team.

    Raises:
        ObservationError: If the policy is none of a team, or there is no such agent.
    """

    def __init__(self, team: LoadedPolicy, number: int) -> None:
        parts: dict[str, Any] = dict(fields_of(team.observation_space))
        spec = EnvSpec(team.observation_space, team.action_space)
        count = int(parts[LAST_ACTION].shape[0]) if is_team(spec) else 0
        if not 0 <= number < count:
            raise ObservationError(
                f'{team!r} has no such agent' if count else f'{team!r} is no team',
                where='agent',
                got=number,
                expected=f'0 to {count - 1}' if count else 'a policy of a team:GAME',
            )
        self._team, self._number = team, number
        self.observation_space: gymnasium.Space[Any] = of_one(parts[OWN])
        """What the agent sees, without its action mask."""
        self.action_space: Any = of_one(team.action_space)
        """Action space of ``act``, Discrete or a Box."""
        self._has_mask = ACTION_MASK in parts
        self._last = zero_obs(parts[LAST_ACTION], 0)

    def act(self, obs: Any, action_mask: Any = None) -> Any:
        """Returns the action that the agent thinks best.

        Args:
            obs: One observation of the agent, or those of n envs, with a leading axis (in each part, if it has parts).
            action_mask: Which actions are allowed, [N] or [n, N]; None: all.

        Returns:
            An action, or an array of n.

        Raises:
            ObservationError, NonFiniteError, ActionMaskError: As ``LoadedPolicy.act``.
        """
        given, is_one = to_rows(obs, obs_dtype(self.observation_space))
        own = self._number
        if len(self._last) != len(given):
            self._last = zero_obs(self._team.observation_space, len(given))[LAST_ACTION]
        rows = zero_obs(self._team.observation_space, len(given))
        rows[OWN][:, own] = given
        rows[LAST_ACTION] = self._last
        if self._has_mask:
            masks = rows[ACTION_MASK].reshape(len(given), self._last.shape[1], -1)
            masks[:] = 1
            masks[:, own] = 1 if action_mask is None else action_mask
            rows[ACTION_MASK] = masks.reshape(len(given), -1)
        action = self._team.act_on_rows(rows)[:, own]
        self._last[:, own] = (
            action - self.action_space.start + 1 if hasattr(self.action_space, 'n') else action
        )
        if not is_one:
            return action
        return action[0].item() if action.ndim == 1 else action[0]

    def reset(self, env_id: Any = None) -> None:
        """Lets the episodes of all envs, or of some, begin."""
        self._team.reset(env_id)
        self._last[slice(None) if env_id is None else np.asarray(env_id)] = 0

    def __repr__(self) -> str:
        return f'agent {self._number} of {self._team!r}'
