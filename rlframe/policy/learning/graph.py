"""Updates as CUDA graphs: the option ``cuda_graph`` of a policy."""

from __future__ import annotations

import copy
import logging
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from rlframe.data.faces import Metrics
from rlframe.errors import ConfigError
from rlframe.policy.learning.optim import Optimizer
from rlframe.policy.learning.tensors import Rows
from rlframe.utils.field import Field
from rlframe.utils.lazy import LazyModule

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule('torch')

logger = logging.getLogger('rlframe.policy')

CUDA_GRAPH = Field(
    False,
    doc='whether an update on a GPU is recorded once, as a CUDA graph, and then started as a whole; pays for small networks,'
    ' whose kernels take less time than their launches',
    may_change=True,
)
"""The option ``cuda_graph`` of every policy."""
WARM_UPS = 3
"""Updates tried out before a recording, in which libraries allocate what they need."""
MOST_GRAPHS = 16
"""Graphs of a policy; each holds the memory of an update."""
Key: TypeAlias = tuple[tuple[Any, ...], tuple[tuple[tuple[int, ...], Any], ...]]
"""The kind of an update, and the shape and type of each of its tensors."""


class Packed(NamedTuple):
    """Results of an update, with all numbers in one tensor, so that one kernel copies them."""

    names: list[str]
    """Names of the numbers."""
    numbers: torch.Tensor
    """The numbers to log, float32 [K]."""
    columns: dict[str, torch.Tensor]
    """Results that are no numbers, such as priorities."""

    def copied(self) -> Metrics:
        """Returns copies of the results, which the next start of the graph overwrites."""
        numbers = dict(zip(self.names, self.numbers.clone().unbind(), strict=True))
        return numbers | {name: column.clone() for name, column in self.columns.items()}


class Recorded(NamedTuple):
    """A recorded update."""

    inputs: list[torch.Tensor]
    """Tensors that it reads its batch from."""
    replay: Callable[[], None]
    """Starts it."""
    results: Packed
    """Tensors that it fills."""


class Recorder(Protocol):
    """Records what functions do on a device."""

    def try_out(self, function: Callable[[], Any]) -> None:
        """Calls a function a few times before it is recorded."""

    def record(self, function: Callable[[], Packed]) -> tuple[Callable[[], None], Packed]:
        """Returns a function that repeats on the device what ``function`` does, and the results that it then fills."""


