"""Finds the option that a name means: its dotted key, the last part of it, or its name in another framework."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from rlframe.errors import ConfigError
from rlframe.registry import BACKEND_REGISTRY, POLICY_REGISTRY, Registry, nearest_name

Alternatives = tuple[tuple[str, ...], ...]
"""Groups of dotted keys, the preferred group first; the keys of a group belong together."""
TABLE = """
# budgets, names, places
max_env_step: total_timesteps total_env_steps num_timesteps total_steps max_steps
max_train_iter: max_iter max_iters num_iterations total_iterations n_iter num_updates total_updates = counts
    updates by one batch
seed: random_seed rng_seed set_seed global_seed
policy.device: device gpu use_gpu use_cuda device_name num_gpus
num_threads: n_threads torch_threads torch_num_threads
exp_name: log_dir logdir log_path save_dir save_path output_dir out_dir tensorboard_log tb_log_name run_name experiment_name
    exp_dir local_dir
policy.learn.learner.hook: save_freq save_interval checkpoint_freq checkpoint_interval checkpoint_frequency
checkpoint.keep_last: keep_checkpoints num_to_keep keep_checkpoints_num max_checkpoints
policy.init_from: pretrained load_path load_dir model_path restore_path resume_path checkpoint_path
# envs
env.env_id: env_name env_type game task gym_id environment
env.collector_env_num: num_envs n_envs env_num n_env num_env nenvs nproc n_workers training_num train_num num_envs_per_worker
    num_envs_per_env_runner
env.evaluator_env_num: test_num eval_env_num num_eval_envs n_eval_envs evaluation_num_workers
env.kwargs: env_kwargs env_config env_args env_params make_kwargs
env.kwargs: max_episode_steps time_limit = is the arguments of the env: {max_episode_steps: 500}
env.wrappers: wrapper env_wrapper wrapper_class env_wrappers
env.frame_stack: num_stack n_stack frames_stack stack_num framestack
env.stop_value: reward_threshold stop_reward target_reward solved_reward reward_stop
env.n_evaluator_episode: n_eval_episodes eval_episodes num_eval_episodes episode_per_test evaluation_duration test_episodes
policy.eval.evaluator.eval_freq: eval_interval evaluation_interval test_freq eval_every evaluation_freq eval_frequency = counts
    train iterations, or env steps of all envs: '5000 env steps'
# collection
policy.collect.collector.num_collectors: num_rollout_workers num_env_runners num_workers num_collectors num_actors
policy.collect.n_sample: step_per_collect steps_per_collect collection_step_num_env_steps steps_per_epoch frames_per_batch
    collect_steps
policy.nstep: n_steps
policy.collect.n_sample: n_steps num_steps rollout_length rollout_steps rollout_fragment_length train_freq train_frequency
    horizon_length = counts the env steps of all envs: their number times that of one
policy.collect.n_episode: episode_per_collect episodes_per_collect
policy.random_collect_size: learning_starts start_training start_steps warmup_steps warm_up initial_random_steps
    start_timesteps num_steps_sampled_before_learning_starts random_steps min_buffer_size
policy.other.eps: exploration_rate epsilon eps_train eps_test
policy.other.eps: exploration_fraction exploration_initial_eps exploration_final_eps eps_start eps_end eps_decay start_e
    end_e epsilon_start epsilon_end epsilon_decay initial_epsilon final_epsilon = is a schedule over env steps: {type:
    linear, start: 1.0, end: 0.05, decay: 20000}
policy.collect.noise_sigma: action_noise exploration_noise expl_noise act_noise
# returns
policy.discount_factor|policy.collect.discount_factor: gamma discount discount_rate
policy.collect.gae_lambda|policy.collect.q_lambda: lambda lambda_ gae_lam lam td_lambda gae gae_lambda
policy.nstep: n_step multi_step estimation_step nstep_return n_step_return n_step_return_horizon
# updates
policy.learn.learning_rate|policy.learn.learning_rate_actor+policy.learn.learning_rate_critic: lr learning_rate step_size
policy.learn.learning_rate|policy.learn.learning_rate_actor+policy.learn.learning_rate_critic: anneal_lr lr_schedule lr_decay =
    may be a schedule over env steps: {type: linear, start: 3e-4, end: 0, decay: 500000}
policy.learn.learning_rate_actor|policy.learn.learning_rate: learning_rate_policy policy_lr actor_lr lr_actor pi_lr lr_pi
    actor_learning_rate lr_policy
policy.learn.learning_rate_critic|policy.learn.learning_rate: learning_rate_q learning_rate_value critic_lr lr_critic q_lr
    vf_lr value_lr qf_lr critic_learning_rate
