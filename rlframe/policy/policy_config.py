"""Options that code reads from the section of every policy."""

from __future__ import annotations

from typing import Literal

from rlframe.utils.resolved_config import ResolvedConfig


class ModelConfig(ResolvedConfig):
    """Section ``model`` of every policy."""

    type: str | None
    import_names: list[str]


class CollectConfig(ResolvedConfig):
    """Section ``collect`` of every policy."""

    n_sample: int | None
    n_episode: int | None
    unroll_len: int


class PolicyConfig(ResolvedConfig):
    """Options of every policy."""

    compile: bool
    cuda_graph: bool
    precision: Literal['fp32', 'tf32', 'bf16']
    model: ModelConfig
    learn: ResolvedConfig
    collect: CollectConfig
    other: ResolvedConfig
