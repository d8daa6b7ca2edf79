"""Batch: columns with one leading axis; TimeStep: one step of an env manager; EnvSpec: an env as policies see it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rlframe.registry import nearest
from rlframe.utils.lazy import LazyModule

if TYPE_CHECKING:
    import gymnasium
    import torch
else:
    gymnasium = LazyModule('gymnasium')
    torch = LazyModule('torch')

ALIGNMENT = 64
"""Bytes that torch aligns its own CPU tensors to; numpy's arrays begin at any multiple of 16."""
IntArray = npt.NDArray[np.integer[Any]]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.floating[Any]]
Array = npt.NDArray[Any]

NO_INFO: Mapping[str, Any] = {}
"""The info of a step without information; compared by identity."""


class Row(Mapping[str, Any]):
    """One row of a ``Batch``: a read-only view without copies."""

    __slots__ = ('_columns',)

    def __init__(self, columns: dict[str, Any]) -> None:
        self._columns = columns

    def __getitem__(self, name: str) -> Any:
        try:
            return self._columns[name]
        except KeyError:
            raise KeyError(_unknown(name, self._columns)) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __setitem__(self, name: str, value: Any) -> None:
        raise TypeError(
            f'rows are read-only; make a changed copy of the whole column with Batch.replace({name}=...)'
        )

    def __repr__(self) -> str:
        return f'Row({self._columns!r})'


