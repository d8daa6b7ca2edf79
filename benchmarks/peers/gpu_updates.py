"""Updates written by hand in eager torch, on any device: the lower bound without graphs and compilers, for ../gpu.py.

Each function takes the device and the rows of a batch, and returns a function that updates new networks and returns how many
updates that took. Networks and losses are those of ../gpu_workloads.py. Batches of transitions lie on the device; rounds of PPO and sequences of R2D2 are copied to it, as the
policies of rlframe do. There are no metrics and no check for finite losses.
"""

import copy
from collections.abc import Callable
from functools import partial
from itertools import cycle

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical
from torch.nn import functional
from w6_update import batches as continuous_batches
from w6_update import sac_update, td3_update
from w9_pixels import Agent, dqn_update

PPO_MINIBATCHES, PPO_EPOCHS = 4, 4
CLIP, VALUE_WEIGHT, ENTROPY_WEIGHT, GRAD_NORM = 0.2, 0.5, 0.01, 0.5
GAMMA = 0.99
ATOMS, V_MIN, V_MAX = 51, -10.0, 10.0
STEPS, BURN_IN, HIDDEN = 40, 10, 64

Update = Callable[[], int]


def mlp(sizes, activation, out_size: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inner, outer in zip(sizes, sizes[1:], strict=False):
        layers += [nn.Linear(inner, outer), activation()]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], out_size))


class ActorCritic(nn.Module):
    """Actor and critic, 4-64-64 tanh each."""

    def __init__(self) -> None:
        super().__init__()
        self.actor, self.critic = (mlp([4, 64, 64], nn.Tanh, size) for size in (2, 1))

    def forward(self, obs):
        return Categorical(logits=self.actor(obs), validate_args=False), self.critic(obs)[:, 0]


def ppo(device: str, size: int, images: bool = False) -> Update:
    """4 epochs of 4 minibatches from a round of rows, which lies on the host."""
    count = PPO_MINIBATCHES * size
    Categorical.set_default_validate_args(False)  # checking the values would wait for the device
    rng = np.random.default_rng(0)
    net = (Agent() if images else ActorCritic()).to(device)
    obs = (
        rng.integers(0, 256, (count, 4, 84, 84), np.uint8)
        if images
        else rng.standard_normal((count, 4), np.float32)
    )
    numbers = [rng.standard_normal(count, np.float32) for _ in range(2)]
    round_ = [obs, rng.integers(0, 6 if images else 2, count), np.full(count, -1.4, np.float32), *numbers]
    parameters = list(net.parameters())
    adam = torch.optim.Adam(parameters, 2.5e-4, eps=1e-5, fused=True)

    def learn(obs, action, old_log_prob, advantage, return_) -> None:
        chosen, value = net(obs)
        ratio = (chosen.log_prob(action) - old_log_prob).exp()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        gain = torch.min(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()
        value_loss = functional.mse_loss(value, return_)
        loss = VALUE_WEIGHT * value_loss - gain - ENTROPY_WEIGHT * chosen.entropy().mean()
        adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, GRAD_NORM)
        adam.step()

    def update() -> int:
        columns = [torch.from_numpy(column).to(device, non_blocking=True) for column in round_]
        for _ in range(PPO_EPOCHS):
            order = torch.randperm(count, device=device)
            for rows in order.split(size):
                learn(*(column[rows] for column in columns))
        return PPO_EPOCHS * PPO_MINIBATCHES

    return update


def dqn(device: str, size: int) -> Update:
    """Double DQN with Nature's CNN."""
    once = dqn_update(size, device, count=4)
    return lambda: once() or 1


def continuous(device: str, size: int, make: Callable) -> Update:
    """SAC or TD3 with networks of 256-256."""
    with torch.device(device):
        once = make()
    stream = cycle([[column.to(device) for column in batch] for batch in continuous_batches(4, size)])
    return lambda: once(*next(stream)) or 1


