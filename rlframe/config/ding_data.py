"""Converts configs of DI-engine that learn from recorded data, or from demonstrations: SQIL, DQfD, R2D3 and BCO."""

from __future__ import annotations

from rlframe.config.components import MISSING
from rlframe.config.ding_convert import Draft
from rlframe.config.rules import EXPERT

DATA_PATHS = 'policy.collect.data_path', 'policy.learn.data_path', 'dataset.data_dir_prefix'
"""Keys that name recorded data."""
NOT_OF_DATA = {
    'policy.random_collect_size': 'the data are recorded',
    'policy.collect.n_sample': 'each round is one batch of the data',
    'policy.collect.n_episode': 'each round is one batch of the data',
    'policy.collect.noise_sigma': 'the data are recorded',
    'policy.learn.update_per_collect': 'one update per batch of the data',
    'policy.learn.train_epoch': 'max_train_iter sets the number of updates',
    'policy.collect.data_type': 'the form of the data is recognised',
    'policy.other.replay_buffer': 'data are learned from as they are read',
    'policy.priority': 'each pass reads every row once',
    'policy.priority_IS_weight': 'each pass reads every row once',
}
"""Keys that mean nothing to a policy which learns from recorded data."""
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


def recorded_data(draft: Draft) -> None:
    """Reads recorded data, as ``serial_pipeline_offline`` does, and drops what only collection needs."""
    is_edac = draft.policy == 'edac'
    if draft.policy == 'bc' or not (is_edac or draft.is_a('from-data')):
        return
    if is_edac:
        draft.create['collector'] = {'type': 'dataset'}
    if draft.create.pop('replay_buffer', None) is not None:
        draft.say('create_config.replay_buffer', None, {}, NOT_OF_DATA['policy.other.replay_buffer'])
    for key, reason in NOT_OF_DATA.items():
        draft.drop(key, reason)
    if draft.get('policy.nstep', 1) != 1:
        draft.replace(
            'policy.nstep', draft.get('policy.nstep'), {'policy.nstep': 1}, 'recorded rows are single steps'
        )
    new = 'policy.collect.collector.data'
    paths = [draft.take(key) for key in DATA_PATHS]
    draft.drop('dataset', f'the section model, and {new}')
    found = [path for path in paths if isinstance(path, str)]
    if found:
        draft.replace('policy.collect.data_path', found[0], {new: found[0]}, '')
    elif draft.get(new) is MISSING:
        draft.say('policy.collect.data_path', None, {}, f'set {new}')


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
