"""The source of an export: the policy of a checkpoint, and the facts about it."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlframe import config
from rlframe.checkpoint import OpenCheckpoint, open_checkpoint
from rlframe.checkpoint.manifest import Manifest
from rlframe.config.sections import ExperimentConfig
from rlframe.data.timestep import EnvSpec
from rlframe.errors import ConfigWarning
from rlframe.pipeline import build
from rlframe.utils.resolved_config import ResolvedConfig

if TYPE_CHECKING:
    from rlframe.policy import Policy


@dataclasses.dataclass(frozen=True)
class Source:
    """The policy of a checkpoint."""

    checkpoint: Path
    """Path of the checkpoint."""
    cfg: ExperimentConfig
    """The config that it was trained by, without parallel mode."""
    spec: EnvSpec
    """Spaces of the env, as the policy sees them."""
    policy: Policy
    """The policy, with its weights, on the CPU."""
    state: Mapping[str, Any]
    """State of the checkpoint."""
    manifest: Manifest
    """Manifest of the checkpoint."""
    model: Any = None
    """The user's network; None: the one that the config names."""

    @property
    def frame_stack(self) -> int:
        """Observations that the policy sees at a time."""
        return int(self.cfg.env.get('frame_stack', 1))

    @property
    def measured(self) -> dict[str, Any]:
        """The checkpoint's facts about its return and its training."""
        progress = self.manifest.get('progress', {})
        return {
            'name': self.checkpoint.name,
            'return': self.manifest.get('score'),
            'env_steps': progress.get('envstep'),
            'updates': progress.get('train_iter'),
            'seed': self.cfg.seed,
        }

    def fresh_policy(self) -> Policy:
        """Returns another policy with the same weights."""
        where = str(self.checkpoint)
        return _policy(self.cfg, self.spec, self.state, self.manifest, where, copy.deepcopy(self.model))


def open_source(
    path: str | Path | OpenCheckpoint,
    trust: bool = False,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    model: Any = None,
    env: Any = None,
) -> Source:
    """Loads the policy of a checkpoint.

    Args:
        path: As accepted by ``open_checkpoint``.
        trust: Whether the config of a foreign run may reach beyond the run.
        overrides: Options that replace those of the run, such as secrets, which checkpoints never contain.
        model: A network to load the weights into, in place of the one named in the config.
        env: Id, class or factory of the env, in place of the one named in the config.

    Raises:
        CheckpointError: If it does not exist, is damaged, or contains no policy or no config.
        EnvError: If its env, whose spaces are read, cannot be created.
    """
    opened = open_checkpoint(path)
    found, manifest = opened.path, opened.manifest
    state = opened.state(buffer=False)  # verified before its config is used
    data = config.without_parallel(config.config_of(manifest, str(found)))
    if env is not None:
        data = config.with_env(data, env)
    if not manifest.is_own:
        config.check_trust(data, str(found), trust, overrides, env)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', ConfigWarning)  # they were shown when the run began
        cfg = config.compile_config(data['main_config'], data['create_config'], overrides=overrides)
    spec = build.make_factory(cfg).spec
    policy = _policy(cfg, spec, state, manifest, str(found), copy.deepcopy(model))
    return Source(found, cfg, spec, policy, state, manifest, model)


def _policy(
    cfg: ExperimentConfig,
    spec: EnvSpec,
    state: Mapping[str, Any],
    manifest: Mapping[str, Any],
    where: str,
    model: Any = None,
) -> Policy:
    from rlframe.policy import create_policy

    if model is None:
        build.check_network(cfg, spec, state, manifest, where)
    acting: ResolvedConfig = cfg.policy.eval
    if 'deterministic' in acting:  # no exported function draws, and its checks compare best actions
        acting = ResolvedConfig({**acting, 'deterministic': True})
    on_cpu = ResolvedConfig({**cfg.policy, 'device': 'cpu', 'cuda': None, 'eval': acting})
    policy = create_policy(on_cpu, spec, model=model, enable_field=('eval',), seed=cfg.seed)
    build.load_network(policy, state, manifest, cfg, where)
    return policy
