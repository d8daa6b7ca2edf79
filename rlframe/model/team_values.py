"""Values of teams: Q-networks of agents, and what mixes their values, or values joint actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from rlframe.data.team import OWN, STATE, team_of
from rlframe.data.timestep import EnvSpec
from rlframe.model.core import MLP
from rlframe.model.encoder import Obs, vector_space
from rlframe.model.q_net import QNet
from rlframe.model.team import (
    NUMBER,
    AgentNets,
    choices_of,
    now,
    numbers_of,
    one_behind_the_other,
    present_of,
    rows_of,
    sees_state,
    state_of,
    without_mask,
)
from rlframe.registry import MODEL_REGISTRY


class Sum(nn.Module):
    """Adds up the values of agents."""

    def forward(self, value: torch.Tensor, state: Obs) -> torch.Tensor:
        """Maps values float32 [B, A] and states [B, ...] to values of the team, float32 [B]."""
        return value.sum(1)


class MonotonicMixer(nn.Module):
    """Mixes the values of agents by weights that are functions of the state, and never negative.

    Args:
        space: Space of the state.
        count: Agents.
        size: Hidden units of the mixer, and of the layer that gives its last bias.
        activation: Nonlinearity of that layer.

    Source:
        Rashid et al., QMIX (2018), section 4.2 and figure 2.
    """

    def __init__(self, space: Any, count: int, size: int, activation: str = 'relu') -> None:
        super().__init__()
        self._shape = count, size
        space = without_mask(space)
        self.first_weight = MLP(space, [], activation, count * size)
        self.first_bias = MLP(space, [], activation, size)
        self.last_weight = MLP(space, [], activation, size)
        self.last_bias = MLP(space, [size], activation, 1)
        # values begin near 0: where episodes are cut off, discounts alone take large ones out again
        with torch.no_grad():
            for layer in (self.last_weight.layers[-1], self.last_bias.layers[-1]):
                for parameter in layer.parameters():
                    parameter.div_(size)

    def forward(self, value: torch.Tensor, state: Obs) -> torch.Tensor:
        """Maps values float32 [B, A] and states [B, ...] to values of the team, float32 [B]."""
        weight = self.first_weight(state).abs().unflatten(1, self._shape)  # [B, A, size]
        hidden = nn.functional.elu(torch.einsum('ba,bas->bs', value, weight) + self.first_bias(state))
        mixed: torch.Tensor = (hidden * self.last_weight(state).abs()).sum(1) + self.last_bias(state).squeeze(
            1
        )
        return mixed


class FreeMixer(nn.Module):
    """Mixes the values of agents by hidden layers that also read the state, without any restriction.

    Args:
        space: Space of the state.
        count: Agents.
        size: Units of each of two hidden layers are four times this.
        activation: Nonlinearity behind each.

    Source:
        Rashid et al., Weighted QMIX (2020), section 5.
    """

    def __init__(self, space: Any, count: int, size: int, activation: str = 'relu') -> None:
        super().__init__()
        values = vector_space(count)
        both = spaces.Dict({'values': values, STATE: without_mask(space)}, sort_keys=False)
        self.net = MLP(both, [4 * size, 4 * size], activation, 1)

    def forward(self, value: torch.Tensor, state: Obs) -> torch.Tensor:
        """Maps values float32 [B, A] and states [B, ...] to values of the team, float32 [B]."""
        mixed: torch.Tensor = self.net({'values': value, STATE: state})
        return mixed.squeeze(1)


@MODEL_REGISTRY.register('team_q_net')
class TeamQNet(nn.Module):
    """Values of the choices of each agent, and of the team.

    It maps observations [B, ...] to the values of all choices, those of one agent behind those of another, float32 [B, S];
    ``mixed`` makes the values of chosen ones, float32 [B, A], that of the team, float32 [B].

    Args:
        spec: Spaces of the env.
        encoder_hidden_size_list: Widths of the hidden layers of agents.
        activation: Nonlinearity behind each.
        mixer: 'sum', or 'monotonic' or 'free', which read the state.
        mixer_size: Hidden units of the mixer.
        has_critic: Whether there is another such network, ``central``, whose mixer is free.
        dueling: Whether the networks of agents are dueling ones, see ``QNet``.
        noisy: Whether their heads are noisy.
        options: Further arguments of ``AgentNets``.
    """

    def __init__(
        self,
        spec: EnvSpec,
        encoder_hidden_size_list: Sequence[int] = (64, 64),
        activation: str = 'relu',
        mixer: Literal['sum', 'monotonic', 'free'] = 'sum',
        mixer_size: int = 32,
        has_critic: bool = False,
        dueling: bool = False,
        noisy: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        self.team = team = team_of(spec)
        most = max(team.outputs)

        def head(size: int) -> nn.Module:
            features = vector_space(size)
            return QNet(EnvSpec(features, spaces.Discrete(most)), [], activation, dueling, 1, noisy)

        self.agents = AgentNets(spec, encoder_hidden_size_list, activation, head, **options)
        self.state_shape = self.agents.state_shape
        """Shape of the recurrent state of a team, if there is a core."""
        self.mixer: Any = Sum()
        if mixer != 'sum' and sees_state(spec):
            kind = MonotonicMixer if mixer == 'monotonic' else FreeMixer
            self.mixer = kind(team.state, team.size, mixer_size, activation)
        self.central: Any = None
        if has_critic and sees_state(spec):
            own = {'dueling': dueling, 'noisy': noisy, **options}
            self.central = TeamQNet(spec, encoder_hidden_size_list, activation, 'free', mixer_size, **own)

    def forward(self, obs: Any) -> torch.Tensor:
        return one_behind_the_other(self.agents(obs), self.team)

    def step(self, obs: Obs, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Values choices with the memories of agents, and returns their states after the step, too."""
        value, after = self.agents.step(obs, state)
        return one_behind_the_other(value, self.team), after

    act = step
    now = staticmethod(now)

    def present(self, obs: Any, like: torch.Tensor) -> torch.Tensor:
        """Returns 1 for agents that act and 0 for others, of the shape and type of a tensor [B, A]."""
        return present_of(self.team, now(obs), like)

    def mixed(self, value: torch.Tensor, obs: Any) -> torch.Tensor:
        """Maps the values of what agents chose, float32 [B, A], to the value of the team, float32 [B]."""
        seen = now(obs)
        value = value * present_of(self.team, seen, value)
        mixed: torch.Tensor = self.mixer(value, state_of(self.team, seen))
        return mixed


