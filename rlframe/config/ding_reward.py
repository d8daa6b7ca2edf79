"""Converts the reward models of DI-engine's configs."""

from __future__ import annotations

from typing import Any, NamedTuple

from rlframe.config.components import MISSING, section_at
from rlframe.config.ding_convert import Draft
from rlframe.config.rules import EXPERT
from rlframe.config.schema import REWARD_MODELS

DATA = f'{REWARD_MODELS}.data'
_FROM_ENV = 'read from the spaces of the env'
_RECORDED = f'{DATA} names recorded data, which rlframe collect makes of a run'
_RANKED = f'{DATA} names recorded episodes of any policies, which are ranked by their returns'
_EQUAL = 'all snippets of an update are equally long'
_OF_NETWORK = {
    'learning_rate': 'learning_rate',
    'batch_size': 'batch_size',
    'update_per_collect': 'update_per_collect',
}
_EVERYWHERE = {
    'input_size': _FROM_ENV,
    'action_size': _FROM_ENV,
    'action_shape': _FROM_ENV,
    'obs_shape': _FROM_ENV,
    'continuous': _FROM_ENV,
    'discrete_action': _FROM_ENV,
    's_size': _FROM_ENV,
    'a_size': _FROM_ENV,
    'expert_model_path': _RECORDED,
    'data_path': _RECORDED,
    'offline_data_path': _RECORDED,
    'collect_count': _RECORDED,
    'sample_size': _RECORDED,
    'reward_model_path': 'checkpoints of the run contain it',
    'store_model_every_n_train': 'checkpoints of the run contain it',
    'log_every_n_train': 'its loss is logged with every evaluation',
    'clear_buffer_per_iters': 'the newest rows are kept: memory',
    'target_new_data_count': 'policy.collect.n_sample sets how much a round collects',
}
_OF_RANKS = {
    'min_snippet_length': _EQUAL,
    'checkpoint_min': _RANKED,
    'checkpoint_max': _RANKED,
    'checkpoint_step': _RANKED,
    'num_trajs': 'snippets are never thinned out',
    'learning_rate': 'updates are of 16 pairs, not of one: learning_rate has a default for these',
    'update_per_collect': 'updates sets how many there are',
    'batch_size': 'updates are of 16 pairs',
    'hidden_size': 'hidden_size_list',
}
_OF_CURIOSITY = {
    'intrinsic_reward_rescale': 'what is paid is divided by its running standard deviation, times weight',
    'obs_norm_clamp_min': 'standardised observations are clipped at -10 and 10',
    'obs_norm_clamp_max': 'standardised observations are clipped at -10 and 10',
    'extrinsic_reward_norm': "the env's rewards are kept; policy.normalize_reward scales them",
    'extrinsic_reward_norm_max': "the env's rewards are kept; policy.normalize_reward scales them",
    'nstep': 'policy.nstep',
    'only_use_last_five_frames_for_icm_rnd': 'the newest rows are learned from: memory',
    'last_nonzero_reward_rescale': "the env's rewards are kept",
    'last_nonzero_reward_weight': "the env's rewards are kept",
}
_CURIOUS = {name: name for name in ('learning_rate', 'batch_size', 'hidden_size_list', 'update_per_collect')}
_NETWORK = {
    'learning_rate': 1e-3,
    'batch_size': 64,
    'hidden_size_list': [64, 64, 128],
    'update_per_collect': 100,
}
CURIOUS = ('rnd', 'icm', 'ngu')
"""Those that learn from what the agent sees alone."""
OF_NGU = 'rnd_reward_model', 'episodic_reward_model'
"""Sections of the two reward models that are one here."""
PAIRS = 16
"""Pairs of snippets of an update here; DI-engine has one."""


class Counterpart(NamedTuple):
    """What a reward model of DI-engine is here."""

    kind: str
    """Its name here."""
    options: dict[str, str]
    """DI-engine's keys and ours."""
    defaults: dict[str, Any]
    """DI-engine's defaults, by our keys."""
    unused: dict[str, str]
    """Keys without a counterpart, and what replaces them."""


COUNTERPARTS: dict[str, Counterpart] = {
    'rnd': Counterpart(
        'rnd',
        _CURIOUS | {'intrinsic_reward_weight': 'weight', 'obs_norm': 'obs_norm'},
        _NETWORK | {'weight': 0.01},
        _OF_CURIOSITY,
    ),
    'icm': Counterpart(
        'icm',
        _CURIOUS | {'intrinsic_reward_weight': 'weight'},
        _NETWORK | {'weight': 0.003, 'obs_norm': False},
        _OF_CURIOSITY | {'reverse_scale': 'the loss of the inverse model has the weight 1 - forward_share'},
    ),
    'ngu': Counterpart('ngu', _CURIOUS, _NETWORK | {'normalize': False, 'obs_norm': False}, _OF_CURIOSITY),
    'gail': Counterpart(
        'gail',
        _OF_NETWORK,
        {
            'learning_rate': 1e-3,
            'batch_size': 64,
            'update_per_collect': 100,
            'hidden_size_list': [128],
            'activation': 'tanh',
            'gradient_penalty': 0.0,
        },
        {},
    ),
    'guided_cost': Counterpart(
        'gcl',
        _OF_NETWORK,
        {'learning_rate': 1e-3, 'batch_size': 64, 'update_per_collect': 100, 'hidden_size_list': [128, 128]},
        {},
    ),
    'pwil': Counterpart(
        'pwil', {'expert_data_path': 'data', 'alpha': 'scale', 'beta': 'sharpness'}, {'every': 1}, {}
    ),
    'red': Counterpart(
        'red',
        {
            'expert_data_path': 'data',
            'learning_rate': 'learning_rate',
            'batch_size': 'batch_size',
            'update_per_collect': 'updates',
            'sigma': 'sigma',
        },
        {'learning_rate': 1e-3, 'batch_size': 64, 'updates': 100, 'sigma': 0.5, 'hidden_size_list': [128]},
        {},
    ),
    'pdeil': Counterpart('pdeil', {'expert_data_path': 'data', 'alpha': 'alpha'}, {}, {}),
    'trex': Counterpart('trex', {'max_snippet_length': 'snippet_length'}, {'ensemble': 1}, _OF_RANKS),
    'drex': Counterpart(
        'drex',
        {
            'max_snippet_length': 'snippet_length',
            'eps_list': 'noise',
            'num_trajs_per_bin': 'episodes_per_noise',
            'bc_iterations': 'clone_updates',
        },
        {'ensemble': 1},
        _OF_RANKS | {'bc_path': 'the demonstrations are always cloned'},
    ),
}
"""Reward models by DI-engine's names."""


