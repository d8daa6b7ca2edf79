"""Converts the options of DI-engine for which a new name is not enough: other units, merged keys, objects."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

from rlframe.config.components import MISSING, section_at, set_path, take_at, value_at
from rlframe.config.ding_table import (
    CONVOLUTIONS,
    LEAGUE_UNUSED,
    NO_BUFFER,
    NO_COORDINATOR,
    SYSTEM_UNUSED,
    TO_PARALLEL,
    kinds_of,
)
from rlframe.config.schema import ALL_COMPONENTS, Tree
from rlframe.utils.flat import flat

SYSTEM = 'system_config'
"""Key of the main config under which the third part of a config of DI-engine's parallel mode lies."""
_PATHS = {part.name: part.path for part in ALL_COMPONENTS}

ACTIVATIONS = {'relu': 'relu', 'tanh': 'tanh', 'gelu': 'gelu', 'silu': 'silu', 'swish': 'silu'}
"""Names of activations and of torch's modules, in lower case."""
AUTO = 'auto'
"""DI-engine's word for a host or port that it finds itself."""
SEQUENCES = 'policy.other.replay_buffer'
"""Section of R2D2's sequences."""
FRESH_SEQUENCES = {
    'impala': ('policy.unroll_len', 32, 4, 16),
    'coma': ('policy.collect.unroll_len', 20, 20, 32),
}
"""Policies that learn from fresh sequences: the key of their length, and DI-engine's length, updates of a round and batch."""
BY_SEQUENCES = ('R2D2Policy', 'ACERPolicy', 'VDNPolicy')
"""Kinds of policies that learn from sequences of a replay buffer."""


@dataclasses.dataclass(frozen=True)
class Change:
    """One thing that a translation changed."""

    key: str
    """Dotted key in the original config; empty for defaults that were filled in."""
    value: Any
    """Value in the original config."""
    became: Mapping[str, Any]
    """Options that replace it; empty if it has no counterpart."""
    reason: str
    """Reason for the change, or the replacement."""

    def __str__(self) -> str:
        options = ', '.join(f'{key}={value!r}' for key, value in self.became.items())
        if not self.key:
            return f'{self.reason}: {options}'
        is_renamed = list(self.became.values()) == [self.value] and not self.reason
        text = (
            f'{self.key} -> {next(iter(self.became))}'
            if is_renamed
            else f'{self.key}={self.value!r} -> {options}'
        )
        return f'{text} ({self.reason})' if self.reason else text


class Draft:
    """A config pair during translation. Both configs are changed in place."""

    def __init__(self, main: Tree, create: Tree) -> None:
        self.main, self.create = main, create
        self.policy = ''
        """rlframe's name of the policy."""
        self.is_parallel = False
        """Whether it is translated to rlframe's parallel mode."""
        self.changes: list[Change] = []

    def is_a(self, *kinds: str) -> bool:
        """Whether its policy is of one of these kinds; see ``ding_table.kinds_of``."""
        return not kinds_of(self.policy).isdisjoint(kinds)

    def get(self, key: str, default: Any = MISSING) -> Any:
        """Returns the value of a dotted key of the main config."""
        return value_at(self.main, key, default)

    def take(self, key: str, default: Any = MISSING) -> Any:
        """Returns the value of a dotted key of the main config and removes it."""
        return take_at(self.main, key, default)

    def put(self, key: str, value: Any) -> None:
        """Sets a dotted key of the main config."""
        set_path(self.main, key.split('.'), value)

    def say(self, key: str, value: Any, became: Mapping[str, Any], reason: str) -> None:
        """Records a change that was made."""
        self.changes.append(Change(key, value, became, reason))

    def drop(self, key: str, reason: str) -> None:
        """Removes an option that has no effect here, if it is there, and records that."""
        value = self.take(key)
        if value is not MISSING:
            self.say(key, value, {}, reason)

    def replace(self, key: str, value: Any, became: Mapping[str, Any], reason: str) -> None:
        """Sets the options that replace ``key`` and records the change."""
        for name, new in became.items():
            self.put(name, new)
        self.say(key, value, became, reason)

    def fill(self, defaults: Mapping[str, Any]) -> None:
        """Sets options that are missing, and missing parts of a schedule."""
        filled = {}
        for key, default in defaults.items():
            given = self.get(key)
            if given is MISSING:
                filled[key] = default
            elif isinstance(given, dict) and isinstance(default, dict):
                filled |= {f'{key}.{name}': new for name, new in default.items() if name not in given}
        if filled:
            self.replace('', None, filled, "DI-engine's defaults")

    def kind(self, component: str) -> Any:
        """Returns the type of a component, from either config; None if neither names one."""
        which = section_at(self.create, [component]).get('type')
        return section_at(self.main, _PATHS[component]).get('type') if which is None else which

    def set_kind(self, component: str, kind: Any, reason: str) -> None:
        """Sets the type of a component in the configs that name one; records it if a reason is given."""
        given = self.kind(component)
        for section in (section_at(self.create, [component]), section_at(self.main, _PATHS[component])):
            if 'type' in section and isinstance(section, dict):
                section['type'] = kind
        if reason:
            self.say(
                f'create_config.{component}.type', given, {f'create_config.{component}.type': kind}, reason
            )


