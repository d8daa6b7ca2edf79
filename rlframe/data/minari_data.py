"""Data sets of Minari: folders with metadata and a file of HDF5, read and written through its library."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlframe.data.observation import fields_of, pack_into, zero_obs
from rlframe.data.recording import FACTS, KNOWN, Found, Recording, read_facts
from rlframe.data.space_json import space_to_json
from rlframe.data.timestep import Array, Batch
from rlframe.errors import ConfigError, nearest
from rlframe.utils.lazy import LazyModule

gymnasium, minari = LazyModule('gymnasium'), LazyModule('minari')
minari_storage, buffers_of = LazyModule('minari.dataset.minari_storage'), LazyModule('minari.data_collector')
METADATA = 'metadata.json'
ROOT = 'MINARI_DATASETS_PATH'
"""Variable of Minari that names the folder of its data sets."""
TOGETHER = 64
"""Episodes that are written at a time."""
MORE = 'infos'
"""Fact that names the columns which Minari has no place for but the infos."""


def root() -> Path:
    """Returns the folder of Minari's data sets on this machine."""
    return Path(os.environ.get(ROOT) or Path.home() / '.minari' / 'datasets')


def _data_folder(path: Path) -> Path | None:
    """Returns the folder with the metadata: this one, or ``data`` in it; None if there is none."""
    return next((each for each in (path, path / 'data') if (each / METADATA).is_file()), None)


def find(name: str, where: str, download: bool = False) -> Path:
    """Returns the folder of a data set: of a path, or of an id that is on this machine.

    Raises:
        ConfigError: If there is none, with the ids that are here.
    """
    for path in (Path(name), Path(name).parent, root() / name):
        is_file_in_it = path == Path(name).parent
        if (not is_file_in_it or Path(name).suffix == '.hdf5') and (found := _data_folder(path)) is not None:
            return found
    if download:
        minari.download_dataset(name)
        return find(name, where)
    ids = sorted(str(each.parents[1].relative_to(root())) for each in root().glob(f'**/data/{METADATA}'))
    if Path(name).exists():
        raise ConfigError(
            f'{Path(name).absolute()} is no data set of Minari: it has no {METADATA}',
            where=where,
            remedy='A file of recorded data ends in .npz, .parquet, .hdf5 or .h5.',
        )
    raise ConfigError(
        f'no recorded data at {Path(name).absolute()}, and no data set of Minari of this id on this machine'
        f'{nearest(name, ids)}',
        where=where,
        got=name,
        expected=', '.join(ids) or f'a path, or an id in {root()}, which is empty',
        remedy='rlframe collect records data; --download lets Minari fetch an id.',
    )


def read(path: Path) -> Found:
    """Opens a data set.

    Raises:
        ValueError: If it does not say its spaces, so that reading it would create its env.
    """
    metadata = json.loads((path / METADATA).read_text(encoding='utf-8'))
    if not {'observation_space', 'action_space'} <= metadata.keys():
        raise ValueError('its metadata have no spaces, and its env is not created to ask for them')
    storage = minari_storage.MinariStorage.read(path)
    facts = read_facts(metadata.get(FACTS), str(path)) or _facts_of(metadata, storage)
    more = facts.pop(MORE, [])
    if not isinstance(more, list) or not all(isinstance(name, str) and name not in KNOWN for name in more):
        raise ValueError(f'its facts name columns among the infos that cannot be there: {more!r}')
    return Found(
        int(metadata['total_steps']), _episodes(storage, int(metadata['total_episodes']), more), facts
    )


def _facts_of(metadata: Mapping[str, Any], storage: Any) -> dict[str, Any]:
    """Returns the facts of a data set that others have written."""
    spaces = {name: space_to_json(getattr(storage, name)) for name in ('observation_space', 'action_space')}
    env = json.loads(metadata['env_spec']) if metadata.get('env_spec') else {}
    facts: dict[str, Any] = {'behaviour': {'policy': metadata.get('algorithm_name') or 'unknown'}}
    if env:
        facts['env'] = {'env_id': env['id'], 'kwargs': env.get('kwargs') or {}}
    more = {'name': env.get('id', ''), 'max_episode_steps': env.get('max_episode_steps')}
    return facts | {'spec': {**spaces, 'reward_threshold': env.get('reward_threshold'), **more}}


def _episodes(storage: Any, count: int, more: Sequence[str]) -> Iterator[Batch]:
    """Yields the episodes as rows, with their numbers and the columns that are among the infos."""
    for number, episode in enumerate(storage.get_episodes(range(count))):
        length = len(episode['rewards'])
        infos = episode['infos'] or {}
        obs = _packed(storage.observation_space, episode['observations'], length + 1)
        action = _packed(storage.action_space, episode['actions'], length)
        if action.dtype.names is not None:
            raise ValueError('actions with parts are not read from data of Minari')
        yield Batch(
            obs=obs[:-1],
            next_obs=obs[1:],
            action=action,
            reward=np.asarray(episode['rewards']),
            terminated=np.asarray(episode['terminations']),
            truncated=np.asarray(episode['truncations']),
            episode=np.full(length, number),
            **{name: np.asarray(infos[name])[1:] for name in more},
        )


