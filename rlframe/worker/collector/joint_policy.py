"""JointPolicy: several policies that play one game."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlframe.data.observation import any_action
from rlframe.data.players import PlayerLayout, PlayerView
from rlframe.data.timestep import Array, Batch, EnvSpec, IntArray
from rlframe.errors import IncompatibleError
from rlframe.worker.collector.ding_policy import as_rows


class JointPolicy:
    """Passes each policy the observations of its players, and joins their actions.

    A policy that has several seats acts in all of them at once. To distinguish its games, player p of env i has the env
    id ``p * N + i``. Only active players act; the other entries of an action are ignored.

    Args:
        policies: Collect or eval faces, one for each player, or a single one for self-play.
    """

    _player_spec: EnvSpec

    def __init__(self, policies: Any) -> None:
        is_single = hasattr(policies, 'forward')
        adapted: dict[int, Any] = {}  # one for a policy that is given several times
        self._given: list[Any] = [
            adapted.setdefault(id(policy), as_rows(policy, lambda: self._player_spec))
            for policy in ([policies] if is_single else policies)
        ]
        self._plays_itself = is_single
        self._distinct: list[Any] = []
        for policy in self._given:
            if policy not in self._distinct:
                self._distinct.append(policy)
        self.player_num = len(self._given)
        """Players that it acts for, P."""
        self._env_num = 0

    def assign_players(self, spec: EnvSpec, env_num: int) -> None:
        """Takes the seats of N envs of a spec: policy p acts for player p.

        Raises:
            IncompatibleError: If the envs have a single player, or not as many players as there are policies.
        """
        if spec.player is None:
            raise IncompatibleError(
                f'{spec.name} has one player',
                where='policy',
                remedy="Envs of one player need collector.type='sample' or 'episode' and evaluator.type='interaction'.",
            )
        if self._plays_itself:
            self._given = self._given[:1] * spec.player_num
            self.player_num = spec.player_num
        if len(self._given) != spec.player_num:
            raise IncompatibleError(
                f'{spec.name} has {spec.player_num} players',
                where='policy',
                got=f'{len(self._given)} policies',
                expected=f'{spec.player_num}, one for each player',
                remedy='The same policy may be given several times.',
            )
        self._player_spec = spec.player
        self._env_num = env_num
        self._layout = PlayerLayout(spec.player, spec.player_num)
        # place of each given policy among the distinct ones
        self._index = np.array([self._distinct.index(policy) for policy in self._given])
        self.seating = np.tile(np.arange(spec.player_num), (env_num, 1))
        """Index of the policy that acts for each player of each env, [N, P]."""
        self._idle = any_action(spec.player.action_space)

    def view(self, obs: Array) -> PlayerView:
        """Returns the players' observations and rewards, [n, P]."""
        return self._layout.view(obs)

    def slot(self, player: Any, env_id: IntArray) -> IntArray:
        """Returns the ids that players of envs have for the policies."""
        slot: IntArray = player * self._env_num + env_id
        return slot

    def policy_of(self, player: int) -> Any:
        """Returns the policy that was given for a player."""
        return self._given[player]

    def forward(self, obs: Array, env_id: IntArray, **settings: Any) -> Batch:
        """Returns the joint action [n, P, ...].

        Other outputs of the k-th of the different policies are in columns ``k/name``.
        """
        seen = self._layout.view(obs)
        acting = self._index[self.seating[env_id]]  # [n, P]
        count = len(env_id)
        idle = np.repeat(np.repeat(self._idle[None, None], self.player_num, 1), count, 0)
        columns = {'action': idle}
        for k, policy in enumerate(self._distinct):
            row, player = np.nonzero(seen.active & (acting == k))
            if not len(row):
                continue
            output = policy.forward(seen.obs[row, player], self.slot(player, env_id[row]), **settings)
            for name, values in output.items():
                key = name if name == 'action' else f'{k}/{name}'
                if key not in columns:
                    columns[key] = np.zeros((*acting.shape, *values.shape[1:]), values.dtype)
                columns[key][row, player] = values
        return Batch.unchecked(columns, count)

    def output_for(self, player: int, output: Batch, rows: Array) -> dict[str, Array]:
        """Returns the output of the policy given for a player, for some rows of ``forward``'s answer."""
        start = f'{self._index[player]}/'
        own = {name[len(start) :]: column for name, column in output.items() if name.startswith(start)}
        return {name: column[rows, player] for name, column in {'action': output['action'], **own}.items()}

    def reset(self, env_id: IntArray | None) -> None:
        """Tells all policies that games begin anew."""
        if env_id is None or not self._env_num:
            ids = None
        else:
            ids = self.slot(np.arange(self.player_num)[:, None], env_id).ravel()
        for policy in self._distinct:
            policy.reset(ids)

    def get_attribute(self, name: str) -> Any:
        """Returns a fact about the first policy."""
        return self._given[0].get_attribute(name)


def check_flags(flags: Sequence[bool] | None, player_num: int) -> list[int]:
    """Returns the players whose flag is set; all if no flags are given.

    Raises:
        IncompatibleError: If there are more or fewer flags than players, or none is set.
    """
    chosen = [True] * player_num if flags is None else list(flags)
    if len(chosen) != player_num or not any(chosen):
        raise IncompatibleError(
            'one switch for each player',
            where='policy.collect.collector.record',
            got=flags,
            expected=f'{player_num} of True and False, at least one of them True',
        )
    return [player for player, is_set in enumerate(chosen) if is_set]