def parallel_mode(draft: Draft) -> None:
    """Moves the options of workers, coordinator and league to their places; drops options without a counterpart."""
    if draft.is_parallel:
        for old, new in TO_PARALLEL:
            value = draft.take(old)
            if value == AUTO:
                draft.say(old, value, {}, 'chosen when the run starts')
            elif value is not MISSING:
                draft.replace(old, value, {new: value}, '')
        for key, reason in LEAGUE_UNUSED:
            draft.drop(key, reason)
    _rest_of_system(draft)


def _rest_of_system(draft: Draft) -> None:
    system = draft.main.get(SYSTEM)
    if not isinstance(system, dict):
        return
    del draft.main[SYSTEM]
    for name, value in system.items():
        for key in flat({name: value}) if value != {} else ():
            reason = next(reason for start, reason in SYSTEM_UNUSED if key.startswith(start))
            draft.say(f'{SYSTEM}.{key}', None, {}, reason if draft.is_parallel else NO_COORDINATOR)


def run_name(draft: Draft) -> None:
    """Removes folders and a trailing seed from the name of the run; run folders add the seed."""
    name = draft.get('exp_name')
    if isinstance(name, str):
        short = re.sub(r'_seed\d+$', '', name.rstrip('/').rpartition('/')[2])
        if short and short != name:
            reason = 'run folders are created in the working directory, and their names end in the seed'
            draft.replace('exp_name', name, {'exp_name': short}, reason)


def device(draft: Draft) -> None:
    """Uses the GPU only if there is one."""
    if draft.get('policy.cuda') is True:
        draft.take('policy.cuda')
        draft.replace('policy.cuda', True, {'policy.device': 'auto'}, 'CUDA if available')


def activation(draft: Draft) -> None:
    """Replaces a torch module by the name of its activation."""
    given = draft.get('policy.model.activation')
    if given is MISSING:
        return
    text = given if isinstance(given, str) else getattr(given, '__name__', type(given).__name__)
    name = ACTIVATIONS.get(re.sub(r'[^a-z]', '', text.lower().rpartition('.')[2]))
    if name is not None and not (isinstance(given, str) and given == name):
        draft.replace('policy.model.activation', given, {'policy.model.activation': name}, 'by name')


def normalisation(draft: Draft) -> None:
    """Moves normalisation by running statistics from the env to the policy."""
    for old, new in (('env.norm_obs', 'normalize_obs'), ('env.norm_reward', 'normalize_reward')):
        given = draft.take(old)
        if given is not MISSING:
            used = bool(given.get('use_norm')) if isinstance(given, dict) else bool(given)
            draft.replace(old, given, {f'policy.{new}': used}, 'the policy keeps the statistics')


