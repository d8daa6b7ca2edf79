"""Update: what a batch does to networks. It knows tensors only: no env, no replay buffer, no policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from rlframe.data.faces import Metrics
from rlframe.data.timestep import Array, EnvSpec
from rlframe.policy.parts.actions import distribution_of, without_forbidden
from rlframe.policy.parts.optim import Optimizer, Targets
from rlframe.policy.parts.sequences import Rows
from rlframe.utils.lazy import torch
from rlframe.utils.schema import COUNT, DICT, check_state, part

if TYPE_CHECKING:
    from rlframe.policy.parts.ranks import Ranks, Step


class Loss(NamedTuple):
    """What an optimizer minimises, and what is known of it."""

    value: torch.Tensor
    """The loss, a number."""
    metrics: Metrics = {}
    """Values to log, numbers."""
    error: torch.Tensor | None = None
    """Error of each row, float32 [B]; its absolute value becomes the priority of the row."""
    parts: Rows = {}
    """Losses that it is the sum of, by their names: they are logged, and named in an error about numbers that are not finite."""


Losses: TypeAlias = Mapping[str, Callable[[Rows], Loss]]
"""The losses of an update by their names, compiled or in another number format if options ask for it."""


class Update:
    """What a batch does to the networks of a policy.

    An algorithm names its losses, and the network that each trains, in the order of their steps. A loss is a method that
    maps the columns of a batch to a ``Loss``, changes nothing, and reads like its paper:

        class SACUpdate(Update):
            losses = {'critic_loss': 'critic', 'actor_loss': 'actor'}

            def critic_loss(self, rows: Rows) -> Loss: ...
            def actor_loss(self, rows: Rows) -> Loss: ...

    It uses ``model`` (the network), ``targets`` (its target network, and what belongs to replayed transitions), ``cfg`` (options
    of the policy), ``spec`` (spaces of the env) and ``device``.
    """

    losses: Mapping[str, str] = {'loss': 'model'}
    """Methods that return a loss, to the part of the network that each trains; ``model`` is the whole network."""
    inputs: tuple[str, ...] = ()
    """Columns of a batch that losses read, where there are such."""
    logged: tuple[str, ...] = ('cur_lr', 'total_loss')
    """Names of the values that it logs."""
    needs_whole_batch = False
    """Whether several learners cannot share a batch, as its rows are not learned from independently."""
    why_alone = ''
    """Why it cannot be made together with those of other seeds, as the end of a sentence about it; '' if it can."""
    targets: Targets | None = None
    """The target network, discounts and priorities of an update that learns from replayed transitions."""

    def __init__(self, model: torch.nn.Module, cfg: Any, spec: EnvSpec) -> None:
        self.model: Any = model
        self.cfg, self.spec = cfg, spec
        self.device = next((p.device for p in model.parameters()), torch.device('cpu'))
        self.distribution = distribution_of(spec, cfg)
        """The distribution over actions whose parameters an actor outputs."""
        self.optimizers: dict[str, Optimizer] = {}
        self.updates = 0
        """Updates so far."""
        self.envstep: int | None = None
        """The env step at which schedules are; None: at their start."""
        self.ranks: Ranks | None = None
        """The learners that share each update; None: there is one."""
        self.together: Callable[[Step, Rows, bool], Metrics] | None = None
        """Makes an update together with those of other seeds, by a function that makes it alone; None: it is made alone."""

    def init_learn(self) -> None:
        """Makes what only learning needs: optimizers, target networks; called once."""
        self._check()
        for name in self.losses.values():
            network = self.model if name == 'model' else getattr(self.model, name)
            own = f'learning_rate_{name}'
            rate = own if own in self.cfg.learn else 'learning_rate'
            self.optimizers[name] = Optimizer(network, self.cfg.learn, rate)

    # what an algorithm may define, beside its losses

    @property
    def turn(self) -> bool:
        """Whether the next update also does what only some updates do, such as to train the actor."""
        return True

    def draws(self, rng: np.random.Generator, count: int) -> dict[str, Array]:
        """Returns the random numbers that the next update needs, as further columns.

        ``rng`` is the generator of the policy, ``count`` the rows of the batch, B.
        """
        return {}

    def drawn(self, rng: np.random.Generator, count: int, tensor: Callable[[Array], torch.Tensor]) -> Rows:
        """Returns what ``draws`` does, as tensors."""
        return {name: tensor(numbers) for name, numbers in self.draws(rng, count).items()}

    def is_due(self, name: str, turn: bool) -> bool:
        """Whether an update minimises this loss."""
        return True

    def after(self, name: str, loss: Loss) -> Metrics:
        """Does what follows the step of an optimizer; returns further values to log."""
        return {}

    def follow(self, turn: bool) -> None:
        """Moves target networks, at the end of an update."""

    def reset_targets(self) -> None:
        """Synchronises target networks with the network, after new weights were loaded."""
        if self.targets is not None:
            self.targets.copy()

    masked = staticmethod(without_forbidden)

    # the update

    def _check(self) -> None:
        """Checks that there is a method for each loss, and a network that it can train.

        Raises:
            TypeError: If not; the class and the method are named.
        """
        kind = type(self).__name__
        for method, name in self.losses.items():
            if not callable(getattr(self, method, None)):
                raise TypeError(f'{kind} has no method {method!r}, which its losses name')
            network = self.model if name == 'model' else getattr(self.model, name, None)
            if network is None or not any(p.requires_grad for p in network.parameters()):
                raise TypeError(f'{kind}.{method} trains {name!r}, which has no parameters with gradients')

    def _checked(self, name: str, loss: Any) -> Loss:
        """Returns a loss of the first update, if it is one that an optimizer can minimise.

        Raises:
            TypeError: If not; the class and the method are named.
        """
        method = f'{type(self).__name__}.{name}'
        if not isinstance(loss, Loss):
            raise TypeError(f'{method} returned {type(loss).__name__}, not a Loss')
        if loss.value.dim():
            raise TypeError(f'{method} returned a loss of the shape {list(loss.value.shape)}, not a number')
        if not loss.value.requires_grad:
            raise TypeError(f'{method} returned a loss that depends on no parameter')
        return loss

    def step(self, losses: Losses, rows: Rows, turn: bool) -> Metrics:
        """Minimises the losses, one after the other, and returns the values to log; only reads and changes tensors.

        ``losses`` are the methods that ``losses`` names in the mode that options ask for, ``rows`` columns [B, ...];
        ``turn``: whether it is the turn of what only some updates do.
        """
        metrics: Metrics = {}
        total, error = None, None
        for name, network in self.losses.items():
            if not self.is_due(name, turn):
                continue
            loss = losses[name](rows)
            loss = loss if self.updates else self._checked(name, loss)
            parts = {name: loss.value} if len(self.losses) > 1 else loss.parts
            self.optimizers[network].step(loss.value, **parts)
            # what is logged
            for part_name, value in parts.items():
                metrics[part_name] = value.detach()
            metrics |= self.after(name, loss)
            metrics |= loss.metrics
            value = loss.value.detach()
            total = value if total is None else total + value
            error = loss.error if error is None else error
        self.follow(turn)
        metrics['total_loss'] = total
        if error is not None and self.targets is not None and self.targets.has_priority:
            metrics['priority'] = self.targets.priority(error, rows)
        return metrics

    def set_envstep(self, envstep: int) -> None:
        """Follows schedules over env steps."""
        self.envstep = envstep
        for optimizer in self.optimizers.values():
            optimizer.set_envstep(envstep)

    def rates(self) -> Metrics:
        """Returns the learning rate, and the share of skipped optimizer steps, of the last update."""
        optimizers = list(self.optimizers.values())
        metrics = optimizers[0].metrics()
        if 'skipped_share' in metrics:
            metrics['skipped_share'] = torch.stack([o.metrics()['skipped_share'] for o in optimizers]).amax()
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """Returns what updates change, beside the network."""
        optimizers = {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()}
        target = {} if self.targets is None else {'target_model': self.targets.network.state_dict()}
        return {'optimizers': optimizers, 'updates': self.updates, **target}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from ``state_dict()``."""
        check_state(state, {'optimizers': dict.fromkeys(self.optimizers, DICT), 'updates': COUNT})
        for name, optimizer in self.optimizers.items():
            with part(f'optimizers.{name}'):
                optimizer.load_state_dict(state['optimizers'][name])
        self.updates = state['updates']
        if self.targets is not None:
            self.targets.load_state_dict(state)
