"""The artifact: the folder that holds a trained policy, compared with its manifest before anything in it is used.

``policy.json`` describes the policy: spaces, stacks of frames, normaliser statistics, options of the network.
``weights.safetensors`` contains the network, ``README.md`` is the model card, ``manifest.json`` lists all files with size
and SHA-256.
"""

from __future__ import annotations

import copy
import dataclasses
import logging
import os
import platform
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rlframe import config
from rlframe._version import __version__
from rlframe.config.components import take_at
from rlframe.config.schema import ExperimentConfig
from rlframe.data.observation import ACTION_MASK, has_mask, without_part
from rlframe.data.timestep import EnvSpec
from rlframe.errors import (
    CheckpointMismatchError,
    CheckpointNotFoundError,
    CheckpointWriteError,
    ConfigError,
    ConfigWarning,
)
from rlframe.pipeline import build
from rlframe.policy.parts.fit import learning_parts
from rlframe.policy.parts.sections import BEST_ACTIONS
from rlframe.registry import POLICY_REGISTRY
from rlframe.run.checkpoint_files import (
    MANIFEST,
    publish_folder,
    read_checked,
    refusal,
    staging_folder,
    write_file,
)
from rlframe.run.checkpoint_tree import BAD_TREE, Encoder, decode, describe, to_json
from rlframe.run.manifest import (
    ARTIFACT,
    Manifest,
    check_listed,
    check_version,
    naming_version,
    origin,
    read_sealed,
    write_text,
)
from rlframe.run.read_checkpoint import OpenCheckpoint, local_path, open_checkpoint
from rlframe.scores import exact_text
from rlframe.utils import strict_json
from rlframe.utils.field import REQUIRED, ResolvedConfig
from rlframe.utils.files import remedy_of
from rlframe.utils.lazy import LazyModule

if TYPE_CHECKING:
    from rlframe.policy import Policy

logger = logging.getLogger('rlframe.export')
torch = LazyModule('torch')
numpy = LazyModule('numpy')
gymnasium = LazyModule('gymnasium')
safetensors = LazyModule('safetensors')
safetensors_numpy = LazyModule('safetensors.numpy')

T = TypeVar('T')

Row = tuple[str, Any]

FORMAT_VERSION = 1
"""Of the artifacts that are written."""
DESCRIPTION, WEIGHTS, CARD = 'policy.json', 'weights.safetensors', 'README.md'
PARTS = frozenset((DESCRIPTION, WEIGHTS, CARD))
NAME, FOLDER = 'artifact', 'export'
"""Default name of an artifact, and the folder of exports in a run folder."""


@dataclasses.dataclass(frozen=True)
class Source:
    """The policy of a checkpoint."""

    opened: OpenCheckpoint
    """The checkpoint."""
    state: Mapping[str, Any]
    """Its content."""
    cfg: ExperimentConfig
    """The config that it was trained by, as far as acting needs it."""
    spec: EnvSpec
    """Spaces of the env, as the policy sees them."""
    policy: Policy
    """The policy, with its weights, on the CPU."""
    model: Any = None
    """The user's network; None: the network that the config names."""

    @property
    def frame_stack(self) -> int:
        """Observations that the policy sees at a time."""
        return int(self.cfg.env.get('frame_stack', 1))

    @property
    def measured(self) -> dict[str, Any]:
        """The checkpoint's facts about its return and its training."""
        manifest = self.opened.manifest
        progress = manifest.get('progress', {})
        return {
            'name': self.opened.path.name,
            'return': manifest.get('score'),
            'env_steps': progress.get('envstep'),
            'updates': progress.get('train_iter'),
            'seed': self.cfg.seed,
        }

    def fresh_policy(self) -> Policy:
        """Returns another policy with the same weights."""
        return _exported_policy(self.opened, self.state, self.cfg, self.spec, self.model)


