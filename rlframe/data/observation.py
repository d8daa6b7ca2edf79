"""Observations of any space as arrays; those with several parts become one structured array.

A ``Dict`` space becomes an array with a field for each key, a ``Tuple`` space one with the fields ``'0'``, ``'1'`` and
so on, nested where the space is. So an observation is one array with one leading axis everywhere between an env and a
network.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from rlframe.data.timestep import Array, EnvSpec, aligned_zeros
from rlframe.errors import ActionMaskError, IncompatibleError
from rlframe.utils.lazy import LazyModule
from rlframe.utils.serialize import field_path, struct_dtype

if TYPE_CHECKING:
    import gymnasium
else:
    gymnasium = LazyModule('gymnasium')

Path = tuple[str, ...]
"""Names of nested parts of an observation, outer ones first."""
ACTION_MASK = 'action_mask'
"""Name of the field of an observation that marks the allowed actions."""
MASK_PATH = field_path('obs', ACTION_MASK)
"""The same field as the leaves of an observation are named."""
SUPPORTED = 'Box, Discrete, MultiDiscrete, MultiBinary, and Dict (with strings as keys) and Tuple of these'
"""Spaces that observations may have."""
BAD_OBS = (TypeError, ValueError, LookupError)
"""Exceptions that packing raises if an observation is not in its space."""
Casting = Literal['same_kind', 'unsafe']
GOAL_PARTS = 'observation', 'achieved_goal', 'desired_goal'
"""Parts of the observations of an env with goals."""


def mapped(function: Callable[..., Any], *trees: Any) -> Any:
    """Returns a tree of tuples and dicts in which each leaf is that function of the leaves of these trees.

    Observations with parts are such trees, of arrays or tensors; one without is its own leaf.
    """
    first = trees[0]
    if isinstance(first, dict):
        return {name: mapped(function, *(tree[name] for tree in trees)) for name in first}
    if isinstance(first, tuple):
        return tuple(mapped(function, *parts) for parts in zip(*trees, strict=True))
    return function(*trees)


def first_part(columns: Any) -> Any:
    """Returns the first array or tensor of columns, whose parts may have parts."""
    while isinstance(columns, dict):
        columns = next(iter(columns.values()))
    return columns


def image_parts(space: gymnasium.Space[Any], path: Path = ()) -> Iterator[tuple[Path, tuple[int, ...]]]:
    """Yields the place and the shape of each image: a Box of 3 axes, or of 4 with a stack of frames."""
    if parts := fields_of(space):
        for name, part in parts.items():
            yield from image_parts(part, (*path, name))
    elif isinstance(space, gymnasium.spaces.Box) and len(space.shape) in (3, 4):
        yield path, space.shape


def is_hwc(shape: tuple[int, ...], layout: str) -> bool:
    """Whether channels are the last axis of an image; for ``'auto'``, if it is not longer than the first."""
    return shape[-1] <= shape[-3] if layout == 'auto' else layout == 'hwc'


class NamedEncoder(NamedTuple):
    """An encoder of images that an option names."""

    name: str
    """``'nature'``, ``'impala'``, ``'hadamax'`` or ``'grid'``."""
    width: float = 1.0
    """Factor of all channels."""

    def channels(self, count: int) -> int:
        """Returns a number of channels, times the width."""
        return max(1, round(count * self.width))


def check_action_bounds(spec: EnvSpec) -> None:
    """Checks that each dimension of continuous actions has more than one possible value.

    Raises:
        IncompatibleError: If there is no dimension, or a lower bound is not below the upper one, or one of them is NaN; the first such dimension
            is named.
    """
    space: Any = spec.action_space
    for name, part in getattr(space, 'parts', {}).items():
        if np.dtype(part.dtype).kind != 'f' and np.abs(np.asarray(bounds_of(part), np.float64)).max() > 2**53:
            raise IncompatibleError(
                f'float64 does not hold the integers of {name} of {spec.name} exactly',
                where='env.env_id',
                got=repr(part),
                expected='integers of at most 2**53',
                remedy='Let that part of the action space begin at 0, in the env or by a wrapper (env.wrappers).',
            )
        check_action_bounds(dataclasses.replace(spec, action_space=part, name=f'{name} of {spec.name}'))
    if type(space).__name__ != 'Box':
        return
    if not space.low.size:
        raise IncompatibleError(
            f'the actions of {spec.name} hold no numbers',
            where='env.env_id',
            got=repr(space),
            expected='a Box of at least one number',
            remedy='Correct the action space of the env.',
        )
    bad = np.argwhere(~(space.low < space.high))  # NaN is not below anything
    if not len(bad):
        return
    at = tuple(bad[0].tolist())
    index, more = list(at) if at else '', f', and {len(bad) - 1} more' if len(bad) > 1 else ''
    low, high = float(space.low[at]), float(space.high[at])
    raise IncompatibleError(
        f'the bounds of action dimension {list(at)} of {spec.name} contain no value{more}',
        where='env.env_id',
        got=f'action_space.low{index} = {low:g}, action_space.high{index} = {high:g}',
        expected='low < high',
        remedy='Correct the action space of the env, or remove the dimension with a wrapper (env.wrappers).',
    )


def fields_of(space: gymnasium.Space[Any]) -> Mapping[str, gymnasium.Space[Any]]:
    """Returns the parts of a space by field name; empty if it is not a ``Dict`` or a ``Tuple``."""
    if isinstance(space, gymnasium.spaces.Dict):
        return space.spaces
    if isinstance(space, gymnasium.spaces.Tuple):
        return {str(i): part for i, part in enumerate(space.spaces)}
    return {}


def is_text(space: gymnasium.Space[Any]) -> bool:
    """Whether observations of a space are texts: Gymnasium's, or MiniGrid's missions."""
    return any(kind.__name__ in ('Text', 'MissionSpace') for kind in type(space).__mro__)


def part_owner(space: Any, name: str) -> Path | None:
    """Returns where a part of observations is: at the top, (), or in the env's own beside an action mask; None: there is none."""
    parts = fields_of(space)
    if name in parts:
        return ()
    is_beside = set(parts) == {'observation', ACTION_MASK}
    return ('observation',) if is_beside and name in fields_of(parts['observation']) else None


