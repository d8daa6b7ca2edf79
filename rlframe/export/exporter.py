"""export_policy: a checkpoint's policy, written in the formats that are asked for."""

from __future__ import annotations

import importlib.util
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rlframe.errors import CheckpointWriteError, ConfigError, IncompatibleError, MissingDependencyError
from rlframe.export.artifact import (
    FOLDER,
    NAME,
    Source,
    card,
    check_place,
    not_written,
    open_source,
    write_artifact,
)
from rlframe.export.function import PolicyFunction, action_function, check_agreement, example
from rlframe.export.loaded import describe, is_described, reaching
from rlframe.registry import nearest
from rlframe.run.checkpoint_tree import Encoder
from rlframe.run.read_checkpoint import CKPT, OpenCheckpoint, local_path
from rlframe.run.run_folder import check_links
from rlframe.utils.files import whole_file
from rlframe.utils.lazy import LazyModule

torch = LazyModule('torch')
safetensors_numpy = LazyModule('safetensors.numpy')

ONNX_NEEDS = ('onnx', 'onnxscript')
"""Packages that torch writes ONNX with."""


class Format(NamedTuple):
    """One format."""

    name: str
    """Of the file or folder that is written."""
    check: Callable[[Source, Path], None]
    """Rejects policies that cannot be exported in this format, before anything is written."""
    write: Callable[[Source, Path], None]
    """Writes it."""
    usage: str
    """Instructions for use, with the placeholder ``{path}``."""


def _replace(path: Path, data: bytes) -> None:
    try:
        with whole_file(path) as draft:
            draft.write_bytes(data)
    except OSError as error:
        raise not_written(path, error) from error


def _check_file(source: Source, path: Path) -> None:
    if path.is_dir():
        raise ConfigError('this is a folder, and a file is to be written', where=str(path))


def _write_state_dict(source: Source, path: Path) -> None:
    encoder = Encoder()
    encoder.tree(dict(source.policy.collect_mode.state_dict()['model']))
    _replace(path, safetensors_numpy.save(encoder.arrays))


def _write_artifact(source: Source, path: Path) -> None:
    description = describe(source)
    write_artifact(path, description, card(source, imports_code=bool(reaching(description))))


def _check_artifact(source: Source, path: Path) -> None:
    check_place(path)
    if source.model is not None and not is_described(source):
        raise IncompatibleError(
            'the network was passed to the run, so an artifact, which has no code, cannot create it',
            where='--format',
            got=NAME,
            expected='torch_export, onnx or state_dict',
            remedy='Or register the class of the network in a module, and name it in policy.model.type.',
        )


def _check_torch_export(source: Source, path: Path) -> None:
    _check_file(source, path)
    check_agreement(_function(source), source.policy, source.spec)


def _function(source: Source) -> PolicyFunction:
    return action_function(source.fresh_policy(), source.spec)


def _program(source: Source) -> Any:
    """Returns the policy as a program of torch, for any number of observations."""
    function = _function(source)
    batch = torch.export.Dim('batch', min=1)
    obs = example(source.spec)
    inputs = (obs, *function.first_state(len(obs)))
    with torch.no_grad(), _quiet():
        return torch.export.export(function, inputs, dynamic_shapes=({0: batch},) * len(inputs))


def _write_torch_export(source: Source, path: Path) -> None:
    program = _program(source)
    file = io.BytesIO()
    with _quiet():
        torch.export.save(program, file)
    _replace(path, file.getvalue())


def _check_onnx(source: Source, path: Path) -> None:
    missing = [name for name in ONNX_NEEDS if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingDependencyError(
            f'the format onnx needs {" and ".join(missing)}',
            where='--format',
            remedy='pip install "rlframe[onnx]"',
        )
    _check_torch_export(source, path)


def _write_onnx(source: Source, path: Path) -> None:
    program = _program(source)
    names = {'input_names': ['obs', 'state'], 'output_names': ['action', 'next_state']}
    if not source.policy.is_recurrent:
        names = {key: words[:1] for key, words in names.items()}
    with _quiet():
        exported = torch.onnx.export(program, (), dynamo=True, verbose=False, external_data=False, **names)
    _replace(path, exported.model_proto.SerializeToString())


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences warnings of torch's exporters about torch itself."""
    logger = logging.getLogger('torch.onnx')
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            for kind in (FutureWarning, DeprecationWarning, UserWarning):
                warnings.simplefilter('ignore', kind)
            yield
    finally:
        logger.setLevel(level)


FORMATS = {
    'state_dict': Format(
        'state_dict.safetensors', _check_file, _write_state_dict, 'safetensors.torch.load_file({path!r})'
    ),
    'torch_export': Format(
        'policy.pt2',
        _check_torch_export,
        _write_torch_export,
        'torch.export.load({path!r}).module()(obs); with a memory: (obs, state)',
    ),
    'onnx': Format(
        'policy.onnx',
        _check_onnx,
        _write_onnx,
        "onnxruntime.InferenceSession({path!r}).run(None, {{'obs': obs}})[0]; with a memory: {{'obs': obs, 'state': state}}",
    ),
    'artifact': Format(NAME, _check_artifact, _write_artifact, 'rlframe.load({path!r}).act(obs)'),
}
"""The formats of exported policies."""


def export_policy(
    path: str | Path | OpenCheckpoint,
    formats: Sequence[str] = ('artifact',),
    out: str | Path | None = None,
    *,
    trust: bool = False,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    model: Any = None,
    env: Any = None,
) -> dict[str, Path]:
    """Writes the policy of a checkpoint for use elsewhere, replacing an earlier export.

    Args:
        path: A run folder, whose best checkpoint is used, or a checkpoint, which may be open already.
        formats: Names of ``FORMATS``.
        out: The folder to write to; ``export`` in the run folder by default.
        trust: Whether the config of a foreign run may reach beyond the run.
        overrides: Options that replace those of the run, such as secrets, which checkpoints never contain.
        model: A network to load the weights into, in place of the one named in the config.
        env: Id, class or factory of the env, in place of the one named in the config.

    Returns:
        The written paths, by format.

    Raises:
        ConfigError: If a format is unknown, or cannot hold such a policy; then nothing is written.
        CheckpointError: If there is no complete checkpoint with a policy.
        CheckpointWriteError: If the disk refuses.
    """
    # check everything before anything is written
    for name in formats:
        if name not in FORMATS:
            message, expected = f'unknown format.{nearest(name, FORMATS)}', f'one of {sorted(FORMATS)}'
            raise ConfigError(message, where='--format', got=name, expected=expected)
    source = open_source(path, trust, overrides, model, env)
    home = source.opened.path.parent
    run = home.parent if home.name == CKPT else home
    folder = local_path(out) if out is not None else run / FOLDER
    if out is None and not source.opened.manifest.is_own:
        check_links(run if home.name == CKPT else folder)
    if folder.exists() and not folder.is_dir():
        raise CheckpointWriteError('this is a file, expected a folder', where=str(folder))
    chosen = {name: folder / FORMATS[name].name for name in FORMATS if name in formats}
    for name, place in chosen.items():
        FORMATS[name].check(source, place)
    # write
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_written(folder, error) from error
    try:
        for name, place in chosen.items():
            FORMATS[name].write(source, place)
    finally:
        if is_new and not any(folder.iterdir()):
            folder.rmdir()
    return chosen
