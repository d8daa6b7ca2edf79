"""The decision transformer: a causal transformer over returns to go, observations and actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import torch
from torch import nn

from rlframe.data.observation import first_part, mapped
from rlframe.data.timestep import EnvSpec
from rlframe.model.core import MLP, one_hot
from rlframe.model.encoder import Obs
from rlframe.model.qac import action_size
from rlframe.registry import MODEL_REGISTRY

VALID, TIME, RETURN, REST = range(4)
"""Columns of a row of the state of an episode: whether it is a step, its number, its return to go, and the rest."""


class Block(nn.Module):
    """Masked self-attention and two layers, each behind a layer norm and added to its input, [B, T, width]."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """``mask`` says which tokens each may look at, bool [B, 1, T, T]."""
        count, length, width = tokens.shape
        parts = self.qkv(self.norm1(tokens)).view(count, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        seen = nn.functional.scaled_dot_product_attention(query, key, value, mask)
        tokens = tokens + self.out(seen.transpose(1, 2).reshape(count, length, width))
        hidden = nn.functional.gelu(self.wide(self.norm2(tokens)))
        return tokens + self.narrow(hidden)


@MODEL_REGISTRY.register('decision_transformer')
class DecisionTransformer(nn.Module):
    """Says which action follows a wanted return and the last steps; and, by hidden layers, which reward an action brings.

    The state of an episode, float32 [B, context_len - 1, ...], holds its last steps. When an episode begins, the return to
    go is ``target``, and after each step the reward that the network expects is subtracted.

    Source:
        Chen et al., Decision Transformer (2021), algorithm 1.
    """

    target: torch.Tensor
    scale: torch.Tensor

    def __init__(
        self,
        spec: EnvSpec,
        encoder_hidden_size_list: Sequence[int] = (64, 64),
        activation: str = 'relu',
        width: int = 128,
        blocks: int = 3,
        heads: int = 1,
        context_len: int = 20,
        max_timestep: int = 1000,
        **images: Any,
    ) -> None:
        super().__init__()
        self.is_discrete = hasattr(spec.action_space, 'n')
        actions = action_size(spec)
        self.encoder = MLP(spec.observation_space, [], activation, None, **images)
        features = self.encoder.out_size
        self.embed_return = nn.Linear(1, width)
        self.embed_obs = nn.Linear(features, width)
        self.embed_action = nn.Linear(actions, width)
        self.embed_time = nn.Embedding(max_timestep, width)
        nn.init.normal_(self.embed_time.weight, std=0.02)  # or the time would hide what is observed
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(blocks))
        self.last_norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, actions)
        known = gymnasium.spaces.Box(-torch.inf, torch.inf, (features + actions,))
        self.reward = MLP(known, encoder_hidden_size_list, activation, 1)
        self.features = features
        self.state_shape = (context_len - 1, REST + features + actions)
        """Shape of the state of an episode."""
        self.register_buffer('target', torch.zeros(()))
        self.register_buffer('scale', torch.ones(()))

    def numbers(self, action: torch.Tensor) -> torch.Tensor:
        """Returns actions [...] as numbers, float32 [..., A]: classes as one of A, continuous ones as they are."""
        if not self.is_discrete:
            return action
        return one_hot(action, self.head.out_features)

    def features_of(self, obs: Obs, lead: int = 1) -> torch.Tensor:
        """Returns features of observations with ``lead`` leading axes, [..., features]."""
        if lead == 1:
            found: torch.Tensor = self.encoder(obs)
            return found
        shape = first_part(obs).shape[:lead]
        features: torch.Tensor = self.encoder(mapped(lambda part: part.flatten(0, lead - 1), obs))
        return features.view(*shape, -1)

    def actions(
        self,
        features: torch.Tensor,
        action: torch.Tensor,
        return_to_go: torch.Tensor,
        timestep: torch.Tensor,
        mask: torch.Tensor,
    ) -> torch.Tensor:
        """Returns the actions that follow in each step, [B, T, A]: logits, or numbers in [-1, 1].

        Given are features, earlier actions as numbers [B, T, A], returns to go, the numbers of steps, and which are steps.
        """
        length = mask.shape[1]
        time = self.embed_time(timestep.clamp(max=self.embed_time.num_embeddings - 1))
        tokens = [
            self.embed_return((return_to_go / self.scale)[..., None]),
            self.embed_obs(features),
            self.embed_action(action),
        ]
        sequence = torch.stack([token + time for token in tokens], 2).flatten(1, 2)  # [B, 3 T, width]
        seen = mask.repeat_interleave(3, 1)
        causal = torch.ones(3 * length, 3 * length, dtype=torch.bool, device=mask.device).tril()
        itself = torch.eye(3 * length, dtype=torch.bool, device=mask.device)
        allowed = (causal & seen[:, None, :]) | itself
        sequence = self.norm(sequence)
        for block in self.blocks:
            sequence = block(sequence, allowed[:, None])
        output: torch.Tensor = self.head(self.last_norm(sequence[:, 1::3]))
        return output if self.is_discrete else output.tanh()

    def expected_reward(self, features: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Returns the rewards of actions as numbers, float32 [...]."""
        reward: torch.Tensor = self.reward(torch.cat([features, action], -1))
        return reward.squeeze(-1)

    def act(self, obs: Obs, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the output for the next action, [B, A], and the state after the best one."""
        features = self.features_of(obs)
        last = state[:, -1]
        before, done = last[:, REST:].split([self.features, last.shape[1] - REST - self.features], 1)
        goes_on = last[:, VALID] > 0
        wanted = last[:, RETURN] - self.expected_reward(before, done)
        wanted = torch.where(goes_on, wanted, self.target)
        time = torch.where(goes_on, last[:, TIME] + 1, 0.0)
        facts = torch.stack([torch.ones_like(time), time, wanted], 1)
        now = torch.cat([facts, features, torch.zeros_like(done)], 1)
        steps = torch.cat([state, now[:, None]], 1)
        rest = steps[:, :, REST:]
        output = self.actions(
            rest[..., : self.features],
            rest[..., self.features :],
            steps[..., RETURN],
            steps[..., TIME].long(),
            steps[..., VALID] > 0,
        )[:, -1]
        best = self.numbers(output.argmax(1) if self.is_discrete else output)
        now = torch.cat([facts, features, best], 1)
        return output, torch.cat([state[:, 1:], now[:, None]], 1)

    step = act
