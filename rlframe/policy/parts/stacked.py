"""StackedUpdate: one update of the networks of several seeds, whose tensors stand along a first axis."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from rlframe.data.faces import Metrics
from rlframe.errors import ConfigError, NonFiniteError
from rlframe.policy.parts.compiled import leaves
from rlframe.policy.parts.optim import Optimizer
from rlframe.policy.parts.sequences import Rows
from rlframe.utils.lazy import LazyModule, torch

if TYPE_CHECKING:
    from rlframe.policy.parts.ranks import Step
    from rlframe.policy.update import Loss, Update

overrides = LazyModule('torch.overrides')
proxy_tensor = LazyModule('torch.fx.experimental.proxy_tensor')

NO_PARTS = type, FunctionType, ModuleType
"""Kinds of objects whose attributes belong to no update."""
COMMON = 'cfg', 'spec', 'device', 'ranks', 'together'
"""Attributes of an update that hold no tensors of its own."""
LEAVE = 'Leave out --stacked: each seed then has a process of its own.'
VIEWS = tuple(f'aten.{name}.default' for name in ('view', 'expand', '_unsafe_view', 'detach', 'alias'))
"""Operations that may return what they are given."""
Answer: TypeAlias = 'Metrics | NonFiniteError'
"""Values to log of a seed, or why it cannot go on."""


class Slot(NamedTuple):
    """A place in an update that holds a tensor or an optimizer."""

    holder: Any
    """A list, or a dict such as that of an object's attributes; None: a tuple, which cannot be changed."""
    key: Any
    content: Any


def check_stacked(policy: type[Any], cfg: Any) -> ConfigError | None:
    """Returns why the updates of several seeds of a policy cannot be made together; ``cfg`` are options of the policy."""
    update = policy.update_class
    switches = {
        'compile': (cfg.compile, False, 'compiled losses are of one seed'),
        'cuda_graph': (cfg.cuda_graph, False, 'a CUDA graph is of one seed'),
        'precision': (cfg.precision, cfg.precision.replace('bf16', 'fp32'), 'losses are computed in float32'),
        'learn.num_learners': (cfg.learn.num_learners, 1, 'learners share the updates of one seed'),
        'learn.nan_policy': (cfg.learn.nan_policy, 'raise', 'an update that is not finite ends its seed'),
        'model.noisy': (cfg.model.get('noisy', False), False, 'layers draw the noise of one seed'),
        'model.dropout': (cfg.model.get('dropout', 0.0), 0.0, 'layers draw for one seed what they drop'),
    }
    for name, (got, expected, reason) in switches.items():
        if got != expected:
            where, message = f'policy.{name}', f'seeds cannot be stacked: {reason}'
            return ConfigError(message, where=where, got=got, expected=repr(expected), remedy=LEAVE)
    if update is None:
        reason = f'{policy.__name__} has no Update (update_class)'
    elif cfg.model.get('core') is not None or policy.is_recurrent:
        reason = 'sequences of a recurrent core differ in their lengths'
    elif update.step.__qualname__ != 'Update.step':
        reason = f'{update.__name__} has a step of its own'
    elif update.why_alone:
        reason = f'{update.__name__} {update.why_alone}'
    else:
        return None
    return ConfigError(f'seeds cannot be stacked: {reason}', where='policy.type', got=cfg.type, remedy=LEAVE)


def slots_of(part: Any, seen: set[int]) -> Iterator[Slot]:
    """Yields the places of tensors and optimizers in an update, always in the same order."""
    if isinstance(part, list | tuple):
        items: Any = enumerate(part)
    elif isinstance(part, dict):
        items = list(part.items())
    elif isinstance(part, NO_PARTS) or not hasattr(part, '__dict__'):
        return
    else:
        part = vars(part)
        items = [item for item in part.items() if item[0] not in COMMON]
    holder = None if isinstance(part, tuple) else part
    for key, content in items:
        if isinstance(content, torch.Tensor | Optimizer):
            yield Slot(holder, key, content)
        elif id(content) not in seen:
            seen.add(id(content))
            yield from slots_of(content, seen)