def c51(device: str, size: int) -> Update:
    """Double C51, 4-128-128 and 51 atoms of each of 4 actions."""
    rng = np.random.default_rng(0)
    online = mlp([4, 128, 128], nn.ReLU, 4 * ATOMS).to(device)
    target = copy.deepcopy(online).requires_grad_(False)
    adam = torch.optim.Adam(online.parameters(), 1e-3, fused=True)
    support = torch.linspace(V_MIN, V_MAX, ATOMS, device=device)
    width = (V_MAX - V_MIN) / (ATOMS - 1)
    offset = (torch.arange(size, device=device) * ATOMS)[:, None]
    rows = torch.arange(size, device=device)

    def batch():
        arrays = [rng.standard_normal((size, 4), np.float32) for _ in range(2)]
        arrays += [rng.integers(0, 4, size), rng.standard_normal(size, np.float32)]
        arrays.append((rng.random(size) < 0.05).astype(np.float32))
        return [torch.from_numpy(array).to(device) for array in arrays]

    stream = cycle([batch() for _ in range(4)])

    def wanted(next_obs, reward, terminated):
        best = (online(next_obs).view(-1, 4, ATOMS).softmax(2) @ support).argmax(1)
        probability = target(next_obs).view(-1, 4, ATOMS)[rows, best].softmax(1)
        moved = (reward[:, None] + GAMMA * (1 - terminated)[:, None] * support).clamp(V_MIN, V_MAX)
        place = (moved - V_MIN) / width
        low = place.floor().clamp(0, ATOMS - 2)
        share, index, result = place - low, low.long() + offset, torch.zeros_like(probability)
        result.view(-1).index_add_(0, index.view(-1), (probability * (1 - share)).view(-1))
        result.view(-1).index_add_(0, index.view(-1) + 1, (probability * share).view(-1))
        return result

    def update() -> int:
        obs, next_obs, action, reward, terminated = next(stream)
        with torch.no_grad():
            distribution = wanted(next_obs, reward, terminated)
        log_probability = online(obs).view(-1, 4, ATOMS)[rows, action].log_softmax(1)
        adam.zero_grad()
        (-(distribution * log_probability).sum(1).mean()).backward()
        adam.step()
        return 1

    return update


class Recurrent(nn.Module):
    """4-128-64 ReLU, an LSTM of 64 units and the values of 2 actions."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
        self.lstm, self.head = nn.LSTM(64, HIDDEN, batch_first=True), nn.Linear(HIDDEN, 2)

    def forward(self, obs, state):
        output, state = self.lstm(self.encoder(obs), state)
        return self.head(output), state


def r2d2(device: str, size: int) -> Update:
    """Double R2D2 from sequences of 10 steps of burn-in and 30 others, which lie on the host."""
    rng = np.random.default_rng(0)
    online = Recurrent().to(device)
    target = copy.deepcopy(online).requires_grad_(False)
    target.lstm.flatten_parameters()
    adam = torch.optim.Adam(online.parameters(), 1e-3, fused=True)
    learned = STEPS - BURN_IN
    obs = rng.standard_normal((size, STEPS + 1, 4), np.float32)
    arrays = [obs, rng.integers(0, 2, (size, learned))]
    arrays += [rng.standard_normal((size, learned), np.float32), rng.random((size, learned)) < 0.05]
    arrays += [np.zeros((1, size, HIDDEN), np.float32) for _ in range(2)]

    def values(net, obs, state):
        with torch.no_grad():
            state = net(obs[:, :BURN_IN], state)[1]
        return net(obs[:, BURN_IN:], state)[0]

    def update() -> int:
        columns = [torch.from_numpy(array).to(device, non_blocking=True) for array in arrays]
        obs, action, reward, terminated, hidden, cell = columns
        with torch.no_grad():
            reached = values(target, obs, (hidden, cell))
        value = values(online, obs, (hidden, cell))
        with torch.no_grad():
            best = value[:, 1:].argmax(2, keepdim=True)
            next_value = reached[:, 1:].gather(2, best)[..., 0]
            wanted = reward + torch.where(terminated, 0.0, GAMMA) * next_value
        chosen = value[:, :-1].gather(2, action[..., None])[..., 0]
        adam.zero_grad()
        (wanted - chosen).square().mean().backward()
        adam.step()
        return 1

    return update


UPDATES: dict[str, Callable[[str, int], Update]] = {
    'ppo': ppo,
    'ppo_images': partial(ppo, images=True),
    'dqn_images_32': dqn,
    'dqn_images_256': dqn,
    'c51': c51,
    'sac': partial(continuous, make=sac_update),
    'td3': partial(continuous, make=td3_update),
    'r2d2': r2d2,
}
"""Workloads of ../gpu_workloads.py."""