def evaluation(draft: Draft) -> None:
    """Converts evaluation episodes per env, as the parallel mode counts them, to their total, and odd intervals."""
    key = 'policy.eval.evaluator.eval_freq'
    interval = draft.get(key)
    if isinstance(interval, int) and interval < 1:
        draft.replace(key, interval, {key: 1}, 'after every round')
    each = draft.take('env.evaluator_episode_num')
    envs = draft.get('env.evaluator_env_num', 5)
    if isinstance(each, int) and isinstance(envs, int) and draft.get('env.n_evaluator_episode') is MISSING:
        new = {'env.n_evaluator_episode': each * envs}
        draft.replace('env.evaluator_episode_num', each, new, 'the total over all envs')


def manager_limits(draft: Draft) -> None:
    """Keeps the time limits that the chosen env manager has, and drops the others."""
    kind = draft.kind('env_manager')
    if kind == 'async_subprocess':
        wait = draft.take('env.manager.step_wait_timeout')
        if wait is not MISSING:
            draft.replace('env.manager.step_wait_timeout', wait, {'env.manager.wait_timeout': wait}, '')
    in_processes = kind in ('subprocess', 'async_subprocess')
    unused = ('step_timeout', 'reset_timeout') if not in_processes else ()
    waits = () if kind == 'async_subprocess' else ('wait_num', 'step_wait_timeout')
    for key in (f'env.manager.{name}' for name in (*unused, *waits)):
        draft.drop(key, f'without effect on the env manager {kind or "base"!r}')
    for key in ('env.manager.step_timeout', 'env.manager.reset_timeout'):
        if draft.get(key) is None:
            draft.take(key)
            draft.say(key, None, {}, 'the default timeout is used')


def game(draft: Draft) -> None:
    """Replaces the id of an Atari game, and names the protocol that dizoo's wrappers follow."""
    if draft.kind('env') != 'atari':
        return
    given = draft.get('env.env_id')
    if isinstance(given, str) and (match := re.fullmatch(r'(\w+)NoFrameskip-v([04])', given)):
        new: dict[str, Any] = {'env.env_id': f'ALE/{match[1]}-v5'}
        if match[2] == '0':
            new['env.sticky_actions'] = 0.25
        draft.replace('env.env_id', given, new, 'env.frame_skip and env.protocol set the rest')
    draft.fill({'env.protocol': 'baselines'})


def torque_levels(draft: Draft) -> None:
    """Divides the torque of a pendulum into as many levels as dizoo has, if its actions are discrete."""
    is_continuous = draft.take('env.continuous')
    if is_continuous is False:
        wrapper = {'type': 'gymnasium.wrappers:DiscretizeAction', 'bins': 11}
        reason = '11 levels of torque, up to 1.82 where dizoo has 2'
        draft.replace('env.continuous', False, {'env.wrappers': [wrapper]}, reason)
    elif is_continuous is not MISSING:
        draft.say('env.continuous', is_continuous, {}, 'actions are continuous')


def action_levels(draft: Draft) -> None:
    """Divides each number of a continuous action into as many levels as dizoo has."""
    key = 'env.action_bins_per_branch'
    count = draft.take(key)
    if isinstance(count, int) and count > 0:
        wrapper = {'type': 'gymnasium.wrappers:DiscretizeAction', 'bins': count, 'multidiscrete': True}
        reason = f'{count} levels, up to {1 - 1 / count:.3g} of a bound where dizoo has 1'
        draft.replace(key, count, {'env.wrappers': [wrapper]}, reason)
    elif count is not MISSING:
        draft.say(key, count, {}, 'actions are continuous')


def q_learning(draft: Draft) -> None:
    """Keeps only the target network update that DI-engine really does."""
    if not draft.is_a('QPolicy'):
        return
    if not draft.is_a('R2D2Policy') and not draft.is_a('VDNPolicy'):
        theta = draft.take('policy.learn.target_theta') if draft.is_a('copies') else MISSING
        if theta is not MISSING:
            reason = 'without effect in DI-engine as well: target_update_freq takes precedence'
            draft.say('policy.learn.target_theta', theta, {}, reason)
        return
    theta = draft.take('policy.learn.target_update_theta')
    soft = {'policy.learn.target_theta': theta, 'policy.learn.target_update_freq': None}
    if theta is not MISSING:
        draft.take('policy.learn.target_update_freq')
        draft.replace('policy.learn.target_update_theta', theta, soft, '')
    elif draft.get('policy.learn.target_update_freq') is MISSING:
        draft.fill(soft | {'policy.learn.target_theta': 0.001})