class CommonRows:
    """The memory of several seeds: rows of common tensors, [S, n], which the memory of a seed becomes as long as it is shared."""

    def __init__(self) -> None:
        self._common: dict[int, torch.Tensor] = {}
        self._tensors: list[tuple[torch.Tensor, torch.Tensor, int]] = []

    def share(self, own: Sequence[torch.Tensor]) -> torch.Tensor:
        """Returns a tensor [S, ...] whose rows the tensors of the seeds become, in place.

        Tensors of a seed that share memory share it afterwards.
        """
        first = own[0]
        key = first.untyped_storage().data_ptr()
        if key not in self._common:
            size = first.untyped_storage().nbytes() // first.element_size()
            self._common[key] = torch.stack([tensor.detach().as_strided((size,), (1,), 0) for tensor in own])
        rows = self._common[key]
        offset = first.storage_offset()
        strides = rows.shape[1], *first.stride()
        common = rows.as_strided((len(own), *first.shape), strides, offset)
        for row, tensor, values in zip(rows, own, common, strict=True):
            tensor.data = values
            self._tensors.append((tensor, row, offset))
        return common.requires_grad_(first.requires_grad)

    def end(self) -> None:
        """Gives each tensor memory of its seed alone again."""
        rows: dict[int, torch.Tensor] = {}
        for tensor, row, offset in self._tensors:
            if row.data_ptr() not in rows:
                rows[row.data_ptr()] = row.clone()
            tensor.data = rows[row.data_ptr()].as_strided(tensor.shape, tensor.stride(), offset)
        self._tensors = []


class Request(NamedTuple):
    """An update that a seed is about to make."""

    update: Update
    step: Step
    """Makes it alone."""
    rows: Rows
    turn: bool

    @property
    def likeness(self) -> Any:
        """What must be the same for all updates that are made together."""
        rates = [one.learning_rate for one in self.update.optimizers.values()]
        return self.turn, list(self.rows), _shapes(self.rows), rates


class Stack:
    """The updates of several seeds: made together if all of them are alike, and else one by one.

    Those of a seed that has just begun are made alone, so that what an algorithm returns is checked. A seed that ends leaves.
    """

    def __init__(self) -> None:
        self._together: StackedUpdate | None = None
        self._members: list[int] = []

    def answer(self, requests: Mapping[int, Request], everyone: Sequence[int]) -> dict[int, Any]:
        """Returns the values to log of each update, or why it was not made."""
        given = list(requests.values())
        likeness = given[0].likeness
        is_alike = all(one.update.updates > 0 and one.likeness == likeness for one in given)
        if len(given) < 2 or not is_alike or len(given) < len(everyone):
            return {i: _made_alone(request) for i, request in requests.items()}
        if self._together is None or self._members != list(requests):
            if self._together is not None:
                self._together.memory.end()
            self._members = list(requests)
            self._together = StackedUpdate([one.update for one in given])
        answers = self._together.step([one.rows for one in given], given[0].turn)
        return dict(zip(requests, answers, strict=True))


def _shapes(rows: Rows) -> tuple[Any, ...]:
    return tuple((tensor.shape, tensor.dtype) for tensor in leaves(rows))


def _together(rows: Sequence[Any]) -> Any:
    """Returns columns of several seeds, or their parts, [S, B, ...]."""
    if isinstance(rows[0], dict):
        return {name: _together([own[name] for own in rows]) for name in rows[0]}
    return torch.stack(list(rows))


def _made_alone(request: Request) -> Any:
    try:
        return request.step(request.rows, request.turn)
    except Exception as error:  # which is that of its seed alone
        return error


