"""An env that breaks Gymnasium's contract is named, with its episode, step and value."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from fakes import CountingEnv, counting_manager

from rlframe.envs import BaseEnvManager
from rlframe.errors import EnvContractError, IncompatibleError


class Broken(CountingEnv):
    """Gives what ``answer`` makes of a correct answer, from the second step on."""

    def __init__(self, number: int, answer: Any) -> None:
        super().__init__(number, 1000)
        self._answer = answer

    def step(self, action: Any) -> Any:
        right = super().step(action)
        return self._answer(list(right)) if self.number == 1 and self.step_number > 1 else right


class OldReset(CountingEnv):
    def reset(self, **kwargs: Any) -> Any:
        return super().reset(**kwargs)[0]


def changed(position: int, value: Any) -> Any:
    return lambda right: tuple([*right[:position], value, *right[position + 1 :]])


CASES = [
    (lambda right: (right[0], 0.0, False, {}), EnvContractError, ['4 values', 'expected 5', 'shimmy']),
    (changed(3, 1), EnvContractError, ['truncated=1']),
    (changed(4, None), EnvContractError, ['info None']),
]


@pytest.mark.parametrize(('answer', 'error', 'words'), CASES)
def test_a_wrong_step_names_env_episode_step_and_value(
    answer: Any, error: type[Exception], words: list[str]
) -> None:
    manager = BaseEnvManager([lambda i=i: Broken(i, answer) for i in range(2)])
    manager.reset()
    manager.step(np.zeros(2, np.int64), manager.ready)
    with pytest.raises(error) as caught:
        manager.step(np.zeros(2, np.int64), manager.ready)
    for word in ['env 1', *words]:
        assert word in str(caught.value)


def test_large_finite_numbers_are_no_error() -> None:
    manager = counting_manager(2, reward=lambda *place: 3e38)
    manager.reset()
    with np.errstate(over='ignore'):
        manager.step(np.zeros(2, np.int64), manager.ready)


def test_reset_of_the_old_interface_is_refused_with_the_way_out() -> None:
    with pytest.raises(EnvContractError, match=r'reset\(\) of env 0, .*expected \(obs, info\).*shimmy'):
        BaseEnvManager([OldReset]).reset()


def test_envs_of_different_spaces_and_spaces_that_cannot_be_stored_are_refused() -> None:
    class Other(CountingEnv):
        observation_space = gymnasium.spaces.Box(0, 1, (4,))

    class Nested(CountingEnv):
        observation_space = gymnasium.spaces.Dict(a=gymnasium.spaces.Text(2))

    with pytest.raises(IncompatibleError, match='env 1 has the spaces'):
        BaseEnvManager([CountingEnv, Other])
    with pytest.raises(IncompatibleError, match='FlattenObservation'):
        BaseEnvManager([Nested])
