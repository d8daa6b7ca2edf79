"""A custom policy: DQN whose loss grows linearly with large errors.

    rlframe train -c cartpole_dqn "import_names=['new_policy']" policy.type=new_policy

Other methods that a policy may override: target (what values learn), forward_collect (how it explores), forward_eval (how
it acts), process_transition (columns of a transition) and create_model (its network). docs/how_to/own_algorithm.md lists
all of them, with examples: a target masks forbidden actions by self.masked(values, obs). rlframe/policy has policies for continuous actions and on-policy ones to start from.
"""

from typing import Any

import torch

from rlframe.policy.dqn import DQNPolicy
from rlframe.registry import POLICY_REGISTRY
from rlframe.utils.field import Field


@POLICY_REGISTRY.register('new_policy')
class NewPolicy(DQNPolicy):
    """DQN with the Huber loss."""

    # an option: policy.learn.huber_delta=2.0
    config = dict(learn=dict(huber_delta=Field(1.0, range='(0, inf)', doc='largest squared error')))

    def loss(self, rows: dict[str, Any]) -> Any:
        """Returns the loss and the TD error of each transition, [B], and what to log."""
        error = self.chosen(self.model(rows['obs']), rows['action']) - self.target(rows)  # [B]
        options = {'reduction': 'none', 'delta': self._cfg.learn['huber_delta']}
        loss = torch.nn.functional.huber_loss(error, torch.zeros_like(error), **options)  # [B]
        return loss, error.detach(), {'td_error': error.detach().mean()}