class StackedUpdate:
    """Makes the updates of several seeds at once: their tensors become rows of common ones, [S, ...].

    It is an ordinary update whose tensors have a first axis, S: what it does between its losses is done for each element. A loss
    sees the tensors of one seed, and ``torch.vmap`` computes it for all of them, products as batched products. The tensors of each
    seed stay where they are, as views: its policy acts by them, and its checkpoints have them.

    ``updates`` are of one class and have the same options.
    """

    def __init__(self, updates: Sequence[Update]) -> None:
        own = [list(slots_of(update, set())) for update in updates]
        # stack what seeds do not share
        self.memory = CommonRows()
        """The memory of the seeds."""
        memo: dict[int, Any] = {id(getattr(updates[0], name)): getattr(updates[0], name) for name in COMMON}
        self._tensors: list[torch.Tensor] = []
        optimizers: list[tuple[Optimizer, ...]] = []
        for each in zip(*own, strict=True):
            contents = tuple(slot.content for slot in each)
            first = contents[0]
            if id(first) in memo or first is contents[1]:
                continue
            if isinstance(first, Optimizer):
                optimizers.append(contents)
                continue
            memo[id(first)] = self.memory.share(contents)
            self._tensors.append(memo[id(first)])
        for seeds in optimizers:
            memo[id(seeds[0])] = StackedOptimizer(seeds, memo, self.memory)
        # an update that has the common tensors
        self._update = copy.deepcopy(updates[0], memo)
        for module in (part for network in _networks(self._update) for part in network.modules()):
            if hasattr(module, 'trace_layers'):
                module.trace_layers()
        index = {id(tensor): i for i, tensor in enumerate(self._tensors)}
        slots = [slot for slot in slots_of(self._update, set()) if id(slot.content) in index]
        if any(slot.holder is None for slot in slots):
            reason = f'{type(updates[0]).__name__} has tensors in a tuple, where they cannot be replaced'
            raise ConfigError(f'seeds cannot be stacked: {reason}', remedy=LEAVE)
        self._slots = [(slot.holder, slot.key, index[id(slot.content)]) for slot in slots]
        self._losses = {name: self._for_all(name) for name in updates[0].losses}
        self._optimizers = [memo[id(seeds[0])] for seeds in optimizers]
        self._members = list(updates)

    def _for_all(self, name: str) -> Callable[[Rows], Loss]:
        """Returns a loss of all seeds, whose parts are [S, ...], and which tells its optimizer the gradients.

        At its first call for columns of some shapes, what it does is recorded as a list of torch's operations, which later
        calls repeat: they need neither autograd nor vmap, which take longer than the products of small networks.
        """
        optimizer: Any = self._update.optimizers[self._update.losses[name]]
        records: dict[Any, Callable[..., tuple[Any, ...]]] = {}

        def stacked(rows: Rows) -> Loss:
            key = _shapes(rows)
            if key not in records:
                records[key] = self._record(getattr(self._update, name), optimizer.parameters, rows)
            with torch.no_grad():
                value, metrics, error, parts, optimizer.gradients = records[key](self._tensors, rows)
            return self._kind(value, metrics, error, parts)

        return stacked

    def _record(
        self, loss: Callable[[Rows], Loss], parameters: Sequence[torch.Tensor], rows: Rows
    ) -> Callable[..., tuple[Any, ...]]:
        """Returns a function of all tensors and columns that computes a loss of each seed, and the gradients."""
        index = {id(tensor): i for i, tensor in enumerate(self._tensors)}
        places = [index[id(parameter)] for parameter in parameters]

        def of_one(tensors: Sequence[torch.Tensor], rows: Rows) -> tuple[Any, ...]:
            self._fill(tensors)
            found = loss(rows)
            self._kind = type(found)
            error = found.value if found.error is None else found.error
            return found.value, found.metrics, error, found.parts

        def of_all(tensors: Sequence[torch.Tensor], rows: Rows) -> tuple[Any, ...]:
            value, *more = torch.vmap(of_one)(tensors, rows)
            trained = [tensors[place] for place in places]
            gradients = torch.autograd.grad(value.sum(), trained, allow_unused=True)
            return value, *more, [None if own is None else own.contiguous() for own in gradients]

        try:
            with _for_vmap()():
                record = proxy_tensor.make_fx(of_all)(self._tensors, rows)
        except RuntimeError as error:
            reason = f'{loss.__qualname__} cannot be computed for all at once: {str(error).splitlines()[0]}'
            raise ConfigError(f'seeds cannot be stacked: {reason}', remedy=LEAVE) from error
        finally:
            self._fill(self._tensors)
        return _without_views(record).forward

    def _fill(self, tensors: Sequence[torch.Tensor]) -> None:
        for holder, key, i in self._slots:
            holder[key] = tensors[i]

    def step(self, rows: Sequence[Rows], turn: bool) -> list[Answer]:
        """Makes an update of each seed by its columns of a batch, all [B, ...]; see ``Update.step``."""
        update = self._update
        count = len(rows)
        update.updates = self._members[0].updates
        for optimizer in self._optimizers:
            optimizer.errors = {}
        metrics = update.step(self._losses, _together(rows), turn)
        each = {name: value.unbind() if value.dim() else (value,) * count for name, value in metrics.items()}
        answers: list[Answer] = [{name: values[i] for name, values in each.items()} for i in range(count)]
        for optimizer in self._optimizers:
            for i, error in optimizer.errors.items():
                answers[i] = error
        return answers


