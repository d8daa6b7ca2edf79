"""What ``rlframe check-env`` says of a team: who its agents are, when they come and go, and what each is paid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from rlframe.envs.team_env import Team

IN_TURNS = 'Learners use the reward of the team in each turn. policy.agent_rewards needs a game in which all act at once.'
"""What to know of a team whose agents act one after the other."""


class Remark(NamedTuple):
    """Something that is worth knowing of a team."""

    severity: Literal['warning', 'note']
    seen: str
    fix: str


class Listened:
    """Passes calls on to a game, and notes who acted and what each agent was paid, in every step."""

    def __init__(self, game: Any) -> None:
        self._game = game
        self.paid: list[tuple[set[Any], dict[Any, float]]] = []
        """Of each step, the agents that acted, and the rewards by agent."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._game, name)

    def step(self, actions: dict[Any, Any]) -> Any:
        """Does a step of the game."""
        answer = self._game.step(actions)
        self.paid.append((set(actions), {agent: float(reward) for agent, reward in answer[1].items()}))
        return answer


def check_team(team: Team, play: Callable[[], Any]) -> tuple[list[Remark], dict[str, Any]]:
    """Plays a team, and returns remarks and facts: its ``agents``, when they come and go, and its ``state``.

    Args:
        team: The team, whose game has not begun.
        play: Plays random actions in it, from the beginning of an episode.
    """
    if team.is_in_turns:
        play()
        note = Remark('note', 'agents act in turn: those who wait count as absent', IN_TURNS)
        return [note], {'agents': dict.fromkeys(team.agents, ''), 'state': team.has_state}
    heard = team.running.game = Listened(team.running.game)
    play()
    lost = _lost(heard)
    apart = _are_apart(heard)
    remarks = []
    if lost:
        names = dict(zip(heard.possible_agents, team.agents, strict=True))
        many = ', '.join(f'{names[agent]} {total:g}' for agent, total in lost.items())
        seen = f'agents are paid in steps in which they did not act, which the reward of the team leaves out: {many}'
        fix = (
            'Pay an agent in the last step in which it acts, or let it act on with supersuit.black_death_v3.'
        )
        remarks.append(Remark('warning', seen, fix))
    if apart is False and len(team.agents) > 1:
        seen = f'all agents always earned the same: the reward of the team is {len(team.agents)} times that of each'
        remarks.append(Remark('note', seen, 'env.kwargs.team_reward=mean makes it that of each.'))
    if apart:
        seen = (
            'agents earn different rewards; the team learns from their sum, or mean (env.kwargs.team_reward)'
        )
        fix = 'policy.agent_rewards=True, with mappo, happo, coma, maddpg and masac, lets each learn from its own.'
        remarks.append(Remark('note', seen, fix))
    return remarks, {'agents': _agents(team, heard), 'state': team.has_state}


def agents_in_words(facts: Mapping[str, Any]) -> str:
    """Returns what the facts of a team say of its agents and its state."""
    agents = ', '.join(f'{name} ({what})' if what else name for name, what in facts['agents'].items())
    state = 'that of the game' if facts['state'] else 'what all agents see, as the game has no state()'
    return f'{agents}; state: {state}'


def _lost(heard: Listened) -> dict[Any, float]:
    """Returns the sums of the rewards of agents in steps in which they did not act, of those who had some."""
    totals: dict[Any, float] = {}
    for acted, paid in heard.paid:
        for agent, reward in paid.items():
            if agent not in acted and reward:
                totals[agent] = totals.get(agent, 0.0) + reward
    return totals


def _are_apart(heard: Listened) -> bool | None:
    """Returns whether agents that acted in the same step ever earned different rewards; None: nobody earned anything."""
    each = [np.array([paid[agent] for agent in acted if agent in paid]) for acted, paid in heard.paid]
    if not any(rewards.any() for rewards in each):
        return None
    return any(bool((rewards != rewards[0]).any()) for rewards in each if len(rewards) > 1)


def _agents(team: Team, heard: Listened) -> dict[str, str]:
    """Returns the names of all agents, with ``comes and goes`` for those that did not act in every step."""
    always = [all(agent in acted for acted, _ in heard.paid) for agent in heard.possible_agents]
    return {name: '' if stays else 'comes and goes' for name, stays in zip(team.agents, always, strict=True)}
