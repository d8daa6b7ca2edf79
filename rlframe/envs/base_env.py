"""EnvFactory: what an ``env`` section of a config builds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from easydict import EasyDict

from rlframe.data.timestep import EnvSpec
from rlframe.envs.faults import not_made
from rlframe.errors import RLFrameError
from rlframe.utils.field import Configurable, Field

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.vector import VectorEnv as GymVectorEnv

    VectorEnv = GymVectorEnv[Any, Any, Any]


class EnvFactory(Configurable, ABC):
    """Makes the envs that a config's ``env`` section describes.

    Args:
        cfg: The section; missing options take their defaults.
    """

    config = dict(
        collector_env_num=Field(8, int, '[1, inf)', 'envs', 'envs that training data comes from'),
        evaluator_env_num=Field(
            5, int, '[1, inf)', 'envs', 'envs that the policy is evaluated in', may_change=True
        ),
        n_evaluator_episode=Field(
            10, int, '[1, inf)', 'episodes', 'episodes of one evaluation', may_change=True
        ),
        stop_value=Field(
            None,
            float,
            '',
            "return in the env's own unit",
            'mean return that ends training; None: its reward threshold',
            may_change=True,
        ),
    )

    only_vector = False
    """Whether the env exists in vector form only."""

    def __init__(self, cfg: EasyDict | dict[str, Any]) -> None:
        self.cfg = self.resolve_config(cfg)
        self._spec: EnvSpec | None = None

    @abstractmethod
    def make(self, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
        """Returns a new env."""

    def make_vector(self, env_num: int, render_mode: str | None = None) -> VectorEnv | None:
        """Returns N envs in their own vector form, or None where there is none."""
        return None

    @property
    def spec(self) -> EnvSpec:
        """What a policy must know of what it, or one player, sees and does.

        The first read makes an env and closes it, unless a manager has made some already.

        Raises:
            EnvStartError: If the env's constructor fails.
        """
        if self._spec is None:
            try:
                env = (self.make_vector(1) if self.only_vector else None) or self.make()
            except RLFrameError:
                raise
            except Exception as error:
                raise not_made(0, error) from error
            self._spec = spec_of(env)
            env.close()
        return self._spec.player or self._spec

    @spec.setter
    def spec(self, spec: EnvSpec) -> None:
        self._spec = spec


def spec_of(env: gymnasium.Env[Any, Any] | VectorEnv) -> EnvSpec:
    """Reads the spaces of an env, or of one env of a vector, and, where it was registered, its threshold and time limit."""
    registered, player = env.spec, getattr(env.unwrapped, 'player', None)
    player = player if isinstance(player, EnvSpec) else None
    return EnvSpec(
        observation_space=getattr(env, 'single_observation_space', env.observation_space),
        action_space=getattr(env, 'single_action_space', env.action_space),
        player_num=player.player_num if player else 1,
        name=registered.id if registered else player.name if player else type(env.unwrapped).__name__,
        reward_threshold=registered.reward_threshold if registered else None,
        max_episode_steps=registered.max_episode_steps if registered else None,
        player=player,
    )
