"""Converts configs of DI-engine that learn from demonstrations: SQIL, DQfD, R2D3 and BCO."""

from __future__ import annotations

from rlframe.config.components import MISSING
from rlframe.config.ding_convert import Draft
from rlframe.config.rules import EXPERT

IMITATORS = {'sql': 'sqil', 'sac': 'sqil_sac'}
"""Policies that are soft Q imitation learning if an expert acts."""
DEMONSTRATED = ('sqil', 'sqil_sac', 'dqfd', 'r2d3', 'bco')
"""Policies that learn from demonstrations."""
NOT_OF_BCO = {
    'policy.learn.train_epoch': 'inverse model and policy learn in each update',
    'policy.collect.n_episode': 'policy.collect.n_sample sets how much a round collects',
    'policy.collect.noise': 'policy.collect.eps explores',
    'policy.collect.noise_sigma': 'policy.collect.eps explores',
    'policy.collect.noise_range': 'policy.collect.eps explores',
    'policy.other.eps': 'policy.collect.eps explores',
}
"""Keys that BCO does without here."""


def imitator(draft: Draft, name: str) -> str:
    """Returns the policy that a config means, which DI-engine decides by the entry that is called."""
    if 'bco' in draft.main and name == 'bc':
        return 'bco'
    acts = draft.get(EXPERT) not in (MISSING, None) and draft.get('policy.collect.save_path') is MISSING
    return IMITATORS.get(name, name) if acts and 'reward_model' not in draft.main else name


def demonstrations(draft: Draft) -> None:
    """Lets the expert act in half of the envs, or reads its data, and drops what is DI-engine's alone."""
    if draft.policy not in DEMONSTRATED:
        return
    if draft.policy == 'bco':
        _cloning_from_observation(draft)
    if draft.get(EXPERT) is MISSING and draft.get('policy.other.replay_buffer.init_from') is MISSING:
        new = {EXPERT: 'model_path_placeholder'}
        draft.replace(EXPERT, None, new, "the exported expert, which DI-engine's second config names")
    if draft.get('env.collector_env_num') == 1:
        draft.replace(
            'env.collector_env_num', 1, {'env.collector_env_num': 2}, 'an expert acts in one of them'
        )


def _cloning_from_observation(draft: Draft) -> None:
    """Turns the section ``bco`` into options of the policy ``bco``."""
    section = draft.take('bco')
    if isinstance(section, dict):
        learn = section.get('learn', {})
        rate = (
            {'policy.learn.learning_rate_inverse': learn['idm_learning_rate']}
            if 'idm_learning_rate' in learn
            else {}
        )
        draft.replace(
            'bco',
            section,
            rate,
            'the inverse model has the layers of the policy, and learns in the same updates',
        )
    draft.create['collector'] = {'type': 'sample'}
    for key, reason in NOT_OF_BCO.items():
        draft.drop(key, reason)
    path = draft.take('policy.collect.data_path')
    if isinstance(path, str):
        draft.drop(EXPERT, 'its data are recorded')
        new = {'policy.other.replay_buffer.init_from': path}
        draft.replace('policy.collect.data_path', path, new, '')
