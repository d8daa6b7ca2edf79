"""Actions of several parts, of a ``Dict`` or a ``Tuple`` space, as rows of numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from rlframe.data.observation import bounds_of, fields_of, mask_parts, plain_parts
from rlframe.data.timestep import Array, BoolArray
from rlframe.errors import IncompatibleError
from rlframe.utils.serialize import field_path

KINDS = spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary | spaces.Box


class Composite(gymnasium.Space[Array]):
    """The actions of a ``Dict`` or a ``Tuple`` space as rows, float64 [K], so that they are one array everywhere in a run.

    A row contains the numbers of each part, one part after the other. ``check_action_bounds``
    refuses parts with integers beyond 2**53.

    Args:
        whole: The env's own space, nested to any depth; its parts are Discrete, MultiDiscrete, MultiBinary or Box.
    """

    def __init__(self, whole: gymnasium.Space[Any]) -> None:
        self.whole = whole
        """The env's own space."""
        self.parts: dict[str, gymnasium.Space[Any]] = dict(plain_parts(whole, 'action'))
        """Spaces of the parts, by names such as ``action['move']``, in the order of a row."""
        self.sizes = [math.prod(part.shape or ()) for part in self.parts.values()]
        """Numbers of each part."""
        self._ends = np.cumsum(self.sizes)[:-1]
        super().__init__((sum(self.sizes),), np.float64)
        each = [mask_parts(part) for part in self.parts.values()]
        self.is_class = np.repeat([bool(counts) for counts in each], self.sizes)
        """True for the numbers of a row that encode Discrete and MultiDiscrete parts, which may have masks, [K]."""
        classes: list[Any] = [part for part in self.parts.values() if mask_parts(part)]
        self.first_class = np.concatenate(
            [np.zeros(0, np.int64), *(np.ravel(part.start) for part in classes)]
        )
        """Smallest value of each entry for which ``is_class`` is True."""

    @property
    def is_np_flattenable(self) -> bool:
        return True

    def columns(self, rows: Array) -> list[Array]:
        """Returns the entries of each part, [..., size], of rows [..., K]."""
        return np.split(rows, self._ends, -1)

    def row_of(self, action: Any) -> Array:
        """Returns an action of the env as a row, float64 [K]."""
        return np.concatenate([np.ravel(part) for part in _values(self.whole, action)]).astype(np.float64)

    def of_rows(self, rows: Array) -> Any:
        """Converts a row [K] to an action of the env; of rows [n, K], each part gets a leading axis n."""
        return _built(self.whole, iter(self.columns(rows)), rows.shape[:-1])

    def sample(self, mask: Any = None, probability: Any = None) -> Array:
        return self.row_of(self.whole.sample(mask, probability))

    def seed(self, seed: Any = None) -> Any:
        return self.whole.seed(seed)

    def contains(self, x: Any) -> bool:
        """Whether a row is a valid action; entries of integer parts must be whole numbers."""
        row = np.asarray(x)
        return row.shape == self.shape and bool(self.inside(row[None])[0])

    def inside(self, rows: Array) -> BoolArray:
        """Returns which rows [n, K] are actions of the env, [n]."""
        found: BoolArray = np.asarray(np.isfinite(rows).all(1))
        for part, column in zip(self.parts.values(), self.columns(rows), strict=True):
            low, high = (np.ravel(np.broadcast_to(bound, part.shape or ())) for bound in bounds_of(part))
            if np.dtype(part.dtype).kind == 'f':
                column = column.astype(np.dtype(part.dtype))
            else:
                found &= (column == np.floor(column)).all(1)
            found &= ((column >= low) & (column <= high)).all(1)
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Composite) and self.whole == other.whole

    def __repr__(self) -> str:
        return repr(self.whole)


def _values(space: gymnasium.Space[Any], action: Any) -> list[Any]:
    """Returns the plain parts of an action, in order."""
    parts = fields_of(space)
    if not parts:
        return [action]
    each = action if isinstance(space, spaces.Tuple) else [action[name] for name in parts]
    return [value for part, one in zip(parts.values(), each, strict=True) for value in _values(part, one)]


def _built(space: gymnasium.Space[Any], columns: Any, leading: tuple[int, ...]) -> Any:
    """Returns the action of a space whose plain parts are the next columns."""
    parts = fields_of(space)
    if not parts:
        array = next(columns).reshape((*leading, *(space.shape or ()))).astype(np.dtype(space.dtype))
        return array[()] if isinstance(space, spaces.Discrete) else array
    built = {name: _built(part, columns, leading) for name, part in parts.items()}
    return tuple(built.values()) if isinstance(space, spaces.Tuple) else built


def by_rows(space: gymnasium.Space[Any]) -> gymnasium.Space[Any]:
    """Returns the ``Composite`` of a ``Dict`` or ``Tuple`` space of actions; other spaces, and unsupported ones, unchanged."""
    is_composite = isinstance(space, spaces.Dict | spaces.Tuple) and not bad_part(space)
    return Composite(space) if is_composite else space