def lacks_part(space: Any, name: str | None) -> bool:
    """Whether a part of observations has a name, and the space has no such part."""
    return name is not None and part_owner(space, name) is None


def without_part(space: Any, name: str | None) -> Any:
    """Returns the space of observations without one of their parts, which ``part_owner`` finds; else the same space."""
    owner = None if name is None else part_owner(space, name)
    if owner is None:
        return space
    parts = dict(fields_of(space))
    if owner:
        parts[owner[0]] = without_part(parts[owner[0]], name)
    else:
        del parts[name]  # type: ignore[arg-type]  # it has an owner
    return gymnasium.spaces.Dict(parts, sort_keys=False)


def plain_parts(space: gymnasium.Space[Any], path: str = 'obs') -> Iterator[tuple[str, gymnasium.Space[Any]]]:
    """Yields each part without parts of its own, however nested, in the order of ``serialize.leaves``."""
    parts = fields_of(space)
    if not parts:
        yield path, space
    for name, part in parts.items():
        yield from plain_parts(part, field_path(path, name))


def bounds_of(space: Any) -> tuple[Any, Any]:
    """Returns the smallest and the largest value of each number in a space without parts."""
    if hasattr(space, 'low'):
        return space.low, space.high
    if hasattr(space, 'nvec'):
        return space.start, space.start + space.nvec - 1
    return (space.start, space.start + space.n - 1) if hasattr(space, 'start') else (0, 1)


