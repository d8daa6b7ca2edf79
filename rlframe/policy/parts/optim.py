"""What an update changes: parameters, by Adam or RMSprop with a guard against non-finite updates, and target networks."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from rlframe.errors import NonFiniteError
from rlframe.policy.parts.memory import priority_of_sequences
from rlframe.policy.parts.options import schedule_of
from rlframe.policy.parts.outputs import mean_of_rows
from rlframe.policy.parts.sequences import Rows
from rlframe.utils.field import Field
from rlframe.utils.lazy import LazyModule, torch
from rlframe.utils.schema import NETWORK, check_state, part, tensor_like

torch_adam = LazyModule('torch.optim.adam')
torch_rmsprop = LazyModule('torch.optim.rmsprop')

Tensors = Sequence[Any]

logger = logging.getLogger('rlframe.policy')

BETAS = 0.9, 0.999
RMSPROP_DECAY = 0.99
GRADIENT = attrgetter('grad')

OPTIMIZER = Field('adam', doc='optimizer of the networks', choices=('adam', 'rmsprop'))

ADAM_EPS = Field(1e-8, range='(0, inf)', doc="the optimizer's epsilon")

READ_EVERY = 100
"""Number of updates between two checks of a GPU's results; each check waits for the GPU."""

NAN_POLICY = Field(
    'raise',
    doc=(
        "reaction to a loss or gradient that is not finite: 'raise' ends the run, 'skip' keeps the"
        " parameters and continues, 'ignore' does not check"
    ),
    choices=('raise', 'skip', 'ignore'),
    may_change=True,
)
"""Option ``learn.nan_policy`` of every policy with an optimizer."""


def backward(loss: torch.Tensor, parameters: Sequence[torch.Tensor]) -> None:
    """Adds the gradient of a loss to ``grad`` of some parameters.

    On a CPU it calls autograd's engine directly: the checks of ``Tensor.backward`` take a sixteenth of a small network's
    update.

    All other parameters keep their ``grad``. Without any, all that the loss, a scalar, depends on get it.

    Raises:
        RuntimeError: If the loss is not a scalar, or depends on nothing that has a gradient.
    """
    if loss.dim() or loss.device.type != 'cpu' or not parameters:
        loss.backward(inputs=parameters or None)
        return
    engine: Any = torch.autograd.Variable._execution_engine
    roots = (torch.ones_like(loss),)
    inputs = tuple(parameters)
    retains = False
    is_differentiable = False
    engine.run_backward(
        (loss,), roots, retains, is_differentiable, inputs, allow_unreachable=True, accumulate_grad=True
    )


class FiniteGuard:
    """Tells whether loss and gradients are finite.

    On a CPU the result is available at once. On a GPU nothing waits for it: the optimizer step gets it as ``found_inf``
    and is skipped if it is 1; the host reads the number of skipped updates only every ``READ_EVERY`` updates.
    """

    def __init__(self, device: torch.device) -> None:
        self.answers_at_once = device.type == 'cpu'
        """Whether the result of an update is known before its step."""
        self.found = torch.zeros((), dtype=torch.float32, device=device)  # torch's kernels take no other type
        """1 if the update that was last looked at is not finite, else 0; the step of a GPU skips it then."""
        self._one = torch.ones_like(self.found)
        self._sum = torch.zeros_like(self.found)
        self._calls = 0

    def look(self, loss: torch.Tensor, gradients: Sequence[torch.Tensor]) -> bool:
        """Looks at an update, and returns whether it is known to be not finite; False on a GPU, which is not waited for."""
        self.found.zero_()
        tensors = [*gradients, loss.float().view(1)]  # torch's kernel for GPUs takes no bfloat16
        # division by 1 changes nothing
        torch._amp_foreach_non_finite_check_and_unscale_(tensors, self.found, self._one)
        if self.answers_at_once:
            return bool(self.found)
        self._sum += self.found
        return False

    def count(self) -> int:
        """Returns the number of non-finite updates since the last result; 0 except every ``READ_EVERY`` calls."""
        self._calls += 1
        if self._calls % READ_EVERY:
            return 0
        count = int(self._sum)
        self._sum.zero_()
        return count

    def forget(self) -> None:
        """Forgets the updates that were counted but not yet reported."""
        self._sum.zero_()


