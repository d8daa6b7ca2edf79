"""The sections of options that every policy has."""

from __future__ import annotations

from typing import Any, Literal

from rlframe.errors import ConfigError
from rlframe.policy.parts.compiled import COMPILE, CUDA_GRAPH, PRECISION, check_device
from rlframe.policy.parts.normalize import NORMALIZE_OBS, NORMALIZE_REWARD
from rlframe.policy.parts.optim import NAN_POLICY
from rlframe.policy.parts.options import ModelConfig
from rlframe.policy.parts.random_shift import RANDOM_SHIFT
from rlframe.policy.parts.ranks import MAX_LEARNER_RESTARTS, NUM_LEARNERS
from rlframe.utils.field import Field, Section, option


class LearnConfig(Section):
    """Section ``learn`` of every policy."""

    num_learners: int = option(NUM_LEARNERS)
    max_learner_restarts: int = option(MAX_LEARNER_RESTARTS)
    random_shift: int = option(RANDOM_SHIFT)
    nan_policy: Literal['raise', 'skip', 'ignore'] = option(NAN_POLICY)


N_SAMPLE = Field(
    None, range='[1, inf)', unit='training samples', doc='samples collected per round, over all envs'
)


def _has_a_server(_: type[Any], cfg: Any) -> ConfigError | None:
    """Refuses one server for all collectors where none can be."""
    collector = cfg.collect.get('collector', {})
    if not collector or 'inference_batch' in collector:  # an option of the server, where the backend has one
        return None
    message = f'one server acts for collectors in actors, and the backend {collector["backend"]!r} has none'
    return ConfigError(message, expected="'local', or policy.collect.collector.backend='ray' in serial mode")


def _single_steps(value: int) -> str:
    """Says what to set instead if collectors are to cut sequences; else returns an empty string."""
    if value == 1:
        return ''
    return '1; set the length of sequences by learn.unroll_len, or by unroll_len of the replay buffer'


class CollectConfig(Section):
    """Section ``collect`` of every policy."""

    n_sample: int | None = option(N_SAMPLE)
    n_episode: int | None = option(
        None, range='[1, inf)', unit='episodes', doc='episodes collected per round, instead of n_sample'
    )
    unroll_len: int = option(1, unit='env steps', doc='samples are single steps', check=_single_steps)
    inference: Literal['local', 'central'] = option(
        'local',
        doc="where the network acts: 'local' in each collector, 'central' on one server for all collectors on Ray",
        rule=_has_a_server,
        may_change=True,
    )
    record: str | None = option(
        None,
        doc='path of data that the run records beside training, of all whole episodes: a folder of Minari, .npz or .parquet',
        reaches='file',
    )
    keep_rows: bool = option(
        False,
        doc='whether training samples of rounds carry the rows that they are made of; reward models need them',
    )
    model_path: str | None = option(
        None,
        doc='exported policy, an expert, which acts in a share of the envs; what it does there is kept as demonstrations',
        reaches='file',
    )
    expert_share: float = option(
        0.5, range='(0, 1)', doc='share of the envs in which the expert acts, if there is one'
    )


class EvalConfig(Section):
    """Section ``eval`` of every policy."""


BEST_ACTIONS = {'deterministic': True, 'eps': 0.0}
"""Options of the section ``eval`` by which evaluation takes best actions, where a policy has them."""


class StochasticEval(EvalConfig):
    """Section ``eval`` of policies that may be evaluated by drawn actions."""

    deterministic: bool = option(
        True,
        doc='whether evaluation takes the best action; False: it draws one, as collection does, which helps if the policy sees'
        ' only a part of the state',
        may_change=True,
    )


class OtherConfig(Section):
    """Section ``other`` of every policy."""


class PolicyConfig(Section):
    """Options of every policy."""

    on_policy: bool = option(False, doc='whether it learns from fresh data only, without a replay buffer')
    cuda: bool | None = option(None, doc="True is device='cuda', False is device='cpu'", may_change=True)
    device: str = option(
        'auto',
        doc="'auto' (CUDA where there is one), 'cpu', 'cuda', 'cuda:i'",
        check=check_device,
        may_change=True,
    )
    compile: bool = option(COMPILE)
    cuda_graph: bool = option(CUDA_GRAPH)
    precision: Literal['fp32', 'tf32', 'bf16'] = option(PRECISION)
    init_from: str | None = option(
        None,
        doc='checkpoint, run folder or exported policy to take the initial weights from',
        may_change=True,
        reaches='file',
    )
    random_collect_size: int = option(
        0,
        range='[0, inf)',
        unit='training samples',
        doc='training samples, or episodes with an episode collector, collected at random first',
    )
    normalize_obs: bool = option(NORMALIZE_OBS)
    normalize_reward: bool = option(NORMALIZE_REWARD)
    model: ModelConfig
    learn: LearnConfig
    collect: CollectConfig
    eval: EvalConfig
    other: OtherConfig