def recurrence(draft: Draft) -> None:
    """Gives R2D2 and ACER the sequence replay buffer, and R2D2 an LSTM as wide as the layer before it."""
    if not draft.is_a(*BY_SEQUENCES):
        return
    if draft.get('policy.priority') is False:
        draft.fill({'policy.priority_IS_weight': False})
    given = draft.kind('replay_buffer')
    if given in (None, 'advanced', 'naive'):
        draft.create['replay_buffer'] = {**section_at(draft.create, ['replay_buffer']), 'type': 'sequence'}
        new = {'create_config.replay_buffer.type': 'sequence'}
        draft.say(
            'create_config.replay_buffer.type', given, new, 'sequences are built from env steps when sampled'
        )
    if draft.kind('collector') in (None, 'sample'):
        draft.fill({'policy.collect.collector.mark_episodes': True})
    if draft.is_a('VDNPolicy'):
        widths = draft.get('policy.model.hidden_size_list')
        draft.fill(
            {'policy.model.core_hidden_size': widths[-1] if isinstance(widths, list) and widths else 64}
        )
        return
    sizes = draft.get('policy.model.encoder_hidden_size_list')
    if draft.is_a('R2D2Policy') and isinstance(sizes, list | tuple) and sizes:
        draft.fill({'policy.model.lstm_hidden_size': sizes[-1]})


def advantages(draft: Draft) -> None:
    """Converts the normalisation of advantages and the clipping of gradients and values in PPO, A2C and IMPALA."""
    if not draft.is_a('PPOPolicy'):
        return
    for name in ('adv_norm', 'normalize_advantage'):
        given = draft.take(f'policy.learn.{name}')
        if given is not MISSING:
            new = {'policy.learn.advantage_norm': 'batch' if given else None}
            draft.replace(f'policy.learn.{name}', given, new, 'over each batch')
    is_impala = draft.policy == 'impala'
    name, default = ('clip_value', 0.5) if is_impala else ('grad_clip_value', MISSING)
    kind = draft.take('policy.learn.grad_clip_type', None if is_impala else 'clip_norm')
    limit = draft.take(f'policy.learn.{name}', default)
    if kind != 'clip_norm':
        reason = 'gradients are only clipped by their norm, with policy.learn.grad_clip_norm'
        draft.replace('policy.learn.grad_clip_type', kind, {'policy.learn.grad_clip_norm': None}, reason)
    elif limit is not MISSING:
        draft.replace(f'policy.learn.{name}', limit, {'policy.learn.grad_clip_norm': limit}, '')
    first = {'ppo': -0.5, 'ppo_offpolicy': -2.0}.get(draft.policy)
    spaces = draft.get('policy.action_space'), draft.get('policy.model.action_space')
    if first is not None and 'continuous' in spaces:
        draft.fill({'policy.model.log_std_init': first})
    # values are clipped around those at collection, unless each epoch computes them anew
    keeps = draft.policy == 'ppo' and draft.get('policy.recompute_adv') is False
    if keeps or draft.policy in ('ppo_offpolicy', 'ppg'):
        draft.fill({'policy.learn.value_clip': draft.get('policy.learn.clip_ratio', 0.2)})


