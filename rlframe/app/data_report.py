"""``rlframe data``: describes recorded data, finds problems in them, and checks them against an env."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlframe.app.figure import check_drawing, check_picture_name, save_figure
from rlframe.app.starting import env_factory
from rlframe.data.columns import blocks, row_nbytes
from rlframe.data.data_checks import ENDS, actions_in, check_spec, columns_text, first_bad
from rlframe.data.formats import LIMIT, read_recording
from rlframe.data.recording import Episodes, Recording
from rlframe.data.timestep import Array, Batch, BoolArray, EnvSpec
from rlframe.display.text import row, space_text
from rlframe.errors import EnvStartError
from rlframe.scores import number_text
from rlframe.utils.serialize import leaves

if TYPE_CHECKING:
    from rlframe.envs.base_env import EnvFactory

BINS = 12
"""Bars of the histogram of returns."""
BAR = 40
"""Columns of the longest bar."""
FINITE = ('obs', 'next_obs', 'action', 'reward')
"""Columns whose numbers must be finite."""

Problem = dict[str, Any]
"""``column``, ``row`` (the first one, or None), ``count`` of rows, and ``text``."""
EPISODES, STEPS = 3, 1000
"""Episodes that are replayed, and env steps of each, at most."""
ROWS = 20_000
"""Rows from which it is found whether rewards lie a row off."""
WIDEST = 64
"""Numbers of an observation and an action for that, at most: beyond, as with pictures, a linear fit says nothing."""
FEW = 24
"""Numbers of a row of which all products are looked at, and not only squares."""
GAIN = 0.25
"""Share of the variance of rewards by which another offset must explain more."""


def inspect_data(
    path: str | Path,
    env: str | None = None,
    picture: str | None = None,
    memory: float = LIMIT,
    download: bool = False,
) -> dict[str, Any]:
    """Returns a description of recorded data and their problems, as JSON values.

    Args:
        path: The data.
        env: Id of an env to check them against; None: only their own spaces are checked.
        picture: File for a histogram of the returns; None: none.
        memory: GiB that they may occupy in memory.
        download: Whether Minari may fetch an id that is not here.

    Raises:
        ConfigError: If they cannot be read, or are of another env.
    """
    check_picture_name(picture)
    if picture is not None:
        check_drawing()
    recording = read_recording(path, limit=memory, download=download)
    spec = recording.spec()
    episodes = recording.episodes()
    problems = [*_spoilt(recording, spec), *_ends(recording, episodes, spec), *_broken(recording)]
    problems += _offset(recording)
    digest = recording.digest()
    if recording.facts.get('sha256', digest) != digest:
        problems.append(_problem('all', None, len(recording), 'these are not the arrays that were written'))
    found = {
        'path': str(path),
        'format': recording.format,
        'rows': len(recording),
        'bytes': len(recording) * row_nbytes(recording.columns),
        'sha256': digest,
        'columns': columns_text(recording.columns),
        'env': spec.name if spec else None,
        'observation_space': space_text(spec.observation_space) if spec else None,
        'action_space': space_text(spec.action_space) if spec else None,
        'behaviour': dict(recording.facts.get('behaviour', {})),
        'episodes': _of_episodes(recording, episodes),
        'env_checked': env,
        'replayed': None,
    }
    if env is not None:
        factory = env_factory(env, recording.facts.get('env', {}))
        check_spec(recording.columns, spec, factory.spec, str(path))
        problems += [each for each in _spoilt(recording, factory.spec) if each['column'] == 'action']
        found['replayed'], more = replay_problems(recording, factory, episodes)
        problems += more
    found['problems'] = list({(each['column'], each['text']): each for each in problems}.values())
    if picture is not None:
        _draw(episodes, found, Path(picture))
        found['picture'] = picture
    return found


def _of_episodes(recording: Recording, episodes: Episodes) -> dict[str, Any]:
    """Returns counts, lengths and returns of the episodes."""
    marked = episodes.terminated | episodes.truncated
    found: dict[str, Any] = {
        'count': len(episodes.start),
        'terminated': int(episodes.terminated.sum()),
        'truncated': int((episodes.truncated & ~episodes.terminated).sum()),
        'unmarked': int((~marked).sum()),
        'length': _spread(episodes.length),
        'return': None,
        'histogram': None,
    }
    if 'reward' in recording.columns and np.isfinite(episodes.return_).any():
        finite = episodes.return_[np.isfinite(episodes.return_)]
        counts, edges = np.histogram(finite, BINS if np.ptp(finite) else 1)
        found |= {
            'return': _spread(finite),
            'histogram': {'counts': counts.tolist(), 'edges': edges.tolist()},
        }
    return found


def _returns_text(found: Mapping[str, Any]) -> str:
    """Returns what is known of the returns, in words."""
    if found['episodes']['return'] is not None:
        return _spread_text(found['episodes']['return'])
    if ' reward ' not in f' {found["columns"]} ':
        return 'unknown: there are no rewards'
    return 'unknown: no episode has finite rewards and an end'


def _spread(values: Array) -> dict[str, float]:
    """Returns the mean, the deviation and the quartiles of numbers."""
    shares = {'min': 0, '25 %': 25, 'median': 50, '75 %': 75, 'max': 100}
    found = np.percentile(values, list(shares.values())).tolist()
    return {
        'mean': float(np.mean(values)),
        'std': float(np.std(values)),
        **dict(zip(shares, found, strict=True)),
    }


# problems


def _problem(column: str, row: int | None, count: int, text: str) -> Problem:
    return {'column': column, 'row': row, 'count': count, 'text': text}


def _spoilt(recording: Recording, spec: EnvSpec | None) -> list[Problem]:
    """Returns numbers that are not finite, and actions outside of their space."""
    first: dict[str, tuple[int, str]] = {}
    counts: dict[str, int] = {}
    start = 0
    for block in blocks(recording.columns):
        for name, bad, text in _bad_rows(block, spec):
            if bad.any():
                counts[f'{name}: {text}'] = counts.get(f'{name}: {text}', 0) + int(bad.sum())
                first.setdefault(f'{name}: {text}', (start + first_bad(bad), name))
        start += len(block)
    return [_problem(name, at, counts[text], text.partition(': ')[2]) for text, (at, name) in first.items()]


def _bad_rows(block: Batch, spec: EnvSpec | None) -> list[tuple[str, BoolArray, str]]:
    """Returns the columns of a block, which of its rows are bad, [n], and why."""
    found: list[tuple[str, BoolArray, str]] = []
    for column in FINITE:
        for name, values in leaves(block[column], column) if column in block else ():
            if values.dtype.kind == 'f':
                finite = np.isfinite(values.reshape(len(values), -1)).all(axis=1)
                found.append((name, np.asarray(~finite), 'not finite (NaN or infinite)'))
    if spec is not None and block['action'].shape[1:] == (spec.action_space.shape or ()):
        space = space_text(spec.action_space)
        found.append(('action', ~actions_in(block['action'], spec.action_space), f'outside of {space}'))
    return found


def _ends(recording: Recording, episodes: Episodes, spec: EnvSpec | None) -> list[Problem]:
    """Returns the problems with the ends of episodes."""
    if 'reward' not in recording.columns:
        return []
    if not {*ENDS} & recording.columns.keys():
        return [
            _problem('terminated', None, len(recording), 'no end marks: neither terminated nor truncated')
        ]
    marked = episodes.terminated | episodes.truncated
    if not marked.any():
        return [_problem('terminated', None, len(recording), 'no end mark in any row')]
    found = []
    if (~marked[:-1]).any():
        at = int(np.flatnonzero(~marked[:-1])[0])
        last = int(episodes.start[at] + episodes.length[at] - 1)
        text = 'episodes without an end mark, as those of a replay buffer that were still running'
        found.append(_problem('terminated', last, int((~marked[:-1]).sum()), text))
    limit = spec.max_episode_steps if spec else None
    long = episodes.length > (limit or math.inf)
    if long.any():
        text = f'episodes longer than the limit of {limit} env steps: are end marks missing?'
        found.append(_problem('truncated', int(episodes.start[long.argmax()]), int(long.sum()), text))
    timed = episodes.terminated & (episodes.length == limit)
    if limit and timed.any() and not episodes.truncated.any():
        text = f'episodes of exactly {limit} env steps end as terminal states: these are probably time limits'
        found.append(_problem('terminated', int(episodes.start[timed.argmax()]), int(timed.sum()), text))
    return found


def _broken(recording: Recording) -> list[Problem]:
    """Returns rows whose next observation is not the observation of the next row."""
    if not {'next_obs', 'episode'} <= recording.columns.keys() or len(recording) < 2:
        return []
    if recording.columns['obs'].shape != recording.columns['next_obs'].shape:
        return [_problem('next_obs', None, len(recording), 'a row has another shape than one of obs')]
    names = ('obs', 'next_obs', 'episode')
    count = 0
    first: int | None = None
    start = 0
    before: Batch | None = None
    for block in blocks({name: recording.columns[name] for name in names}):
        rows = block if before is None else Batch.cat([before, block])
        same = rows['episode'][1:] == rows['episode'][:-1]
        differs = rows['obs'][1:] != rows['next_obs'][:-1]
        bad = same & differs.reshape(len(same), -1).any(axis=1)
        if bad.any():
            count += int(bad.sum())
            first = start - len(rows) + len(block) + first_bad(bad) if first is None else first
        start += len(block)
        before = block[-1:]
    text = 'next_obs is not the obs of the next row of the episode'
    return [_problem('next_obs', first, count, text)] if count else []


def _offset(recording: Recording) -> list[Problem]:
    offset = reward_offset(recording)
    if offset is None:
        return []
    where = 'before' if offset < 0 else 'after'
    text = f'rewards fit obs and action of the row {where} theirs much better: they seem to lie at another offset'
    return [_problem('reward', None, len(recording), text)]


# text and picture


def data_text(found: Mapping[str, Any], width: int) -> str:
    """Returns the result of ``inspect_data`` as text of at most ``width`` columns."""
    episodes = found['episodes']
    ends = ', '.join(
        f'{episodes[name]:,} {word}'
        for name, word in (
            ('terminated', 'terminated'),
            ('truncated', 'truncated'),
            ('unmarked', 'without an end mark'),
        )
        if episodes[name]
    )
    facts = [
        ('env', found['env'] or 'unknown: the data do not say it'),
        ('observes', found['observation_space']),
        ('acts', found['action_space']),
        ('columns', found['columns']),
        ('behaviour', _behaviour_text(found['behaviour'])),
        ('episodes', f'{episodes["count"]:,}: {ends}'),
        ('lengths', _spread_text(episodes['length'])),
        ('returns', _returns_text(found)),
    ]
    size = f'{found["bytes"] / 2**20:,.1f} MiB'
    lines = [
        f'{found["path"]}: {found["rows"]:,} env steps, {found["format"]}, {size}, SHA-256 {found["sha256"][:12]}'
    ]
    lines += [line for label, text in facts if text for line in row(label, str(text), width)]
    lines += _histogram_lines(episodes['histogram'])
    if found['env_checked']:
        lines += row('checked', f'against {found["env_checked"]}: {found["replayed"]}', width)
    if not found['problems']:
        return '\n'.join([*lines, 'no problems found'])
    lines.append('problems:')
    for each in found['problems']:
        place = '' if each['row'] is None else f' from row {each["row"]:,}'
        lines += row(each['column'], f'{each["text"]} ({each["count"]:,}{place})', width)
    return '\n'.join(lines)


def _behaviour_text(behaviour: Mapping[str, Any]) -> str:
    if not behaviour:
        return 'unknown'
    run = f' of {behaviour["run"]}/{behaviour["checkpoint"]}' if 'run' in behaviour else ''
    step = f' at {behaviour["envstep"]:,} env steps' if behaviour.get('envstep') else ''
    acts = f', acts {behaviour["acts"]}' if 'acts' in behaviour else ''
    return f'{behaviour.get("policy", "unknown")}{run}{step}{acts}'


def _spread_text(spread: Mapping[str, float]) -> str:
    parts = ('min', '25 %', 'median', '75 %', 'max')
    shown = ', '.join(f'{name} {number_text(spread[name])}' for name in parts)
    return f'mean {number_text(spread["mean"])}, deviation {number_text(spread["std"])} ({shown})'


def _histogram_lines(histogram: Mapping[str, Any] | None) -> list[str]:
    """Returns the histogram of returns as bars."""
    if histogram is None or len(histogram['counts']) == 1:
        return []
    counts, edges = histogram['counts'], histogram['edges']
    names = [number_text(edge) for edge in edges[:-1]]
    longest = max(map(len, names))
    return [
        f'  {name:>{longest}} | {"#" * math.ceil(BAR * count / max(counts))} {count:,}'.rstrip()
        for name, count in zip(names, counts, strict=True)
    ]


def _draw(episodes: Episodes, found: Mapping[str, Any], path: Path) -> None:
    """Draws the histogram of the returns."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.5), layout='constrained')
    axes = figure.add_subplot()
    axes.hist(episodes.return_[np.isfinite(episodes.return_)], bins=30)
    axes.set_xlabel('return')
    axes.set_ylabel('episodes')
    axes.set_title(f'{Path(found["path"]).name}: {found["rows"]:,} env steps')
    save_figure(figure, [path], is_named=True)