class Batch(Sequence[Row]):
    """Named columns with one shared leading axis.

    A column is a ``np.ndarray``, a ``torch.Tensor`` or another ``Batch``. ``len(b)`` is the length of the leading axis,
    ``b['obs']`` a column, ``b[3]`` a row, ``b[idx]`` (slice, mask or integers) the ``Batch`` of those rows, and
    iterating gives rows. A ``Batch`` does no arithmetic, has no columns as attributes and never invents one.

    Args:
        columns: Names to columns; more may be given as keywords. Nothing is copied.

    Raises:
        ValueError: If the columns differ in length, or there is none.
    """

    __slots__ = ('_length', 'columns')

    columns: dict[str, Any]
    """The columns by their names, to read only: a call less in inner loops."""

    def __init__(self, columns: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        self.columns = {**(columns or {}), **more}
        lengths = {name: len(column) for name, column in self.columns.items()}
        if len(set(lengths.values())) != 1:
            raise ValueError(f'the columns of a Batch need one shared length, got {lengths}')
        self._length = next(iter(lengths.values()))

    @classmethod
    def unchecked(cls, columns: dict[str, Any], length: int) -> Batch:
        """Creates a ``Batch`` of columns whose lengths are known to agree; for inner loops."""
        self = cls.__new__(cls)
        self.columns, self._length = columns, length
        return self

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[str, Any]]) -> Batch:
        """Stacks mappings with the same names, of arrays, tensors, numbers or further mappings, into columns.

        Raises:
            ValueError: If there is no row or the names differ.
        """
        rows = list(rows)
        if not rows:
            raise ValueError('a Batch needs at least one row')
        for i, row in enumerate(rows):
            if row.keys() != rows[0].keys():
                raise ValueError(f'row {i} has the columns {sorted(row)}, row 0 has {sorted(rows[0])}')
        return cls({name: _stack([row[name] for row in rows]) for name in rows[0]})

    @classmethod
    def stack(cls, batches: Sequence[Batch]) -> Batch:
        """Joins batches of equal length and names along a new leading axis."""
        return cls({name: _stack([batch[name] for batch in batches]) for name in _same_names(batches)})

    @classmethod
    def cat(cls, batches: Sequence[Batch]) -> Batch:
        """Concatenates batches of equal names."""
        if len(batches) == 1:
            return batches[0]
        return cls({name: _cat([batch[name] for batch in batches]) for name in _same_names(batches)})

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, str):
            try:
                return self.columns[index]
            except KeyError:
                raise KeyError(_unknown(index, self.columns)) from None
        if isinstance(index, int | np.integer):
            if not -self._length <= index < self._length:
                raise IndexError(f'row {index} of a Batch of {self._length}')
            return Row({name: column[index] for name, column in self.columns.items()})
        return Batch({name: column[index] for name, column in self.columns.items()})

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def keys(self) -> Iterable[str]:
        """Returns the names of the columns."""
        return self.columns.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Returns names and columns."""
        return self.columns.items()

    def replace(self, **columns: Any) -> Batch:
        """Returns a ``Batch`` with these columns added or replaced; the others are shared, not copied."""
        return Batch({**self.columns, **columns})

    def map(self, function: Callable[[Any], Any]) -> Batch:
        """Applies a function to every array, also in nested batches."""
        return Batch(
            {
                name: column.map(function) if isinstance(column, Batch) else function(column)
                for name, column in self.columns.items()
            }
        )

    def to(self, device: str | torch.device) -> Batch:
        """Returns the columns as tensors on a device; on the CPU numpy arrays are wrapped, not copied.

        A structured array becomes a nested ``Batch`` of its fields.
        """

        def moved(column: Any) -> Any:
            if names := getattr(getattr(column, 'dtype', None), 'names', None):
                return Batch({name: moved(column[name]) for name in names})
            return torch.as_tensor(column).to(device, non_blocking=True)

        return self.map(moved)

    def nbytes(self) -> int:
        """Returns the size of the columns in bytes."""
        return sum(c.nbytes() if isinstance(c, Batch) else c.nbytes for c in self.columns.values())

    def __repr__(self) -> str:
        def shape(column: Any) -> str:
            return repr(column) if isinstance(column, Batch) else f'{column.dtype}{list(column.shape)}'

        return f'Batch({", ".join(f"{name}: {shape(column)}" for name, column in self.columns.items())})'


def _unknown(name: str, columns: Mapping[str, Any]) -> str:
    return f'no column {name!r}.{nearest(name, columns)} Columns: {list(columns)}'


def _same_names(batches: Sequence[Batch]) -> Iterable[str]:
    if not batches:
        raise ValueError('nothing to join')
    for batch in batches:
        if batch.keys() != batches[0].keys():
            raise ValueError(
                f'batches with the columns {list(batch.keys())} and {list(batches[0].keys())} cannot be joined'
            )
    return batches[0].keys()


def to_array(column: Any) -> Any:
    """Returns a tensor on any device, a list or a number as an array; an array is returned unchanged."""
    return column.detach().cpu().numpy() if hasattr(column, 'detach') else np.asarray(column)


def to_tensor(column: Any) -> Any:
    """Returns an array, a tensor or a ``Batch`` as a tensor, or as a dict of tensors if it has fields.

    Memory is shared, but for floats on the CPU that are not aligned like torch's own. Matrix products of BLAS libraries depend
    on the alignment of their operands in the last bit, so a network that reads numpy's memory in place would depend on
    the address that the allocator happened to return.

    Source:
        Intel oneMKL Developer Guide, "Conditional Numerical Reproducibility": results are reproducible between runs
        only for aligned arrays, unless a strict mode is set.
    """
    if isinstance(column, np.ndarray):
        try:
            tensor = torch.from_numpy(column)
        except TypeError:
            if column.dtype.names is None:
                raise
            return {name: to_tensor(column[name]) for name in column.dtype.names}
    elif isinstance(column, Batch):
        return {name: to_tensor(part) for name, part in column.items()}
    else:
        tensor = torch.as_tensor(column)
    is_shared = tensor.data_ptr() % ALIGNMENT == 0 or not tensor.is_floating_point()
    return tensor if is_shared else tensor.clone()


def aligned_zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Returns zeros in memory that begins with a cache line, so ``to_tensor`` shares it."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.zeros(size + ALIGNMENT, np.uint8)
    start = -memory.__array_interface__['data'][0] % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def is_finite(values: Array) -> bool:
    """Whether values of any shape contain no NaN and no infinity; True for values that are not real numbers.

    The dot product of an array with itself is finite only if every element is. The reverse fails for numbers whose
    squares overflow: only then each element is checked.
    """
    return (
        values.dtype.kind != 'f' or math.isfinite(np.vdot(values, values)) or bool(np.isfinite(values).all())
    )


def _stack(values: list[Any]) -> Any:
    first = values[0]
    if isinstance(first, Batch):
        return Batch.stack(values)
    if isinstance(first, Mapping):
        return Batch.from_rows(values)
    if hasattr(first, 'detach'):
        return torch.stack(values)
    stacked = np.stack([np.asarray(value) for value in values])
    return stacked.astype(np.float32) if isinstance(first, float) else stacked


def _cat(values: list[Any]) -> Any:
    first = values[0]
    if isinstance(first, Batch):
        return Batch.cat(values)
    if hasattr(first, 'detach'):
        return torch.cat(values)
    return np.concatenate(values)


def to_tree(data: Any) -> Any:
    """Returns a batch, or lists of batches, as dicts and lists of arrays, for a checkpoint."""
    if isinstance(data, Batch):
        return {name: to_tree(column) for name, column in data.items()}
    return [to_tree(part) for part in data] if isinstance(data, list) else data


def from_tree(tree: Any) -> Any:
    """Restores the batch from the result of ``to_tree``."""
    if isinstance(tree, Mapping):
        return Batch({name: from_tree(column) for name, column in tree.items()})
    return [from_tree(part) for part in tree] if isinstance(tree, list) else tree


class TimeStep(NamedTuple):
    """One step of n <= N envs. The arrays belong to the manager and stay unchanged until its next step but one."""

    obs: Array
    """Observation after the step, [n, ...]; for an env that finished, its true last one."""
    reward: FloatArray
    """As the env gave it, float64 [n]; rows for training hold float32."""
    terminated: BoolArray
    """True where the episode ended in a terminal state, [n]."""
    truncated: BoolArray
    """True where the episode was cut off, by a time limit for example, [n]."""
    info: Sequence[Mapping[str, Any]]
    """Info of each env, n mappings."""
    env_id: IntArray
    """Env id of each row, [n]."""

    @property
    def done(self) -> BoolArray:
        """True where the episode is over, either way, [n]."""
        return self.terminated | self.truncated


@dataclasses.dataclass(frozen=True)
class EnvSpec:
    """The description of an env that a policy is built from."""

    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]
    player_num: int = 1
    """Number of players, P."""
    name: str = ''
    """Id or class of the env, for error messages."""
    reward_threshold: float | None = None
    """Mean return at which the env's authors call it solved."""
    max_episode_steps: int | None = None
    """Time limit in env steps."""
    render_fps: int | None = None
    """Env steps per second of video."""
    player: EnvSpec | None = None
    """For an env of several players: the spec of a single player, from which policies are built."""

    def __post_init__(self) -> None:
        for name in ('observation_space', 'action_space'):
            object.__setattr__(self, name, without_limits(getattr(self, name)))


