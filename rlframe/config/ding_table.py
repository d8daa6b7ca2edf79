"""DI-engine 0.5.3 as data: its envs, types, keys and defaults, and their counterparts in rlframe.

``rlframe.config.ding`` reads these tables. Keys are those of the merged config.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from rlframe.config.components import MISSING, value_at
from rlframe.registry import POLICY_REGISTRY

ENVS: dict[str, str] = {
    'cartpole': 'CartPole-v0',
    'pendulum': 'Pendulum-v1',
    'mountain_car': 'MountainCar-v0',
    'acrobot': 'Acrobot-v1',
    'bipedalwalker': 'BipedalWalker-v3',
    'gym_hybrid': 'rlframe/Moving-v0',
    'bitflip': 'rlframe/BitFlip-v0',
    'lunarlander': 'LunarLander-v3',
    'mujoco': '',
}
"""Env types of dizoo that wrap a Gymnasium env, and its id if the config has no ``env.env_id``."""

ARGUMENTS: dict[str, tuple[str, ...]] = {
    'bitflip': ('n_bits',),
    'carracing': ('continuous',),
    'frozen_lake': ('desc', 'map_name', 'is_slippery'),
    'taxi': ('max_episode_steps',),
}
"""Options of dizoo's env types that are arguments of the Gymnasium env."""

_MUJOCO = [
    'Ant',
    'HalfCheetah',
    'Hopper',
    'Humanoid',
    'HumanoidStandup',
    'InvertedDoublePendulum',
    'InvertedPendulum',
    'Pusher',
    'Reacher',
    'Swimmer',
    'Walker2d',
]
OLD_IDS: dict[str, str] = {
    'CarRacing-v2': 'CarRacing-v3',
    'LunarLander-v2': 'LunarLander-v3',
    'LunarLanderContinuous-v2': 'LunarLanderContinuous-v3',
    'Moving-v0': 'rlframe/Moving-v0',
    'Pendulum-v0': 'Pendulum-v1',
    'Taxi-v3': 'Taxi-v4',
    **{f'{name}-v{version}': f'{name}-v5' for name in _MUJOCO for version in (2, 3)},
}
"""Ids that Gymnasium has removed, or that are of packages for OpenAI Gym, and their successors."""

OF_DATA = {'halfcheetah': 'HalfCheetah-v5', 'hopper': 'Hopper-v5', 'walker2d': 'Walker2d-v5'}
"""Beginnings of the ids of D4RL, such as hopper-medium-v2, and the env in which such data are recorded."""

TYPES: dict[str, dict[str, str]] = {
    'env_manager': {'base_v2': 'base', 'subprocess_v2': 'subprocess', 'env_supervisor': 'subprocess'},
    'collector': {'zergling': 'sample'},
    'replay_buffer': {'deque': 'advanced'},
}
"""Types with another name in rlframe, by section of ``create_config``."""

PARALLEL = ('commander', 'comm_learner', 'comm_collector')
"""Sections of ``create_config`` that the parallel mode adds."""
COMM = PARALLEL[1:]
"""The sections that a config of rlframe's parallel mode needs, too."""
TYPED = ('learner', *COMM)
"""Sections of ``create_config`` whose type DI-engine also reads from keys such as ``learner_type``."""
TYPE_PLACES = ('system_config', 'policy', 'policy.learn', 'policy.learn.learner', 'policy.collect.collector')
"""Sections of the main config in which such keys lie."""
NO_COORDINATOR = 'there is no coordinator: one process learns, and Ray actors collect'
"""Why these sections and ``system_config`` are not used without parallel mode."""
NO_BUFFER = 'an on-policy policy has no replay buffer'
"""Why a replay buffer is not used."""
OTHER_LEARNING = {
    'reward_model': 'reward model',
    'world_model': 'world model',
}
"""Sections of other algorithms, which have no counterpart in rlframe, and their subjects."""
OTHER_RUNS = {
    'policy.collect.save_path': (
        'this config records data with a trained policy, and trains nothing',
        'Train the policy with its own config.',
    ),
    'policy.collect.model_path': (
        'an expert acts for policies that learn from demonstrations',
        "These are 'sqil', 'sqil_sac', 'dqfd', 'r2d3' and 'bco'.",
    ),
}
"""Keys of configs that do not train the policy which they name, with the reason and the remedy."""
LISTED = 'docs/from_ding.md has all keys that are not translated.'
"""Page about keys that would select another algorithm here."""
INSTEAD = {
    'ppof': "'ppo' has its network and loss as options.",
}
"""Advice for some policies that do not exist in rlframe."""