def open_source(
    path: str | Path | OpenCheckpoint,
    trust: bool = False,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    model: Any = None,
    env: Any = None,
) -> Source:
    """Loads the policy of a checkpoint; the arguments are those of ``export_policy``.

    Raises:
        CheckpointError: If it does not exist, is damaged, or contains no policy or no config.
        EnvError: If its env, whose spaces are read, cannot be created.
    """
    opened = open_checkpoint(path)
    state = opened.state(buffer=False)  # verified before its config is used
    data = saved_config(opened, trust, overrides, env, config.without_parallel)
    cfg = compiled_again(config.as_played(data), overrides, opened.manifest)
    spec = acting_spec(build.make_factory(cfg).spec, cfg.policy)
    return Source(opened, state, cfg, spec, _exported_policy(opened, state, cfg, spec, model), model)


def acting_spec(spec: EnvSpec, policy: Mapping[str, Any]) -> EnvSpec:
    """Returns the spaces of an env without the parts of the observations that only learning reads."""
    space = spec.observation_space
    for name in learning_parts(POLICY_REGISTRY.get_cls(policy), spec, policy):
        space = without_part(space, name)
    return dataclasses.replace(spec, observation_space=space)


def saved_config(
    opened: OpenCheckpoint,
    trust: bool,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    env: Any = None,
    needed: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda data: data,
) -> Mapping[str, Any]:
    """Returns the config pair of a checkpoint, reduced by ``needed``, after checking that it may be used.

    Raises:
        ConfigError: If the env exists in the program only that trained.
        UnsafeCheckpointError: If the run is foreign and could reach beyond its folder.
    """
    where = str(opened.path)
    data = needed(config.config_of(opened.manifest, where))
    if env is not None:
        data = config.with_env(data, env)
    config.check_env_is_named(data, where)
    if not opened.manifest.is_own:
        config.check_trust(data, where, trust, overrides, env)
    return data


def compiled_again(
    data: Mapping[str, Any],
    overrides: Sequence[str] | Mapping[str, Any] = (),
    manifest: Mapping[str, Any] | None = None,
) -> ExperimentConfig:
    """Compiles a config, without the warnings that were shown, or are shown, when a run begins.

    With the manifest of the checkpoint that it is from, options that only another version has are left out.
    """
    main = data['main_config']
    compiled = partial(config.compile_config, create_config=data['create_config'], overrides=overrides)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', ConfigWarning)
        return compiled(main) if manifest is None else made_without_unknown(compiled, main, manifest)


def made_without_unknown(
    make: Callable[[Mapping[str, Any]], T], options: Mapping[str, Any], manifest: Mapping[str, Any]
) -> T:
    """Makes something of saved options; options that only another version of rlframe has are left out, with a warning.

    Raises:
        RLFrameError: That of ``make``, with the versions.
    """
    with naming_version(manifest):
        try:
            return make(options)
        except ConfigError as error:
            known: dict[str, Any] = copy.deepcopy(dict(options))
            dropped = [key for key in error.unknown_keys if take_at(known, key, REQUIRED) is not REQUIRED]
            if not dropped:
                raise
        logger.warning('%s: options that are unknown here are left out: %s', origin(manifest), dropped)
        return make(known)


def played_policy(
    opened: OpenCheckpoint, state: Mapping[str, Any], cfg: ExperimentConfig, spec: EnvSpec, model: Any = None
) -> Policy:
    """Creates the policy of a checkpoint, to act greedily: with its network, or with the given one, and its weights.

    Raises:
        CheckpointError: If the checkpoint is of another network.
    """
    path = str(opened.path)
    policy = build.make_policy(cfg, spec, copy.deepcopy(model), fields=('eval',))
    build.load_network(policy, state, opened.manifest, cfg, path)
    return policy


