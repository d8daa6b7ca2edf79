"""An expert: a trained policy that acts in some of the envs in which another one collects."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlframe.data.faces import CollectMode, by_env
from rlframe.data.observation import obs_dtype
from rlframe.data.timestep import Array, Batch, EnvSpec, IntArray, TimeStep
from rlframe.errors import ConfigError
from rlframe.policy.parts.demos import IS_DEMO, marks_of

KEY = 'policy.collect.model_path'


class Expert:
    """A policy that acts in the first envs, whose rows are demonstrations: they have the column ``is_demo``.

    Args:
        policy: The expert.
        env_num: Envs in which it acts, from the first one on.
        spec: Spaces of the envs.

    Raises:
        ConfigError: If it acts in other spaces, or by a memory, which no checkpoint of the run would save.
    """

    def __init__(self, policy: Any, env_num: int, spec: EnvSpec) -> None:
        theirs = policy.spec
        sees_the_same = obs_dtype(spec.observation_space) == obs_dtype(theirs.observation_space)
        if not (sees_the_same and spec.action_space == theirs.action_space):
            raise ConfigError(
                f'this expert acts in {theirs.name}, which has other spaces than {spec.name}',
                where=KEY,
                got=f'obs {theirs.observation_space!r}, action {theirs.action_space!r}',
                expected=f'obs {spec.observation_space!r}, action {spec.action_space!r}',
            )
        if policy.is_recurrent:
            raise ConfigError(
                'this expert has a memory of its episodes',
                where=KEY,
                got=type(policy).__name__,
                expected='a policy without one',
                remedy='Record it: rlframe collect; replay_buffer.init_from begins with its data.',
            )
        self._forward = policy.eval_mode.forward
        self._env_num = env_num

    def beside(self, mode: CollectMode, spec: EnvSpec) -> CollectMode:
        """Returns a collect face in which it acts, too."""

        def forward(obs: Array, env_id: IntArray, **settings: Any) -> Batch:
            output = mode.forward(obs, env_id, **settings)
            is_demo = np.asarray(env_id) < self._env_num
            action = output['action'].copy()
            if is_demo.any():
                action[is_demo] = self._forward(obs[is_demo], env_id[is_demo])['action']
            columns = {name: column for name, column in output.items() if name != 'unit_action'}
            return Batch.unchecked({**columns, 'action': action, IS_DEMO: is_demo}, len(action))

        def process_transition(obs: Array, output: Batch, timestep: TimeStep) -> dict[str, Array]:
            rows = mode.process_transition(obs, output, timestep)
            return rows | {IS_DEMO: marks_of(output)}

        return mode._replace(forward=by_env(forward, spec), process_transition=process_transition)