class StackedOptimizer:
    """The optimizers of the same part of several seeds: each seed has its own moments, step counts and limit of its gradient.

    ``own`` are the optimizers of the seeds, ``memo`` has the common tensor of each of the first seed's, by its id, and ``memory`` is
    that of the seeds.
    """

    def __init__(self, own: Sequence[Optimizer], memo: dict[int, torch.Tensor], memory: CommonRows) -> None:
        self._own = own
        # the step counts of all seeds become one tensor
        self._counts: torch.Tensor | None = None
        if own[0].counts is not None:
            self._counts = memory.share([one.counts for one in own if one.counts is not None])
            for same in zip(*(one.lists[-1] for one in own), strict=True):
                memory.share(same)
        self.parameters = [memo[id(parameter)] for parameter in own[0].lists[0]]
        # parameters, moments and step counts by parameter, then by seed
        kinds = zip(*(one.lists for one in own), strict=True)
        self._lists = [list(zip(*kind, strict=True)) for kind in kinds]
        self._all = [_joined(kind) for kind in self._lists]
        self._unit_rows = [weight for one in own for weight in one.unit_rows]
        self.gradients: list[Any] | None = None
        """Gradients of the next step, [S, ...] each, if they are known."""
        self.errors: dict[int, NonFiniteError] = {}
        """Seeds whose last update was not finite."""

    def step(self, loss: torch.Tensor, /, **parts: torch.Tensor) -> None:
        """Moves the parameters of each seed by a gradient step of its loss, float32 [S]; see ``Optimizer.step``."""
        # gradients of each seed
        gradients: Any = self.gradients
        if gradients is None:
            gradients = torch.autograd.grad(loss.sum(), self.parameters)
        self.gradients = None
        used = [i for i, gradient in enumerate(gradients) if gradient is not None]
        gradients = [gradients[i] for i in used]
        # seeds that go on
        first = self._own[0]
        bad = set[int]()
        if first.guard is not None and first.guard.look(loss.detach().sum(), gradients):
            bad = self._refused(gradients, {'total_loss': loss, **parts})
        if first.clip is not None:
            _limit(gradients, first.clip)
        # the step
        if bad or len(used) < len(self.parameters):
            kept = [i for i in range(len(self._own)) if i not in bad]
            lists = [_joined([kind[k] for k in used], kept) for kind in self._lists]
            each = _joined([gradient.unbind() for gradient in gradients], kept)
            counts = None
        else:
            lists = self._all
            each = _joined([gradient.unbind() for gradient in gradients])
            counts = self._counts
        trained, mean, square, steps = lists
        first.move(trained, each, mean, square, steps, counts)
        if self._unit_rows:
            from rlframe.model.core import to_unit_rows

            to_unit_rows(self._unit_rows)

    def _refused(self, gradients: Sequence[torch.Tensor], losses: dict[str, torch.Tensor]) -> set[int]:
        """Notes the errors of seeds whose loss or gradient, [S, ...], is not finite, and returns these seeds."""
        bad = set()
        for i, optimizer in enumerate(self._own):
            own = [gradient[i] for gradient in gradients]
            found = {name: loss.detach()[i] for name, loss in losses.items()}
            if all(tensor.isfinite().all() for tensor in (*own, found['total_loss'])):
                continue
            bad.add(i)
            try:
                optimizer.refuse(1, found, own)
            except NonFiniteError as error:
                self.errors.setdefault(i, error)
        return bad


def _joined(lists: Sequence[Sequence[Any]], kept: Sequence[int] | None = None) -> list[Any]:
    """Returns the elements of all lists one after the other, or those at some places of each."""
    return [own for each in lists for own in (each if kept is None else [each[i] for i in kept])]


def _limit(gradients: Sequence[torch.Tensor], limit: float) -> None:
    """Scales the gradients, [S, ...], of seeds whose norm is above the limit, as ``clip_grads_with_norm_`` does."""
    norms = torch.stack([gradient.reshape(len(gradient), -1).norm(dim=1) for gradient in gradients])
    share = (limit / (norms.norm(dim=0) + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(share.view(-1, *[1] * (gradient.dim() - 1)))


def _networks(update: Update) -> list[torch.nn.Module]:
    """Returns the networks of an update."""
    found = [update.model] if update.targets is None else [update.model, update.targets.network]
    return [network for network in found if isinstance(network, torch.nn.Module)]


def _without_views(record: Any) -> Any:
    """Leaves out the operations that return their first argument as it is: half of those that vmap makes."""
    for node in list(record.graph.nodes):
        given = node.args[0] if node.args else None
        shapes = [getattr(one, 'meta', {}).get('tensor_meta') for one in (node, given)]
        is_view = str(node.target) in VIEWS and None not in shapes
        if is_view and len({(one.shape, one.stride) for one in shapes if one}) == 1:
            node.replace_all_uses_with(given)
            record.graph.erase_node(node)
    record.recompile()
    return record


def _for_vmap() -> Any:
    """Returns a mode in which operations that ``torch.vmap`` does in a slow way are done in another one.

    It multiplies the product and the bias of a linear layer by 1 (an update of ten DQNs took a fifth longer), and limits tensors in
    place one by one.
    """

    class Mode(overrides.TorchFunctionMode):  # type: ignore[misc,name-defined]  # a class of a lazy module
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if function is torch.nn.functional.linear and args[0].dim() == 2 and not kwargs:
                features, weight, *bias = args
                product = features.mm(weight.t())
                return product if not bias or bias[0] is None else product.add_(bias[0])
            if function is torch.Tensor.clamp_:
                return args[0].copy_(torch.clamp(*args, **kwargs))
            return function(*args, **kwargs)

    return Mode
