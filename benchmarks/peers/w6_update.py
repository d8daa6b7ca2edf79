"""W6 of the peers: one update of SAC or TD3, obs float32 [17], action [6], batches of 256 that lie ready.

Actor and two critics of 256-256 ReLU, fused Adam 3e-4, discount 0.99, soft target updates of 0.005; SAC learns its
temperature at 3e-4, TD3 updates its actor every second time.

usage: w6_update.py sac_limit|td3_limit [UPDATES]
"""

import copy
import math
from collections.abc import Callable
from itertools import cycle
from time import perf_counter

import numpy as np
import torch
from harness import run
from torch import nn
from torch.nn import functional

OBS, ACTION, BATCH, HIDDEN, GAMMA, TAU, LEARNING_RATE = 17, 6, 256, 256, 0.99, 0.005, 3e-4
TARGET_NOISE, NOISE_CLIP, POLICY_DELAY = 0.2, 0.5, 2


def network(in_size: int, out_size: int) -> nn.Sequential:
    middle = (nn.Linear(in_size, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU())
    return nn.Sequential(*middle, nn.Linear(HIDDEN, out_size))


def adam(*modules: nn.Module) -> torch.optim.Adam:
    parameters = [p for module in modules for p in module.parameters()]
    return torch.optim.Adam(parameters, LEARNING_RATE, fused=True)


def batches(count: int = 16, size: int = BATCH) -> list[list[torch.Tensor]]:
    rng = np.random.default_rng(0)
    normal = [(size, OBS), (size, OBS), (size,)]
    return [
        [
            *(torch.from_numpy(rng.standard_normal(shape, np.float32)) for shape in normal),
            torch.from_numpy(rng.uniform(-1, 1, (size, ACTION)).astype(np.float32)),
            torch.from_numpy((rng.random(size) < 0.01).astype(np.float32)),
        ]
        for _ in range(count)
    ]


def timed(update: Callable[..., None], updates: int) -> dict:
    stream = cycle(batches())
    for _ in range(20):
        update(*next(stream))
    start = perf_counter()
    for _ in range(updates):
        update(*next(stream))
    return {'us_cycle': (perf_counter() - start) / updates * 1e6, 'updates': updates}


class Critics:
    """Two critics and their targets."""

    def __init__(self) -> None:
        self.one, self.two = network(OBS + ACTION, 1), network(OBS + ACTION, 1)
        self.targets = copy.deepcopy([self.one, self.two])
        self.adam = adam(self.one, self.two)
        self.parameters = [*self.one.parameters(), *self.two.parameters()]
        self.target_parameters = [p for target in self.targets for p in target.parameters()]

    def next_value(self, next_obs, next_action) -> torch.Tensor:
        features = torch.cat([next_obs, next_action], 1)
        return torch.min(self.targets[0](features), self.targets[1](features))[:, 0]

    def update(self, obs, action, target) -> None:
        features = torch.cat([obs, action], 1)
        loss = functional.mse_loss(self.one(features)[:, 0], target)
        loss = loss + functional.mse_loss(self.two(features)[:, 0], target)
        self.adam.zero_grad()
        loss.backward()
        self.adam.step()


def sac_update() -> Callable[..., None]:
    """Returns one update of SAC, on torch's default device."""
    actor, critics = network(OBS, 2 * ACTION), Critics()
    actor_adam, log_alpha = adam(actor), torch.zeros((), requires_grad=True)
    alpha_adam = torch.optim.Adam([log_alpha], LEARNING_RATE, fused=True)
    weights = list(actor.parameters())

    def draw(obs) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_std = actor(obs).chunk(2, 1)
        log_std = log_std.clamp(-20, 2)
        noise = torch.randn_like(mean)
        unsquashed = mean + log_std.exp() * noise
        slope = 2 * (math.log(2) - unsquashed - functional.softplus(-2 * unsquashed))
        log_prob = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi) - slope
        return unsquashed.tanh(), log_prob.sum(1)

    def update(obs, next_obs, reward, action, terminated) -> None:
        alpha = log_alpha.detach().exp()
        with torch.no_grad():
            next_action, log_prob = draw(next_obs)
            next_value = critics.next_value(next_obs, next_action) - alpha * log_prob
            target = reward + GAMMA * (1 - terminated) * next_value
        critics.update(obs, action, target)
        action, log_prob = draw(obs)
        features = torch.cat([obs, action], 1)
        value = torch.min(critics.one(features), critics.two(features))[:, 0]
        actor_adam.zero_grad()
        (alpha * log_prob - value).mean().backward(inputs=weights)
        actor_adam.step()
        alpha_adam.zero_grad()
        (-log_alpha * (log_prob.detach().mean() - ACTION)).backward()
        alpha_adam.step()
        torch._foreach_lerp_(critics.target_parameters, [p.detach() for p in critics.parameters], TAU)

    for target in critics.targets:
        target.requires_grad_(False)
    return update


def td3_update() -> Callable[..., None]:
    """Returns one update of TD3, on torch's default device."""
    actor, critics = network(OBS, ACTION), Critics()
    target_actor, actor_adam, weights = copy.deepcopy(actor), adam(actor), list(actor.parameters())
    for target in (target_actor, *critics.targets):
        target.requires_grad_(False)
    online = [p.detach() for p in (*weights, *critics.parameters)]
    followers = [*target_actor.parameters(), *critics.target_parameters]
    done = 0

    def update(obs, next_obs, reward, action, terminated) -> None:
        nonlocal done
        with torch.no_grad():
            next_action = target_actor(next_obs).tanh()
            noise = (torch.randn_like(next_action) * TARGET_NOISE).clamp(-NOISE_CLIP, NOISE_CLIP)
            next_value = critics.next_value(next_obs, (next_action + noise).clamp(-1, 1))
            target = reward + GAMMA * (1 - terminated) * next_value
        critics.update(obs, action, target)
        done += 1
        if done % POLICY_DELAY:
            return
        loss = -critics.one(torch.cat([obs, actor(obs).tanh()], 1)).mean()
        actor_adam.zero_grad()
        loss.backward(inputs=weights)
        actor_adam.step()
        torch._foreach_lerp_(followers, online, TAU)

    return update


def sac_limit(updates: int = 2000) -> dict:
    return timed(sac_update(), updates)


def td3_limit(updates: int = 2000) -> dict:
    return timed(td3_update(), updates)


if __name__ == '__main__':
    run({'sac_limit': sac_limit, 'td3_limit': td3_limit})
