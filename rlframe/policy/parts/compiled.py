"""Faster updates: losses as machine code (``compile``), in another number format, and updates as CUDA graphs."""

from __future__ import annotations

import copy
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from rlframe.data.faces import Metrics
from rlframe.data.observation import mapped
from rlframe.data.staging import existing_device
from rlframe.errors import ConfigError, DeviceError
from rlframe.policy.parts.sequences import Rows
from rlframe.utils.field import Field
from rlframe.utils.lazy import torch

if TYPE_CHECKING:
    from rlframe.model.core import Draws
    from rlframe.policy.update import Loss, Update

logger = logging.getLogger('rlframe.policy')

THREADS = 'TORCHINDUCTOR_COMPILE_THREADS'
"""Environment variable for the number of torch.compile's workers: threads, or processes for Triton."""
COMPILERS = 'g++', 'clang++', 'c++'
"""Programs of which torch.compile needs one."""
WARM_UPS = 3
"""Updates tried out before a recording, in which libraries allocate what they need."""
MOST_GRAPHS = 16
"""Graphs of a policy; each holds the memory of an update."""
Key: TypeAlias = tuple[bool, tuple[tuple[tuple[int, ...], Any], ...]]
"""Whether it is the turn of an update, and the shape and type of each of its tensors."""


def check_precision(policy: type[Any], cfg: Any) -> ConfigError | None:
    """Returns why the losses of a policy cannot be computed in a number format."""
    if cfg.precision != 'bf16' or policy.update_class is not None:
        return None
    reason = f'{policy.__name__} has no Update whose losses can be computed in it (update_class)'
    return ConfigError(reason, expected="'fp32' or 'tf32'")


def check_compile(policy: type[Any], cfg: Any) -> ConfigError | None:
    """Returns why the losses of a policy cannot be compiled."""
    if policy.update_class is None:
        reason = f'{policy.__name__} has no Update whose losses can be compiled (update_class)'
    elif cfg.model.get('core') is not None:
        reason = 'batches of a recurrent core change their shapes, and each shape would be compiled anew'
    elif not any(map(shutil.which, [*os.environ.get('CXX', '').split()[:1], *COMPILERS])):
        reason = f'torch.compile needs a C++ compiler on the PATH ({", ".join(COMPILERS)})'
    else:
        return None
    return ConfigError(reason, expected='False')


def check_graph(policy: type[Any], cfg: Any) -> ConfigError | None:
    """Returns why the updates of a policy cannot be recorded: it has a core, or no ``Update``."""
    if cfg.model.get('core') is not None:
        reason = 'batches of a core have sequences of different lengths, and each shape would be recorded'
    elif policy.update_class is None:
        reason = f'{policy.__name__} has no Update that could be recorded (update_class)'
    else:
        return None
    return ConfigError(reason, expected='False')


PRECISION = Field(
    'fp32',
    choices=('fp32', 'tf32', 'bf16'),
    doc="number format of matrix products and convolutions: 'fp32', 'tf32' (on a GPU), or 'bf16' for losses, while parameters"
    " and moments stay float32; 'bf16' is slow on a CPU without instructions for it",
    may_change=True,
    rule=check_precision,
)
COMPILE = Field(
    False,
    doc='whether torch.compile compiles the losses, which takes 5 to 30 seconds at the start of training',
    may_change=True,
    reaches='process',  # the compiler
    rule=check_compile,
)
CUDA_GRAPH = Field(
    False,
    doc='whether updates on a GPU are replayed from a recording, a CUDA graph; pays for small networks',
    may_change=True,
    rule=check_graph,
)
NO_GRAPH: dict[str, Any] = dict(where='policy.cuda_graph', got=True, expected='False')
EMULATED = 10
"""Times as long as in float32 that an update takes in emulated bfloat16: SAC 256-256, batch 256, AMD EPYC (Zen 3, AVX2),
torch 2.13, one thread: 237 against 23 ms."""


def check_device(name: str) -> str:
    """Returns a description of valid devices if a value is malformed, else an empty string."""
    is_known = re.fullmatch(r'auto|cpu|cuda(:\d+)?', name)
    return '' if is_known else "'auto', 'cpu', 'cuda' or 'cuda:0', 'cuda:1', ..."


def resolve_device(cfg: Any) -> torch.device:
    """Returns the device that ``cfg.device`` and ``cfg.cuda`` ask for.

    Raises:
        DeviceError: If CUDA is requested but not available; only ``auto`` falls back to the CPU.
        ConfigError: If the two contradict each other.
    """
    name, cuda = cfg.device, cfg.cuda
    if cuda is not None:
        if name != 'auto' and cuda == (name == 'cpu'):
            raise ConfigError(
                f'policy.cuda={cuda} contradicts policy.device={name!r}', remedy='Leave out policy.cuda.'
            )
        if name == 'auto':
            name = 'cuda' if cuda else 'cpu'
    if name == 'auto':
        name = 'cuda' if torch.cuda.is_available() else 'cpu'
    return existing_device(
        name,
        'policy.device' if cuda is None else 'policy.cuda',
        "policy.device='auto', without policy.cuda, takes the CPU where there is no GPU.",
    )