def _packed(space: Any, values: Any, count: int) -> Array:
    rows = zero_obs(space, count)
    pack_into(values, rows, 'unsafe')
    return rows


# writing


def write(recording: Recording, path: Path) -> None:
    """Writes a data set to ``PATH/data``, where Minari finds it by its id if ``PATH`` is in its folder.

    Raises:
        ConfigError: If the recording does not say its spaces, or there is something else at the path.
    """
    spec = recording.spec()
    if spec is None:
        raise ConfigError(
            'data without spaces cannot be a data set of Minari', where='--out', remedy='Use .npz.'
        )
    if path.exists() and _data_folder(path) is None and (not path.is_dir() or any(path.iterdir())):
        raise ConfigError(f'{path} exists, and is no data set', where='--out')
    path = path.absolute()  # Minari would join a relative one twice
    draft = Path(tempfile.mkdtemp(prefix='.tmp-', dir=path.parent))
    try:
        _write(recording, spec, draft / 'data', _id_of(path, spec.name))
        draft.chmod(0o755)
        if path.exists():
            shutil.rmtree(path)
        draft.replace(path)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _id_of(path: Path, env: str) -> str:
    """Returns the id of a data set: its place in Minari's folder, or one made of env and name."""
    plain = re.sub(r'[^-\w]+', '-', path.name).strip('-') or 'data'
    name = plain if re.search(r'-v\d+$', plain) else f'{plain}-v0'
    home = root().resolve()
    if path.resolve().is_relative_to(home):
        return (path.resolve().relative_to(home).parent / path.name).as_posix()
    return f'{re.sub(r"[^-_a-zA-Z0-9]+", "-", env) or "env"}/{name}'


def _write(recording: Recording, spec: Any, folder: Path, dataset_id: str) -> None:
    action_space = getattr(spec.action_space, 'whole', spec.action_space)
    if action_space is not spec.action_space:
        raise ConfigError(
            'actions with parts have no place in a data set of Minari', where='--out', remedy='Use .npz.'
        )
    folder.mkdir()
    storage = minari_storage.MinariStorage.new(
        folder, spec.observation_space, action_space, _env_spec(recording.facts), jpeg_encoding=False
    )
    behaviour = recording.facts.get('behaviour', {})
    more = [name for name in recording.columns if name not in KNOWN]
    storage.update_metadata(
        {
            'dataset_id': dataset_id,
            'minari_version': minari.__version__,
            'algorithm_name': str(behaviour.get('policy', 'unknown')),
            FACTS: json.dumps({**recording.facts, MORE: more} if more else recording.facts),
        }
    )
    episodes = recording.episodes()
    seeds = recording.facts.get('seeds') or [None] * len(episodes.start)
    buffers: list[Any] = []
    for start, length, seed in zip(episodes.start.tolist(), episodes.length.tolist(), seeds, strict=True):
        rows = {name: column[start : start + length] for name, column in recording.columns.items()}
        obs = np.concatenate([rows['obs'], rows['next_obs'][-1:]])
        buffers.append(
            buffers_of.EpisodeBuffer(
                seed=seed,
                observations=_as_tree(spec.observation_space, obs),
                actions=rows['action'],
                rewards=rows['reward'],
                terminations=rows['terminated'],
                truncations=rows['truncated'],
                infos={name: _behind_reset(rows[name]) for name in more} or None,
            )
        )
        if len(buffers) == TOGETHER:
            storage.update_episodes(buffers)
            buffers = []
    storage.update_episodes(buffers)


def _behind_reset(column: Array) -> Array:
    """Returns a column of an episode as Minari has infos: those of the reset, here zeros, come first."""
    return np.concatenate([np.zeros_like(column[:1]), column])


def _as_tree(space: Any, rows: Array) -> Any:
    """Returns observations, [n, ...], as Minari stores them: those with parts as dicts or tuples of arrays."""
    parts = fields_of(space)
    if not parts:
        return rows
    found = {name: _as_tree(part, rows[name]) for name, part in parts.items()}
    return tuple(found.values()) if isinstance(space, gymnasium.spaces.Tuple) else found


def _env_spec(facts: Mapping[str, Any]) -> Any:
    """Returns Gymnasium's spec of the env, from which Minari creates it; None if it has none of its own."""
    env = facts.get('env', {})
    known = gymnasium.registry.get(env.get('env_id'))
    if known is None or env.get('wrappers') or env.get('frame_stack', 1) > 1:
        return None
    spec = gymnasium.spec(env['env_id'])
    spec.kwargs.update(env.get('kwargs') or {})
    return spec