def fresh_sequences(draft: Draft) -> None:
    """Converts rounds and batches of IMPALA and COMA from sequences to env steps, and their updates of a round to epochs."""
    if draft.policy not in FRESH_SEQUENCES:
        return
    if (random := draft.take('policy.random_collect_size')) is not MISSING:
        draft.say('policy.random_collect_size', random, {}, NO_BUFFER)
    key, length, updates, size = FRESH_SEQUENCES[draft.policy]
    length = draft.take(key, length)
    updates = draft.take('policy.learn.update_per_collect', updates)
    size = draft.get('policy.learn.batch_size', size)
    count = draft.get('policy.collect.n_sample')
    if not all(isinstance(number, int) and number > 0 for number in (length, updates, count, size)):
        return
    steps = {'policy.collect.n_sample': count * length, 'policy.learn.batch_size': size * length}
    reason = f'env steps: {count} and {size} sequences of {length}; targets reach to the end of a round'
    draft.replace(key, length, steps, reason)
    epochs = {'policy.learn.epoch_per_collect': max(round(updates / -(-count // size)), 1)}
    reason = 'as many updates per round, of fresh data in place of replayed ones'
    draft.replace('policy.learn.update_per_collect', updates, epochs, reason)


def entropy_weight(draft: Draft) -> None:
    """Merges SAC's ``auto_alpha`` and ``alpha``; SQN always learns alpha."""
    if not draft.is_a('soft', 'SQNPolicy'):
        return
    key = 'policy.learn.auto_alpha'
    given = draft.get('policy.learn.alpha', 0.2)
    learned = draft.take(key)
    if learned is MISSING and given == 'auto':
        return
    if learned is MISSING or learned:
        new = {'policy.learn.alpha': 'auto', 'policy.learn.init_alpha': given}
        draft.replace(key, True, new, 'alpha was the initial value')
    else:
        draft.replace(key, False, {'policy.learn.alpha': given}, 'a constant')


def whole_rounds(draft: Draft) -> None:
    """Makes the whole round PG's batch, as DI-engine does regardless of ``batch_size``."""
    key = 'policy.learn.batch_size'
    given = draft.take(key) if draft.policy == 'pg' else MISSING
    if given is not MISSING:
        draft.replace(key, given, {key: None}, 'all of a round is one batch, as in DI-engine')
    if draft.is_a('PGPolicy') and draft.kind('collector') == 'episode':
        draft.fill({'policy.collect.collector.get_train_sample': True})
    if draft.is_a('PGPolicy') and draft.get('policy.collect.n_episode') is not MISSING:
        draft.fill({'policy.collect.n_sample': None})


def target_noise(draft: Draft) -> None:
    """Merges the switch and the size of the noise on target actions."""
    if draft.policy not in ('ddpg', 'td3', 'td3_bc'):
        return
    is_on = draft.take('policy.learn.noise')
    sigma, limits = draft.take('policy.learn.noise_sigma', 0.2), draft.take('policy.learn.noise_range')
    if draft.policy == 'ddpg' and is_on in (False, MISSING):
        for name, value in (('noise', is_on), ('noise_range', limits)):
            if value is not MISSING:
                draft.say(f'policy.learn.{name}', value, {}, 'DDPG has no noise on target actions')
        return
    if is_on is not MISSING:
        size = {'policy.learn.target_noise': sigma if is_on else 0.0}
        draft.replace('policy.learn.noise', is_on, size, 'its standard deviation')
    elif draft.policy != 'ddpg':
        draft.put('policy.learn.target_noise', sigma)
    if isinstance(limits, dict) and isinstance(limits.get('max'), int | float):
        new = {'policy.learn.target_noise_clip': limits['max']}
        draft.replace('policy.learn.noise_range', limits, new, 'a symmetric range')


def hidden_layers(draft: Draft) -> None:
    """Lists the hidden layers of actor and critics, which DI-engine describes by width and number."""
    if not draft.is_a('QACPolicy'):
        return
    sizes: list[list[Any]] = []
    taken: dict[str, Any] = {}
    for part in ('actor', 'critic'):
        keys = [f'policy.model.{part}_head_hidden_size', f'policy.model.{part}_head_layer_num']
        found = [draft.take(key) for key in keys]
        taken |= {key: value for key, value in zip(keys, found, strict=True) if value is not MISSING}
        width, number = (
            default if value is MISSING else value for value, default in zip(found, (64, 1), strict=True)
        )
        layers = [width] * (1 + (number if isinstance(number, int) else 1))
        sizes.append(list(width) if isinstance(width, list | tuple) else layers)
    new = 'policy.model.encoder_hidden_size_list'
    if draft.get(new) is not MISSING:
        return
    if not taken:
        draft.fill({new: sizes[1]})
        return
    draft.put(new, sizes[1])
    reason = (
        'the layers of actor and critics'
        if sizes[0] == sizes[1]
        else f"the critic's, also for the actor, which had {sizes[0]}"
    )
    draft.say(', '.join(taken), list(taken.values()), {new: sizes[1]}, reason)


def convolutions(draft: Draft) -> None:
    """Lists the convolutions of a network for images, whose channels DI-engine names among the hidden sizes."""
    key = 'policy.model.encoder_hidden_size_list'
    shape = draft.get('policy.model.obs_shape')
    is_image = isinstance(shape, list | tuple) and len(shape) == 3
    if draft.is_a('PPOPolicy') and draft.take('policy.model.impala_cnn_encoder') is True:
        new = {'policy.model.encoder': 'impala', key: [256]}
        draft.replace('policy.model.impala_cnn_encoder', True, new, 'residual convolutions by their name')
        return
    sizes = draft.get(key, [128, 128, 64])
    if not is_image or not isinstance(sizes, list | tuple) or len(sizes) < len(CONVOLUTIONS):
        return
    if not draft.is_a('QPolicy', 'PPOPolicy', 'ACERPolicy'):
        return
    layers = [[width, *rest] for width, rest in zip(sizes, CONVOLUTIONS, strict=False)]
    new = {'policy.model.conv_layers': layers, key: [sizes[-1]]}
    is_residual = len(sizes) > len(CONVOLUTIONS) + 1
    reason = 'channels, kernel size and stride of each convolution, and the layer after them'
    draft.replace(key, sizes, new, f'{reason}; residual blocks are left out' if is_residual else reason)


def sequences(draft: Draft) -> None:
    """Converts rounds of R2D2 and ACER from sequences to env steps, and copies ``priority`` to their replay buffer."""
    if not draft.is_a(*BY_SEQUENCES):
        return
    draft.fill({f'{SEQUENCES}.priority': draft.get('policy.priority', False)})
    count = draft.get('policy.collect.n_sample')
    lengths = [draft.get(f'{SEQUENCES}.{name}', 0) for name in ('unroll_len', 'burn_in')]
    if all(isinstance(number, int) for number in (count, *lengths)):
        steps = count * sum(lengths)
        reason = f'env steps: {count} sequences of {sum(lengths)}'
        draft.replace('policy.collect.n_sample', count, {'policy.collect.n_sample': steps}, reason)
    size = draft.get(f'{SEQUENCES}.replay_buffer_size')
    reason = 'the same number of env steps; DI-engine counts sequences'
    draft.say(f'{SEQUENCES}.replay_buffer_size', size, {f'{SEQUENCES}.replay_buffer_size': size}, reason)


def equal_shares(draft: Draft) -> None:
    """Rounds an on-policy ``n_sample`` up to a multiple of the number of envs."""
    count, envs = draft.get('policy.collect.n_sample'), draft.get('env.collector_env_num', 8)
    if not draft.is_a('PPOPolicy') or not isinstance(count, int) or not isinstance(envs, int):
        return
    if count % max(envs, 1):
        total = -(-count // envs) * envs
        reason = f'the same number of steps from each of {envs} envs'
        draft.replace('policy.collect.n_sample', count, {'policy.collect.n_sample': total}, reason)


def falling_rate(draft: Draft) -> None:
    """Converts PPO's linear schedule of the learning rate, whose length DI-engine counts in rounds, to env steps."""
    key, given = 'policy.learn.learning_rate', 'policy.learn.lr_scheduler'
    plan = draft.take(given) if draft.policy == 'ppo' else MISSING
    if plan is None:
        draft.say(given, None, {}, 'the learning rate is constant')
    if not isinstance(plan, dict):
        return
    rate = draft.get(key, 3e-4)
    least = plan.get('min_lr_lambda')
    numbers = rate, least, plan.get('epoch_num'), draft.get('policy.collect.n_sample')
    if not all(isinstance(number, int | float) for number in numbers):
        draft.put(given, plan)  # which the check of the config refuses
        return
    steps = plan['epoch_num'] * draft.get('policy.collect.n_sample')
    new = {'type': 'linear', 'start': rate, 'end': rate * least, 'decay': steps}
    draft.replace(given, plan, {key: new}, f'over env steps: {plan["epoch_num"]} rounds')


def cloning(draft: Draft) -> None:
    """Chooses an optimizer that exists here, and names the option for the data that ``serial_pipeline_bc`` takes."""
    if not draft.is_a('BCPolicy'):
        return
    optimizer = draft.get('policy.learn.optimizer')
    if isinstance(optimizer, str):
        known = optimizer.lower() if optimizer.lower() in ('adam', 'rmsprop') else 'adam'
        reason = (
            ''
            if known == optimizer.lower()
            else 'the closest one in rlframe; its learning_rate may need another value'
        )
        draft.replace('policy.learn.optimizer', optimizer, {'policy.learn.optimizer': known}, reason)
    keys = ('policy.collect.data_path', 'policy.collect.collector.data')
    if draft.policy == 'bc' and all(draft.get(key) is MISSING for key in keys):
        draft.say('data_path of serial_pipeline_bc', None, {}, 'set policy.collect.collector.data')


def hindsight(draft: Draft) -> None:
    """Turns HER, which there replaces the goals of whole episodes, into hindsight of a replay buffer that samples steps."""
    her = draft.take('policy.other.her')
    if isinstance(her, dict):
        size, each = her.get('episode_size'), her.get('sample_per_episode')
        new = {
            f'{SEQUENCES}.hindsight.strategy': her.get('her_strategy', 'future'),
            f'{SEQUENCES}.hindsight.share': 1.0,
        }
        if isinstance(size, int) and isinstance(each, int):
            draft.take('policy.learn.batch_size')
            new['policy.learn.batch_size'] = size * each
        draft.replace(
            'policy.other.her', her, new, 'steps of a batch are drawn one by one, each with a goal of its own'
        )
    elif her is not MISSING and her is not None:
        draft.put('policy.other.her', her)  # which the check of the config refuses
    trains_on_steps = draft.get('policy.collect.collector.get_train_sample') is True
    if draft.kind('replay_buffer') != 'episode' or not (isinstance(her, dict) or trains_on_steps):
        return
    draft.set_kind('replay_buffer', 'naive', 'updates are made of single steps')
    if draft.get('policy.collect.n_episode') is not MISSING:
        draft.fill({'policy.collect.n_sample': None})
    steps = draft.get('env.kwargs.n_bits', 1)
    count = draft.get(f'{SEQUENCES}.replay_buffer_size')
    if isinstance(her, dict) and isinstance(count, int) and isinstance(steps, int) and steps > 1:
        draft.take(f'{SEQUENCES}.replay_buffer_size')
        new = {f'{SEQUENCES}.replay_buffer_size': count * steps}
        draft.replace(
            f'{SEQUENCES}.replay_buffer_size', count, new, f'counted in steps: {steps} for each episode'
        )


def random_start(draft: Draft) -> None:
    """Limits the random start to the size of the replay buffer; PPO has none, as random actions have no probability."""
    key = 'policy.random_collect_size'
    if draft.policy == 'ppo_offpolicy':
        draft.drop(
            key, 'PPO weighs each action by its probability when it was taken, and a random one has none'
        )
    size = draft.get('policy.other.replay_buffer.replay_buffer_size')
    count = draft.get(key)
    if isinstance(count, int) and isinstance(size, int) and count > size:
        draft.replace(key, count, {key: size}, 'the size of the replay buffer')


FIRST: tuple[Callable[[Draft], None], ...] = (
    parallel_mode,
    device,
    activation,
    normalisation,
    evaluation,
    manager_limits,
    game,
    action_levels,
    convolutions,
    q_learning,
    recurrence,
    advantages,
    fresh_sequences,
    entropy_weight,
    whole_rounds,
    target_noise,
    hidden_layers,
    cloning,
    hindsight,
)
"""Converters that run after ``run_name`` and those of recorded data, before the tables are applied."""
LAST: tuple[Callable[[Draft], None], ...] = (sequences, equal_shares, falling_rate, random_start)
"""Converters that run after the defaults are filled in."""
