"""Declared options of a component, with type, range, unit and meaning.

A component annotates ``_cfg`` with a ``Section``, whose body declares its options, or lists them in a class attribute
``config``, a nested dict of ``Field`` s and values. ``Configurable.config_fields()`` merges both along the bases.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import UnionType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, Union, cast, get_args, get_origin

from easydict import EasyDict

from rlframe.errors import NO_LITERAL, ConfigError, ConfigErrors
from rlframe.option_names import unknown_key
from rlframe.registry import import_named, nearest
from rlframe.utils.harmless import is_same

if TYPE_CHECKING:
    AttributeDict = dict[str, Any]  # whose attributes are those that a section declares
else:
    AttributeDict = EasyDict

REACHES = ('code', 'file', 'network', 'process')
"""What an option can reach: code that is imported, files outside the run folder, the network, other programs."""
SINGLE = {'__repr__': lambda self: type(self).__name__.upper(), '__deepcopy__': lambda self, memo: self}
REQUIRED: Any = type('Required', (), SINGLE)()
"""Default of a ``Field`` that the user must set."""
ABSENT: Any = type('Absent', (), SINGLE)()
"""Stands in a ``config`` for an option of the base that the class does not have."""
Options = dict[str, Any]
"""Maps names to a ``Field`` or, for a section, to more ``Options``."""

T = TypeVar('T')


def raw_items(tree: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Returns all pairs of a dict without counting them as read, even if a key shadows ``items``."""
    return list(dict.items(tree)) if isinstance(tree, dict) else list(tree.items())


def copied(value: Any) -> Any:
    """Copies a value of a config; values that cannot be copied, such as open files, are returned unchanged."""
    try:
        return copy.deepcopy(value)
    except TypeError:
        if type(value) is dict:
            return {name: copied(inner) for name, inner in value.items()}
        return type(value)(map(copied, value)) if type(value) in (list, tuple) else value