class JointValue(nn.Module):
    """Values joint actions without any restriction, by the state and the sum of encodings of what each agent sees and does.

    Args:
        spec: Spaces of the env.
        size: Units of each hidden layer, and of the encodings.
        activation: Nonlinearity behind each hidden layer.

    Source:
        Son et al., QTRAN (2019), section 3.2.
    """

    def __init__(self, spec: EnvSpec, size: int, activation: str) -> None:
        super().__init__()
        self._team = team = team_of(spec)
        own = {
            OWN: without_mask(team.own),
            NUMBER: spaces.Discrete(team.size),
            'choice': spaces.Box(0, 1, (max(team.outputs),), np.float32),
        }
        self.encode = MLP(spaces.Dict(own, sort_keys=False), [size], activation, size)
        encodings = vector_space(size)
        both = spaces.Dict({'encodings': encodings, STATE: without_mask(team.state)}, sort_keys=False)
        self.net = MLP(both, [size, size], activation, 1)

    def forward(self, obs: Any, action: torch.Tensor) -> torch.Tensor:
        """Maps observations [B, ...] and joint actions [B, A] to values, float32 [B]."""
        team = self._team
        own = rows_of(team, obs[OWN] if team.is_told else obs, range(team.size))
        choice = choices_of(team, obs, action)
        number = numbers_of(team.size, own)
        each = self.encode({OWN: own, NUMBER: number, 'choice': choice.flatten(0, 1)})
        each = each.unflatten(0, (-1, team.size))
        present = present_of(team, obs, each[:, :, 0]).unsqueeze(2)
        value: torch.Tensor = self.net({'encodings': (each * present).sum(1), STATE: state_of(team, obs)})
        return value.squeeze(1)


@MODEL_REGISTRY.register('qtran_net')
class QTRANNet(TeamQNet):
    """Q-networks of agents whose values add up, and beside them ``joint``, the value of joint actions, and ``state_value``.

    ``joint`` maps observations [B, ...] and joint actions [B, A] to values, float32 [B]; ``state_value`` maps observations to the
    difference between the best joint value and the best sum, float32 [B]. Both read the state, and are there for learning only.
    ``joint_size`` are the units of their hidden layers; further arguments: see ``TeamQNet``.
    """

    def __init__(
        self,
        spec: EnvSpec,
        encoder_hidden_size_list: Sequence[int] = (64, 64),
        activation: str = 'relu',
        joint_size: int = 64,
        **options: Any,
    ) -> None:
        super().__init__(spec, encoder_hidden_size_list, activation, **options)
        self.joint: Any = None
        self._state_value: Any = None
        if sees_state(spec):
            self.joint = JointValue(spec, joint_size, activation)
            layers = [joint_size, joint_size]
            self._state_value = MLP(without_mask(self.team.state), layers, activation, 1)

    def state_value(self, obs: Obs) -> torch.Tensor:
        """Maps observations [B, ...] to what the best joint value has above the best sum, float32 [B]."""
        value: torch.Tensor = self._state_value(state_of(self.team, obs))
        return value.squeeze(1)