def check_modes(cfg: Any, device: torch.device) -> None:
    """Checks that a device can learn as ``cuda_graph`` and ``precision`` say, and warns if it will be slow.

    Raises:
        DeviceError: If not; the nearest mode that works is named.
    """
    if device.type == 'cuda':
        return
    if cfg.cuda_graph:
        raise DeviceError(
            f'a CUDA graph needs a CUDA device, and the policy is on {device}',
            **NO_GRAPH,
            remedy='On a CPU policy.compile=True is the nearest mode that works.',
        )
    if cfg.precision == 'tf32':
        message = f'only CUDA devices compute in TF32, and the policy is on {device}'
        raise DeviceError(message, where='policy.precision', got='tf32', expected="'fp32'")
    if cfg.precision == 'bf16' and not has_bfloat16():
        warn_of_bfloat16()


def has_bfloat16() -> bool:
    """Returns whether the processor has instructions for bfloat16, which a torch before 2.11 cannot tell: True then."""
    found: Mapping[str, Any] = getattr(torch.cpu, 'get_capabilities', dict)() or {'bf16': True}
    return any('bf16' in name and is_there for name, is_there in found.items())


@cache
def warn_of_bfloat16() -> None:
    """Warns once in a process that updates will be slow."""
    logger.warning(
        "policy.precision='bf16' is slow here: this processor has no instructions for bfloat16 (avx512_bf16, amx_bf16), and torch"
        " emulates them. An update of SAC 256-256 took %s times as long as with 'fp32' on an AMD EPYC with AVX2. Set"
        " policy.precision='fp32'.",
        EMULATED,
    )


def set_precision(precision: str, device: torch.device) -> None:
    """Sets the format of this process's matrix products in float32 on GPUs; that of the last policy counts."""
    if device.type != 'cuda':
        return
    is_allowed = precision == 'tf32'
    # these two setters: what users may read stays readable, which it does not after the newer fp32_precision
    torch.backends.cuda.matmul.allow_tf32 = is_allowed
    torch.backends.cudnn.allow_tf32 = is_allowed


def autocast(loss: Callable[[Rows], Loss], device: torch.device, has_cache: bool) -> Callable[[Rows], Loss]:
    """Returns a loss whose matrix products are in bfloat16.

    ``has_cache``: whether converted weights are kept during a call; a graph must convert them anew.
    """

    def lowered(rows: Rows) -> Loss:
        with torch.autocast(device.type, torch.bfloat16, cache_enabled=has_cache):
            return loss(rows)

    return lowered


class Recorded(NamedTuple):
    """A recorded update."""

    inputs: list[torch.Tensor]
    """Tensors that it reads its batch from."""
    replay: Callable[[], None]
    """Starts it."""
    results: Metrics
    """Tensors that it fills."""


