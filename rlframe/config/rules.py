"""Rules between components: combinations of options that no component can judge alone.

A rule of one component belongs to its ``Field(check=...)`` or its ``check_config``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from rlframe.config.components import backend_errors, collector_num, is_parallel
from rlframe.config.reward_models import pays_rows
from rlframe.config.schema import LOCAL
from rlframe.errors import ConfigError
from rlframe.registry import ENV_MANAGER_REGISTRY, POLICY_REGISTRY
from rlframe.utils.every import Every

Known = Mapping[str, Any]
"""Dotted keys to values of the options that are valid by themselves."""
SAMPLES, EPISODES = ('sample', 'sample_1v1'), ('episode', 'episode_1v1')
"""Collectors that count training samples, and collectors that count episodes."""
ROWS = ('naive', 'advanced', 'elastic')
"""Replay buffers that sample single transitions."""
COLLECTOR, BUFFER = 'policy.collect.collector', 'policy.other.replay_buffer'
"""Sections of the collector and of the replay buffer."""
EXPERT = 'policy.collect.model_path'
"""Option that names an expert."""
HINDSIGHT = f'{BUFFER}.hindsight.strategy'
"""Option that turns on the replay of other goals."""
TENSOR = 'tensor'
"""The collector whose training samples stay on a device; it counts them."""
NOT_ON_A_DEVICE = {
    'policy.normalize_obs': False,
    'policy.normalize_reward': False,
    'policy.model.core': None,
    f'{COLLECTOR}.backend': LOCAL,
}
"""Options that need arrays, with the values that do not."""
EVALUATOR = 'policy.eval.evaluator'
"""Section of the evaluator."""
READS = "'dataset'"
"""The collector of policies that learn from recorded data, as errors expect it."""
OF_PLAYERS, OF_ONE = ('sample_1v1', 'episode_1v1'), ('sample', 'episode')
"""Serial collectors of games, and of envs with one player."""


PARTS_OF_A_BUFFER = {
    'policy.learn.batch_size': 'a batch',
    'policy.random_collect_size': 'a random start',
    f'{BUFFER}.unroll_len': 'a sequence',
    f'{BUFFER}.burn_in': 'a burn-in',
}
"""Numbers of rows that the replay buffer has to hold, in words."""
CHANGED_IN_MAIN_MEMORY = ('policy.normalize_obs', 'policy.normalize_reward', 'policy.learn.random_shift')
"""Options that change batches by numpy."""
HERE = {
    'dataset': 'recorded data are read, not collected',
    TENSOR: 'envs of tensors are stepped on the device of the policy, in its process',
}
"""Collectors that have no round ahead, and why."""
FROM_DATA = {
    'policy.nstep': (1, 'rewards of several steps are summed while envs are stepped'),
    'policy.priority': (False, 'each pass reads every row once'),
    'policy.model.core': (None, 'a memory is replayed from the states that it had when envs were stepped'),
    'policy.random_collect_size': (0, 'no env is stepped'),
    'policy.normalize_reward': (False, 'returns are followed while envs are stepped'),
}
"""Options of replaying policies that recorded data do not have: the value that they need, and why."""
WITH_DATA = {
    'policy.normalize_reward': (False, 'returns are followed while envs are stepped'),
    f'{BUFFER}.backend': (LOCAL, 'shards begin empty'),
}
"""Options that a replay buffer which keeps recorded data does not have: the value that they need, and why."""


def cross_errors(known: Known) -> list[ConfigError]:
    """Returns the mistakes between components."""
    found = (
        _n_sample_or_n_episode(known),
        _takes_episodes(known),
        _finds_episodes(known),
        *_fits_hindsight(known),
        *_fit_the_buffer(known),
        *_fit_the_players(known),
        _divisible_n_sample(known),
        _keeps_sequences_whole(known),
        _takes_schedule(known),
        *_reads_or_acts(known),
        *_can_record(known),
        *_fit_the_collector(known),
        *_fit_recorded_data(known),
        *_begins_with_data(known),
        *_gives_first_priorities(known),
        *_stays_on_the_device(known),
        *pays_rows(known, _is_recurrent(known)),
    )
    return [error for error in found if error] + backend_errors(known)


def bad(known: Known, key: str, message: str, expected: str = '', remedy: str = '') -> ConfigError:
    """Returns the error about the value of an option beside others."""
    return ConfigError(message, where=key, got=known[key], expected=expected, remedy=remedy)


def _fit_the_buffer(known: Known) -> Iterator[ConfigError]:
    """Checks that policy and replay buffer fit."""
    key = f'{BUFFER}.type'
    kind = known.get(f'{BUFFER}.type')
    is_recurrent = _is_recurrent(known)
    if is_recurrent and kind in (*ROWS, 'episode'):
        yield bad(known, key, 'a recurrent policy learns from sequences of env steps', "'sequence'")
    # priorities
    option = f'{BUFFER}.priority'
    of_policy = known.get('policy.priority')
    if of_policy is not None and known.get(option) not in (None, of_policy):
        message = "the policy's priority says whether it reports priorities, the replay buffer's whether it draws by them"
        yield bad(known, option, message, f'policy.priority ({of_policy})')
    option = 'policy.priority_IS_weight'
    if known.get(option) and not is_recurrent and kind in ('naive', 'episode'):
        message = (
            f'{option}=True weights losses by importance, and the replay buffer {kind!r} gives no weights'
        )
        yield bad(known, key, message, f"'advanced' or 'elastic', or {option}=False")
    # sizes
    for option, what in PARTS_OF_A_BUFFER.items():
        count, size = _numbers(known, option, f'{BUFFER}.replay_buffer_size')
        if count is not None and count > size:
            message = f'{what} of {count} is more than the replay buffer holds: {size} ({BUFFER}.replay_buffer_size)'
            yield bad(known, option, message, f'at most {size}')
    # sequences
    option = 'policy.learn.unroll_len'
    if known.get(option) is not None and known.get('policy.model.core', '') is None:
        message = 'only a recurrent core learns from sequences, and policy.model.core is None'
        yield bad(known, option, message, "None, or policy.model.core='lstm'")
    # devices
    changed = [option for option in CHANGED_IN_MAIN_MEMORY if known.get(option)]
    if changed and known.get(key := f'{BUFFER}.device', 'cpu') != 'cpu':
        option, value = changed[0], known[changed[0]]
        message = f'{option}={value} changes each batch in main memory, before the policy learns from it'
        yield bad(known, key, message, f"'cpu', or {option}={type(value)(0)}")


def _fit_the_players(known: Known) -> Iterator[ConfigError]:
    """Checks the parts of games of several players."""
    of_players = {f'{COLLECTOR}.type': OF_PLAYERS, f'{EVALUATOR}.type': ('battle_interaction',)}
    for key, names in of_players.items():
        if known.get('env.type') == 'pettingzoo' and known.get(key) in (*OF_ONE, 'interaction'):
            message = "the env 'pettingzoo' has several players"
            yield bad(known, key, message, ' or '.join(map(repr, names)))
    key = f'{COLLECTOR}.type'
    if known.get(key) == 'sample_1v1' and _samples_rounds(known):
        message = 'in a turn-based game, players make different numbers of moves, so envs have no blocks of equal length'
        yield bad(known, key, message, "'episode_1v1' with get_train_sample=True for an on-policy policy")


def learns_from_data(name: str) -> bool:
    """Whether a policy learns from recorded data, and never by acting: the collector ``dataset`` is its default."""
    cls = POLICY_REGISTRY.get(name)
    declared = cls.config_fields() if hasattr(cls, 'config_fields') else {}
    collector = declared.get('collect', {}).get('collector')
    return (
        isinstance(collector, dict) and 'type' in collector and bool(collector['type'].default == 'dataset')
    )


def may_learn_from_data(name: str) -> bool:
    """Whether a policy can learn from recorded data alone."""
    return learns_from_data(name) or getattr(POLICY_REGISTRY.get(name), 'may_learn_from_data', False)


def offline_policies() -> list[str]:
    """Returns the names of the policies that can learn from recorded data alone."""
    return [name for name in POLICY_REGISTRY.names() if may_learn_from_data(name)]


def without_consequences(errors: list[ConfigError]) -> list[ConfigError]:
    """Returns the mistakes of a config without those of collection, if its collector acts where it has to read data."""
    key = f'{COLLECTOR}.type'
    if not any(error.where == key and error.expected == READS for error in errors):
        return errors
    return [
        error for error in errors if error.where == key or not f'{error.where}.'.startswith('policy.collect.')
    ]


def begins_with(policy: str, data: str) -> str:
    """Returns how a policy that learns by acting begins with data; nothing if it learns from its newest actions only."""
    kind: Any = POLICY_REGISTRY.get(policy)
    if not hasattr(kind, 'config_fields') or kind.config_fields()['on_policy'].default or kind.samples_rounds:
        return ''
    return f'To begin with the data and go on in the env: {BUFFER}.init_from={data}.'


def _reads_or_acts(known: Known) -> Iterator[ConfigError]:
    """A policy learns from recorded data, or by acting."""
    key = f'{COLLECTOR}.type'
    kind, policy = known.get(key), known.get('policy.type')
    if kind is None or policy is None or policy not in POLICY_REGISTRY:
        return
    is_offline = learns_from_data(policy)
    if is_offline and kind != 'dataset':
        message = f'{policy} learns from recorded data; this collector plays the policy itself'
        remedy = (
            f'rlframe collect records data; rlframe train --data DATA --policy {policy} learns from them.'
        )
        yield bad(known, key, message, READS, remedy)
    if kind == 'dataset' and not may_learn_from_data(policy):
        message = f'{policy} learns by acting, not from data alone'
        yield bad(
            known,
            'policy.type',
            message,
            ' or '.join(map(repr, offline_policies())),
            begins_with(policy, 'DATA'),
        )


def _can_record(known: Known) -> Iterator[ConfigError]:
    """What is recorded beside training are the steps of envs in this process."""
    key = 'policy.collect.record'
    if known.get(key) is None:
        return
    kind = known.get(f'{COLLECTOR}.type')
    if kind is not None and kind not in OF_ONE:
        yield bad(
            known,
            key,
            f'the collector {kind!r} gives nothing to record',
            "None, or the collector 'sample' or 'episode'",
        )
    elif known.get(f'{COLLECTOR}.backend', LOCAL) != LOCAL or known.get(f'{COLLECTOR}.overlap'):
        message = 'only steps of envs that are collected in this process are recorded'
        yield bad(
            known,
            key,
            message,
            f"None, or {COLLECTOR}.backend='local' and overlap=0",
            'Or record the trained policy: rlframe collect.',
        )


def _fit_the_collector(known: Known) -> Iterator[ConfigError]:
    """Checks that the collector fits evaluations, a round ahead and the ladder of eps."""
    kind = known.get(f'{COLLECTOR}.type')
    key = f'{EVALUATOR}.eval_freq'
    if kind == 'dataset' and Every.of(known.get(key, 1)).in_env_steps:
        message = "the collector 'dataset' steps no env"
        yield bad(known, key, message, 'train iterations, such as 500')
    key = f'{COLLECTOR}.overlap'
    if known.get(key) and kind in HERE:
        yield bad(known, key, f'a round ahead is collected in another process, and {HERE[kind]}', '0')
    key = 'policy.other.eps_ladder'
    collectors = collector_num(known)
    if known.get(key) and collectors <= 1:
        message = f'eps differs between collectors, and there is {collectors}'
        remedy = f"Or set {COLLECTOR}.backend='ray' and num_collectors to at least 2."
        yield bad(known, key, message, '0', remedy)


def _fit_recorded_data(known: Known) -> Iterator[ConfigError]:
    """What a policy that replays transitions cannot do with recorded ones."""
    if known.get(f'{COLLECTOR}.type') != 'dataset' or known.get('policy.on_policy', True):
        return
    for key, (value, why) in FROM_DATA.items():
        if known.get(key, value) != value:
            yield bad(known, key, f"the collector 'dataset' reads single steps: {why}", repr(value))
    key = 'policy.learn.update_per_collect'
    default = _default(known, 'learn', 'update_per_collect')
    if known.get(key, default) != default:
        message = "the collector 'dataset' reads one batch a round, for one update"
        yield bad(
            known,
            key,
            message,
            f'{default}, the default, which has no effect',
            'max_train_iter sets how many there are.',
        )


def _begins_with_data(known: Known) -> Iterator[ConfigError]:
    """What a replay buffer cannot do that begins with recorded data, or keeps what an expert does."""
    given = known.get(f'{BUFFER}.init_from') is not None
    has_expert = known.get(EXPERT) is not None
    if _states(known, 'needs_data') and not (given or has_expert):
        message = (
            f'{known["policy.type"]} learns from recorded data beside what it does itself, and there are none'
        )
        remedy = f'rlframe collect RUN records them; or let an expert act: {EXPERT}.'
        yield ConfigError(message, where=f'{BUFFER}.init_from', expected='recorded data', remedy=remedy)
        return
    for name, has_data in (('init_share', given or has_expert), ('init_updates', given)):
        key = f'{BUFFER}.{name}'
        if known.get(key) and not has_data:
            message = f'there are no data: {BUFFER}.init_from is None'
            yield bad(known, key, message, '0', 'rlframe collect records data.')
    yield from _fits_expert(known) if has_expert else _has_no_share(known)
    if not (given or has_expert):
        return
    for key, (value, why) in WITH_DATA.items():
        if known.get(key, value) != value:
            message = f'the replay buffer keeps data ({BUFFER}.init_from, {EXPERT}), and {why}'
            yield bad(known, key, message, repr(value))
    if known.get(f'{BUFFER}.type') == 'episode':
        message = 'recorded data are pushed as env steps, and this replay buffer holds episodes'
        yield bad(known, f'{BUFFER}.type', message, ' or '.join(map(repr, (*ROWS, 'sequence'))))
    if _states(known, 'samples_rounds'):
        message = f'{known["policy.type"]} learns from rounds of its own actions, with their probabilities'
        yield bad(known, f'{BUFFER}.init_from' if given else EXPERT, message, 'None')


def _has_no_share(known: Known) -> Iterator[ConfigError]:
    """Without an expert, nothing acts in its share of the envs."""
    key = 'policy.collect.expert_share'
    share = known.get(key)
    default = _default(known, 'collect', 'expert_share')
    if share is None or default is None or share == default:
        return
    message = f'there is no expert: {EXPERT} is None'
    yield bad(known, key, message, 'the default, which has no effect')


def _fits_expert(known: Known) -> Iterator[ConfigError]:
    """An expert acts in some of several envs, and what it does is kept apart."""
    if known.get('policy.on_policy', True) or known.get(f'{COLLECTOR}.type') not in OF_ONE:
        message = 'an expert acts for policies with a replay buffer, in envs of one player'
        yield bad(known, EXPERT, message, 'None', f'{COLLECTOR}.data reads recorded data.')
    elif not known.get(f'{BUFFER}.init_share'):
        message = f'what an expert does ({EXPERT}) is a share of each batch'
        yield bad(known, f'{BUFFER}.init_share', message, 'a number above 0, such as 0.5')
    if known.get('env.collector_env_num', 2) < 2:
        message = f'an expert ({EXPERT}) acts in some of the envs, and the policy in the others'
        yield bad(known, 'env.collector_env_num', message, 'at least 2')


def _takes_schedule(known: Known) -> ConfigError | None:
    """A curriculum reaches envs that begin each episode by their own reset."""
    manager, collector = known.get('env.manager.type'), known.get(f'{COLLECTOR}.type')
    kind = ENV_MANAGER_REGISTRY.get(manager) if manager in ENV_MANAGER_REGISTRY.names() else None
    what, remedy = '', 'Leave it out, or set env_manager.type=base, subprocess or async_subprocess.'
    if kind is not None and not getattr(kind, 'takes_schedule', False):
        what = f'the env manager {manager!r}'
    elif collector in (*OF_PLAYERS, TENSOR, 'dataset'):
        what = f'the collector {collector!r}'
        remedy = 'Leave it out.'
    if not what or not known.get('env.schedule'):
        return None
    return bad(known, 'env.schedule', f'{what} has no curriculum', '', remedy)


def _gives_first_priorities(known: Known) -> list[ConfigError]:
    if known.get('policy.first_priority') != 'error':
        return []
    buffer = 'sequence' if _is_recurrent(known) else 'advanced'
    message = f"the collector 'sample' gives first priorities to the replay buffer {buffer!r}, for a policy with priorities"
    needed = {f'{COLLECTOR}.type': 'sample', f'{BUFFER}.type': buffer, 'policy.priority': True}
    return [
        bad(known, key, message, f"{value!r}, or policy.first_priority='largest'")
        for key, value in needed.items()
        if known.get(key, value) != value
    ]


def check_serial(cfg: Mapping[str, Any]) -> None:
    """Raises for a config of parallel mode that is to be trained in serial mode.

    Raises:
        ConfigError: With the way to start it.
    """
    if is_parallel(cfg):
        raise ConfigError(
            'this is a config of parallel mode: its workers are processes of their own',
            where='parallel',
            remedy='Start it with -m parallel. For serial mode, leave out comm_collector, comm_learner and commander.',
        )


def cross_warnings(known: Known) -> list[str]:
    """Returns warnings about valid but probably unintended settings, with their consequences."""
    found = []
    every = Every.of(eval_freq := known.get(f'{EVALUATOR}.eval_freq', 1))
    budget = 'max_env_step' if every.in_env_steps else 'max_train_iter'
    if every.length > known.get(budget, every.length):
        found.append(
            f'{EVALUATOR}.eval_freq ({eval_freq}) > {budget} ({known[budget]}): '
            'the policy will not be evaluated between the start and the end of the run'
        )
    n_sample, steps = _numbers(known, 'policy.collect.n_sample', 'max_env_step')
    if n_sample is not None and steps is not None and steps < n_sample:
        found.append(
            f'max_env_step ({steps}) < policy.collect.n_sample ({n_sample}): '
            'the run ends after one round of collection'
        )
    if text := _too_few_steps(known):
        found.append(text)
    return found


def _too_few_steps(known: Known) -> str:
    """Returns an error if a budget ends before the replay buffer has one batch, else an empty string."""
    sizes = 'policy.learn.batch_size', 'policy.collect.n_sample', 'policy.random_collect_size'
    batch_size, n_sample, at_random, steps = _numbers(known, *sizes, 'max_env_step')
    begins_empty = known.get(f'{BUFFER}.init_from') is None
    if batch_size is None or known.get(f'{BUFFER}.type') not in ROWS or not begins_empty:
        return ''
    have = math.ceil(steps / n_sample) * n_sample + at_random
    if have >= batch_size:
        return ''
    return (
        f'max_env_step ({steps}) ends the run with {have} transitions, and an update needs a batch of {batch_size}'
        ' (policy.learn.batch_size): there will be no update'
    )


def _numbers(known: Known, *keys: str) -> tuple[Any, ...]:
    """Returns the values of ``keys``, ``None`` for all if one of them is not a number."""
    values = tuple(known.get(key) for key in keys)
    return values if all(isinstance(value, int | float) for value in values) else (None,) * len(keys)


def _n_sample_or_n_episode(known: Known) -> ConfigError | None:
    keys = ('policy.collect.n_sample', 'policy.collect.n_episode')
    collector = known.get('policy.collect.collector.type')
    if collector not in (*SAMPLES, TENSOR, *EPISODES) or not all(key in known for key in keys):
        return None
    n_sample, n_episode = (known[key] for key in keys)
    counts_samples = collector not in EPISODES
    own, other = (n_sample, n_episode) if counts_samples else (n_episode, n_sample)
    if own is None and other is not None:
        units = ('training samples', 'episodes') if counts_samples else ('episodes', 'training samples')
        own_key, other_key = keys if counts_samples else reversed(keys)
        message = f'the collector {collector!r} counts {units[0]}, not {units[1]}'
        return bad(known, other_key, message, f'None, and {own_key} set')
    if other is None and own is not None:
        return None
    both = 'neither of them is set' if n_sample is None else 'both are set; set the other one to None'
    return ConfigError(
        f'exactly one of n_sample ({n_sample}) and n_episode ({n_episode}) must be set: {both}',
        where='policy.collect',
        got={'n_sample': n_sample, 'n_episode': n_episode},
    )


def _takes_episodes(known: Known) -> ConfigError | None:
    key = 'policy.collect.collector.get_train_sample'
    collector = known.get('policy.collect.collector.type')
    if collector not in EPISODES or known.get(key) is not False:
        return None
    buffer = known.get('policy.other.replay_buffer.type')
    if known.get('policy.on_policy'):
        taker = 'an on-policy policy learns'
    elif buffer in ROWS and not known.get(HINDSIGHT):
        taker = f'the replay buffer {buffer!r} samples'
    else:
        return None
    message = f'{taker} from training samples, and the collector {collector!r} returns whole episodes'
    return bad(known, key, message, 'True')


def _finds_episodes(known: Known) -> ConfigError | None:
    collector = known.get('policy.collect.collector.type')
    buffer = known.get('policy.other.replay_buffer.type')
    needs_episodes = buffer in ('sequence', 'episode') or known.get(HINDSIGHT)
    if not needs_episodes or collector not in (*SAMPLES, *EPISODES):
        return None
    key, got, expected = 'get_train_sample', True, 'False'
    why = 'takes whole episodes, not training samples'
    if buffer == 'episode' and collector in SAMPLES:
        message = f'the replay buffer {buffer!r} {why}'
        return bad(known, f'{COLLECTOR}.type', message, repr(collector.replace('sample', 'episode')))
    if collector in SAMPLES:
        key, got, expected = 'mark_episodes', False, 'True'
        why = 'has to tell the env steps of several envs apart (env.collector_env_num)'
        if known.get('env.collector_env_num') == 1 and collector == 'sample':
            return None
    if known.get(f'policy.collect.collector.{key}') != got:
        return None
    return bad(known, f'policy.collect.collector.{key}', f'the replay buffer {buffer!r} {why}', expected)


def _fits_hindsight(known: Known) -> Iterator[ConfigError]:
    """What else the choice of other goals needs."""
    needed = {
        f'{COLLECTOR}.type': ((*SAMPLES, *EPISODES), 'steps that this run collects, in envs'),
        'env.frame_stack': ((1,), 'single goals, which frames of observations stack'),
    }
    for key, (valid, what) in needed.items() if known.get(HINDSIGHT) else ():
        if known.get(key, valid[0]) not in valid:
            expected = ' or '.join(map(repr, valid))
            yield bad(
                known, key, f'hindsight ({HINDSIGHT}) needs {what}', expected, f'Or set {HINDSIGHT}=None.'
            )
    if known.get(HINDSIGHT) and _samples_rounds(known):
        message = f'advantages of {known.get("policy.type")!r} are those of the goals that were to be reached'
        yield bad(known, HINDSIGHT, message, 'None')


def _samples_rounds(known: Known) -> bool:
    """Whether training samples are made of whole rounds, with the same number of steps of each env."""
    return bool(known.get('policy.on_policy') or _states(known, 'samples_rounds'))


def _default(known: Known, section: str, name: str) -> Any:
    """Returns the default of an option of the policy; None if it has no such option."""
    name_of_policy = known.get('policy.type', '')
    kind: Any = POLICY_REGISTRY.get(name_of_policy) if name_of_policy in POLICY_REGISTRY else None
    fields = kind.config_fields() if hasattr(kind, 'config_fields') else {}
    field = fields.get(section, {}).get(name)
    return None if field is None else field.default


def _states(known: Known, fact: str) -> bool:
    """Whether the class of the policy states that something is so."""
    name = known.get('policy.type', '')
    policy = POLICY_REGISTRY.get(name) if name in POLICY_REGISTRY else None
    return bool(getattr(policy, fact, False))


def _divisible_n_sample(known: Known) -> ConfigError | None:
    n_sample, env_num = _numbers(known, 'policy.collect.n_sample', 'env.collector_env_num')
    collectors = collector_num(known)
    unit = env_num * collectors if env_num else env_num
    if not _samples_rounds(known) or n_sample is None or n_sample % unit == 0:
        return None
    below = n_sample // unit * unit
    valid = [number for number in (below, below + unit) if number]
    of_each = '' if unit == env_num else f' of each of {collectors} collectors ({COLLECTOR})'
    message = (
        f'an on-policy policy takes the same number of steps from each of the {env_num} envs '
        f'(env.collector_env_num){of_each}, and {n_sample} is not divisible by {unit}'
    )
    return bad(known, 'policy.collect.n_sample', message, ' or '.join(str(number) for number in valid))


def _keeps_sequences_whole(known: Known) -> ConfigError | None:
    """Checks that a round of an on-policy policy with a core consists of whole sequences, and a batch of some."""
    n_sample, env_num = _numbers(known, 'policy.collect.n_sample', 'env.collector_env_num')
    keys = 'policy.learn.unroll_len', 'policy.learn.batch_size'
    if not known.get('policy.model.core') or not known.get('policy.on_policy') or n_sample is None:
        return None
    unit = env_num * collector_num(known)
    steps = n_sample // unit
    unroll_len, batch_size = map(known.get, keys)
    length = unroll_len or min(steps, batch_size or steps)
    if n_sample % unit:
        return None
    if steps < 2 or (unroll_len and steps % length):
        below = steps // length * length or length
        valid = [2 * unit] if steps < 2 else [below * unit, (below + length) * unit]
        message = (
            f'a core learns from sequences of {length if steps > 1 else "at least 2"} steps, and n_sample takes {steps}'
            f' of each of {unit} envs: sequences would be cut'
        )
        return bad(known, 'policy.collect.n_sample', message, ' or '.join(map(str, dict.fromkeys(valid))))
    if batch_size is not None and batch_size < max(length, 2):
        message = (
            f'a batch consists of whole sequences, and they have {max(length, 2)} steps or less ({keys[0]})'
        )
        return bad(known, keys[1], message, f'at least {max(length, 2)}, or None')
    return None


def _is_recurrent(known: Known) -> bool:
    """Whether the policy has a memory: of its own, or if its network has a core."""
    return bool(known.get('policy.model.core')) or _states(known, 'is_recurrent')


def _stays_on_the_device(known: Known) -> list[ConfigError]:
    """Returns errors for options that rows on a device cannot go through."""
    if known.get(f'{COLLECTOR}.type') != TENSOR:
        return []
    expected = dict(NOT_ON_A_DEVICE)
    manager = known.get('env.manager.type', '')
    is_known = manager in ENV_MANAGER_REGISTRY.names()
    if is_known and not hasattr(ENV_MANAGER_REGISTRY.get(manager), 'device_step'):
        expected['env.manager.type'] = 'torch_vector'
    errors = [
        bad(
            known,
            key,
            f'the collector {TENSOR!r} keeps its rows on the device of envs and policy',
            repr(valid),
            remedy="collector.type='sample' works with this value.",
        )
        for key, valid in expected.items()
        if known.get(key, valid) != valid
    ]
    if known.get('policy.on_policy') is False:
        message = f'the collector {TENSOR!r} needs a policy that learns from fresh data and acts by tensors'
        errors.append(bad(known, 'policy.type', message, "'ppo', 'a2c' or 'pqn'"))
    return errors
