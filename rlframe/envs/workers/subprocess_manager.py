"""Runs N envs in worker processes: they step in parallel, and a failure of one stays isolated."""

from __future__ import annotations

from typing import Self

from easydict import EasyDict

from rlframe.envs.base_env import EnvFactory, MakeEnv
from rlframe.envs.env_group import Group
from rlframe.envs.env_manager import BaseEnvManager, EnvManagerConfig
from rlframe.envs.workers.worker_group import WorkerGroup
from rlframe.registry import ENV_MANAGER_REGISTRY
from rlframe.run.machine import usable_cores
from rlframe.utils.field import Field
from rlframe.utils.serialize import to_bytes


class SubprocessConfig(EnvManagerConfig):
    """Options of managers of envs in processes."""

    worker_num: int | None
    step_timeout: float
    reset_timeout: float


@ENV_MANAGER_REGISTRY.register('subprocess')
class SubprocessEnvManager(BaseEnvManager):
    """Steps N envs in W worker processes, N / W of them in each, through shared arrays.

    With the same seeds it gives the same steps as ``base``. In addition to envs that raise, it survives envs that hang,
    are killed or end their process: their worker is replaced, together with its other envs.

    Args:
        env_fn: Factories of the envs, N of them, called in another process.
        cfg: Options of the manager.
    """

    reaches = 'process'
    _cfg: SubprocessConfig
    config = dict(
        worker_num=Field(
            None,
            type=int,
            range='[1, inf)',
            unit='processes',
            doc='None: one for each usable core; never more than there are envs',
            may_change=True,
        ),
        step_timeout=Field(
            60.0,
            range='(0, inf)',
            unit='seconds',
            doc='longest time that one env may take for a step',
            may_change=True,
        ),
        reset_timeout=Field(
            120.0,
            range='(0, inf)',
            unit='seconds',
            doc='longest time in which one env is created, reset, saved or loaded',
            may_change=True,
        ),
    )

    @classmethod
    def from_factory(
        cls, factory: EnvFactory, env_num: int, cfg: EasyDict | None = None, render_mode: str | None = None
    ) -> Self:
        to_bytes(dict(factory.cfg), 'env')
        to_bytes(factory, type(factory).__name__)
        manager = cls([MakeEnv(factory, render_mode)] * env_num, cfg)
        factory.spec = manager.spec
        return manager

    def _make_group(self) -> Group:
        worker_num = min(self._cfg.worker_num or usable_cores(), self.env_num)
        return WorkerGroup(self._env_fn, worker_num, self._cfg.step_timeout, self._cfg.reset_timeout)