class CudaRecorder:
    """Records CUDA graphs.

    Each start of a graph continues ``generator``, the policy's generator on the device.

    Source:
        torch's documentation, "CUDA semantics", section "CUDA Graphs": whole-network capture.
    """

    def __init__(self, device: torch.device, generator: torch.Generator) -> None:
        self._device, self._generator = device, generator
        with torch.cuda.device(device):
            self._pool = torch.cuda.graph_pool_handle()  # results are copied before another graph starts

    def try_out(self, function: Callable[[], Any]) -> None:
        """Calls a function a few times before it is recorded."""
        with torch.cuda.device(self._device):
            current = torch.cuda.current_stream()
            aside = torch.cuda.Stream()
            aside.wait_stream(current)
            with torch.cuda.stream(aside), torch.random.fork_rng(devices=[torch.cuda.current_device()]):
                for _ in range(WARM_UPS):
                    function()
            current.wait_stream(aside)

    def record(self, function: Callable[[], Metrics]) -> tuple[Callable[[], None], Metrics]:
        """Returns a function that repeats on the device what ``function`` does, and the results that it then fills."""
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self._generator)
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

    ``step`` maps the columns of a batch, and whether it is the update's turn, to the values to log. It changes tensors on
    the device only, and never waits for them.
    """

    def __init__(self, step: Callable[[Rows, bool], Metrics], update: Update, recorder: CudaRecorder) -> None:
        self._step, self._update, self._recorder = step, update, recorder
        self._optimizers = list(update.optimizers.values())
        for optimizer in self._optimizers:
            optimizer.prepare_capture()
        self._graphs: dict[Key, Recorded] = {}

    def __call__(self, rows: Rows, turn: bool) -> Metrics:
        given = list(leaves(rows))
        key = turn, tuple((tuple(tensor.shape), tensor.dtype) for tensor in given)
        graph = self._graphs.get(key)
        if graph is None:
            graph = self._graphs[key] = self._record(rows, turn)
        torch._foreach_copy_(graph.inputs, given, non_blocking=True)
        graph.replay()
        for optimizer in self._optimizers:
            optimizer.check()
        # copies, which the next start of the graph leaves alone
        copies = torch._foreach_mul([*graph.results.values()], 1.0)
        return dict(zip(graph.results, copies, strict=True))

    def _float_results(self, inputs: Rows, turn: bool) -> Metrics:
        return {name: value.detach().float() for name, value in self._step(inputs, turn).items()}

    def _record(self, rows: Rows, turn: bool) -> Recorded:
        if len(self._graphs) == MOST_GRAPHS:
            shapes = sorted({shape for _, given in self._graphs for shape, _ in given})
            raise ConfigError(
                f'updates have more than {MOST_GRAPHS} different shapes, and each is recorded: {shapes[:8]}',
                **NO_GRAPH,
            )
        logger.info('records an update of %d tensors as a CUDA graph', len(list(leaves(rows))))
        inputs = mapped(torch.Tensor.clone, rows)
        before = copy.deepcopy((self._update.model.state_dict(), self._update.state_dict()))
        self._recorder.try_out(lambda: self._step(inputs, turn))
        self._update.model.load_state_dict(before[0])
        self._update.load_state_dict(before[1])
        for optimizer in self._optimizers:
            optimizer.forget()
        try:
            replay, results = self._recorder.record(lambda: self._float_results(inputs, turn))
        except RuntimeError as error:
            raise ConfigError(
                f'the update cannot be part of a CUDA graph: {str(error).splitlines()[0]}',
                **NO_GRAPH,
                remedy='A graph cannot wait for results (item, bool, nonzero, printing) or copy from host memory;'
                ' policy.compile=True is the nearest mode that works.',
            ) from error
        return Recorded(list(leaves(inputs)), replay, results)


def leaves(rows: Any) -> Iterator[torch.Tensor]:
    """Yields the tensors of columns, and of their parts."""
    if isinstance(rows, dict):
        for part in rows.values():
            yield from leaves(part)
    else:
        yield rows


class Compiled:
    """A function of tensors as machine code, one for each of their shapes.

    The code depends on the shapes only, not on those seen before, so that a resumed run computes the same bits.

    The function has no effects.

    Raises:
        ConfigError: At the first call, if the compiler fails.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        _limit_workers()
        self._function = function
        self._code = torch.compile(function, dynamic=False)
        self._is_ready = False

    def __call__(self, *args: Any) -> Any:
        return self._code(*args) if self._is_ready else self._first(*args)

    def _first(self, *args: Any) -> Any:
        _limit_workers()
        logger.info('torch.compile turns %s into machine code', self._function.__qualname__)
        # a first call without the compiler: imports and caches of first use would split the graph
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())), torch.no_grad():
            self._function(*args)
        try:
            result = self._code(*args)
        except Exception as error:  # of the compiler: the function itself has just run
            raise ConfigError(
                f'torch.compile failed: {type(error).__name__}: {str(error)[:500]}',
                where='policy.compile',
                got=True,
                expected='False',
            ) from error
        self._is_ready = True
        return result


def _limit_workers() -> None:
    """Keeps the compiler from starting workers, which stay until the end, unless the user asked for some.

    The variable counts for all threads, if inductor is not imported yet; its setting only for the thread that makes it.
    """
    if os.environ.setdefault(THREADS, '1') == '1':
        from torch._inductor import config

        config.compile_threads = 1


class TrainStep:
    """An update in the mode that ``compile``, ``precision`` and ``cuda_graph`` ask for, shared by several learners if there are.

    Losses are compiled first, then computed in another number format; the update that minimises them is recorded, or shared.

    ``generator`` is the policy's generator on the device where it learns. Layers draw from ``draws``; None: they do not
    draw.

    Raises:
        DeviceError: If the device cannot do it.
    """

    def __init__(self, update: Update, cfg: Any, generator: torch.Generator, draws: Draws | None) -> None:
        device = generator.device
        check_modes(cfg, device)
        set_precision(cfg.precision, device)
        losses: dict[str, Callable[[Rows], Loss]] = {name: getattr(update, name) for name in update.losses}
        if cfg.compile:
            losses = {name: Compiled(loss) for name, loss in losses.items()}
        if cfg.precision == 'bf16':
            losses = {name: autocast(loss, device, not cfg.cuda_graph) for name, loss in losses.items()}
        self._step: Callable[[Rows, bool], Metrics] = partial(update.step, losses)
        if cfg.cuda_graph:
            self._step = GraphedUpdate(self._step, update, CudaRecorder(device, generator))
        # the compiler would cut its code at each draw from another generator than torch's global one
        self._drawing = draws.from_global if cfg.compile and draws is not None else nullcontext
        self._update = update

    def __call__(self, rows: Rows) -> Metrics:
        """Makes the next update by the columns of a batch, and returns the values to log."""
        update = self._update
        together = update.together if update.ranks is None else update.ranks.step
        step = self._step if together is None else partial(together, self._step)
        with self._drawing():
            metrics = step(rows, update.turn)
        update.updates += 1
        return metrics | update.rates()