CONVOLUTIONS = ((8, 4), (4, 2), (3, 1))
"""Kernel size and stride of the convolutions of DI-engine's networks."""

RENAMED: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ('policy.unroll_len', 'policy.collect.unroll_len', ()),
    ('policy.noisy_net', 'policy.model.noisy', ('QPolicy',)),
    ('policy.model.noise', 'policy.model.noisy', ('QPolicy',)),
    ('policy.learn.discount_factor', 'policy.discount_factor', ('QACPolicy',)),
    ('policy.learning_rate', 'policy.learn.learning_rate', ('DTPolicy',)),
    ('policy.lr', 'policy.learn.learning_rate', ('DTPolicy',)),
    ('policy.batch_size', 'policy.learn.batch_size', ('DTPolicy',)),
    ('policy.clip_grad_norm_p', 'policy.learn.grad_clip_norm', ('DTPolicy',)),
    ('policy.rtg_target', 'policy.other.target_return', ('DTPolicy',)),
    ('policy.max_timestep', 'policy.model.max_timestep', ('DTPolicy',)),
    ('policy.model.n_blocks', 'policy.model.blocks', ('DTPolicy',)),
    ('policy.model.h_dim', 'policy.model.width', ('DTPolicy',)),
    ('policy.model.n_heads', 'policy.model.heads', ('DTPolicy',)),
    ('policy.learn.learning_rate_q', 'policy.learn.learning_rate_critic', ('QACPolicy',)),
    ('policy.learn.learning_rate_policy', 'policy.learn.learning_rate_actor', ('QACPolicy',)),
    ('policy.learn.grad_norm', 'policy.learn.grad_clip_norm', ('ActorPolicy',)),
    ('policy.learn.eps', 'policy.learn.adam_eps', ('PPOPolicy',)),
    ('policy.collect.collector.collector_num', 'policy.collect.collector.num_collectors', ()),
)
"""DI-engine's key, rlframe's key, and the kinds of policies concerned (see ``kinds_of``; empty: all)."""