def _exported_policy(
    opened: OpenCheckpoint, state: Mapping[str, Any], cfg: ExperimentConfig, spec: EnvSpec, model: Any
) -> Policy:
    """Creates the policy on the CPU; no exported function draws actions, and its checks compare best ones."""
    best = {name: value for name, value in BEST_ACTIONS.items() if name in cfg.policy.eval}
    policy = {**cfg.policy, 'device': 'cpu', 'cuda': None, 'eval': ResolvedConfig(cfg.policy.eval | best)}
    on_cpu: Any = ResolvedConfig({**cfg, 'policy': ResolvedConfig(policy)})
    return played_policy(opened, state, on_cpu, spec, model)


def card(source: Source, imports_code: bool) -> str:
    """Returns the text of the model card, Markdown."""
    kind, env = source.cfg.policy.type, source.spec.name
    return '\n'.join(
        [
            f'# {kind} on {env}',
            '',
            'A policy trained by rlframe. This folder is all you need to act with it.',
            '',
            *_table(_facts(source)),
            '',
            '## Use',
            '',
            '```python',
            *_usage(source, imports_code),
            '```',
            '',
            'An observation is what the env returns, of one env or, with a leading axis, of several. Nothing in this folder is code, and',
            'every file is compared with `manifest.json` when it is loaded. `policy.json` has the spaces, the statistics of',
            'observations and the options of the network, `weights.safetensors` its weights.',
            '',
        ]
    )


def _facts(source: Source) -> list[Row]:
    measured = source.measured
    score = measured['return']
    versions = {
        'rlframe': __version__,
        'torch': torch.__version__,
        'numpy': numpy.__version__,
        'gymnasium': gymnasium.__version__,
        'Python': platform.python_version(),
    }
    return [
        ('env', source.spec.name),
        ('policy', f'{source.cfg.policy.type} ({type(source.policy).__name__})'),
        ('mean return when it was saved', 'not measured' if score is None else f'{exact_text(score)}'),
        ('trained for', f'{measured["env_steps"]} env steps, {measured["updates"]} updates'),
        ('seed', measured['seed']),
        ('checkpoint', measured['name']),
        ('observations', f'`{source.spec.observation_space}`'),
        ('actions', f'`{source.spec.action_space}`'),
        ('versions', ', '.join(f'{name} {version}' for name, version in versions.items())),
    ]


def _usage(source: Source, imports_code: bool) -> list[str]:
    lines = ['import rlframe', '', "policy = rlframe.load('path/of/this/folder')"]
    if imports_code:
        lines[-1] = "policy = rlframe.load('path/of/this/folder', trust=True)  # it imports custom code"
    if source.policy.is_recurrent or source.frame_stack > 1:
        lines.append('policy.reset()  # whenever an episode begins')
    given = ', action_mask' if has_mask(source.spec.observation_space) else ''
    lines.append(f'action = policy.act(obs{given})')
    if given:
        lines.append(f"# without the second argument where obs has the part '{ACTION_MASK}'")
    return lines


def _table(rows: list[Row]) -> list[str]:
    escaped = [(name, str(value).replace('|', '\\|')) for name, value in rows]
    return [f'| {name} | {value} |' for name, value in [('', ''), ('---', '---'), *escaped]]


class Artifact(NamedTuple):
    """Content of an artifact's manifest."""

    path: Path
    description: dict[str, Any]
    """``policy.json``, with the policy's state, arrays and all, under ``state``."""
    manifest: Manifest


def write_artifact(path: Path, description: Mapping[str, Any], card: str) -> Path:
    """Writes an artifact to a temporary folder and renames it; an existing artifact of that name is replaced.

    ``description`` are nested plain values, and tensors and arrays, which go to the file of weights; ``card`` is the text
    of the model card.

    Returns:
        The path.

    Raises:
        CheckpointError: If something in the description cannot be saved; nothing is written.
        CheckpointWriteError: If writing fails, or another file has that name, which is not changed.
    """
    check_place(path)
    encoder = Encoder()
    text = to_json(encoder.tree(description), indent=1) + b'\n'
    contents = {
        DESCRIPTION: text,
        WEIGHTS: safetensors_numpy.save(encoder.arrays),
        CARD: card.encode('utf-8'),
    }
    try:
        with staging_folder(path) as staging:
            files = {name: write_file(staging / name, content) for name, content in contents.items()}
            write_file(
                staging / MANIFEST, write_text({'kind': ARTIFACT, 'files': files}, version=FORMAT_VERSION)
            )
            publish_folder(staging, path)
    except OSError as error:
        raise not_written(path, error) from error
    return path


