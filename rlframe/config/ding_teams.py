"""Converts DI-engine's games of PettingZoo, and the policies of their agents, to teams."""

from __future__ import annotations

from rlframe.config.components import MISSING
from rlframe.config.ding_convert import Draft

TEAM_TYPES = ('petting_zoo', 'petting_zoo_pistonball')
"""Types of dizoo's envs of PettingZoo's parallel games."""
TEAM_FAMILIES = {'mpe': 'mpe2.', 'butterfly': 'pettingzoo.butterfly.', 'sisl': 'pettingzoo.sisl.'}
"""Families of games in PettingZoo that may be teams, and the package of each."""
TEAM_GAMES = {
    'simple_spread_v2': 'simple_spread_v3',
    'simple_reference_v2': 'simple_reference_v3',
    'simple_speaker_listener_v3': 'simple_speaker_listener_v4',
}
"""Games of which MPE2 has a newer version."""
TEAM_POLICIES = {
    'ppo': 'mappo',
    'happo': 'happo',
    'ddpg': 'maddpg',
    'sac': 'masac',
    'discrete_sac': 'masac_discrete',
}
"""Policies of DI-engine, and what they are here with a critic that sees what all agents see."""
TEAM_ARGUMENTS = (
    ('n_agent', 'N'),
    ('n_pistons', 'n_pistons'),
    ('max_cycles', 'max_cycles'),
)
"""Options of dizoo's games of PettingZoo, and the arguments of the games."""


def team(draft: Draft) -> None:
    """Makes a team of a game of PettingZoo, and names the policy of a critic, or of a value, of the team."""
    if draft.kind('env') not in TEAM_TYPES:
        return
    family = draft.take('env.env_family', 'mpe')
    named = draft.get('env.env_id')
    if not isinstance(named, str) or family not in TEAM_FAMILIES:
        return
    game = TEAM_FAMILIES[family] + TEAM_GAMES.get(named, named)
    draft.set_kind('env', 'gym', '')
    new = {'env.env_id': 'rlframe.envs.team_env:Team', 'env.kwargs.game': game}
    draft.replace('env.env_id', named, new, 'all agents of a step are one row')
    continuous = 'continuous' if family == 'butterfly' else 'continuous_actions'
    for old, argument in (*TEAM_ARGUMENTS, ('continuous_actions', continuous)):
        value = draft.take(f'env.{old}')
        if value is not MISSING:
            draft.replace(f'env.{old}', value, {f'env.kwargs.{argument}': value}, '')
    for key in ('env.n_landmark', 'env.agent_obs_only', 'env.agent_specific_global_state'):
        draft.drop(key, 'the game, and the parts that a network reads, decide it')

    # the policy
    kind = TEAM_POLICIES.get(draft.kind('policy'))
    if kind is not None and draft.get('policy.multi_agent') is True:
        draft.take('policy.multi_agent')
        draft.set_kind('policy', kind, 'the critic reads the state of the team')
    elif draft.kind('policy') == 'qmix' and draft.take('policy.model.mixer') is False:
        draft.set_kind('policy', 'vdn', 'QMIX without its mixer')