def any_action(space: Any) -> Array:
    """Returns a valid action, for envs and players that ignore it: the lowest class, or the numbers nearest to 0."""
    if parts := getattr(space, 'parts', None):
        return np.concatenate([np.ravel(any_action(part)) for part in parts.values()])
    low, high = bounds_of(space)
    near = np.clip(0, low, high) if hasattr(space, 'low') else low
    return np.broadcast_to(near, space.shape or ()).astype(space.dtype)


def obs_dtype(space: gymnasium.Space[Any], path: str = 'obs') -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Returns the type and the shape of one observation of a space as an array.

    Raises:
        IncompatibleError: If the space, or a part of it, cannot be an array; the part is named.
    """
    kinds = gymnasium.spaces
    if isinstance(space, kinds.Box | kinds.Discrete | kinds.MultiDiscrete | kinds.MultiBinary):
        if 0 in (space.shape or ()):
            raise IncompatibleError(
                f'{path} has the space {space!r}, which holds no numbers',
                where='env.env_id',
                remedy='Declare at least one number, such as a constant 0, and give it.',
            )
        return np.dtype(space.dtype), tuple(space.shape or ())
    parts = fields_of(space)
    if not parts or not all(isinstance(name, str) and name for name in parts):
        raise IncompatibleError(
            f'{path} has the space {space!r}, which is not supported',
            where='env.env_id',
            remedy=f'Supported: {SUPPORTED}.{_wrapper_for(space)}',
        )
    try:
        return struct_dtype(
            {name: obs_dtype(part, field_path(path, name)) for name, part in parts.items()}
        ), ()
    except IncompatibleError as error:
        if path == 'obs' and (remedy := _filter_for(space)):
            error.remedy = f'Supported: {SUPPORTED}. {remedy}'
        raise


def laid_out(column: Array, dtype: np.dtype[Any]) -> Array:
    """Returns observations with parts, [n, ...], in the layout of ``dtype``, which has the same parts; files forget it."""
    if column.dtype == dtype and column.dtype.isalignedstruct:
        return column
    found = np.empty(column.shape, dtype)
    for name in dtype.names or ():
        part = dtype[name]
        found[name] = laid_out(column[name], part) if part.names else column[name]
    return found


def _wrapper_for(space: gymnasium.Space[Any]) -> str:
    """Returns advice on a wrapper that converts a space to a Box, or an empty string."""
    flat: Any
    try:
        flat = gymnasium.spaces.flatten_space(space)
    except (NotImplementedError, ValueError, TypeError):
        flat = space
    is_box = isinstance(flat, gymnasium.spaces.Box)
    return " env.wrappers=['FlattenObservation'] makes a Box of it." if is_box else ''


def _filter_for(space: gymnasium.Space[Any]) -> str:
    """Returns advice on a wrapper that keeps the supported parts of a Dict, or an empty string."""
    kept = []
    for name, part in fields_of(space).items():
        try:
            obs_dtype(part, name)
        except IncompatibleError:
            continue
        kept.append(name)
    if not kept or not isinstance(space, gymnasium.spaces.Dict):
        return ''
    wrapper = f"dict(type='gymnasium.wrappers:FilterObservation', filter_keys={kept})"
    return f'To keep the supported parts: env.wrappers=[{wrapper}].'


def zero_obs(space: gymnasium.Space[Any], *leading: int) -> Array:
    """Returns zero observations, [*leading, ...], in aligned memory, which networks read in place."""
    dtype, shape = obs_dtype(space)
    return aligned_zeros((*leading, *shape), dtype)


def pack(space: gymnasium.Space[Any], obs: Any, casting: Casting = 'same_kind') -> Any:
    """Returns one observation as an array of its space, or as one row of a structured array.

    Args:
        space: Its space.
        obs: Observation of an env: numbers, or a mapping or a tuple of them.
        casting: Which numbers are converted to the space's type, as in ``numpy.can_cast``.

    Raises:
        TypeError, ValueError, LookupError: If it does not have the space's structure, shapes and types.
    """
    row = zero_obs(space)
    pack_into(obs, row, casting)
    return row[()]


def pack_into(obs: Any, rows: Array, casting: Casting = 'same_kind') -> None:
    """Writes observations whose parts are columns, such as a vector env's, into an array; see ``pack``."""
    names = rows.dtype.names
    if names is None:
        column = np.asarray(obs)
        if column.shape != rows.shape:
            raise ValueError(f'the shape is {column.shape}, not {rows.shape}')
        np.copyto(rows, column, casting)
        return
    for name, part in zip(names, _parts([obs], names), strict=True):
        pack_into(part[0], rows[name], casting)


