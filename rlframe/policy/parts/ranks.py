"""Ranks: processes that share each update of a policy, every one of them with a part of the batch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from rlframe.data.faces import Metrics
from rlframe.data.observation import first_part
from rlframe.errors import ConfigError, DeviceError
from rlframe.policy.parts.sequences import Rows, take
from rlframe.utils.field import Field
from rlframe.utils.lazy import LazyModule, torch

if TYPE_CHECKING:
    from rlframe.policy.update import Update

dist = LazyModule('torch.distributed')

Step: TypeAlias = Callable[[Rows, bool], Metrics]
"""Makes an update by the columns of a batch; see ``Update.step``."""


def check_ranks(policy: type[Any], cfg: Any) -> ConfigError | None:
    """Returns why several learners cannot share the updates of a policy."""
    count = cfg.learn.num_learners
    if cfg.model.get('core') is not None or policy.is_recurrent:
        reason = 'a network with a core learns from sequences, which are not divided'
    elif cfg.cuda_graph:
        reason = 'a CUDA graph contains no messages between processes'
    elif (size := cfg.learn.get('batch_size')) is not None and size < count:
        reason = f'learn.batch_size={size} has no row for each'
    elif policy.update_class is None:
        reason = f'{policy.__name__} has no Update that several could share (update_class)'
    elif policy.update_class.needs_whole_batch:
        reason = f'each update of {policy.__name__} needs the whole batch'
    else:
        return None
    return ConfigError(reason, expected='1')


NUM_LEARNERS = Field(
    1,
    range='[1, inf)',
    unit='processes',
    doc='learners that share each update: every one computes the gradient of its part of a batch, and all make the step of their mean',
    may_change=True,
    rule=check_ranks,
)
MAX_LEARNER_RESTARTS = Field(
    0,
    range='[0, inf)',
    unit='restarts',
    doc='how often the other learners are started again, from the state of the first one, after one was lost; one more loss ends the run',
    may_change=True,
)
UNHEARD_OF = timedelta(days=1)
"""How long a rank may hear nothing, such as during an evaluation; one that ends is noticed at once."""
CONNECTING = timedelta(minutes=5)
"""How long ranks of one machine may take to connect: the end of one is not noticed then."""
SHARED = ('critics',)
"""Inputs of an update that are not about rows of the batch."""


def device_of(device: torch.device, rank: int, size: int) -> torch.device:
    """Returns the device of a rank: CUDA devices are counted by rank on this machine.

    Raises:
        DeviceError: If there are fewer CUDA devices than ranks.
    """
    if device.type != 'cuda' or size == 1:
        return device
    local = int(os.environ.get('LOCAL_RANK', rank))
    there = torch.cuda.device_count()
    if int(os.environ.get('LOCAL_WORLD_SIZE', size)) > there:
        raise DeviceError(
            f'{size} learners need a GPU each, and {there} are here',
            where='policy.learn.num_learners',
            remedy=f"Set policy.learn.num_learners={max(there, 1)}, or policy.device='cpu'.",
        )
    return torch.device('cuda', local)


class Ranks:
    """This process among those that share the updates of a policy.

    It is number ``rank``, of which 0 leads, of ``size`` processes. ``store`` is a file that all of them can reach, for
    those of one machine; '': as the variables that torchrun sets say. They exchange by NCCL on 'cuda' and by Gloo on 'cpu'.
    ``goes_on`` is called with the error of an update whose messages failed: whether this process makes the update again,
    alone; then it has closed the ranks.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        store: str,
        device: torch.device,
        goes_on: Callable[[RuntimeError], bool] = lambda _: False,
    ) -> None:
        self.rank, self.size, self._goes_on = rank, size, goes_on
        self._update: Update | None = None
        self._weight = 1.0  # of this rank's part of the running update
        found: dict[str, Any] = {'timeout': UNHEARD_OF}
        if store:
            os.environ.setdefault('GLOO_SOCKET_IFNAME', 'lo')  # nobody else is to reach it
            found = {'store': dist.FileStore(store, size), 'rank': rank, 'world_size': size}
            found['timeout'] = CONNECTING
        backend = 'gloo' if device.type == 'cpu' else 'cpu:gloo,cuda:nccl'
        # torch also counts groups that failed, and all learners must name theirs alike
        dist.distributed_c10d._world.group_count = 0
        dist.init_process_group(backend, **found)
        dist.distributed_c10d._set_pg_timeout(UNHEARD_OF)

    def attach(self, update: Update) -> None:
        """Lets an update be shared: each rank gets its rows, and all make the same steps."""
        self._update = update
        self._tell(self)

    def _tell(self, ranks: Ranks | None) -> None:
        if self._update is not None:
            self._update.ranks = ranks
            for optimizer in self._update.optimizers.values():
                optimizer.ranks = ranks

    def step(self, step: Step, rows: Rows, turn: bool) -> Metrics:
        """Makes this rank's part of an update, and returns the values to log of the whole."""
        own, count = self._part(rows)
        try:
            return self._together(step(own, turn), count)
        except RuntimeError as error:
            if not self._goes_on(error):
                raise
        return step(rows, turn)

    def _part(self, rows: Rows) -> tuple[Rows, int]:
        """Returns this rank's rows, and the number of all; parts differ by one row at most."""
        count = len(first_part(rows.get('obs', rows)))
        first, last = (count * place // self.size for place in (self.rank, self.rank + 1))
        self._weight = (last - first) / count
        last = max(last, first + 1)  # a row without weight, as a mean of none is no number
        part = slice(min(first, count - 1), max(last, 1))
        return {name: own if name in SHARED else take(own, part) for name, own in rows.items()}, count

    def average(self, loss: torch.Tensor, gradients: Sequence[torch.Tensor]) -> torch.Tensor:
        """Makes gradients over this rank's rows those over all rows, and returns the loss over all, by one message."""
        tensors = [*gradients, loss.detach()]
        flat = torch.cat([tensor.reshape(-1).float() for tensor in tensors]).mul_(self._weight)
        dist.all_reduce(flat)
        *means, total = flat.split([tensor.numel() for tensor in tensors])
        for gradient, mean in zip(gradients, means, strict=True):
            gradient.copy_(mean.view_as(gradient))
        return total.view_as(loss)

    def standardised(self, column: torch.Tensor, ddof: int) -> torch.Tensor:
        """Returns a column of this rank's rows, [b], with mean 0 and standard deviation 1 over the rows of all ranks."""
        count = torch.tensor(float(len(column)) if self._weight else 0.0, device=column.device)
        total = torch.stack([count, column.sum() * (self._weight > 0)]).detach()
        dist.all_reduce(total)
        if total[0] == 1:
            return column
        centred = column - total[1] / total[0]
        squares = centred.square().sum() * (self._weight > 0)
        dist.all_reduce(squares)
        return centred / ((squares / (total[0] - ddof)).sqrt() + 1e-8)

    def _together(self, metrics: Metrics, count: int) -> Metrics:
        """Returns the values to log over all rows, and the priorities of all of them, by one message."""
        first = count * self.rank // self.size
        priority = metrics.pop('priority', None)
        numbers = [torch.as_tensor(value).detach().float().reshape(()) for value in metrics.values()]
        flat = torch.stack(numbers).mul_(self._weight)
        if priority is not None:
            whole = priority.new_zeros(count)
            if self._weight:
                whole[first : first + len(priority)] = priority
            flat = torch.cat([flat, whole.float()])
        dist.all_reduce(flat)
        found = dict(zip(metrics, flat[: len(numbers)].unbind(), strict=True))
        return found if priority is None else found | {'priority': flat[len(numbers) :]}

    def send(self, chunks: Iterable[Any]) -> None:
        """Sends bytes from rank 0 to all others."""
        data = torch.frombuffer(bytearray(b''.join(chunks)), dtype=torch.uint8)
        dist.broadcast(torch.tensor([len(data)]), 0)
        dist.broadcast(data, 0)

    def receive(self) -> Any:
        """Waits for bytes from rank 0, uint8 [bytes]."""
        size = torch.zeros(1, dtype=torch.int64)
        dist.broadcast(size, 0)
        data = torch.empty(int(size), dtype=torch.uint8)
        dist.broadcast(data, 0)
        return data.numpy()

    def close(self) -> None:
        """Leaves the others, so that the policy is updated by this process alone; may be called twice."""
        self._tell(None)
        if dist.is_initialized():
            dist.destroy_process_group()