_UNUSED: dict[tuple[str, ...], str] = {
    (): """
        env.replay_path env.replay_path_gif env.save_replay_gif env.save_replay: eval RUN --video DIR films episodes
        env.act_scale env.use_act_scale: actions are always scaled to the bounds of the env
        env.rew_clip: rewards are not clipped; add a wrapper that does to env.wrappers
        env.is_train env.manager.copy_on_get env.manager.context env.manager.auto_reset env.manager.episode_num
        env.manager.reset_inplace env.episode_num env.env_name policy.collect.collector.compressor policy.transition_with_policy_data
        policy.collect.collector_logit: no counterpart
        env.exp_name: exp_name outside env names the run
        env.env_wrapper: without effect in DI-engine as well
        env.collector_batch_size env.evaluator_batch_size: every step is one of all envs
        env.collector_episode_num: policy.collect.n_sample sets how much a round collects
        env.manager.shared_memory: envs in subprocesses always use shared memory
        env.manager.max_retry env.manager.retry_type
        env.manager.retry_waiting_time: env_manager.on_error and max_restarts decide how failing envs are handled
        env.manager.connect_timeout: env_manager.reset_timeout limits the time of a reset
        policy.load_path policy.learn.learner.load_path: eval RUN scores a run, policy.init_from=RUN starts from its weights
        policy.learn.resume_training policy.resume_training: --resume RUN continues a run
        policy.on_policy: set by the policy
        policy.multi_gpu policy.bp_update_sync policy.learn.multi_gpu policy.learn.learner.learner_num
        policy.other.replay_buffer.multi_gpu: policy.learn.num_learners, or torchrun, lets several processes learn
        policy.learn.learner.send_policy_freq
        policy.collect.collector.update_policy_second: actors get weights with every request
        policy.collect.collector.print_freq: collector.collect_print_freq
        policy.other.commander.eval_interval policy.other.commander.collector_task_space
        policy.other.commander.learner_task_space: there is no coordinator; evaluator.eval_freq sets when to evaluate
        policy.multi_agent: there is one agent
        policy.command: policy.other.eps sets the exploration schedule
        policy.traj_len_inf policy.collect.traj_len_inf: a round ends when it has n_sample samples
        policy.collect.collector_env_num policy.collect.env_num: env.collector_env_num
        policy.eval.env_num: env.evaluator_env_num
        policy.action_space policy.continuous policy.action_shape policy.model.obs_shape policy.model.action_shape
        policy.model.action_space policy.model.actor_head_type policy.model.agent_obs_shape policy.model.global_obs_shape
        policy.model.continuous: read from the spaces of the env
        policy.model.actor_head_hidden_size policy.model.actor_head_layer_num policy.model.critic_head_hidden_size
        policy.model.critic_head_layer_num policy.model.head_hidden_size
        policy.model.head_layer_num: heads are one linear layer; policy.model.encoder_hidden_size_list lists all hidden layers
        policy.model.norm_type: policy.model.norm is that of sac, td3 and ddpg
        policy.learn.ignore_done: episodes cut by a time limit are always bootstrapped, terminated ones never
    """,
    ('on-policy',): """
        policy.other.replay_buffer policy.priority policy.priority_IS_weight: an on-policy policy has no replay buffer
    """,
    ('ActorPolicy', 'BCPolicy', 'soft'): """
        policy.other.eps: the policy samples its actions
    """,
    ('QACPolicy',): """
        policy.model.share_encoder: actor and critics share nothing
        policy.learn.init_w: no counterpart
    """,
    ('QPolicy', 'SACDiscretePolicy', 'ActorPolicy', 'BCPolicy'): """
        policy.model.dropout: only critics of sac, td3 and ddpg have dropout
    """,
    ('PPOPolicy',): """
        policy.model.sigma_type: the standard deviation of a Gaussian actor is one parameter per action
        policy.model.fixed_sigma_value: policy.model.log_std_init
        policy.model.bound_type: actions are clipped to the bounds of the env
        policy.recompute_adv: advantages are computed once per round
        policy.nstep_return policy.collect.nstep_return: returns are computed by policy.collect.gae_lambda
        policy.nstep policy.collect.nstep: policy.collect.gae_lambda sets lambda of generalised advantage estimation
        policy.learn.ppo_param_init: networks are always initialized this way
        policy.learn.betas: Adam's defaults
        policy.learn.update_per_collect: the number of updates per round is epochs times batches
    """,
    ('soft',): """
        policy.model.value_network policy.learn.value_network policy.learn.learning_rate_value: SAC has no value network
        policy.learn.reparameterization: the actor is always trained by reparameterization
        policy.learn.log_space: the logarithm of the entropy weight is learned
    """,
    ('QPolicy', 'PPOPolicy'): """
        policy.learn.discount_factor: without effect in DI-engine as well
    """,
    ('DTPolicy',): """
        policy.wt_decay policy.weight_decay policy.warmup_steps policy.model.drop_p policy.dropout_p: no counterpart
        policy.rtg_scale: returns to go are divided by the largest one in the data
        policy.state_mean policy.state_std: policy.normalize_obs takes them from the data
        policy.max_eval_ep_len policy.max_test_ep_len: policy.eval.evaluator.max_episode_len
        policy.context_len policy.n_blocks policy.embed_dim policy.n_heads: the section model has them
        policy.evaluator_env_num policy.num_eval_ep policy.stop_value policy.env_name: the section env has them
        policy.model.state_dim policy.model.act_dim: read from the spaces of the env
        policy.dataset policy.log_dir policy.num_updates_per_iter policy.learn.dataset_path policy.discount_factor policy.nstep
        policy.kappa policy.min_q_weight policy.target_update_freq policy.learn.kappa policy.learn.min_q_weight
        policy.learn.target_update_freq policy.other.eps policy.eval.evaluator.evalu_freq: without effect in DI-engine as well
    """,
    ('BCPolicy',): """
        policy.learn.update_per_collect: one update per batch of the data
        policy.learn.train_epoch: set max_env_step to the number of passes times the number of rows
        policy.learn.show_accuracy: evaluator.type='metric' scores on held-out data
        policy.learn.ce_label_smooth policy.learn.weight_decay policy.learn.momentum: no counterpart
        policy.learn.lr_decay policy.learn.decay_epoch policy.learn.decay_rate policy.learn.warmup_lr
        policy.learn.warmup_epoch: policy.learn.learning_rate takes a schedule
        policy.model.dueling: behaviour cloning has no action values
        policy.loss_type: squared error for continuous, cross entropy for discrete actions
    """,
    ('from-data',): """
        env.collector_env_num: the data are recorded, so there is no collector env
        policy.collect.data_type: the form of the data is recognised
        policy.collect.n_sample policy.collect.n_episode: each round is one batch of the data
    """,
}
"""Keys without a counterpart and what replaces them, by the kinds of policies concerned (empty: all)."""
LEAGUE = 'policy.other.commander.league'
TO_PARALLEL: tuple[tuple[str, str], ...] = (
    ('policy.collect.collector.collector_num', 'parallel.collector_num'),
    ('policy.collect.collector.update_policy_second', 'parallel.collector.update_policy_second'),
    ('policy.collect.collector.print_freq', 'parallel.collector.print_freq'),
    ('policy.learn.learner.learner_num', 'policy.learn.num_learners'),
    ('policy.learn.learner.send_policy_freq', 'parallel.comm_learner.send_policy_freq'),
    ('system_config.coordinator.host', 'parallel.coordinator.host'),
    ('system_config.coordinator.port', 'parallel.coordinator.port'),
    (f'{LEAGUE}.naive_sp_player.branch_probs', f'{LEAGUE}.branch_probs'),
    (f'{LEAGUE}.naive_sp_player.strong_win_rate', f'{LEAGUE}.strong_win_rate'),
    (f'{LEAGUE}.naive_sp_player.one_phase_step', f'{LEAGUE}.snapshot_freq'),
)
"""DI-engine's key and the key of rlframe's parallel mode."""
KEPT = tuple(
    f'policy.other.commander.{name}'
    for name in ('eval_interval', 'collector_task_space', 'learner_task_space')
)
"""Keys of ``UNUSED`` that parallel mode has."""
_ONE_LEAGUE = 'the league has one player, which is trained, and its past selves'
_IN_RUN = 'weights are kept by the coordinator, and in the checkpoints of the run'
LEAGUE_UNUSED: tuple[tuple[str, str], ...] = (
    ('policy.other.commander.path_policy', _IN_RUN),
    (f'{LEAGUE}.path_policy', _IN_RUN),
    (f'{LEAGUE}.league_type', _ONE_LEAGUE),
    (f'{LEAGUE}.import_names', "DI-engine's modules are never imported"),
    (f'{LEAGUE}.player_category', _ONE_LEAGUE),
    (f'{LEAGUE}.active_players', _ONE_LEAGUE),
    (f'{LEAGUE}.naive_sp_player', _ONE_LEAGUE),
    (f'{LEAGUE}.use_pretrain', 'policy.init_from starts from the weights of a run'),
    (f'{LEAGUE}.use_pretrain_init_historical', 'policy.init_from starts from the weights of a run'),
    (f'{LEAGUE}.pretrain_checkpoint_path', 'policy.init_from starts from the weights of a run'),
    (f'{LEAGUE}.payoff.type', 'there is one kind of payoff table'),
)
"""Options of the league without a counterpart, and their replacement."""
_CALLS = 'workers call the coordinator, and need no address of their own'
SYSTEM_UNUSED: tuple[tuple[str, str], ...] = (
    ('path_data', 'arrays travel with their messages'),
    ('path_policy', 'weights travel with their messages'),
    ('communication_mode', 'there is one mode'),
    ('learner_gpu_num', 'policy.device sets the device of the learner'),
    (
        'coordinator.operator_server',
        'there is no Kubernetes operator; workers of other machines --join the run',
    ),
    ('coordinator.collector_task_timeout', 'parallel.coordinator.stall_deadline'),
    ('coordinator.learner_task_timeout', 'parallel.coordinator.stall_deadline'),
    ('coordinator.learner', _CALLS),
    ('coordinator.collector', _CALLS),
    ('learner', _CALLS),
    ('collector', _CALLS),
    ('', 'no counterpart'),
)
"""Beginnings of keys of ``system_config`` without a counterpart, and their replacement; the first one counts."""
EVERY = {'env.n_evaluator_episode': 4}
"""DI-engine's defaults that differ from rlframe's, for every policy."""