class CudaRecorder:
    """Records CUDA graphs.

    Args:
        device: A CUDA device.

    Source:
        torch's documentation, "CUDA semantics", section "CUDA Graphs": whole-network capture.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        with torch.cuda.device(device):
            self._pool = torch.cuda.graph_pool_handle()  # results are copied before another graph starts

    def try_out(self, function: Callable[[], Any]) -> None:
        with torch.cuda.device(self._device):
            current, aside = torch.cuda.current_stream(), torch.cuda.Stream()
            aside.wait_stream(current)
            with (
                torch.cuda.stream(aside),
                torch.random.fork_rng(devices=[torch.cuda.current_device()]),
            ):
                for _ in range(WARM_UPS):
                    function()
            current.wait_stream(aside)

    def record(self, function: Callable[[], Packed]) -> tuple[Callable[[], None], Packed]:
        graph = torch.cuda.CUDAGraph()
        # threads that do something else on the GPU do not disturb it
        with (
            torch.cuda.device(self._device),
            torch.cuda.graph(graph, pool=self._pool, capture_error_mode='thread_local'),
        ):
            results = function()
        return graph.replay, results


class GraphedUpdate:
    """An update as graphs: one for each shape of its batch and each kind of update.

    A graph is recorded when it is first needed. What was tried out before is undone, so that every update of training is
    a replay: a resumed run computes what the run that it continues would have.

    Args:
        update: Maps the columns of a batch, and arguments that are not tensors, to the values to log. It changes tensors
            on the device only, and never waits for them.
        state: Returns the state that ``update`` changes.
        load: Restores it.
        optimizers: Those that it steps.
        recorder: Records what it does.
    """

    def __init__(
        self,
        update: Callable[..., Metrics],
        state: Callable[[], Mapping[str, Any]],
        load: Callable[[Mapping[str, Any]], None],
        optimizers: Sequence[Optimizer],
        recorder: Recorder,
    ) -> None:
        self._update, self._state, self._load = update, state, load
        self._optimizers, self._recorder = optimizers, recorder
        for optimizer in optimizers:
            optimizer.prepare_capture()
        self._graphs: dict[Key, Recorded] = {}

    def __call__(self, rows: Rows, *kind: Any) -> Metrics:
        given = list(leaves(rows))
        key = kind, tuple((tuple(tensor.shape), tensor.dtype) for tensor in given)
        graph = self._graphs.get(key)
        if graph is None:
            graph = self._graphs[key] = self._record(rows, kind)
        torch._foreach_copy_(graph.inputs, given, non_blocking=True)
        graph.replay()
        for optimizer in self._optimizers:
            optimizer.check()
        return graph.results.copied()

    def _record(self, rows: Rows, kind: tuple[Any, ...]) -> Recorded:
        if len(self._graphs) == MOST_GRAPHS:
            shapes = sorted({shape for _, given in self._graphs for shape, _ in given})
            raise ConfigError(
                f'updates have more than {MOST_GRAPHS} different shapes, and each is recorded: {shapes[:8]}',
                where='policy.cuda_graph',
                got=True,
                expected='False',
            )
        logger.info('records an update of %d tensors as a CUDA graph', len(list(leaves(rows))))
        inputs = cloned(rows)
        before = copy.deepcopy(dict(self._state()))
        self._recorder.try_out(lambda: self._update(inputs, *kind))
        self._load(before)
        for optimizer in self._optimizers:
            optimizer.forget()
        try:
            replay, results = self._recorder.record(lambda: packed(self._update(inputs, *kind)))
        except RuntimeError as error:
            raise _refusal(error) from error
        return Recorded(list(leaves(inputs)), replay, results)


def packed(metrics: Metrics) -> Packed:
    """Puts all numbers among results into one tensor.

    Raises:
        ConfigError: If a value is not a tensor: a graph would return it unchanged for ever.
    """
    for name, value in metrics.items():
        if not isinstance(value, torch.Tensor):
            raise ConfigError(
                f'the update returns {name!r} as {type(value).__name__}, which a graph cannot compute anew',
                where='policy.cuda_graph',
                got=True,
                expected='False, or a tensor on the device',
            )
    numbers = {name: value.detach().float() for name, value in metrics.items() if value.dim() == 0}
    columns = {name: value for name, value in metrics.items() if name not in numbers}
    return Packed([*numbers], torch.stack([*numbers.values()]), columns)


def leaves(rows: Any) -> Iterator[torch.Tensor]:
    """Yields the tensors of columns, and of their parts."""
    if isinstance(rows, dict):
        for part in rows.values():
            yield from leaves(part)
    else:
        yield rows


def cloned(rows: Any) -> Any:
    """Returns copies of columns."""
    if isinstance(rows, dict):
        return {name: cloned(part) for name, part in rows.items()}
    return rows.clone()


def _refusal(error: BaseException) -> ConfigError:
    """Returns the error of a recording, with the line of the policy or network at which it failed."""
    first = error
    while first.__context__ is not None:
        first = first.__context__
    libraries = Path(torch.__file__).parent
    own = [
        frame
        for frame in traceback.extract_tb(first.__traceback__)
        if libraries not in Path(frame.filename).parents
    ]
    place = f'{own[-1].filename}:{own[-1].lineno}: {own[-1].line}' if own else 'unknown'
    return ConfigError(
        f'this line cannot be part of a CUDA graph: {place} ({str(first).splitlines()[0]})',
        where='policy.cuda_graph',
        got=True,
        expected='False',
        remedy='A graph cannot wait for results (item, bool, nonzero, printing) or copy from host memory; policy.compile=True'
        ' is the nearest mode that works.',
    )


def check_graph(policy: type[Any]) -> list[ConfigError]:
    """Returns why the updates of a policy cannot be recorded.

    Args:
        policy: Its class, with ``captured_part``.
    """
    for kind in policy.__mro__:
        if vars(kind).get('captured_part'):
            break
        if names := sorted({'_update', '_forward_learn'} & vars(kind).keys()):
            reason = (
                f'{kind.__name__} defines {names[0]}, which cannot be recorded as it is: leave what only tensors do to'
                " _update_tensors, and set captured_part = '_update_tensors'"
            )
            return [ConfigError(reason, where='cuda_graph', got=True, expected='False, or policy.compile')]
    return []