def bad_part(space: gymnasium.Space[Any], path: str = 'action') -> str:
    """Returns name and space of the first part of a space of actions that a row cannot hold, or an empty string."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return '' if isinstance(space, KINDS) else f'{path} is {space!r}'
    parts = fields_of(space)
    if not parts or not all(isinstance(name, str) and name for name in parts):
        return f'{path} is {space!r}'
    return next((bad for name, part in parts.items() if (bad := bad_part(part, field_path(path, name)))), '')


def choice_of(space: gymnasium.Space[Any]) -> tuple[int, list[int | None]]:
    """Returns the index of the part that selects parameters and, for each part, the class whose parameters it holds, or None.

    Source:
        Masson et al., Reinforcement Learning with Parameterized Actions (2016): each discrete action has parameters.

    Raises:
        IncompatibleError: Unless the top level has exactly one pair of a Discrete(n) and a Tuple of n parts.
    """
    names = list(getattr(space, 'parts', ()))
    fields = fields_of(getattr(space, 'whole', space)) if names else {}
    pairs = [
        (choice, name)
        for choice, one in fields.items()
        for name, other in fields.items()
        if isinstance(one, spaces.Discrete) and isinstance(other, spaces.Tuple) and one.n == len(other)
    ]
    if len(pairs) != 1:
        raise IncompatibleError(
            f'the actions have {"several choices" if pairs else "no choice"} with parameters',
            where='policy.parameters_of_choice',
            got=repr(space),
            expected='one Discrete(n) beside a Tuple of n parts, the i-th for class i',
            remedy='Change the action space of the env, or set policy.parameters_of_choice=False.',
        )
    choice, name = pairs[0]
    own = [field_path(field_path('action', name), str(k)) for k in range(len(fields_of(fields[name])))]
    classes = [next((k for k, at in enumerate(own) if part.startswith(at)), None) for part in names]
    return names.index(field_path('action', choice)), classes


class Hybrid(NamedTuple):
    """A choice, the only Discrete part of actions, and its continuous parameters, all other numbers of a row."""

    column: int
    """Column of the choice in a row."""
    choices: int
    """Classes that the choice is one of, A."""
    parameters: int
    """Number of parameters, P."""


def hybrid_of(space: Any) -> Hybrid | None:
    """Returns the choice and the parameters of a ``Composite`` of one Discrete and Boxes; None for other spaces."""
    parts = list(getattr(space, 'parts', {}).values())
    choices = [i for i, part in enumerate(parts) if isinstance(part, spaces.Discrete)]
    boxes = sum(isinstance(part, spaces.Box) for part in parts)
    if len(choices) != 1 or not boxes or boxes + 1 != len(parts):
        return None
    column = sum(space.sizes[: choices[0]])
    return Hybrid(column, int(parts[choices[0]].n), sum(space.sizes) - 1)


def unit_size(space: Any) -> int:
    """Returns the number of outputs of a deterministic actor: numbers of a Box; scores of choices and their parameters."""
    hybrid = hybrid_of(space)
    return math.prod(space.shape or ()) if hybrid is None else hybrid.choices + hybrid.parameters


def parameters_by_choice(space: Any, given: Any = None) -> list[list[int]]:
    """Returns 1 where a parameter belongs to a choice and 0 elsewhere, [A, P], of a space with hybrid actions.

    ``given`` are such rows; None: they are read from a Discrete(n) and a Tuple of n parts, as by ``choice_of``.

    Raises:
        IncompatibleError: If the rows do not fit the space, or it does not say which parameters are whose.
    """
    hybrid = hybrid_of(space)
    assert hybrid is not None  # a policy's check_fit
    where = 'policy.model.action_mask'
    shape = (hybrid.choices, hybrid.parameters)
    expected = f'{shape[0]} rows of {shape[1]} numbers, 1 where the parameter belongs to the choice, else 0'
    if given is not None:
        rows = [row for row in given if isinstance(row, list | tuple) and all(n in (0, 1) for n in row)]
        if len(given) != shape[0] or [len(row) for row in rows] != [shape[1]] * shape[0]:
            raise IncompatibleError(f'the actions are {space!r}', where=where, got=given, expected=expected)
        return [list(row) for row in rows]
    try:
        choice, classes = choice_of(space)
    except IncompatibleError as error:
        message = 'the space of actions does not say which parameters belong to which choice'
        raise IncompatibleError(message, where=where, got=repr(space), expected=expected) from error
    owners = [k for i, k in enumerate(classes) for _ in range(space.sizes[i]) if i != choice]
    return [[int(owner in (None, k)) for owner in owners] for k in range(hybrid.choices)]


def mask_row(space: gymnasium.Space[Any], mask: Any) -> Array:
    """Returns the masks of the Discrete and MultiDiscrete parts of a space of actions, one after the other, [A].

    Args:
        space: The env's own space.
        mask: As Gymnasium's ``space.sample`` takes it: nested as the space is; that of a MultiDiscrete is a tuple, and None
            allows all.

    Raises:
        ValueError, LookupError, TypeError: If the nesting does not match the space.
    """
    return np.concatenate(_masks(space, mask))


def _masks(space: gymnasium.Space[Any], mask: Any) -> list[Array]:
    parts = fields_of(space)
    if parts and mask is not None:
        each = mask if isinstance(space, spaces.Tuple) else [mask[name] for name in parts]
        return [row for part, one in zip(parts.values(), each, strict=True) for row in _masks(part, one)]
    counts = mask_parts(by_rows(space))
    if mask is None:
        return [np.ones(count, np.int8) for count in counts]
    if not counts:
        raise ValueError(f'{space} has no mask; None leaves it out')
    return list(_flat(mask))


def _flat(mask: Any) -> Iterator[Array]:
    """Yields the masks of all dimensions of a Discrete or MultiDiscrete space."""
    if isinstance(mask, tuple):
        for one in mask:
            yield from _flat(one)
    else:
        yield np.ravel(mask)