def to_plain(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Copies a config to plain dicts and lists; nothing counts as read."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return to_plain(value)
        if type(value) in (list, tuple):
            return type(value)(plain(v) for v in value)
        return copied(value)

    return {name: plain(value) for name, value in raw_items(tree)}


class ResolvedConfig(AttributeDict):
    """A config with only declared keys and valid values; it tracks which keys were read.

    Code that reads keys as attributes annotates the config with a ``Section``.

    Args:
        values: The complete, checked values.
        user_keys: Dotted keys that the user set, for ``rlframe.config.unread_user_keys``.
        may_change: Every dotted key, and whether a resumed run may change it, for ``rlframe.config.check_changes``.
        sources: The dotted keys that repeat another option, and the key of that option, for ``rlframe.config.split_config``.
    """

    _read: set[str]
    _user_keys: frozenset[str]
    _may_change: Mapping[str, bool]
    _sources: Mapping[str, str]
    _env_and_seed: tuple[ResolvedConfig, int] | None = None
    """For a section ``policy``: the section ``env`` and the seed of its compiled config; copies have none."""

    def __init__(
        self,
        values: Mapping[str, Any] | None = None,
        user_keys: Iterable[str] = (),
        may_change: Mapping[str, bool] | None = None,
        sources: Mapping[str, str] | None = None,
    ) -> None:
        object.__setattr__(self, '_read', set())
        object.__setattr__(self, '_user_keys', frozenset(user_keys))
        object.__setattr__(self, '_may_change', dict(may_change or {}))
        object.__setattr__(self, '_sources', dict(sources or {}))
        for name, value in raw_items({} if values is None else values):
            self[name] = value

    def __getitem__(self, name: str) -> Any:
        value: Any = dict.__getitem__(self, name)
        self._read.add(name)
        return value

    def __iter__(self) -> Iterator[str]:  # makes ``**cfg`` and ``dict(cfg)`` go through __getitem__
        return iter(list(dict.keys(self)))

    def __setitem__(self, name: str, value: Any) -> None:
        if isinstance(value, Mapping) and not isinstance(value, ResolvedConfig):
            value = ResolvedConfig(value)
        dict.__setitem__(self, name, value)

    if not TYPE_CHECKING:  # else a misspelt attribute would be Any

        def __getattr__(self, name: str) -> Any:
            try:
                return self[name]
            except KeyError:
                near = nearest(name, dict.keys(self))
                raise AttributeError(f'the config has no key {name!r}.{near}') from None

        __setattr__ = __setitem__

    def get(self, name: str, default: Any = None) -> Any:
        """Returns a value, counted as read."""
        self._read.add(name)
        return dict.get(self, name, default)

    def items(self) -> Any:
        """Returns all pairs, counted as read."""
        self._read.update(dict.keys(self))
        return dict.items(self)

    def values(self) -> Any:
        """Returns all values, counted as read."""
        self._read.update(dict.keys(self))
        return dict.values(self)

    def pop(self, name: str, *default: Any) -> Any:
        """Removes a value; EasyDict's method deletes an attribute, too."""
        return dict.pop(self, name, *default)

    def __deepcopy__(self, memo: dict[int, Any]) -> ResolvedConfig:
        twin = ResolvedConfig({}, self._user_keys, self._may_change, self._sources)
        object.__setattr__(twin, '_read', self._read)  # reading the copy counts as reading the config
        for name, value in raw_items(self):
            dict.__setitem__(twin, name, copied(value))
        return twin

    def __reduce__(self) -> tuple[Any, ...]:
        return ResolvedConfig, (), (to_plain(self), self._user_keys, self._may_change, self._sources)

    def __setstate__(self, state: tuple[Any, ...]) -> None:  # in whichever process
        import_named(state[0])
        ResolvedConfig.__init__(self, *state)

    def was_read(self, name: str) -> bool:
        """Whether the key ``name`` of this section has been read."""
        return name in self._read


@dataclasses.dataclass(frozen=True)
class Field:
    """One option of a component.

    Args:
        default: Value if the user sets none, or ``REQUIRED``.
        type: Accepted type or types; ``None`` takes the default's type. An int is accepted for a float, a
            bool is no int.
        range: Interval that a number must lie in, such as ``(0, inf)`` or ``[0, 1]``; round brackets exclude
            the end.
        unit: Unit in words.
        doc: What the option does, in one line.
        choices: The only values accepted.
        check: Returns a description of the expected value if the value is bad, else an empty string.
        may_change: Whether a resumed run may use another value than it started with.
        reaches: What a value of this option can reach beyond the run: one of ``REACHES``, or an empty string. A foreign
            config may only set such an option to its default, unless the user trusts it.
        ignored: Why the option has no effect, if it is only accepted for old configs.
        harmless: Allow-list of other values that reach nothing: a predicate that takes any value and never raises.
        rule: Returns the error about the value beside the other options of its component, without ``where`` and ``got``;
            None: it fits. It is asked only about other values than the default, once each option is valid by itself,
            and gets the component's class and all its options.
    """

    default: Any
    _: dataclasses.KW_ONLY
    type: Any = None
    range: str = ''
    unit: str = ''
    doc: str = ''
    choices: tuple[Any, ...] = ()
    check: Callable[[Any], str] | None = None
    may_change: bool = False
    reaches: str = ''
    ignored: str = ''
    harmless: Callable[[Any], bool] | None = None
    rule: Callable[[Any, Any], ConfigError | None] | None = None
    reads_text: ClassVar[bool] = False
    """Whether ``problem`` explains what is wrong with a text in place of another value."""

    def __post_init__(self) -> None:
        assert self.reaches in ('', *REACHES), self.reaches
        if self.ignored and not self.doc:
            object.__setattr__(self, 'doc', f'has no effect: {self.ignored}; accepted for old configs')

    def having(self, default: Any, **more: Any) -> Field:
        """Returns the same option with another default, and further arguments of ``Field``."""
        return dataclasses.replace(self, default=default, **more)

    def reach_of(self, value: Any) -> str:
        """Returns what this value can reach: one of ``REACHES``, or an empty string."""
        if not self.reaches or is_same(value, self.default):
            return ''
        return '' if self.harmless is not None and self.harmless(value) else self.reaches

    @property
    def types(self) -> tuple[type, ...]:
        """Accepted types, including ``type(None)`` if the default is ``None``."""
        declared = self.type if self.type is not None else type(self.default)
        types = declared if isinstance(declared, tuple) else (declared,)
        return (*types, type(None)) if self.default is None and type(None) not in types else types

    def expected(self) -> str:
        """Describes the accepted values in words."""
        if self.choices:
            return 'one of ' + ', '.join(repr(choice) for choice in self.choices)
        names = ' or '.join('None' if t is type(None) else t.__name__ for t in self.types)
        text = f'{names} in {self.range}' if self.range else names
        return f'{text} ({self.unit})' if self.unit else text

    def problem(self, value: Any) -> str:
        """Returns a description of the valid values if ``value`` is invalid, else an empty string."""
        if self.choices:
            return '' if any(is_same(value, choice) for choice in self.choices) else self.expected()
        if value is None and type(None) in self.types:
            return ''
        if not self._has_type(value):
            return self.expected() + (' (a bool is not a number)' if isinstance(value, bool) else '')
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and not _in_range(value, self.range):
            return (self.check(value) if self.check and not self.range else '') or self.expected()
        return self.check(value) if self.check else ''

    def _has_type(self, value: Any) -> bool:
        if isinstance(value, bool):
            return bool in self.types or object in self.types
        if isinstance(value, int) and float in self.types:
            return True
        if isinstance(value, float) and int in self.types and float not in self.types:
            return value.is_integer() and value >= 1e4  # 1e6 is how people write a million steps
        if isinstance(value, list | tuple) and {list, tuple} & set(self.types):
            return True  # JSON and YAML know no tuples
        return isinstance(value, tuple(t for t in self.types if t is not bool))

    def convert(self, value: Any) -> Any:
        """Converts an accepted value to its declared type: 1 to 1.0 for a float, 1e6 to 1000000 for an int."""
        is_float, is_int = float in self.types, int in self.types
        if isinstance(value, int) and not isinstance(value, bool) and is_float and not is_int:
            return float(value)
        if isinstance(value, float) and is_int and not is_float:
            return int(value)
        if isinstance(value, list) and tuple in self.types and list not in self.types:
            return tuple(value)
        if isinstance(value, tuple) and list in self.types and tuple not in self.types:
            return list(value)
        return value


def _in_range(value: float, interval: str) -> bool:
    if not interval or math.isnan(value):
        return not math.isnan(value)
    low, high = (float(end) for end in interval[1:-1].split(','))
    above = value > low if interval[0] == '(' else value >= low
    return above and (value < high if interval[-1] == ')' else value <= high)


def option(default: T | Field, *, range: str = '', unit: str = '', doc: str = '', **more: Any) -> T:
    """Declares an option in the body of a ``Section``; its annotation is the type, or lists the choices.

    Args:
        default: Value if the user sets none, or ``REQUIRED``; or the whole ``Field``, which several sections share.
        range: Interval of numbers, as in ``Field``.
        unit: Unit in words.
        doc: What the option does, in one line.
        more: Further arguments of ``Field``.
    """
    if isinstance(default, Field):
        return cast('T', default)  # what it is in a config
    return cast('T', Field(default, range=range, unit=unit, doc=doc, **more))


class Section(ResolvedConfig):
    """Declares the options of a section; configs use it as the section's type.

    ::

        class DQNConfig(TDConfig):
            nstep: int = option(1, range='[1, inf)', unit='env steps', doc='rewards in a target')
            learn: DQNLearn  # a section with the options of another class

    An annotation without a value is only the type of an option that is declared elsewhere. The component with
    ``_cfg: DQNConfig`` has these options; ``config = dict(learn=dict(batch_size=32))`` in its body sets other defaults.
    """

    _declared: ClassVar[dict[str, Any]] = {}
    """Fields and section classes in the body of this class."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        hints = inspect.get_annotations(cls, eval_str=True)
        for name, value in vars(cls).items():
            if not name.startswith('_') and not (name in hints and isinstance(value, Field)):
                message = f'{cls.__name__}.{name} has to be an annotated option(...)'
                raise TypeError(f'{message}; another default belongs in the config of the component')
        cls._declared = {
            name: hint if _is_section(hint) else _typed(vars(cls)[name], hint)
            for name, hint in hints.items()
            if name in vars(cls) or _is_section(hint)
        }


def _is_section(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Section)


def _typed(field: Field, hint: Any) -> Field:
    """Returns the field with the types or choices of an annotation."""
    if get_origin(hint) is Literal:
        return dataclasses.replace(field, choices=get_args(hint))
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    types = tuple(object if part is Any else get_origin(part) or part for part in parts)
    items = [get_args(part)[0] for part in parts if get_origin(part) is list]
    if items and items[0] is not Any and field.check is None:
        field = dataclasses.replace(field, check=partial(_bad_items, items[0]))
    return dataclasses.replace(field, type=types)


def _bad_items(kind: type, value: Any) -> str:
    """Says what a list consists of, if one of its items is of another type; else returns an empty string."""
    one = Field(REQUIRED, type=kind)
    is_bad = isinstance(value, list | tuple) and any(one.problem(item) for item in value)
    return f'a list of {kind.__name__}s' if is_bad else ''


def fields_of(section: type[Section]) -> Options:
    """Returns the options that a section class and its bases declare."""
    return _lay(section, {}, (), set())


def _lay(section: type[Section], fields: Options, path: tuple[str, ...], laid: set[Any]) -> Options:
    """Merges the options of a section class into ``fields``.

    Args:
        section: The class; each of its bases counts once at the same path, so that defaults which were replaced since stay.
        fields: Options to merge into.
        path: The section.
        laid: Paths and classes that are already part of ``fields``; the others are added.
    """
    for base in reversed(section.__mro__):
        if (path, base) in laid or not issubclass(base, Section):
            continue
        laid.add((path, base))
        for name, declared in base._declared.items():
            if _is_section(declared):
                inner = fields.get(name)
                below = _lay(declared, inner if isinstance(inner, dict) else {}, (*path, name), laid)
                fields = {**fields, name: below}
            else:
                fields = merge_fields(fields, {name: declared})
    return fields


def as_fields(options: Mapping[str, Any]) -> Options:
    """Turns the plain values among options into fields; a nested dict is a section."""
    return {name: _as_field(value) for name, value in options.items()}


def _as_field(value: Any) -> Field | Options:
    if isinstance(value, Field):
        return value
    if _is_section(value):
        return fields_of(value)
    return as_fields(value) if isinstance(value, Mapping) else Field(value)


def merge_fields(base: Options, over: Options) -> Options:
    """Merges ``over`` into ``base``, section by section; a plain value replaces the default of a ``Field``."""
    merged = dict(base)
    for name, value in over.items():
        old: Any = merged.get(name)
        is_default = isinstance(old, Field) and not isinstance(value, Field)
        if value is ABSENT:
            merged.pop(name, None)
        elif isinstance(old, dict) and isinstance(value, Mapping):
            merged[name] = merge_fields(old, value)  # type: ignore[arg-type]  # a section of options, as the one that it is laid over
        elif is_default and (dict in old.types or not isinstance(value, Mapping)):
            merged[name] = _with_default(old, value)
        else:
            merged[name] = _as_field(value)
    return merged


def _with_default(field: Field, value: Any) -> Field:
    """Returns the field with another default; all values that it accepted before stay valid."""
    if field.type is not None or field.default not in (None, REQUIRED):
        return dataclasses.replace(field, default=value, type=field.types)
    types = (type(value), type(None)) if field.default is None else None
    return dataclasses.replace(field, default=value, type=types)


def defaults_of(options: Options) -> dict[str, Any]:
    """Returns the default of every field, nested as the options are."""
    return {
        name: copy.deepcopy(option.default) if isinstance(option, Field) else defaults_of(option)
        for name, option in options.items()
    }


def check_values(
    values: Mapping[str, Any], options: Options, prefix: str = '', root: Options | None = None
) -> tuple[dict[str, Any], list[ConfigError]]:
    """Merges a user's values into the defaults of the options.

    Args:
        values: The values that the user set.
        options: The options that may be set.
        prefix: Dotted key of the section and a dot, for the errors.
        root: All options of the config, if ``options`` are only those of a section.

    Returns:
        The complete values, and one error for each value that cannot be used (nothing is raised).
    """
    merged = defaults_of(options)
    errors = []
    for name, value in raw_items(values):
        where = f'{prefix}{name}'
        if (option := options.get(name)) is None:
            errors.append(unknown_key(where, options, root or options, '' if root else prefix))
        elif not isinstance(option, dict):
            merged[name], bad = _check_value(value, option, where)
            errors += bad
        elif isinstance(value, Mapping):
            above = root or (None if prefix else options)
            merged[name], bad = check_values(value, option, f'{where}.', above)
            errors += bad
        else:
            expected = f'a dict with {sorted(option)}'
            errors.append(ConfigError('bad value', where=where, got=value, expected=expected))
    return merged, errors + _missing(options, values, prefix)


def _missing(options: Options, values: Mapping[str, Any], prefix: str) -> list[ConfigError]:
    """Returns an error for each required option that is not set, including those in missing sections."""
    errors = []
    for name, option in options.items():
        if name in values:
            continue
        if isinstance(option, dict):
            errors += _missing(option, {}, f'{prefix}{name}.')
        elif option.default is REQUIRED:
            remedy = f'{option.doc or "Expected"}: {option.expected()}.'
            errors.append(ConfigError('a required key is missing', where=prefix + name, remedy=remedy))
    return errors


def _check_value(value: Any, option: Field, where: str) -> tuple[Any, list[ConfigError]]:
    """Returns the converted value, or the default and the error."""
    if hasattr(value, 'dtype') and getattr(value, 'ndim', 1) == 0:
        value = value.item()  # a numpy scalar, as drawn by tuners
    value = _completed(value, option.default)
    if not (expected := option.problem(value)):
        return option.convert(copied(value)), []
    remedy = _remedy_for_text(value, option) if isinstance(value, str) else ''
    message = f'bad value of type {type(value).__name__}'
    return copy.deepcopy(option.default), [
        ConfigError(message, where=where, got=value, expected=expected, remedy=remedy)
    ]


def _remedy_for_text(text: str, option: Field) -> str:
    if (number := _number_in(text)) is not None and not option.problem(number):
        return 'It is text, not a number: remove the quotes; YAML wants a dot and a sign, as in 1.0e-4.'
    if option.choices:
        return nearest(text, option.choices).strip()
    if option.reads_text or not {list, tuple, dict} & set(option.types):
        return ''
    if text[:1] in ('[', '(', '{') or text.startswith('dict('):
        return NO_LITERAL
    return f"Write a list of one item as ['{text}']." if list in option.types else ''


def _completed(value: Any, default: Any) -> Any:
    """Completes a dict from the default dict, unless it has another ``type``."""
    if not (isinstance(value, Mapping) and isinstance(default, Mapping)):
        return value
    same_type = 'type' not in value or value['type'] == default.get('type')
    return {**default, **value} if same_type else value


def _number_in(text: str) -> float | int | None:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


class Configurable:
    """Base class of all components that are built from a config section."""

    config: dict[str, Any] = {}
    """Options beside those of the bases and the section, and other defaults of those."""
    _section: ClassVar[type[Section] | None] = None
    """The section that annotates ``_cfg`` or, in an env, ``cfg``; it declares options as well."""
    reaches: str = ''
    """What this class itself can reach, one of ``REACHES``: a foreign config may not choose such a class."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = vars(cls).get('__annotations__', {})
        cls._section = None
        for hint in [own[name] for name in ('_cfg', 'cfg') if name in own]:
            kind = getattr(sys.modules[cls.__module__], hint, None) if isinstance(hint, str) else hint
            cls._section = kind if _is_section(kind) else None

    @classmethod
    def config_fields(cls) -> Options:
        """Returns the declared options of this class and its bases."""
        fields: Options = {}
        laid: set[Any] = set()
        for base in reversed(cls.__mro__):
            if section := vars(base).get('_section'):
                fields = _lay(section, fields, (), laid)
            fields = merge_fields(fields, vars(base).get('config', {}))
        return fields

    @classmethod
    def default_config(cls) -> EasyDict:
        """Returns a fresh copy of the default options, with ``cfg_type`` naming the class."""
        return EasyDict({**defaults_of(cls.config_fields()), 'cfg_type': f'{cls.__name__}Dict'})

    @classmethod
    def check_config(cls, cfg: Any) -> list[ConfigError]:
        """Returns errors about combinations of options, such as two that exclude each other.

        Called once each option is valid by itself. Override it to add rules; keep those of the base with
        ``super()``.

        Args:
            cfg: The complete options of this component.

        Returns:
            One error per mistake, whose ``where`` is the key within this component's own section.
        """
        return _rule_errors(cls, cls.config_fields(), cfg, cfg)

    @classmethod
    def resolve_config(cls, cfg: Mapping[str, Any] | None) -> EasyDict:
        """Completes a user's options with the defaults; a compiled config is returned unchanged.

        Raises:
            ConfigError: If ``cfg`` is no mapping, or an option is unknown or invalid. All mistakes are reported together.
        """
        if isinstance(cfg, ResolvedConfig):
            return cfg
        if not isinstance(cfg, Mapping | None):
            remedy = f'Its options: {", ".join(cls.config_fields()) or "none"}.'
            raise ConfigError(
                'bad config', where=cls.__name__, got=cfg, expected='options as a dict', remedy=remedy
            )
        others = ('cfg_type', 'type', 'import_names')
        values = {name: value for name, value in raw_items(cfg or {}) if name not in others}
        resolved, errors = check_values(values, cls.config_fields())
        errors = errors or cls.check_config(ResolvedConfig(resolved))
        if errors:
            raise errors[0] if len(errors) == 1 else ConfigErrors(errors, where=cls.__name__)
        return ResolvedConfig(resolved)


def _rule_errors(cls: type, options: Options, section: Any, whole: Any, at: str = '') -> list[ConfigError]:
    """Returns the errors of options' own rules, for options of a section that differ from their defaults."""
    errors = []
    for name, option in options.items():
        if isinstance(option, dict):
            errors += _rule_errors(cls, option, section.get(name) or {}, whole, f'{at}{name}.')
        elif option.rule is None or name not in section or is_same(section[name], option.default):
            continue
        elif error := option.rule(cls, whole):
            error.where = at + name
            error.got = section[name]
            errors.append(error)
    return errors