policy.learn.learning_rate_alpha: lr_alpha ent_coef_lr alpha_learning_rate
policy.learn.batch_size: minibatch_size mini_batch_size sgd_minibatch_size optimizer_batch_size
policy.learn.batch_size: num_minibatches n_minibatches = is the size of a batch: policy.collect.n_sample / their number
policy.learn.batch_size: train_batch_size train_batch_size_per_learner = is minibatch_size in RLlib's PPO, whose
    train_batch_size is policy.collect.n_sample
policy.learn.epoch_per_collect: n_epochs num_epochs update_epochs repeat_per_collect num_sgd_iter ppo_epochs update_epoch
    k_epochs noptepochs
policy.learn.update_per_collect: gradient_steps n_updates update_step_num_gradient_steps_per_sample
policy.learn.update_per_collect: update_per_step utd_ratio updates_per_step utd = is that times policy.collect.n_sample
policy.learn.update_per_collect: replay_ratio training_intensity = is that times policy.collect.n_sample /
    policy.learn.batch_size
policy.learn.grad_clip_norm: max_grad_norm grad_clip clip_grad_norm max_norm gradient_clip grad_norm grad_clip_value
    clip_grad grad_norm_clip
policy.learn.optimizer: optim optimizer_class optimiser optimizer_type
policy.learn.clip_ratio: clip_range clip_coef eps_clip clip_param clip_eps epsilon_clip ratio_clip
policy.learn.value_clip: clip_range_vf vf_clip_param value_clip_range clip_value
policy.learn.value_clip: clip_vloss = is a range, such as 0.2, or None
policy.learn.value_weight: vf_coef vf_loss_coeff value_coef vf_loss_weight value_loss_coef critic_coef
policy.learn.entropy_weight|policy.learn.alpha: ent_coef entropy_coeff ent_weight entropy_coef entropy_cost
    entropy_loss_weight entropy_bonus
policy.learn.init_alpha: initial_alpha alpha_init init_temperature
policy.learn.alpha: autotune auto_alpha auto_entropy temperature
policy.learn.target_kl: kl_target max_kl kl_limit dkl
policy.learn.advantage_norm: normalize_advantage norm_adv advantage_normalization norm_advantage adv_norm
    normalize_advantages = is 'batch' or None
policy.learn.target_update_freq: target_update_interval target_network_frequency target_network_update_freq target_update
    target_update_period = counts train iterations, not env steps
policy.learn.target_theta: tau soft_update target_update_tau
policy.learn.target_theta: polyak polyak_coef = is the share of the new weights, such as 0.005 for a polyak of 0.995
policy.learn.actor_update_freq: policy_delay policy_frequency policy_freq actor_delay update_actor_freq
policy.learn.target_critics: num_min_qs subset_size
policy.learn.dropped_quantiles: top_quantiles_to_drop_per_net top_quantiles_to_drop
policy.learn.adam_beta1: beta1 b1 adam_b1 betas
policy.learn.target_noise: target_policy_noise policy_noise
policy.learn.target_noise_clip: noise_clip target_policy_noise_clip noise_range
# networks
policy.model.type: ortho_init orthogonal_init = may name a network of yours; those of ppo, a2c and impala begin orthogonal
policy.model.encoder_hidden_size_list: hidden_sizes hidden_size hidden_dim hidden_units fcnet_hiddens layers hidden_layers
    num_hidden hidden_dims mlp_units encoder_hidden_sizes actor_hidden_size
policy.model.encoder_hidden_size_list: net_arch policy_kwargs = is a list of widths; {pi: [64], vf: [32]} is
    encoder_hidden_size_list=[64] and critic_hidden_size_list=[32], qf as vf
policy.model.activation: activation_fn act_fn nonlinearity fcnet_activation
policy.model.conv_layers: conv_filters cnn_layers channels
policy.model.lstm_hidden_size|policy.model.core_hidden_size: lstm_hidden lstm_cell_size cell_size rnn_hidden_size
    recurrent_hidden_size lstm_hidden_size core_hidden_size
