"""Rules between components: combinations of options that no component can judge alone.

A rule of one component belongs to its ``Field(check=...)`` or its ``check_config``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rlframe.config.backends import BUFFER, COLLECTOR, TENSOR, backend_errors, collector_num, device_errors
from rlframe.config.tree import is_parallel
from rlframe.errors import ConfigError

Known = Mapping[str, Any]
"""Dotted keys to values, of those options that are possible alone."""
SAMPLES, EPISODES = ('sample', 'sample_1v1'), ('episode', 'episode_1v1')
"""Collectors that count training samples, and those that count episodes."""
ROWS = ('naive', 'advanced', 'elastic')
"""Replay buffers that sample single transitions."""


def cross_errors(known: Known) -> list[ConfigError]:
    """Returns the mistakes between components."""
    found = (
        _n_sample_or_n_episode(known),
        _takes_episodes(known),
        _finds_episodes(known),
        _learns_from_sequences(known),
        _agrees_on_priorities(known),
        _fits_players(known, 'policy.collect.collector.type', ('sample_1v1', 'episode_1v1')),
        _fits_players(known, 'policy.eval.evaluator.type', ('battle_interaction',)),
        _learns_from_players(known),
        _plays_past_selves(known),
        _divisible_n_sample(known),
        _keeps_sequences_whole(known),
        _fits_buffer(known, 'policy.learn.batch_size', 'a batch'),
        _fits_buffer(known, 'policy.random_collect_size', 'a random start'),
        _fits_buffer(known, f'{BUFFER}.unroll_len', 'a sequence'),
        _fits_buffer(known, f'{BUFFER}.burn_in', 'a burn-in'),
        _has_a_core(known),
    )
    return [error for error in found if error] + device_errors(known) + backend_errors(known)


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
    eval_freq, iters = _numbers(known, 'policy.eval.evaluator.eval_freq', 'max_train_iter')
    if eval_freq is not None and iters is not None and eval_freq > iters:
        found.append(
            f'policy.eval.evaluator.eval_freq ({eval_freq}) > max_train_iter ({iters}): '
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
    keys = (
        'policy.learn.batch_size',
        'policy.collect.n_sample',
        'policy.random_collect_size',
        'max_env_step',
    )
    batch_size, n_sample, at_random, steps = _numbers(known, *keys)
    if batch_size is None or known.get('policy.other.replay_buffer.type') not in ROWS:
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
        return ConfigError(
            f'the collector {collector!r} counts {units[0]}, not {units[1]}',
            where=other_key,
            got=other,
            expected=f'None, and {own_key} set',
        )
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
    elif buffer in ROWS:
        taker = f'the replay buffer {buffer!r} samples'
    else:
        return None
    return ConfigError(
        f'{taker} from training samples, and the collector {collector!r} returns whole episodes',
        where=key,
        got=False,
        expected='True',
    )


def _finds_episodes(known: Known) -> ConfigError | None:
    collector = known.get('policy.collect.collector.type')
    buffer = known.get('policy.other.replay_buffer.type')
    if buffer not in ('sequence', 'episode') or collector not in (*SAMPLES, *EPISODES):
        return None
    key, got, expected = 'get_train_sample', True, 'False'
    why = 'takes whole episodes, not training samples'
    if buffer == 'episode' and collector in SAMPLES:
        return ConfigError(
            f'the replay buffer {buffer!r} {why}',
            where='policy.collect.collector.type',
            got=collector,
            expected=f"'{collector.replace('sample', 'episode')}'",
        )
    if collector in SAMPLES:
        key, got, expected = 'mark_episodes', False, 'True'
        why = 'has to tell the env steps of several envs apart (env.collector_env_num)'
        if known.get('env.collector_env_num') == 1 and collector == 'sample':
            return None
    if known.get(f'policy.collect.collector.{key}') != got:
        return None
    return ConfigError(
        f'the replay buffer {buffer!r} {why}',
        where=f'policy.collect.collector.{key}',
        got=got,
        expected=expected,
    )


def _learns_from_sequences(known: Known) -> ConfigError | None:
    key = 'policy.other.replay_buffer.type'
    if not _is_recurrent(known) or known.get(key) not in (
        'naive',
        'advanced',
        'elastic',
        'episode',
    ):
        return None
    return ConfigError(
        'a recurrent policy learns from sequences of env steps',
        where=key,
        got=known[key],
        expected="'sequence'",
    )


def _agrees_on_priorities(known: Known) -> ConfigError | None:
    key, of_policy = 'policy.other.replay_buffer.priority', known.get('policy.priority')
    if of_policy is None or known.get(key) in (None, of_policy):
        return None
    return ConfigError(
        "the policy's priority says whether it reports priorities, the replay buffer's whether it draws by them",
        where=key,
        got=known[key],
        expected=f'policy.priority ({of_policy})',
    )


def _fits_players(known: Known, key: str, of_players: tuple[str, ...]) -> ConfigError | None:
    worker = known.get(key)
    if known.get('env.type') != 'pettingzoo' or worker not in ('sample', 'episode', 'interaction'):
        return None
    return ConfigError(
        "the env 'pettingzoo' has several players",
        where=key,
        got=worker,
        expected=' or '.join(repr(name) for name in of_players),
    )


def _learns_from_players(known: Known) -> ConfigError | None:
    key = 'policy.collect.collector.type'
    if known.get(key) != 'sample_1v1' or not known.get('policy.on_policy'):
        return None
    return ConfigError(
        'in a turn-based game, players make different numbers of moves, so envs have no blocks of equal length',
        where=key,
        got='sample_1v1',
        expected="'episode_1v1' with get_train_sample=True for an on-policy policy",
    )


def _plays_past_selves(known: Known) -> ConfigError | None:
    key = 'policy.collect.collector.past_selves.snapshot_freq'
    if known.get(key) is None or not _is_recurrent(known):
        return None
    return ConfigError(
        'checkpoints do not contain the recurrent state of past selves',
        where=key,
        got=known[key],
        expected='None',
    )


def _divisible_n_sample(known: Known) -> ConfigError | None:
    n_sample, env_num = _numbers(known, 'policy.collect.n_sample', 'env.collector_env_num')
    collectors = collector_num(known)
    unit = env_num * collectors if env_num else env_num
    if not known.get('policy.on_policy') or n_sample is None or n_sample % unit == 0:
        return None
    below = n_sample // unit * unit
    valid = [number for number in (below, below + unit) if number]
    of_each = '' if unit == env_num else f' of each of {collectors} collectors ({COLLECTOR})'
    return ConfigError(
        f'an on-policy policy takes the same number of steps from each of the {env_num} envs '
        f'(env.collector_env_num){of_each}, and {n_sample} is not divisible by {unit}',
        where='policy.collect.n_sample',
        got=n_sample,
        expected=' or '.join(str(number) for number in valid),
    )


def _keeps_sequences_whole(known: Known) -> ConfigError | None:
    """Checks that a round of an on-policy policy with a core consists of whole sequences, and a batch of some."""
    n_sample, env_num = _numbers(known, 'policy.collect.n_sample', 'env.collector_env_num')
    keys = 'policy.learn.unroll_len', 'policy.learn.batch_size'
    if not known.get('policy.model.core') or not known.get('policy.on_policy') or n_sample is None:
        return None
    unit = env_num * collector_num(known)
    steps, (unroll_len, batch_size) = n_sample // unit, map(known.get, keys)
    length = unroll_len or min(steps, batch_size or steps)
    if n_sample % unit:
        return None
    if steps < 2 or (unroll_len and steps % length):
        below = steps // length * length or length
        valid = [2 * unit] if steps < 2 else [below * unit, (below + length) * unit]
        return ConfigError(
            f'a core learns from sequences of {length if steps > 1 else "at least 2"} steps, and n_sample takes {steps}'
            f' of each of {unit} envs: sequences would be cut',
            where='policy.collect.n_sample',
            got=n_sample,
            expected=' or '.join(str(number) for number in dict.fromkeys(valid)),
        )
    if batch_size is not None and batch_size < max(length, 2):
        return ConfigError(
            f'a batch consists of whole sequences, and they have {max(length, 2)} steps or less ({keys[0]})',
            where=keys[1],
            got=batch_size,
            expected=f'at least {max(length, 2)}, or None',
        )
    return None


def _has_a_core(known: Known) -> ConfigError | None:
    """Checks that an on-policy policy whose sequences have a length has a core that learns from them."""
    key = 'policy.learn.unroll_len'
    if known.get(key) is None or known.get('policy.model.core', '') is not None:
        return None
    return ConfigError(
        'only a recurrent core learns from sequences, and policy.model.core is None',
        where=key,
        got=known[key],
        expected="None, or policy.model.core='lstm'",
    )


def _is_recurrent(known: Known) -> bool:
    """Whether the policy has a memory: R2D2 always, others if they have a core."""
    return bool(known.get('policy.model.core', 'policy.learn.burn_in' in known))


def _fits_buffer(known: Known, key: str, what: str) -> ConfigError | None:
    size_key = f'{BUFFER}.replay_buffer_size'
    count, size = _numbers(known, key, size_key)
    if count is None or count <= size:
        return None
    return ConfigError(
        f'{what} of {count} is more than the replay buffer holds: {size} ({size_key})',
        where=key,
        got=count,
        expected=f'at most {size}',
    )
