"""Reads config files: Python modules, JSON and YAML that hold a ``main_config`` and a ``create_config``."""

from __future__ import annotations

import copy
import difflib
import importlib
import json
import sys
import traceback
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlframe.config.compile import check_keys
from rlframe.config.components import is_importable, named_classes, section_at
from rlframe.errors import ConfigError, ConfigErrors, ConfigWarning, MissingDependencyError
from rlframe.utils import strict_json
from rlframe.utils.field import ResolvedConfig, raw_items, to_plain
from rlframe.utils.files import LimitExceededError, check_limit, remedy_of

NAMES = ('main_config', 'create_config')
"""Names that every config file defines."""
SYSTEM = 'system_config'
"""Name that files of DI-engine's parallel mode define as well; it becomes a key of the main config."""


def warn_of_own_parts(cfg: ResolvedConfig, model: Any = None) -> None:
    """Warns of parts that the command line and other programs cannot create when they score the run later."""
    if found := own_parts(cfg, model):
        warnings.warn(
            f'only this program has {", ".join(found)}, so eval, export and --resume cannot create it. Move it to a module, and'
            " list the module in import_names or name a class as 'module:Name'; or pass it again: model= and env= of"
            ' rlframe.open_run() and export_policy()',
            ConfigWarning,
            stacklevel=3,
        )


def own_parts(cfg: ResolvedConfig, model: Any = None) -> list[str]:
    """Returns the dotted keys of objects that no other program can create, with a description of each.

    These are a network that was passed, classes and functions without a module, and components of the main script.
    """
    found = ['the network'] if model is not None else []
    found += [f'{key} ({getattr(value, "__qualname__", repr(value))})' for key, value in _unnamed(cfg, '')]
    for key, name, cls in named_classes(to_plain(cfg)):
        if cls.__module__ == '__main__':
            found.append(f'{key}={name!r}')
    return found