def type_of(draft: Draft) -> Any:
    """Returns the type of the reward model of a config; where it names none, its keys tell; MISSING if it has none."""
    if OF_NGU[1] in draft.main:
        return 'ngu'
    section = draft.main.get(REWARD_MODELS)
    named = section_at(draft.create, [REWARD_MODELS]).get('type')
    if not isinstance(section, dict):
        return MISSING if named is None and REWARD_MODELS not in draft.create else named
    kind = section.get('type') if named is None else named
    if kind is None and 'min_snippet_length' in section:
        return 'trex'
    return 'gail' if kind is None and 'input_size' in section else kind


def reward_model(draft: Draft) -> None:
    """Converts the reward model of a config; experts and ranked episodes are recorded data here."""
    kind = type_of(draft)
    if kind == 'ngu':
        _join_ngu(draft)
    found = COUNTERPARTS.get(kind) if isinstance(kind, str) else None
    if found is None:
        return
    # type
    draft.create.pop(REWARD_MODELS, None)
    given = draft.main.get(REWARD_MODELS) or {}
    given.pop('type', None)
    draft.main[REWARD_MODELS] = {'type': found.kind}
    draft.say(f'create_config.{REWARD_MODELS}.type', kind, {f'{REWARD_MODELS}.type': found.kind}, '')
    # options
    for name, value in given.items():
        new, became, reason = _option(found, name, value)
        key = f'{REWARD_MODELS}.{name}'
        if new:
            draft.replace(key, value, {f'{REWARD_MODELS}.{new}': became}, reason)
        else:
            draft.say(key, value, {}, reason)
    draft.fill({f'{REWARD_MODELS}.{name}': value for name, value in found.defaults.items()})
    # what its entry does
    draft.drop(EXPERT, _RECORDED)
    if draft.get(DATA) is MISSING and found.kind not in CURIOUS:
        draft.say('expert data of the entry', None, {}, f'set {DATA}')
    if draft.kind('collector') == 'episode':
        draft.set_kind('collector', 'sample', 'steps are paid, one by one')
        draft.drop('policy.collect.collector.get_train_sample', 'steps are paid, one by one')
    steps = draft.get('policy.nstep', 1)
    if steps != 1 and draft.policy != 'r2d2':
        draft.replace('policy.nstep', steps, {'policy.nstep': 1}, 'each step is paid when it is sampled')


def _join_ngu(draft: Draft) -> None:
    """Makes one reward model of the two of NGU, whose options are alike, and an R2D2 of its agent."""
    for name in OF_NGU:
        draft.create.pop(name, None)
    lifelong, episodic = (draft.main.pop(name, None) for name in OF_NGU)
    draft.main[REWARD_MODELS] = episodic
    became = {f'{REWARD_MODELS}.type': 'ngu'}
    draft.say(OF_NGU[0], lifelong, became, 'its error is a factor of the episodic bonus')
    draft.say(OF_NGU[1], episodic, became, '')
    reason = (
        'what is paid has one weight in all envs, and the network does not see the last action and reward'
    )
    draft.say('policy.type', 'ngu', {'policy.type': 'r2d2'}, reason)
    draft.drop('env.obs_plus_prev_action_reward', reason)


def _option(found: Counterpart, name: str, value: Any) -> tuple[str, Any, str]:
    """Returns our name of an option, '' if there is none, its value, and the reason for the change.

    Unknown options keep their names, so that the check of the config refuses them.
    """
    if name == 'intrinsic_reward_weight' and value is None:
        return '', value, 'a weight that follows the rewards of a batch there; weight has its default'
    if name == 'intrinsic_reward_type' and value == 'add':
        return '', value, 'what is paid is added'
    if name in found.options:
        return found.options[name], value, ''
    if name == 'num_snippets' and isinstance(value, int):
        return 'updates', -(-value // PAIRS), f'updates of {PAIRS} pairs'
    layers = found.defaults.get('hidden_size_list')
    if name == 'hidden_size' and layers:
        return 'hidden_size_list', [value] * len(layers), ''
    reason = (found.unused | _EVERYWHERE).get(name, '')
    return '' if reason else name, value, reason