def check_place(path: Path) -> None:
    """Refuses to put an artifact in the place of something else.

    Raises:
        CheckpointWriteError: If something that is no artifact has that name.
    """
    is_empty = path.is_dir() and not any(path.iterdir())
    if path.is_symlink() or (path.exists() and not is_empty and not _is_artifact(path)):
        raise CheckpointWriteError(
            'the path exists already', where=str(path), remedy='Name a folder that does not exist.'
        )


def not_written(path: Path, error: OSError) -> CheckpointWriteError:
    """Returns the error for a file or folder that the system refused to write."""
    return CheckpointWriteError(f'it cannot be written: {error.strerror or error}', where=str(path))


def _is_artifact(path: Path) -> bool:
    file = path / MANIFEST
    return file.is_file() and read_sealed(file).get('kind') == ARTIFACT


def find_artifact(path: str | Path) -> Path:
    """Returns the artifact meant by a path to one, to the folder that it was exported to, or to a run folder.

    Raises:
        CheckpointNotFoundError: With the path and the names found there.
    """
    path = local_path(path)
    for candidate in (path, path / NAME, path / FOLDER / NAME):
        if os.path.lexists(candidate / MANIFEST):  # what is no file is refused by its reader
            return candidate.resolve()
    if not path.exists():
        raise CheckpointNotFoundError('no such file or directory', where=str(path.absolute()))
    seen = sorted(entry.name for entry in path.iterdir())[:10] if path.is_dir() else 'a file'
    raise CheckpointNotFoundError(
        f'no exported policy here (no {MANIFEST}); found {seen}',
        where=str(path.absolute()),
        remedy=f'Create one from a run: python -m rlframe.entry export {path}.',
    )


def read_artifact(path: str | Path) -> Artifact:
    """Reads an artifact after comparing its files with the manifest.

    Args:
        path: As accepted by ``find_artifact``.

    Raises:
        CheckpointNotFoundError: If it does not exist.
        CheckpointCorruptError: If a file is missing or does not match the manifest; with its name.
        CheckpointVersionError: If a newer rlframe wrote it.
        CheckpointMismatchError: If it is a checkpoint.
        UnsafeCheckpointError: If a pickle took the place of a file.
    """
    # verify all files
    path = find_artifact(path)
    manifest = read_sealed(path / MANIFEST)
    if manifest.get('kind') != ARTIFACT:
        raise CheckpointMismatchError(
            'this is a checkpoint, not an exported policy',
            where=str(path),
            remedy=f'Export it: python -m rlframe.entry export {path}.',
        )
    check_version(path, manifest, FORMAT_VERSION)
    check_listed(path, manifest['files'], PARTS, PARTS.__contains__)
    kinds = {DESCRIPTION: 'POLICY', CARD: 'POLICY', WEIGHTS: ''}
    contents = {
        name: read_checked(path / name, facts, kinds[name]) for name, facts in manifest['files'].items()
    }
    # read them
    try:
        arrays = safetensors_numpy.load(contents[WEIGHTS])
    except (safetensors.SafetensorError, *BAD_TREE) as error:
        raise refusal(path / WEIGHTS, f'this is not a file of tensors: {error}') from error
    try:
        description = dict(decode(strict_json.loads(contents[DESCRIPTION], 'POLICY'), arrays))
    except BAD_TREE as error:
        message = f'this is not what rlframe wrote: {describe(error)}'
        raise refusal(path / DESCRIPTION, message, remedy=remedy_of(error)) from error
    return Artifact(path, description, manifest)