def replay_problems(
    recording: Recording, factory: EnvFactory, episodes: Episodes
) -> tuple[str, list[Problem]]:
    """Replays some episodes.

    Args:
        recording: The data.
        factory: Creates the env.
        episodes: Its episodes.

    Returns:
        What was replayed, in words, and the problems that were found.
    """
    seeds = recording.facts.get('seeds')
    if not seeds or factory.only_vector or len(seeds) != len(episodes.start):
        return 'spaces fit; without the seeds of its episodes nothing can be replayed', []
    try:
        env = factory.create()
    except Exception as error:
        raise EnvStartError(f'the env cannot be created: {error}', where='--env') from error
    problems = []
    count = min(EPISODES, len(seeds))
    for number in range(count):
        problems += _replay(
            recording, env, int(seeds[number]), int(episodes.start[number]), int(episodes.length[number])
        )
    env.close()
    if problems:
        return f'spaces fit, and of {count} episodes that were replayed some differ', problems[:1]
    return f'spaces fit, and {count} episodes that were replayed from their seeds are the same', []


def _replay(recording: Recording, env: Any, seed: int, start: int, length: int) -> list[Problem]:
    """Returns the first difference between an episode and the env."""
    length = min(length, STEPS)
    columns = recording.columns
    action, obs = columns['action'][start : start + length], columns['obs'][start : start + length]
    reward = columns['reward'][start : start + length]
    seen = env.reset(seed=seed)[0]
    rewards = np.zeros(length)
    for t in range(length):
        if obs.dtype.names is None and not np.allclose(obs[t], seen, rtol=1e-4, atol=1e-5):
            text = f'the env gives {np.asarray(seen).tolist()} there: another env, or another version'
            return [_problem('obs', start + t, 1, text)]
        seen, rewards[t], terminated, truncated, _ = env.step(action[t])
        if terminated or truncated:
            break
    return _of_rewards(reward, rewards.astype(np.float32), start)