policy.model.core: use_lstm use_rnn recurrent rnn rnn_type lstm_type cell_type
policy.model.dueling: dueling_dqn is_dueling use_dueling dueling_network
policy.learn.kappa: huber_loss_delta huber_delta clip_loss_grad
policy.double: double_dqn is_double double_q use_double_dqn
policy.model.noisy: noisy_net noisy_dqn use_noisy
policy.model.n_atom: num_atoms atoms n_atoms
policy.model.num_quantiles: n_quantiles quantiles
policy.model.quantile_embedding_size: num_cosines n_cos cosine_embedding_size
policy.entropy_tau: munchausen_tau munchausen
policy.m_alpha: munchausen_alpha
policy.model.n_critic: n_critics num_critics num_qs n_qs ensemble_size
policy.model.norm: batch_norm layer_norm use_batch_norm use_layer_norm norm_type
policy.model.dropout: dropout_rate
policy.model.residual_blocks: num_blocks n_blocks
policy.model.log_std_init: log_std init_log_std
policy.model.log_std_init: use_sde = is that of noise drawn in each step; there is none that depends on the state
policy.normalize_obs: obs_norm normalize_observation norm_obs normalise_obs obs_rms
policy.normalize_reward: rew_norm reward_normalization norm_reward reward_norm normalise_reward
# replay buffers
policy.other.replay_buffer.replay_buffer_size: size buffer_size memory_size replay_size capacity max_size replay_capacity
    buffer_capacity memory_capacity replay_buffer_capacity
policy.priority: prioritized prioritized_replay use_per per prioritised_replay = needs replay_buffer.type=advanced
policy.other.replay_buffer.alpha: per_alpha prioritized_replay_alpha priority_alpha
policy.other.replay_buffer.beta: per_beta prioritized_replay_beta beta0 prioritized_replay_beta0
"""
"""Options of rlframe, and their names in Stable-Baselines3, CleanRL, Tianshou, RLlib and DI-engine.

``one|other`` stands for the first of them that a config has, ``one+other`` for both. Behind ``=`` stands what the option
is, of names that mean another quantity or have other values.
"""


def dotted_keys(options: Mapping[str, Any], prefix: str = '') -> list[str]:
    """Returns the dotted key of every option and section."""
    found = []
    for name, option in options.items():
        found.append(prefix + name)
        if isinstance(option, dict):
            found += dotted_keys(option, f'{prefix}{name}.')
    return found


def by_last_part(keys: Iterable[str]) -> dict[str, list[str]]:
    """Returns the dotted keys that end in each name."""
    found: dict[str, list[str]] = {}
    for key in keys:
        found.setdefault(key.rpartition('.')[2], []).append(key)
    return found


def ambiguous_name(name: str, keys: Collection[str], remedy: str = '') -> ConfigError:
    """Returns the error for the last part of several keys."""
    message = f'{name} is the name of {len(keys)} options: {", ".join(keys)}'
    return ConfigError(message, where=name, remedy=remedy)


def unknown_key(
    where: str, siblings: Mapping[str, Any], root: Mapping[str, Any], at: str = ''
) -> ConfigError:
    """Returns the error for an unknown key, with the closest known one.

    Args:
        where: The unknown dotted key.
        siblings: The options of its section.
        root: All options, to find the section that the key belongs to.
        at: Prefix of the dotted keys of ``root``.
    """
    section, dot, name = where.rpartition('.')
    keys = dotted_keys(root, at)
    by_name = by_last_part(keys)
    known = f'Known here: {", ".join(sorted(siblings))}' if 0 < len(siblings) <= 12 else ''

    meant = meant_keys(name, keys)
    if meant:
        hint = f'. {hint_of(name, meant)}'
    elif found := _of_a_backend([where, *(key for keys in _alternatives(name) for key in keys)]):
        backends, key = found
        named = ' or '.join(map(repr, backends))
        hint = f'; the backend {named} has {key}.'
        known = f'Set {key.rpartition(".")[0]}.backend={named}'
    elif name in by_name:
        hint = f'; it belongs to {" or ".join(by_name[name][:3])}.'
        known = ''
    elif meant is not None:
        hint = '; other frameworks have an option of this name, but no component of this config does.'
    elif close := nearest_name(name, siblings):
        hint = f'. Did you mean {section}{dot}{close}?'
    elif close := nearest_name(name, by_name):
        hint = f'. Did you mean {by_name[close][0]}?'
    elif policies := policies_with(where):
        hint = f'; these policies have it: {", ".join(policies)}.'
        known = ''
    else:
        hint = '.'
    error = ConfigError(f'{where} is not a known key{hint}', where=where, remedy=known)
    error.unknown_keys = (where,)
    return error


def section_of(
    options: Mapping[str, Any], declared: Mapping[str, Any], below: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Returns the section that options by the last parts of their keys make up, such as ``batch_size=64``.

    Args:
        options: Values by name; a section by its name, such as ``model``, is a mapping.
        declared: The declared options of a component.
        below: A section that they are laid over, which stays as it is.

    Raises:
        ConfigError: If no option, or several, have a name; the nearest, or all of them, are named.
    """
    found: dict[str, Any] = copy.deepcopy(dict(below or {}))
    keys = [key for key in dotted_keys(declared) if not isinstance(declared.get(key), dict)]
    for name, value in options.items():
        if isinstance(declared.get(name), dict) and isinstance(value, Mapping):
            found[name] = section_of(value, declared[name], found.get(name))
            continue
        meant = [name] if name in keys else [key for key in keys if key.endswith(f'.{name}')]
        if not meant:
            raise unknown_key(name, declared, declared)
        if len(meant) > 1:
            raise ambiguous_name(name, meant)
        *path, last = meant[0].split('.')
        section = found
        for part in path:
            section = section.setdefault(part, {})
        section[last] = value
    return found