def without_limits(space: Any) -> Any:
    """Returns a space in which bounds at the limits of a float type are infinite, as they are no bounds.

    The limits are the largest number of float32, or of a smaller type of the space itself. EnvPool also writes the
    smallest positive number as a lower bound, beside the largest as the upper one.
    """
    spaces: Any = gymnasium.spaces
    if hasattr(space, 'whole'):  # a Composite
        return type(space)(without_limits(space.whole))
    if isinstance(space, spaces.Dict):
        parts = [(name, without_limits(part)) for name, part in space.spaces.items()]
        return spaces.Dict(parts, sort_keys=False)
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple(without_limits(part) for part in space.spaces)
    if not isinstance(space, spaces.Box) or space.dtype.kind != 'f':
        return space
    limits = np.finfo(np.float16 if space.dtype == np.float16 else np.float32)
    no_high = space.high >= limits.max
    is_tiny = no_high & (space.low > 0) & (space.low <= limits.tiny)
    no_low = is_tiny | (space.low <= -limits.max)
    if not (no_low | no_high).any():
        return space
    low = np.where(no_low, -np.inf, space.low).astype(space.dtype)
    high = np.where(no_high, np.inf, space.high).astype(space.dtype)
    return spaces.Box(low, high, space.shape, space.dtype.type)


def spec_of(env: Any) -> EnvSpec:
    """Reads the spaces of an env, or of one env of a vector, and, if registered, its threshold and time limit."""
    registered = env.spec
    player = getattr(env.unwrapped, 'player', None)
    name = getattr(env.unwrapped, 'game_name', type(env.unwrapped).__name__)
    if not isinstance(player, EnvSpec):
        player = None
    if registered:
        name = registered.id
    elif player:
        name = player.name
    return EnvSpec(
        observation_space=_own_space(env, 'observation_space'),
        action_space=_own_space(env, 'action_space'),
        player_num=player.player_num if player else 1,
        name=name,
        reward_threshold=registered.reward_threshold if registered else None,
        max_episode_steps=registered.max_episode_steps if registered else None,
        render_fps=(env.metadata or {}).get('render_fps'),
        player=player,
    )


def _own_space(env: Any, name: str) -> Any:
    """Returns a space of an env by name; of a vector env, the space of one of its envs."""
    single = getattr(env, f'single_{name}', None)
    return single if single is not None else getattr(env, name)