class Optimizer:
    """Adam, or RMSprop, over the parameters of a module.

    It calls the kernel of torch's fused Adam on lists created once: for a small network, the bookkeeping of
    ``torch.optim.Adam`` takes a tenth of each update.

    Args:
        module: Module to train.
        cfg: ``learning_rate`` (number or schedule over env steps), ``grad_clip_norm`` (or ``None``) and, optionally,
            ``adam_beta1``, ``adam_eps`` and ``nan_policy``.
        rate: Name of the option with the learning rate.

    A module may have ``unit_rows``, weights whose rows have norm 1: each step ends with their division by their norms.

    Source:
        Kingma & Ba, Adam: A Method for Stochastic Optimization (2015), algorithm 1.
    """

    def __init__(self, module: torch.nn.Module, cfg: Mapping[str, Any], rate: str = 'learning_rate') -> None:
        trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self._names, self._parameters = list(trained), list(trained.values())
        self._rate = rate
        self._schedule = schedule_of(cfg[rate])
        self.clip = cfg['grad_clip_norm']
        """Largest norm of a gradient; None: it is not limited."""
        self._eps, self._beta1 = cfg.get('adam_eps', 1e-8), cfg.get('adam_beta1', BETAS[0])
        self.learning_rate = self._schedule(0)
        """Step size at present."""
        self._device_rate: torch.Tensor | None = None
        self._rate_now: Any = self.learning_rate  # a number, or the tensor that a graph reads
        self._mean = [torch.zeros_like(p) for p in self._parameters]
        self._square = [torch.zeros_like(p) for p in self._parameters]
        self.counts: torch.Tensor | None = None
        """Step counts of all parameters, if one kernel can step them all."""
        if len({(p.device, p.dtype) for p in self._parameters}) == 1:
            size = len(self._parameters)
            device = self._parameters[0].device
            self.counts = torch.zeros(size, dtype=torch.float32, device=device)
            self._steps = list(self.counts.unbind())
        else:
            self._steps = [torch.zeros((), dtype=torch.float32, device=p.device) for p in self._parameters]
        self._is_rmsprop = cfg.get('optimizer') == 'rmsprop'
        self._nan_policy = cfg.get('nan_policy', 'raise')
        watches = self._nan_policy != 'ignore' and self._parameters
        self.guard = FiniteGuard(self._parameters[0].device) if watches else None
        """Tells whether updates are finite; None: nobody asks."""
        self._watched: tuple[dict[str, torch.Tensor], list[Any]] = {}, []
        self.unit_rows = [weight for layer in module.modules() for weight in getattr(layer, 'unit_rows', ())]
        """Weights whose rows have norm 1."""
        self.skipped = 0
        """Updates that were not done because they were not finite."""
        self.ranks: Any = None
        """The ``Ranks`` that share each step; None: there is one learner."""

    def step(self, loss: torch.Tensor, /, **parts: torch.Tensor) -> None:
        """Moves the parameters by one gradient step.

        ``parts`` are losses that the loss is the sum of, by their names, for the error.

        Raises:
            NonFiniteError: If the loss or a gradient is not finite; parameters and moments are unchanged. On a GPU the
                error is raised up to ``READ_EVERY`` updates later, none of which changed anything.
        """
        for parameter in self._parameters:
            parameter.grad = None
        backward(loss, self._parameters)
        trained = self._parameters
        gradients = list(map(GRADIENT, trained))
        mean, square, steps, counts = self._mean, self._square, self._steps, self.counts
        if type(None) in map(type, gradients):  # parameters that the loss does not depend on
            used = [i for i, gradient in enumerate(gradients) if gradient is not None]
            trained, gradients = [trained[i] for i in used], [gradients[i] for i in used]
            mean, square, steps = ([part[i] for i in used] for part in (mean, square, steps))
            counts = None
        if self.ranks is not None:
            loss = self.ranks.average(loss, gradients)
        if self.guard is not None:
            losses = {'total_loss': loss.detach()}
            for name, part in parts.items():
                losses[name] = part.detach()
            self._watched = losses, gradients
            if self.guard.look(losses['total_loss'], gradients):
                self.refuse(1, losses, gradients)
                return
        self._limit(trained, gradients)
        self.move(trained, gradients, mean, square, steps, counts)
        if self.unit_rows:
            from rlframe.model.core import to_unit_rows

            to_unit_rows(self.unit_rows)
        if self._device_rate is None and self.guard is not None and not self.guard.answers_at_once:
            self.check()

    @property
    def lists(self) -> tuple[Tensors, Tensors, Tensors, Tensors]:
        """The parameters, and the two moments and the step count of each, which are changed in place."""
        return self._parameters, self._mean, self._square, self._steps

    def move(
        self,
        trained: Tensors,
        gradients: Tensors,
        mean: Tensors,
        square: Tensors,
        steps: Tensors,
        counts: torch.Tensor | None,
    ) -> None:
        """Moves parameters by their gradients; moments and step counts are those of ``lists``.

        ``counts`` has all of the step counts, and nothing else; None: there is no such tensor.
        """
        with torch.no_grad():
            if self._is_rmsprop:
                self._step_rmsprop(trained, gradients, square, steps)
            else:
                self._step_adam(trained, gradients, mean, square, steps, counts)

    def _limit(self, trained: Tensors, gradients: Tensors) -> None:
        """Scales gradients whose norm is above the limit, if there is one."""
        if self.clip is None or not gradients:
            return
        if self.counts is None:  # several devices or types, by which torch groups them
            norm = torch.nn.utils.get_total_norm(gradients)
            torch.nn.utils.clip_grads_with_norm_(trained, self.clip, norm)
            return
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        torch._foreach_mul_(list(gradients), (self.clip / (norm + 1e-6)).clamp(max=1.0))

    def check(self) -> None:
        """Reports updates on a GPU that were not finite, now and then; it is called after each update there.

        Raises:
            NonFiniteError: If there are some, and ``nan_policy`` is ``raise``.
        """
        if self.guard is not None and (bad := self.guard.count()):
            self.refuse(bad, *self._watched)

    def _step_adam(self, trained: Tensors, gradients: Tensors, *states: Any) -> None:
        mean, square, steps, counts = states
        found = None if self.guard is None or self.guard.answers_at_once else self.guard.found
        adam: Any = torch._fused_adam_
        if counts is None:
            adam = partial(torch_adam.adam, fused=True)  # also for several dtypes; counts the steps itself
        else:
            counts += 1 if found is None else 1 - found
        lists: Any = trained, gradients, mean, square, [], steps
        numbers = {'beta1': self._beta1, 'beta2': BETAS[1], 'lr': self._rate_now, 'eps': self._eps}
        adam(*lists, **numbers, amsgrad=False, weight_decay=0.0, maximize=False, found_inf=found)

    def _step_rmsprop(self, trained: Tensors, gradients: Tensors, square: Tensors, steps: Tensors) -> None:
        """Does the step; on a GPU, all is as before if the update is not finite, without waiting for the result."""
        found = None if self.guard is None or self.guard.answers_at_once else self.guard.found
        changed = [*trained, *square, *steps]
        before = [] if found is None else [tensor.clone() for tensor in changed]
        lists: Any = trained, gradients, square, [], [], steps
        modes = {'foreach': True, 'capturable': self._device_rate is not None and self._device_rate.is_cuda}
        numbers = {'lr': self._rate_now, 'alpha': RMSPROP_DECAY, 'eps': self._eps}
        torch_rmsprop.rmsprop(*lists, **modes, **numbers, weight_decay=0.0, momentum=0.0, centered=False)
        if found is not None:
            is_bad = found.bool()
            for tensor, old in zip(changed, before, strict=True):
                tensor.copy_(torch.where(is_bad, old, tensor))

    def refuse(
        self, count: int, losses: Mapping[str, torch.Tensor], gradients: Sequence[torch.Tensor]
    ) -> None:
        """Raises the error about updates that are not finite, or counts them."""
        self.skipped += count
        norm = float(torch.nn.utils.get_total_norm(gradients))
        values = ', '.join(f'{name} {float(loss):.6g}' for name, loss in losses.items())
        at_once = self.guard is not None and self.guard.answers_at_once
        when = 'not finite' if at_once else f'{count} of the last {READ_EVERY} updates not finite; now'
        message = f'{when}: {values}, gradient norm {norm:.6g}, learning rate {self.learning_rate:g}'
        if self._nan_policy == 'skip':
            logger.warning('%s; skipped, %d so far', message, self.skipped)
            return
        raise NonFiniteError(
            message,
            where='policy.learn',
            remedy=f'Lower policy.learn.{self._rate}, limit policy.learn.grad_clip_norm, or set'
            " policy.learn.nan_policy='skip'.",
        )

    def metrics(self) -> dict[str, Any]:
        """Returns the values to log of the last update."""
        found: dict[str, Any] = {'cur_lr': self.learning_rate}
        if self.guard is not None and self._nan_policy == 'skip':
            found['skipped_share'] = self.guard.found.clone()
        return found

    def set_envstep(self, envstep: int) -> None:
        """Follows the learning-rate schedule."""
        rate = self._schedule(envstep)
        if self._device_rate is None:
            self._rate_now = rate
        elif rate != self.learning_rate:
            self._device_rate.fill_(rate)
        self.learning_rate = rate

    def prepare_capture(self) -> None:
        """Lets the next steps become part of a CUDA graph: they read the learning rate from the device."""
        self._device_rate = torch.full((), self.learning_rate, device=self._parameters[0].device)
        self._rate_now = self._device_rate

    def forget(self) -> None:
        """Forgets updates that were not finite and not reported yet."""
        if self.guard is not None:
            self.guard.forget()

    def state_dict(self) -> dict[str, Any]:
        """Returns Adam's moments and step count of each parameter."""
        rows = zip(self._names, self._mean, self._square, self._steps, strict=True)
        return {name: {'mean': m.clone(), 'square': s.clone(), 'steps': n.clone()} for name, m, s, n in rows}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``; the learning rate stays that of the config."""
        own = zip(self._names, self._mean, self._square, self._steps, strict=True)
        kinds = {n: dict(zip(('mean', 'square', 'steps'), map(tensor_like, t), strict=True)) for n, *t in own}
        check_state(state, kinds)
        for name, mean, square, steps in zip(self._names, self._mean, self._square, self._steps, strict=True):
            mean.copy_(state[name]['mean'])
            square.copy_(state[name]['square'])
            steps.copy_(state[name]['steps'])


class Targets:
    """The target network of an update, the discount behind each transition, and the priorities of what was learned.

    The network is its own target network until ``begin``.

    Source:
        Sutton & Barto, Reinforcement Learning (2018), section 6.1; target networks: Mnih et al. (2015).
    """

    def __init__(self, cfg: Any, network: torch.nn.Module, device: torch.device) -> None:
        self.network: Any = network
        """The target network."""
        self.discount_factor = cfg.discount_factor
        """Per env step, in [0, 1]."""
        self.has_priority, self._has_weights = cfg.priority, cfg.priority_IS_weight
        self._eta = cfg.get('priority_eta')
        # tensors, because torch.where would convert numbers anew in each update
        self._end, self._going_on = torch.tensor([0.0, cfg.discount_factor], device=device).unbind()
        self._skips = cfg.learn.nan_policy == 'skip'

    def begin(self, target: torch.nn.Module, online: Sequence[torch.nn.Module]) -> None:
        """Makes a copy the target network. ``online`` are the parts of the network that ``target`` is a copy of."""
        for module in target.modules():
            if isinstance(module, torch.nn.RNNBase):
                module.flatten_parameters()  # copied one by one, they are in no single chunk as cuDNN wants them
        self.network = target.requires_grad_(False)
        self._weights = (
            [p.detach() for p in target.parameters()],
            [p.detach() for part in online for p in part.parameters()],
        )
        self._states = (
            list(target.state_dict().values()),
            [value for part in online for value in part.state_dict().values()],
        )

    def copy(self) -> None:
        """Makes the target network equal to the network."""
        if self._states[0]:  # there may be no target network
            torch._foreach_copy_(*self._states)

    def follow(self, share: float) -> None:
        """Moves the weights of the target network towards those of the network, by this share of the distance."""
        if self._weights[0]:
            torch._foreach_lerp_(*self._weights, share)

    def discount(self, rows: Rows) -> torch.Tensor:
        """Returns the weight of the next state of each transition, float32 [B]: 0 behind a terminal one."""
        if 'value_gamma' in rows:
            gamma: torch.Tensor = rows['value_gamma']
            return gamma.masked_fill(rows['terminated'], 0.0)
        return torch.where(rows['terminated'], self._end, self._going_on)

    def weight(self, rows: Rows) -> torch.Tensor | None:
        """Returns the importance weight of each row, float32 [B]; None: they weigh the same."""
        return rows.get('IS') if self._has_weights else None

    def mean(self, losses: torch.Tensor, rows: Rows) -> torch.Tensor:
        """Returns the mean of the losses of rows, [..., B] to [...], by their importance weights if they have some."""
        return mean_of_rows(losses, self.weight(rows))

    def priority(self, error: torch.Tensor, rows: Rows) -> torch.Tensor:
        """Returns the priority of each sampled transition or sequence, float32 [B], by the errors of transitions or steps."""
        priority = error.abs()
        if 'sequence' in rows:
            count = len(rows['obs'].unroll.state)
            priority = priority_of_sequences(priority, rows['sequence'], count, self._eta)
        # rows that spoilt a skipped update should not be drawn again
        return priority.nan_to_num(0.0, 0.0, 0.0) if self._skips else priority

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Loads the target network of a state."""
        check_state(state, {'target_model': NETWORK})
        with part('target_model'):
            self.network.load_state_dict(state['target_model'])