def _unnamed(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    """Yields the keys of classes and functions that cannot be imported, with the values."""
    if isinstance(value, Mapping):
        for name, below in raw_items(value):
            yield from _unnamed(below, f'{key}.{name}' if key else str(name))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _unnamed(item, key)
    elif callable(value) and not is_importable(value):
        yield key, value


def check_env_is_named(data: Mapping[str, Any], where: str) -> None:
    """Checks that the env of a saved config can be created by its name.

    Args:
        data: The config pair.
        where: The checkpoint or run.

    Raises:
        ConfigError: If it is a class or a function that only the program that trained has.
    """
    env = section_at(data['main_config'], ('env',)).get('env_id')
    if isinstance(env, str) and env.startswith('<'):  # as the writer writes what has no name
        raise ConfigError(
            f'the env of this run, {env}, exists only in the program that trained it',
            where=where,
            remedy='Pass it there: rlframe.open_run(folder, env=...). Or move it to a module, name it as'
            " 'module:Name', and train again.",
        )


def with_env(data: Mapping[str, Any], env: Any) -> dict[str, Any]:
    """Returns a config pair with another ``env.env_id``: an id, a class or a function."""
    main = copy.deepcopy(data['main_config'])
    main['env']['env_id'] = env
    return {**data, 'main_config': main}


def read_config(path: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Reads a ``.py``, ``.json``, ``.yaml`` or ``.yml`` file.

    A Python config is executed once, as a module that is not kept in ``sys.modules``; meanwhile its folder can be
    imported from. If ``create_config`` has ``import_names``, the folder stays at the head of ``sys.path``, so that the
    modules are found now and in child processes; else both path and module are removed.

    Args:
        path: The file. A relative path that does not exist is also looked up among the shipped configs.

    Returns:
        ``main_config`` and ``create_config`` as the file defines them; a ``system_config`` of DI-engine becomes a key of the
        former.

    Raises:
        ConfigError: If the file is missing, of another kind, not valid, fails, or lacks one of the two.
        MissingDependencyError: If it is YAML and PyYAML is not installed.
    """
    # read the file
    file = find_config(path)
    try:
        _check_size(file)
        is_empty = not file.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f'cannot be read: {error.strerror}', where=str(file)) from error
    if is_empty:
        raise ConfigError(f'{file} is empty', where=str(file), remedy=_accepted())
    try:
        found = READERS[file.suffix](file)
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b'\n') + 1
        raise ConfigError(
            f'not UTF-8 text: {error}', where=f'{file}:{line}', remedy='Save the file as UTF-8.'
        ) from error
    except RecursionError as error:
        raise ConfigError('dicts or lists are nested too deeply to be read', where=str(file)) from error
    # check what it defines
    missing = [name for name in NAMES if not isinstance(found.get(name), Mapping)]
    if missing:
        present = sorted(name for name in found if isinstance(name, str) and not name.startswith('_'))
        message = f'the config defines no dict called {" nor ".join(missing)}'
        raise ConfigError(
            message, where=str(file), remedy=f'Needed: {", ".join(NAMES)}; it defines {present}.'
        )
    if found.get(SYSTEM) is not None:
        found[NAMES[0]] = _with_system(found[NAMES[0]], found[SYSTEM], str(file))
    errors = [error for name in NAMES for error in check_keys(found[name], name)]
    if errors:
        raise errors[0] if len(errors) == 1 else ConfigErrors(errors, where=str(file))
    if _import_names(found['create_config']) and str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    return found['main_config'], found['create_config']


def _with_system(main: Mapping[str, Any], system: Any, where: str) -> dict[str, Any]:
    """Returns a main config with DI-engine's ``system_config`` as a key."""
    if not isinstance(system, Mapping):
        raise ConfigError(f'bad value of {SYSTEM}', where=where, got=system, expected='a dict')
    if SYSTEM in main:
        raise ConfigError(f'{SYSTEM} is there twice: by itself and in main_config', where=where)
    return {**dict(raw_items(main)), SYSTEM: system}


def config_pair(given: Any) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Returns the main and create config, given as the path of a config file or as a pair.

    A third config, DI-engine's ``system_config``, becomes a key of the first.

    Raises:
        ConfigError: If it is neither, or the file cannot be used.
    """
    if isinstance(given, str | Path):
        return read_config(given)
    if isinstance(given, tuple | list) and len(given) == len(NAMES):
        return given[0], given[1]
    is_triple = isinstance(given, tuple | list) and len(given) == len(NAMES) + 1
    if is_triple and given[2] and isinstance(given[0], Mapping):
        return _with_system(given[0], given[2], 'config'), given[1]
    shown = given if given is None or isinstance(given, int | float | bool) else type(given).__name__
    expected = 'the path of a config file, or the pair (main_config, create_config)'
    raise ConfigError('no config', where='config', got=shown, expected=expected)


def find_config(path: str | Path) -> Path:
    """Returns the absolute path of an existing config file.

    It may lack its suffix. Relative paths are looked up in the working directory, then among the shipped configs.

    Raises:
        ConfigError: If it does not exist, or has an unsupported file type.
    """
    asked = Path(path).expanduser()
    shipped = shipped_configs()
    is_bare = bool(asked.name) and asked.suffix not in READERS
    names = [asked, *(asked.with_name(asked.name + suffix) for suffix in READERS if is_bare)]
    places = [name.absolute() for name in names]
    if shipped is not None and not asked.is_absolute():
        start = 1 if asked.parts[:1] == ('configs',) else 0
        places += [shipped.joinpath(*name.parts[start:]) for name in names]
    file = next((place for place in places if place.is_file()), places[0])
    if not file.exists():
        raise _not_found(asked, file, shipped)
    if file.is_dir():
        raise ConfigError(f'{file} is a directory', where=str(path), remedy=_accepted())
    if file.suffix not in READERS:
        raise ConfigError(f'{file} has the suffix {file.suffix!r}', where=str(path), remedy=_accepted())
    return file


def shipped_configs() -> Path | None:
    """Returns the folder of the shipped configs: installed with rlframe, or next to it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    if (package / 'configs').is_dir():
        return package / 'configs'
    root = package.parent
    is_checkout = (root / 'setup.py').is_file() and (root / 'configs').is_dir()
    return root / 'configs' if is_checkout else None


def _accepted() -> str:
    return f'A config is a file with one of the suffixes {", ".join(READERS)}.'


def _not_found(asked: Path, file: Path, shipped: Path | None) -> ConfigError:
    """Returns the error for a missing config, with the configs of its folder and the shipped configs with the nearest names."""
    message = f'config file not found: {file}'
    if file.parent.is_dir():
        here = _configs_in(file.parent)
    else:
        here = []
        message = f'{message}; the folder {file.parent} does not exist either'
    own = [f'configs/{name}' for name in _configs_in(shipped)] if shipped is not None else []
    stems = {Path(name).stem: name for name in (*own, *here)}
    near = [stems[stem] for stem in difflib.get_close_matches(asked.stem, stems, n=3)]
    listed = near or here[:5] or own[:5]
    first = 'Nearest' if near else 'There are'
    remedy = f'{first}: {", ".join(listed)}.' if listed else _accepted()
    return ConfigError(message, where=str(asked), remedy=remedy)


def _configs_in(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if entry.suffix in READERS)


def _read_python(file: Path) -> dict[str, Any]:
    try:
        code = compile(file.read_bytes(), str(file), 'exec', dont_inherit=True)
    except SyntaxError as error:
        source = (error.text or '').rstrip('\n')
        raise _at(file, error.lineno, f'{type(error).__name__}: {error.msg}', source, error.offset) from error
    except ValueError as error:  # null bytes, before Python 3.12
        raise ConfigError(f'not a Python file: {error}', where=str(file)) from error
    module = types.ModuleType(f'rlframe_config_{file.stem}')
    module.__file__ = str(file)
    with _importable(file.parent, module) as keep:
        try:
            exec(code, module.__dict__)  # a config is a Python file, which its user names to have it run
        except (Exception, SystemExit) as error:
            lines = [
                frame.lineno
                for frame in traceback.extract_tb(error.__traceback__)
                if frame.filename == str(file)
            ]
            raise ConfigError(
                f'{type(error).__name__}: {error}',
                where=f'{file}:{lines[-1]}' if lines else str(file),
                remedy=_advice(error),
            ) from error
        if _import_names(module.__dict__.get('create_config')):
            keep()
    return dict(module.__dict__)


def _advice(error: BaseException) -> str:
    missing = (getattr(error, 'name', None) or '') if isinstance(error, ModuleNotFoundError) else ''
    if missing.partition('.')[0] in ('ding', 'dizoo'):  # the rest of such a config is translated
        return "DI-engine's entries are one function here: from rlframe.pipeline import serial_pipeline"
    return 'The config raised this while it was executed.'


def _import_names(create: Any) -> list[str]:
    """Returns all module names in a ``create_config``."""
    if not isinstance(create, Mapping):
        return []
    sections = [create, *(value for value in dict(create).values() if isinstance(value, Mapping))]
    return [name for section in sections for name in section.get('import_names') or ()]


@contextmanager
def _importable(folder: Path, module: types.ModuleType) -> Iterator[Callable[[], None]]:
    """Lets a config import its neighbours; they are forgotten, unless the yielded function was called."""
    path = list(sys.path)
    loaded = set(sys.modules)
    kept = []
    was_importable = folder in (Path(entry).absolute() for entry in path)
    sys.path.insert(0, str(folder))
    sys.modules[module.__name__] = module  # dataclasses look their module up
    try:
        yield lambda: kept.append(True)
    finally:
        sys.path[:] = path
        del sys.modules[module.__name__]
        if not kept and not was_importable:
            own = {name for name in set(sys.modules) - loaded if _lies_in(folder, name)}
            for name in [name for name in sys.modules if name.partition('.')[0] in own]:
                del sys.modules[name]


def _lies_in(folder: Path, name: str) -> bool:
    """Whether ``name`` is a top-level module or package of ``folder`` itself."""
    origin = getattr(getattr(sys.modules[name], '__spec__', None), 'origin', None)
    return '.' not in name and origin in (str(folder / f'{name}.py'), str(folder / name / '__init__.py'))


def _read_json(file: Path) -> dict[str, Any]:
    data = file.read_bytes()
    try:
        found = strict_json.from_tagged(strict_json.loads(data, 'CONFIG'))
    except json.JSONDecodeError as error:
        lines = error.doc.splitlines()[error.lineno - 1 : error.lineno] or ['']
        raise _at(file, error.lineno, error.msg, lines[0], error.colno) from error
    except UnicodeDecodeError:
        raise
    except (ValueError, TypeError) as error:
        raise ConfigError(f'not JSON: {error}', where=str(file), remedy=remedy_of(error)) from error
    return found if isinstance(found, dict) else {}


def read_written(file: Path) -> dict[str, Any]:
    """Reads the ``config.json`` of a run folder.

    Raises:
        ConfigError: If it cannot be read or was not written by rlframe.
    """
    try:
        _check_size(file)
        return _read_json(file)
    except OSError as error:
        raise ConfigError(f'cannot be read: {error.strerror}', where=str(file)) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f'not UTF-8 text: {error}', where=str(file)) from error


def _check_size(file: Path) -> None:
    if file.exists() and not file.is_file():
        raise ConfigError('this is not a regular file', where=str(file), remedy=_accepted())
    try:
        strict_json.check_size(file.stat().st_size, 'CONFIG')
    except LimitExceededError as error:
        raise ConfigError(f'the file is too large: {error}', where=str(file), remedy=error.remedy) from error


def _read_yaml(file: Path) -> dict[str, Any]:
    try:
        yaml: Any = importlib.import_module('yaml')
    except ModuleNotFoundError as error:
        remedy = 'pip install pyyaml, or write the config as .py or .json.'
        raise MissingDependencyError('reading YAML needs PyYAML', where=str(file), remedy=remedy) from error
    text = file.read_text(encoding='utf-8')
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        check_limit('CONFIG_VALUES', _expanded(node, {}), 'values, with all aliases expanded')
        _refuse_duplicates(node, file, set())
        found = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        source = (text.splitlines()[line - 1 : line] or [''])[0] if line else ''
        raise _at(
            file, line, str(error.problem), source, error.problem_mark.column + 1 if line else None
        ) from error
    except ConfigError:
        raise
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f'not YAML: {error}', where=str(file), remedy=remedy_of(error)) from error
    return found if isinstance(found, dict) else {}


