"""TensorVectorEnv: the contract of N envs that are stepped together by tensors on one device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium
from gymnasium.vector import AutoresetMode

from rlframe.data.device import existing_device, numbered
from rlframe.utils.lazy import LazyModule

if TYPE_CHECKING:
    import torch

    VectorEnv = gymnasium.vector.VectorEnv[Any, Any, Any]
else:
    torch = LazyModule('torch')
    VectorEnv = gymnasium.vector.VectorEnv


class TensorVectorEnv(VectorEnv):
    """N envs that are stepped together: Gymnasium's vector env with tensors in place of arrays.

    A subclass sets ``num_envs``, ``device`` and the two ``single_`` spaces, and defines ``reset`` and ``step``. Its
    constructor takes ``num_envs``, and by name what ``env.kwargs`` contains. All tensors are on ``device``.

    An env begins its next episode in the step that ends one (Gymnasium's ``AutoresetMode.SAME_STEP``). Nothing of it has to
    wait for the device: which envs ended is told by tensors, not by the shape or the presence of one.

    To resume exactly, it also defines ``state_dict()``, which returns everything that later steps depend on, its random
    generators included, as tensors, numbers and text; and ``load_state_dict(state)``, whose tensors may be on the CPU.
    Without both, all envs begin a new episode at each checkpoint.
    """

    gives_tensors: ClassVar[bool] = True
    """Tells such envs from Gymnasium's vector envs."""
    metadata: dict[str, Any] = {'autoreset_mode': AutoresetMode.SAME_STEP}
    num_envs: int
    """Number of envs, N."""
    device: torch.device
    """Device of all tensors."""
    single_observation_space: gymnasium.Space[Any]
    """Space of the observation of one env, a ``Box``."""
    single_action_space: gymnasium.Space[Any]
    """Space of the action of one env."""

    def reset(  # type: ignore[override]  # one seed for all envs
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[torch.Tensor, dict[str, Any]]:
        """Begins a new episode in all envs.

        Args:
            seed: Seed of all randomness from here on; None: continue with the generators as they are.
            options: Not used.

        Returns:
            The first observations [N, ...], in the type of their space; and an info, which is not read.
        """
        raise NotImplementedError

    def step(
        self, actions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, dict[str, Any]]:
        """Steps all envs.

        Args:
            actions: Actions of the action space, in its type: int64 [N] for ``Discrete``, float32 [N, ...] for a ``Box``.

        Returns:
            Five values. Observations [N, ...]: for an env that ended, the first one of its next episode. Rewards float32
            [N]. Flags ``terminated`` bool [N], and ``truncated`` bool [N]: cut off by a time limit. The info, in which
            ``final_obs`` [N, ...] holds the true last observation of each env that ended; its other rows are not read.
        """
        raise NotImplementedError


def device_of(name: str | torch.device) -> torch.device:
    """Returns the device of a name; ``'auto'`` is CUDA where there is one, else the CPU.

    Raises:
        DeviceError: If this machine has no such device.
    """
    if name == 'auto':
        name = 'cuda' if torch.cuda.is_available() else 'cpu'
    return numbered(
        existing_device(str(name), 'env.kwargs', "device='auto' takes the CPU where there is no GPU.")
    )
