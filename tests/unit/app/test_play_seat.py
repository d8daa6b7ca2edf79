"""A person who acts for one agent of a team."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from error_texts import raises

from rlframe.app.play import seated
from rlframe.data.faces import EvalMode
from rlframe.data.timestep import Batch
from rlframe.envs import BaseEnvManager
from rlframe.envs.team_env import Team
from rlframe.errors import ConfigError


def zeros(obs: Any, env_id: Any) -> Batch:
    return Batch({'action': np.zeros((len(env_id), 2), np.int64)})


def unused(*given: Any) -> Any:
    raise AssertionError('only forward is called')


POLICY = EvalMode(zeros, unused, unused, unused, unused, unused)


def test_a_person_acts_for_one_agent_and_the_policy_for_the_others() -> None:
    team = Team('rlframe.envs.two_step')
    answers = iter(['7', 'left', '1'])
    said: list[str] = []
    mode = seated(POLICY, team, 'agent_1', said.append, lambda prompt: next(answers))
    manager = BaseEnvManager([lambda: team])
    manager.launch()
    manager.reset(seed=[0])
    assert mode.forward(manager.obs, manager.ready)['action'].tolist() == [[0, 1]]
    sees, *refused = said
    assert sees.startswith('agent_1 sees [')
    assert refused == [
        "'7' is no action; choose one of 0, 1",
        "'left' is no action; choose one of 0, 1",
    ]
    manager.close()


@pytest.mark.parametrize('agent', ['agent_2', '2', '-1'])
def test_an_unknown_agent_is_an_error_with_those_of_the_team(agent: str) -> None:
    with raises(ConfigError):
        seated(POLICY, Team('rlframe.envs.two_step'), agent, unused, unused)


def test_an_env_that_is_no_team_has_no_seats() -> None:
    with raises(ConfigError):
        seated(POLICY, gymnasium.make('CartPole-v1'), '0', unused, unused)
