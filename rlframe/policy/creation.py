"""``create_policy``: a policy from its name and options, or from a section of a config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlframe.data.timestep import EnvSpec
from rlframe.option_names import named
from rlframe.policy.base_policy import Policy
from rlframe.policy.parts.ding_form import own_options, spec_of_env, spec_of_shapes
from rlframe.registry import ENV_REGISTRY, POLICY_REGISTRY
from rlframe.utils.field import ResolvedConfig


def create_policy(
    cfg: Mapping[str, Any] | str, spec: EnvSpec | None = None, *, env: Any = None, **kwargs: Any
) -> Policy:
    """Builds the policy named by ``cfg.type``, or by ``cfg``.

    Args:
        cfg: The ``policy`` section of a config, or a name.
        spec: Spaces of the env. By default those of the env of the compiled config that ``cfg`` is a section of, whose
            seed is the policy's, too; for a section that was not compiled, those of ``model.obs_shape`` and
            ``model.action_shape``.
        env: An id, an env manager or an env of Gymnasium whose spaces to take instead.
        kwargs: Further arguments of the policy's constructor; with a name, also options, such as ``batch_size=64``.

    Raises:
        ConfigError: If the spaces are not known, or an option is not.
    """
    cfg, kwargs = named(POLICY_REGISTRY, cfg, kwargs)
    if (given := spec if env is None else env) is not None:
        spec = spec_of_env(given)
    own = cfg if isinstance(cfg, ResolvedConfig) else own_options(cfg)
    if spec is None and isinstance(own, ResolvedConfig) and own._env_and_seed is not None:
        env_section, seed = own._env_and_seed
        spec = ENV_REGISTRY.build(env_section, env_section).spec
        kwargs = {'seed': seed, **kwargs}
    elif spec is None:
        spec = spec_of_shapes(POLICY_REGISTRY.get_cls(own), cfg)
    return POLICY_REGISTRY.build(own, own, spec, **kwargs)
