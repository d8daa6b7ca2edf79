"""Steps envs of tensors: by tensors on their device, or by arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from easydict import EasyDict

from rlframe.data.timestep import Array, IntArray, TimeStep
from rlframe.envs.base_env import EnvFactory
from rlframe.envs.faults import start_failed
from rlframe.envs.vector_env import VectorEnvManager
from rlframe.errors import EnvError, RLFrameError
from rlframe.registry import ENV_MANAGER_REGISTRY
from rlframe.utils.lazy import LazyModule

if TYPE_CHECKING:
    import torch

    from rlframe.envs import tensor
    from rlframe.envs.tensor import TensorEnvState, TensorStep, TensorVectorEnv
else:
    torch = LazyModule('torch')
    tensor = LazyModule('rlframe.envs.tensor')  # imports gymnasium


class OnDevice(NamedTuple):
    """The manager's facts about its envs, on their device."""

    obs: torch.Tensor
    """Observations to act on next, [N, ...]."""
    steps: torch.Tensor
    """Env steps of the running episodes, int64 [N]."""
    episodes: torch.Tensor
    """Episodes so far, int64 [N]."""


@ENV_MANAGER_REGISTRY.register('torch_vector')
class TensorEnvManager(VectorEnvManager):
    """Steps the N envs of a ``TensorVectorEnv``.

    As any manager it takes and gives arrays, which are copied from and to the device at each step: for evaluation, and for
    collectors and policies that need arrays. The collector ``tensor`` uses ``device_obs`` and ``device_step``, which copy
    nothing and wait for nothing.

    Args:
        env: The envs, or a function that creates them.
        cfg: Options of the manager; there are none.
    """

    _now: OnDevice | None = None  # newer than obs and counts of the base class, if not None

    def __init__(
        self, env: TensorVectorEnv | Callable[[], TensorVectorEnv], cfg: EasyDict | None = None
    ) -> None:
        make: Callable[[], TensorVectorEnv] = env if callable(env) else lambda: env
        super().__init__(lambda: tensor.HostVectorEnv(make()), cfg)

    @classmethod
    def from_factory(
        cls, factory: EnvFactory, env_num: int, cfg: EasyDict | None = None, render_mode: str | None = None
    ) -> TensorEnvManager:
        section: Any = factory.cfg
        for name, needed in (('frame_stack', 1), ('action_mask', None), ('wrappers', [])):
            if (got := section.get(name, needed)) and got != needed:
                raise EnvError(
                    'envs of tensors are not wrapped',
                    where=f'env.{name}',
                    got=got,
                    expected=repr(needed),
                    remedy='Do it in the class of the envs.',
                )
        manager = cls(lambda: _made(factory, env_num, render_mode), cfg)
        factory.spec = manager.spec
        return manager

    def _state_of(self, env: Any) -> TensorEnvState:
        return tensor.TensorEnvState(env.tensors)

    @property
    def device(self) -> torch.device:
        """Device of the envs."""
        device: torch.device = self._env.contract.device
        return device

    @property
    def device_obs(self) -> torch.Tensor:
        """Observations to act on next, on the device, [N, ...]."""
        return self._placed().obs

    @property
    def device_steps(self) -> torch.Tensor:
        """Env steps of each running episode, on the device, int64 [N]."""
        return self._placed().steps

    def device_step(self, action: torch.Tensor) -> TensorStep:
        """Steps all envs by actions on the device, without waiting for it."""
        now = self._placed()
        step = self._env.step_tensors(action)
        done = step.terminated | step.truncated
        self._now = OnDevice(step.obs, (now.steps + 1).masked_fill_(done, 0), now.episodes + done)
        stepped: TensorStep = step
        return stepped

    def _placed(self) -> OnDevice:
        """Returns the observations and counters on the device, which are the current ones from now on."""
        if self._now is None:
            known = (self.obs, self._episodes.steps, self._episodes.number)
            self._now = OnDevice(*(torch.as_tensor(column).to(self.device, copy=True) for column in known))
        return self._now

    def _fetch(self) -> None:
        """Copies observations and counters from the device if they are newer there."""
        if self._now is None:
            return
        self.obs, steps, number = (tensor.to_array(column) for column in self._now)
        self._episodes.begin(np.flatnonzero(number != self._episodes.number))
        self._episodes.steps, self._episodes.number = steps, number
        self._now = None

    def reset(self, env_id: IntArray | None = None, seed: Sequence[int | None] | None = None) -> None:
        self._fetch()
        super().reset(env_id, seed)

    def step(self, action: Array, env_id: IntArray) -> TimeStep:
        self._fetch()
        return super().step(action, env_id)

    def restart_lost(self) -> IntArray:
        self._fetch()
        return super().restart_lost()

    def state_dict(self) -> dict[str, Any]:
        self._fetch()
        return super().state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> IntArray:
        self._now = None
        return super().load_state_dict(state)


def _made(factory: EnvFactory, env_num: int, render_mode: str | None) -> TensorVectorEnv:
    """Returns the envs of a factory.

    Raises:
        EnvError: If they are none of tensors.
        EnvStartError: If their constructor fails.
    """
    try:
        env: Any = factory.make_vector(env_num, render_mode) if factory.only_vector else None
    except RLFrameError:
        raise
    except Exception as error:
        raise start_failed(0, error) from error
    if not getattr(env, 'gives_tensors', False):
        name = factory.cfg.get('env_id')
        raise EnvError(
            f"the env manager 'torch_vector' steps envs of tensors, and {name!r} is none",
            where='env.env_id',
            got=name,
            expected="'module:Class' of a subclass of rlframe.envs.tensor.TensorVectorEnv",
        )
    made: TensorVectorEnv = env
    return made