def _of_rewards(reward: Array, rewards: Array, start: int) -> list[Problem]:
    differs = ~np.isclose(reward, rewards, rtol=1e-4, atol=1e-5)
    if not differs.any():
        return []
    first = int(differs.argmax())
    text = f'the env gives {rewards[first]:g} there, not {reward[first]:g}'
    if len(reward) > 2 and np.allclose(reward[1:], rewards[:-1], rtol=1e-4, atol=1e-5):
        text = 'each is that of the row before: rewards lie a row too late'
    elif len(reward) > 2 and np.allclose(reward[:-1], rewards[1:], rtol=1e-4, atol=1e-5):
        text = 'each is that of the row after: rewards lie a row too early'
    elif rewards[first] and np.allclose(
        reward, rewards * (reward[first] / rewards[first]), rtol=1e-3, atol=1e-5
    ):
        text = f'each is {reward[first] / rewards[first]:.4g} times that of the env: another unit'
    return [_problem('reward', start + first, 1, text)]


def reward_offset(recording: Recording) -> int | None:
    """Returns -1 or 1 if rewards follow much better from the row before or behind, else None.

    A reward follows from the observation, the action and the next observation of its step; here by a ridge regression on these
    and their products. Rewards that hardly vary, or that hardly change from row to row, tell nothing.
    """
    names = ('obs', 'action', 'next_obs', 'reward', 'episode')
    if not {*names} <= recording.columns.keys():
        return None
    rows = {name: recording.columns[name][:ROWS] for name in names}
    if any(rows[name].dtype.kind not in 'biuf' for name in names):
        return None
    parts = [rows[name].reshape(len(rows[name]), -1) for name in ('obs', 'action', 'next_obs')]
    inputs = np.concatenate(parts, axis=1).astype(np.float64)
    reward = rows['reward'].astype(np.float64)
    if inputs.shape[1] > WIDEST or not np.isfinite(inputs).all() or not np.isfinite(reward).all():
        return None
    same = rows['episode'][1:] == rows['episode'][:-1]
    if same.sum() < 4 * inputs.shape[1] or reward.std() < 1e-6:
        return None
    features = _features(inputs)
    here = _explained(features[1:][same], reward[1:][same])
    before = _explained(features[:-1][same], reward[1:][same])
    behind = _explained(features[1:][same], reward[:-1][same])
    best = max(before, behind)
    if best < here + GAIN:
        return None
    return -1 if before >= behind else 1


def _features(inputs: Array) -> Array:
    scaled = (inputs - inputs.mean(0)) / np.maximum(inputs.std(0), 1e-6)
    scaled = np.clip(scaled, -10, 10)
    one, other = np.triu_indices(scaled.shape[1] if scaled.shape[1] <= FEW else 0)
    products = scaled[:, one] * scaled[:, other] if len(one) else scaled**2
    return np.concatenate([scaled, products, np.ones((len(scaled), 1))], axis=1)


def _explained(features: Array, values: Array) -> float:
    """Returns the share of the variance that a ridge regression explains on rows that it was not fitted to."""
    half = np.arange(len(values)) % 2 == 0
    left = features[half]
    weights = np.linalg.solve(left.T @ left + 1e-3 * len(left) * np.eye(left.shape[1]), left.T @ values[half])
    rest = values[~half] - features[~half] @ weights
    return float(1 - rest.var() / max(values[~half].var(), 1e-12))