def _rows_of(policies: tuple[str, ...], text: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    keys: list[str] = []
    for line in text.splitlines():
        names, colon, reason = line.partition(': ')
        keys += names.split()
        if colon:
            yield from ((key, reason, policies) for key in keys)
            keys = []


UNUSED = tuple(row for policies, text in _UNUSED.items() for row in _rows_of(policies, text))
"""Key without a counterpart, its replacement, and the kinds of policies concerned (empty: all)."""


@cache
def _kinds(cls: Any) -> frozenset[str]:
    cfg = cls.default_config()
    traits = {
        'on-policy': cfg.on_policy,
        'from-data': cfg.collect.get('collector', {}).get('type') == 'dataset',
        'copies': cfg.learn.get('target_update_freq') is not None,
        'soft': getattr(cls, 'actor_kind', 'deterministic') != 'deterministic',
    }
    return frozenset(
        [*(base.__name__ for base in cls.__mro__), *(trait for trait, has in traits.items() if has)]
    )


def kinds_of(policy: str) -> frozenset[str]:
    """Returns the kinds of a built-in policy, by the names in the tables; none for other policies.

    They are the names of its classes, 'on-policy', 'from-data' if it learns from recorded data by default, 'soft' if it has critics and an actor that is rewarded for entropy, and
    'copies' if its target network is copied now and then, by default.
    """
    if not POLICY_REGISTRY.is_builtin(policy):
        return frozenset()
    cls: Any = POLICY_REGISTRY.get(policy)
    return _kinds(cls)


def renamed(policy: str) -> Iterator[tuple[str, str]]:
    """Yields DI-engine's keys of a policy with rlframe's keys, the policy's own before its kind's."""
    kinds = kinds_of(policy)
    if kinds:
        options = POLICY_REGISTRY.get(policy).ding.options
        yield from ((f'policy.{old}', f'policy.{new}') for old, new in options.items())
    yield from ((old, new) for old, new, of in RENAMED if not of or kinds.intersection(of))


def unused(policy: str) -> Iterator[tuple[str, str]]:
    """Yields DI-engine's keys of a policy that have no counterpart, and what replaces them, its own first.

    Those of its kind that are options of this policy are left out.
    """
    kinds = kinds_of(policy)
    cfg = {}
    if kinds:
        cls = POLICY_REGISTRY.get(policy)
        cfg = {'policy': cls.default_config()}
        yield from ((f'policy.{key}', reason) for key, reason in cls.ding.unused.items())
    yield from ((key, reason) for key, reason, of in UNUSED if not of)
    for key, reason, of in UNUSED:
        if kinds.intersection(of) and value_at(cfg, key, MISSING) is MISSING:
            yield key, reason


def defaults(policy: str) -> dict[str, Any]:
    """Returns DI-engine's defaults of a policy that differ from those here."""
    own = POLICY_REGISTRY.get(policy).ding.defaults if kinds_of(policy) else {}
    return EVERY | {f'policy.{key}': value for key, value in own.items()}


def type_here(name: str) -> str:
    """Returns rlframe's name of a policy of DI-engine."""
    if name in POLICY_REGISTRY:
        return name
    own = (known for known in POLICY_REGISTRY.names() if POLICY_REGISTRY.is_builtin(known))
    types = {POLICY_REGISTRY.get(known).ding.type: known for known in own}
    return types.get(name, name)


def with_hybrid_actions() -> list[str]:
    """Returns the policies that have a choice with its parameters as actions."""
    kinds = {
        name: POLICY_REGISTRY.get(name).supported_actions.split(', ') for name in POLICY_REGISTRY.names()
    }
    return [name for name, own in kinds.items() if 'Dict' in own or 'Hybrid' in own]