def _expanded(node: Any, counts: dict[int, int | None]) -> int:
    """Counts the values of a YAML node with all its aliases expanded, without expanding them.

    Raises:
        ValueError: If a node contains itself.
    """
    if node is None or isinstance(node.value, str):
        return 1
    if id(node) not in counts:
        counts[id(node)] = None
        parts = [part for item in node.value for part in (item if isinstance(item, tuple) else (item,))]
        counts[id(node)] = 1 + sum(_expanded(part, counts) for part in parts)
    count = counts[id(node)]
    if count is None:
        line = node.start_mark.line + 1
        raise ValueError(f'the value of line {line} contains itself, by an alias')
    return count


def _refuse_duplicates(node: Any, file: Path, seen: set[int]) -> None:
    """Raises for the second of two equal keys of one YAML mapping; PyYAML itself would keep the last one."""
    if node is None or isinstance(node.value, str) or id(node) in seen:
        return
    seen.add(id(node))
    names: set[str] = set()
    for item in node.value:
        pair = item if isinstance(item, tuple) else (item,)
        if len(pair) == 2 and isinstance(pair[0].value, str):
            if pair[0].value in names:
                line = pair[0].start_mark.line + 1
                raise ConfigError(f'the key {pair[0].value!r} is duplicated', where=f'{file}:{line}')
            names.add(pair[0].value)
        _refuse_duplicates(pair[-1], file, seen)


def _at(file: Path, line: int | None, message: str, source: str, column: int | None) -> ConfigError:
    """Returns the error for a place in a file, with the line and a caret under the place."""
    caret = ' ' * (max(column or 1, 1) - 1) + '^'
    return ConfigError(f'{message}\n    {source}\n    {caret}', where=f'{file}:{line}' if line else str(file))


READERS: dict[str, Callable[[Path], dict[str, Any]]] = {
    '.py': _read_python,
    '.json': _read_json,
    '.yaml': _read_yaml,
    '.yml': _read_yaml,
}
"""Suffixes to the functions that read such files."""
