"""Overcooked: two cooks who share a kitchen, as a game for a team."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from overcooked.mdp import Action, OvercookedGridworld
from overcooked.static import LAYOUTS_DIR

from rlframe.data.timestep import Array, FloatArray
from rlframe.errors import ConfigError, nearest

FPS = 5
"""Pictures of a film a second."""


class Overcooked:
    """Two cooks, with PettingZoo's parallel interface: they earn 20 for each soup that one of them serves.

    Each sees the kitchen in layers with itself in the first, W x H x 26 numbers one after the other; the state is what the first
    cook sees. Who serves a soup has the reward, so the team has their sum.

    Args:
        layout: Name of the kitchen.
        horizon: Steps of an episode.
        shaping: Factor of the additional rewards of a cook for an onion or a tomato that it puts into a pot (3), a dish that it
            takes while a soup cooks (3), and a soup that it takes (5). Set it in training only, by ``env.schedule``.
        render_mode: None or 'rgb_array'.
        kwargs: Options of the kitchen, such as ``old_dynamics=True``: a pot with three onions cooks by itself.

    Raises:
        ConfigError: If there is no such kitchen, or it is not for two.

    Source:
        Carroll et al., On the Utility of Learning about Humans for Human-AI Coordination (2019), section 4 and appendix.
    """

    possible_agents = ['cook_0', 'cook_1']
    metadata = {'name': 'overcooked', 'render_modes': ['rgb_array'], 'render_fps': FPS}

    def __init__(
        self,
        layout: str = 'cramped_room',
        horizon: int = 400,
        shaping: float = 0.0,
        render_mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        names = layouts()
        if layout not in names:
            raise ConfigError(
                'no such kitchen',
                where='env.kwargs.layout',
                got=layout,
                expected='a kitchen that `rlframe list env overcooked` lists',
                remedy=nearest(layout, names).strip(),
            )
        self.horizon, self.shaping = horizon, shaping
        self.render_mode = render_mode
        self.kitchen = OvercookedGridworld.from_layout_name(layout, **kwargs)
        """The rules."""
        if self.kitchen.num_players != len(self.possible_agents):
            raise ConfigError(
                'a kitchen for two cooks is needed',
                where='env.kwargs.layout',
                got=f'{layout}, which has {self.kitchen.num_players}',
            )
        size = int(np.prod(self.kitchen.lossless_state_encoding_shape))
        self.state_space = spaces.Box(0, np.inf, (size,), np.float32)
        self.agents: list[str] = []
        self._visualizer: Any = None

    def _encoded(self) -> list[FloatArray]:
        """Returns what each cook sees."""
        layers = self.kitchen.lossless_state_encoding(self._state, self.horizon)
        return [np.asarray(each, np.float32).reshape(-1) for each in layers]

    def observation_space(self, agent: str) -> Any:
        return self.state_space

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(Action.NUM_ACTIONS)

    def state(self) -> FloatArray:
        """Returns what the first cook sees."""
        return self._seen[0]

    def reset(self, seed: int | None = None) -> tuple[dict[str, FloatArray], dict[str, Any]]:
        """Begins an episode, which is always the same: nothing in a kitchen is random."""
        self.agents = list(self.possible_agents)
        self._state = self.kitchen.get_standard_start_state()
        self._seen = self._encoded()
        return self._told(self._seen), self._told([{}, {}])

    def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
        joint = [Action.ALL_ACTIONS[actions[agent]] for agent in self.possible_agents]
        self._state, info = self.kitchen.get_state_transition(self._state, joint)
        self._seen = self._encoded()
        served = np.asarray(info['sparse_reward_by_agent'], np.float64)
        reward = served + self.shaping * np.asarray(info['shaped_reward_by_agent'])
        is_over = self._state.timestep >= self.horizon
        self.agents = [] if is_over else self.agents
        columns: tuple[Any, ...] = self._seen, reward.tolist(), [False] * 2, [is_over] * 2, [{}, {}]
        return tuple(self._told(each) for each in columns)

    def _told(self, of_cooks: Any) -> dict[str, Any]:
        return dict(zip(self.possible_agents, of_cooks, strict=True))

    def render(self) -> Array | None:
        """Returns a picture, uint8 [H, W, 3]; None without ``render_mode``."""
        if self.render_mode is None:
            return None
        from overcooked.visualization import StateVisualizer
        from pygame import surfarray

        self._visualizer = self._visualizer or StateVisualizer()
        drawn = self._visualizer.render_state(self._state, self.kitchen.terrain_mtx)
        return np.asarray(surfarray.array3d(drawn)).transpose(1, 0, 2)

    def close(self) -> None:
        """Ends nothing."""


def layouts() -> list[str]:
    """Returns the names of the kitchens."""
    return sorted(path.stem for path in Path(LAYOUTS_DIR).glob('*.layout'))


parallel_env = Overcooked
