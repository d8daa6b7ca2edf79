"""A custom policy: DQN whose loss grows linearly with large errors.

    rlframe train -c cartpole_dqn "import_names=['new_policy']" policy.type=new_policy

A policy acts, and has an update, which learns. Other methods that an update may define: target (what values learn), output
(what a network says of returns); that a policy may: forward_collect (how it explores), values (what it acts by),
process_transition (columns of a transition) and create_model (its network). docs/how_to/own_algorithm.md lists all of
them, with examples: a target masks forbidden actions by self.masked(values, obs).
"""

from typing import Any

import torch

from rlframe.policy.dqn import DQNPolicy, DQNUpdate
from rlframe.policy.parts.outputs import chosen
from rlframe.policy.update import Loss
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import Field


class HuberUpdate(DQNUpdate):
    """DQN with the Huber loss."""

    def loss(self, rows: dict[str, Any]) -> Loss:
        """Returns the loss of a batch, values to log, and the TD error of each transition, [B]."""
        value = chosen(self.model(rows['obs']), rows['action'])  # [B]
        with torch.no_grad():
            target = self.target(rows)  # [B]
        delta = self.cfg.learn['huber_delta']
        losses = torch.nn.functional.huber_loss(value, target, reduction='none', delta=delta)  # [B]
        error = target - value.detach()
        return Loss(self.targets.mean(losses, rows), {'td_error': error.mean()}, error)


@POLICY_REGISTRY.register('new_policy')
class NewPolicy(DQNPolicy):
    """DQN with the Huber loss."""

    update_class = HuberUpdate
    # an option: policy.learn.huber_delta=2.0
    config = dict(learn=dict(huber_delta=Field(1.0, range='(0, inf)', doc='largest squared error')))
