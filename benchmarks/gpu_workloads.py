"""What gpu.py measures: workloads, the sides of each, and the goals."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from update_cases import IMAGES, Case

Unit = Literal['updates/s', 'env steps/s']
BY_HAND, SB3, EAGER = 'by hand', 'sb3', 'eager'
SIDES: dict[str, dict[str, Any]] = {
    EAGER: {},
    'compile': dict(compile=True),
    'cuda_graph': dict(cuda_graph=True),
    'cuda_graph bf16': dict(cuda_graph=True, precision='bf16'),
    'compile cuda_graph': dict(compile=True, cuda_graph=True),
}
"""Sides of rlframe to the options of the policy."""
PEERS = BY_HAND, SB3
"""Sides in peers/."""


class Workload(NamedTuple):
    """An update, or a whole training loop."""

    title: str
    case: Case | None = None
    """The update; None: the loop of the config ``CARTPOLE``."""
    goal: float = 0.0
    """How many times as fast as eager the fastest side with a graph is to be; of a loop, steps per second. 0: no goal."""
    has_sb3: bool = False

    @property
    def unit(self) -> Unit:
        """What is counted."""
        return 'env steps/s' if self.case is None else 'updates/s'

    @property
    def sides(self) -> tuple[str, ...]:
        """The sides that are measured, in order."""
        if self.case is None:
            return EAGER, 'compile', 'cuda_graph', 'compile cuda_graph'
        return (BY_HAND, *([SB3] if self.has_sb3 else []), *SIDES)


CARTPOLE, CARTPOLE_ENVS, CARTPOLE_STEPS = 'cartpole_torch_ppo', 4096, 32
"""Config of the training loop, its envs on a GPU, and the steps of each in a round."""
CARTPOLE_ENVS_OF_CPU = 64
LIMIT = 180
"""Seconds after which a cell is given up, and its process with it."""

_DISCRETE = dict(discount_factor=0.99, model=dict(dueling=False))
_ROUND = dict(epochs=4, minibatches=4)


def _dqn(batch_size: int) -> Case:
    return Case('dqn', batch_size, (512,), IMAGES, actions=6, policy_options=_DISCRETE)


def _continuous(policy: str) -> Case:
    return Case(policy, 256, (256, 256), (17,), actions=6)


WORKLOADS = {
    'ppo': Workload(
        'PPO, MLP 64-64: 4 epochs of minibatches of 256, of a round of 1,024 rows',
        Case('ppo', 256, (64, 64), actions=2, **_ROUND),
        3.0,
        True,
    ),
    'dqn_images_32': Workload('DQN, Nature CNN: 32 stacks of 84 x 84 x 4', _dqn(32), 3.0, True),
    'td3': Workload('TD3, MLP 256-256: 256 transitions', _continuous('td3'), 3.0, True),
    'sac': Workload('SAC, MLP 256-256: 256 transitions', _continuous('sac'), 3.0, True),
    'cartpole': Workload(
        f'PPO on native torch CartPoles: the config {CARTPOLE} with {CARTPOLE_ENVS:,} envs, from end to end',
        goal=1e6,
    ),
    'ppo_images': Workload(
        'PPO, Nature CNN for actor and critic: 4 epochs of minibatches of 256, of a round of 1,024 stacks of 84 x 84 x 4',
        Case(
            'ppo',
            256,
            (512,),
            IMAGES,
            actions=6,
            policy_options=dict(model=dict(share_encoder=True, activation='relu')),
            **_ROUND,
        ),
        has_sb3=True,
    ),
    'dqn_images_256': Workload('DQN, Nature CNN: 256 stacks of 84 x 84 x 4', _dqn(256), has_sb3=True),
    'c51': Workload(
        'C51, MLP 128-128, 51 atoms: 64 transitions',
        Case('c51', 64, (128, 128), policy_options=_DISCRETE),
    ),
    'r2d2': Workload(
        'R2D2, MLP 128-64 and an LSTM of 64 units: 64 sequences of 10 steps of burn-in and 30 others',
        Case('r2d2', 64, (128, 64, 64), actions=2, steps=40, policy_options=_DISCRETE),
    ),
}
"""All workloads; those with goals come first, in case the time runs out."""


def key_of(workload: str, side: str) -> str:
    """Returns the name of a cell."""
    return f'{workload}/{side}'


def all_cells() -> list[str]:
    """Returns the names of all cells, in order."""
    return [key_of(name, side) for name, workload in WORKLOADS.items() for side in workload.sides]