def named(registry: Registry[Any], cfg: Any, given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Splits the keyword arguments that come with a name into options and constructor arguments.

    A config is returned unchanged, and all keyword arguments with it.

    Args:
        registry: The registry that has the name.
        cfg: A name, or a config.
        given: Keyword arguments: options by the last parts of their keys, and arguments of the constructor.

    Returns:
        The config, and the arguments of the constructor.
    """
    if not isinstance(cfg, str):
        return cfg, given
    kind: Any = registry.get(cfg)
    fields = kind.config_fields()
    taken = {name for base in kind.__mro__ for name in inspect.signature(base.__init__).parameters}
    arguments = {
        name: value
        for name, value in given.items()
        if name in taken and not (name in fields and isinstance(value, Mapping))
    }
    options = {name: value for name, value in given.items() if name not in arguments}
    return {'type': cfg, **section_of(options, fields)}, arguments


def policies_with(where: str) -> list[str]:
    """Returns the names of the registered policies that have an option, by its dotted key in a config."""
    kind, _, key = where.partition('.')
    if kind != 'policy' or not key:
        return []
    policies = {name: POLICY_REGISTRY.get(name) for name in POLICY_REGISTRY.names()}
    return [name for name, policy in policies.items() if key in dotted_keys(policy.config_fields())]


def _of_a_backend(keys: Iterable[str]) -> tuple[list[str], str] | None:
    """Returns the registered backends that have the first of these options that any has; None if none has one."""
    kinds = {name: BACKEND_REGISTRY.get(name) for name in BACKEND_REGISTRY.names()}
    for key in keys:
        role, name = ['', *key.split('.')][-2:]
        backends = [backend for backend, kind in kinds.items() if name in kind.config_fields().get(role, ())]
        if backends:
            return backends, key
    return None


def _read_table() -> tuple[dict[str, Alternatives], dict[tuple[str, str], str]]:
    """Returns the candidate options by foreign name, and the conversions by option and foreign name."""
    found: dict[str, Alternatives] = {}
    converted: dict[tuple[str, str], str] = {}
    lines = re.findall(r'^(\S+):((?:\s+\w+)+)(?:\s+=\s+(.+(?:\n {4}.+)*))?$', TABLE, re.MULTILINE)
    for option, names, text in lines:
        keys = tuple(tuple(group.split('+')) for group in option.split('|'))
        for name in names.split():
            found[name] = found.get(name, ()) + keys
            converted |= {(key, name): ' '.join(text.split()) for group in keys for key in group if text}
    return found, converted


SYNONYMS, CONVERTED = _read_table()
"""Candidate options by foreign name in lower case; conversions by the option's dotted key and a foreign name."""


def hint_of(name: str, keys: Sequence[str]) -> str:
    """Returns a sentence with the options that a foreign name means, and with the conversion if it means something else."""
    foreign = name.lower().replace('-', '_')
    shown = ' and '.join(keys)
    for (own, other), text in CONVERTED.items():
        if other == foreign and (own.endswith(keys[0]) or keys[0].startswith(own)):
            return f'Instead, {shown} {text}.'
    return f'Did you mean {shown}?'


def meant_keys(name: str, known: Collection[str]) -> list[str] | None:
    """Returns the options that a foreign name may mean.

    Args:
        name: The last part of an unknown key.
        known: Dotted keys of all known options: of a whole config, or of one component, which start further in.

    Returns:
        Their dotted keys, as they stand in ``known``; empty if those options do not exist there, and None if the
        name itself is unknown.
    """
    alternatives = _alternatives(name)
    is_whole = 'policy' in known or 'env' in known
    for keys in alternatives:
        found = [_as_known(key, known, is_whole) for key in keys]
        if all(found):
            return found
    return [] if alternatives else None


def _alternatives(name: str) -> Alternatives:
    return SYNONYMS.get(name.lower().replace('-', '_'), ())


def _as_known(key: str, known: Collection[str], is_whole: bool) -> str:
    """Returns a dotted key as the component that has it names it; an empty string if none has it."""
    if is_whole:
        return key if key in known else ''
    return next((own for own in known if key.endswith(f'.{own}')), '')
