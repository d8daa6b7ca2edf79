"""Converts configs of DI-engine that learn from recorded data."""

from __future__ import annotations

from rlframe.config.components import MISSING
from rlframe.config.ding_convert import Draft

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