def pack_rows(obs: Sequence[Any], rows: Array, casting: Casting = 'same_kind') -> None:
    """Writes the observations of n envs into an array, [n, ...]; see ``pack``."""
    names = rows.dtype.names
    if names is None:
        np.stack(obs, out=rows, casting=casting)
        return
    for name, part in zip(names, _parts(obs, names), strict=True):
        pack_rows(part, rows[name], casting)


def _parts(obs: Sequence[Any], names: Sequence[str]) -> list[list[Any]]:
    """Returns the values of each field, a list of n each."""
    if any(len(one) != len(names) for one in obs):
        raise ValueError(f'one does not have {len(names)} parts')
    return [
        [one[i] if isinstance(one, tuple | list) else one[name] for one in obs]
        for i, name in enumerate(names)
    ]


def mask_parts(space: Any) -> tuple[int, ...]:
    """Returns the number of action-mask entries for each dimension of an action space; empty if it has no masks."""
    if parts := getattr(space, 'parts', None):  # a Composite
        return tuple(count for part in parts.values() for count in mask_parts(part))
    if isinstance(space, gymnasium.spaces.Discrete):
        return (int(space.n),)
    return tuple(space.nvec.reshape(-1).tolist()) if isinstance(space, gymnasium.spaces.MultiDiscrete) else ()


def has_mask(space: gymnasium.Space[Any]) -> bool:
    """Whether observations of a space contain an action mask."""
    return ACTION_MASK in fields_of(space)


def has_goals(space: gymnasium.Space[Any]) -> bool:
    """Whether observations of a space are those of an env with goals."""
    return set(GOAL_PARTS) <= set(fields_of(space))


def check_mask_values(mask: Any, place: str) -> None:
    """Checks that the values of action masks, [..., A], are 0 and 1, or bool; the error says that they come from ``place``.

    Raises:
        ActionMaskError: If one has other values; the first such mask is shown.
    """
    values = np.asarray(mask)
    if values.dtype == np.bool_:
        return
    known = values == (values == 1)
    if known.all():
        return
    bad = values[~known.all(-1)][0] if values.ndim > 1 else values
    raise ActionMaskError(
        f'{place}: the action mask is {bad.tolist()}, expected 1 (or True) for each allowed action and 0 (or False)'
        ' for each other one',
        remedy='Of an additive mask (0 and -inf), give mask == 0; of probabilities, give probabilities > 0.',
    )


def check_maskable(spec: EnvSpec) -> None:
    """Checks that an observation with an action mask belongs to actions that can be masked.

    Raises:
        IncompatibleError: If it does not.
    """
    parts = fields_of(spec.observation_space)
    if ACTION_MASK not in parts or mask_parts(spec.action_space):
        return
    others = [name for name in parts if name != ACTION_MASK]
    raise IncompatibleError(
        f"{spec.name}: obs['{ACTION_MASK}'] cannot mask the actions of {spec.action_space!r}",
        where='env.env_id',
        remedy='Only actions of a Discrete or a MultiDiscrete, or parts of them, can be masked. To leave the part out:'
        f" env.wrappers=[dict(type='FilterObservation', filter_keys={others})]. To let networks read it, give it another name.",
    )
