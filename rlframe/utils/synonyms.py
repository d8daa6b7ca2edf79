"""Maps option names of other frameworks to rlframe's, for errors about unknown keys."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from rlframe.errors import ConfigError
from rlframe.registry import POLICY_REGISTRY

ALIKE, WORD_ALIKE = 0.85, 0.66
"""Minimum similarity of a mistyped name to the right one: as a whole, or word by word."""


def dotted_keys(options: Mapping[str, Any], prefix: str = '') -> list[str]:
    """Returns the dotted key of every option and section."""
    found = []
    for name, option in options.items():
        found.append(prefix + name)
        if isinstance(option, dict):
            found += dotted_keys(option, f'{prefix}{name}.')
    return found


def unknown_key(
    where: str, siblings: Mapping[str, Any], root: Mapping[str, Any], at: str = ''
) -> ConfigError:
    """Returns the error for an unknown key, with the closest known one.

    where: The unknown dotted key.
        where: The dotted key.
        siblings: The options of its section.
        root: All options, to find the section that the key belongs to.
        at: Prefix of the dotted keys of ``root``.
    """
    section, dot, name = where.rpartition('.')
    keys = dotted_keys(root, at)
    by_name: dict[str, list[str]] = {}
    for key in keys:
        by_name.setdefault(key.rpartition('.')[2], []).append(key)
    known = f'Known here: {", ".join(sorted(siblings))}' if 0 < len(siblings) <= 12 else ''

    meant = meant_keys(name, keys)
    if meant:
        hint = f'. Did you mean {" and ".join(meant)}?'
    elif name in by_name:
        hint, known = f'; it belongs to {" or ".join(by_name[name][:3])}.', ''
    elif meant is not None:
        hint = '; other frameworks have an option of this name, but no component of this config does.'
    elif close := nearest_name(name, siblings):
        hint = f'. Did you mean {section}{dot}{close}?'
    elif close := nearest_name(name, by_name):
        hint = f'. Did you mean {by_name[close][0]}?'
    elif policies := policies_with(where):
        hint, known = f'; these policies have it: {", ".join(policies)}.', ''
    else:
        hint = '.'
    return ConfigError(f'{where} is not a known key{hint}', where=where, remedy=known)


def policies_with(where: str) -> list[str]:
    """Returns the names of the registered policies that have an option, by its dotted key in a config."""
    kind, _, key = where.partition('.')
    if kind != 'policy' or not key:
        return []
    policies = {name: POLICY_REGISTRY.get(name) for name in POLICY_REGISTRY.names()}
    return [name for name, policy in policies.items() if key in dotted_keys(policy.config_fields())]


def nearest_name(name: str, known: Iterable[str]) -> str:
    """Returns the known name that ``name`` misspells, or an empty string.

    Names that only share a word, such as ``learning_rate_policy`` and ``learning_rate_critic``, are different names.
    """
    close = difflib.get_close_matches(name, list(known), n=5, cutoff=0.6)
    return next((other for other in close if _is_misspelt(name, other)), '')


def _is_misspelt(name: str, other: str) -> bool:
    words, others = name.lower().split('_'), other.lower().split('_')
    if len(words) == len(others):
        return all(_ratio(*pair) >= WORD_ALIKE for pair in zip(words, others, strict=True))
    return _ratio(''.join(words), ''.join(others)) >= ALIKE


def _ratio(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()


LEARN, COLLECT, EVALUATOR, BUFFER = (
    'policy.learn.',
    'policy.collect.',
    'policy.eval.evaluator.',
    'policy.other.replay_buffer.',
)

Alternatives = tuple[tuple[str, ...], ...]
"""Groups of dotted keys, the preferred group first; the keys of a group belong together."""

ROWS: tuple[tuple[str, Alternatives], ...] = (
    # budgets, names, places
    ('total_timesteps total_env_steps num_timesteps total_steps max_steps', (('max_env_step',),)),
    (
        'max_iter max_iters num_iterations total_iterations n_iter num_updates total_updates',
        (('max_train_iter',),),
    ),
    ('random_seed rng_seed set_seed global_seed', (('seed',),)),
    ('device gpu use_gpu use_cuda device_name num_gpus', (('policy.device',),)),
    ('n_threads torch_threads torch_num_threads', (('num_threads',),)),
    (
        'log_dir logdir log_path save_dir save_path output_dir out_dir tensorboard_log tb_log_name run_name'
        ' experiment_name exp_dir local_dir',
        (('exp_name',),),
    ),
    (
        'save_freq save_interval checkpoint_freq checkpoint_interval checkpoint_frequency',
        ((f'{LEARN}learner.hook',),),
    ),
    ('keep_checkpoints num_to_keep keep_checkpoints_num max_checkpoints', (('checkpoint.keep_last',),)),
    (
        'pretrained load_path load_dir model_path restore_path resume_path checkpoint_path',
        (('policy.init_from',),),
    ),
    # envs
    ('env_name env_type game task gym_id environment', (('env.env_id',),)),
    (
        'num_envs n_envs env_num n_env num_env nenvs nproc n_workers training_num train_num num_envs_per_worker'
        ' num_envs_per_env_runner',
        (('env.collector_env_num',),),
    ),
    ('test_num eval_env_num num_eval_envs n_eval_envs evaluation_num_workers', (('env.evaluator_env_num',),)),
    (
        'env_kwargs env_config env_args env_params make_kwargs max_episode_steps time_limit',
        (('env.kwargs',),),
    ),
    ('wrapper env_wrapper wrapper_class env_wrappers', (('env.wrappers',),)),
    ('num_stack n_stack frames_stack stack_num framestack', (('env.frame_stack',),)),
    ('reward_threshold stop_reward target_reward solved_reward reward_stop', (('env.stop_value',),)),
    (
        'n_eval_episodes eval_episodes num_eval_episodes episode_per_test evaluation_duration test_episodes',
        (('env.n_evaluator_episode',),),
    ),
    (
        'eval_interval evaluation_interval test_freq eval_every evaluation_freq eval_frequency',
        ((f'{EVALUATOR}eval_freq',),),
    ),
    # collection
    (
        'num_rollout_workers num_env_runners num_workers num_collectors num_actors',
        ((f'{COLLECT}collector.num_collectors',),),
    ),
    (
        'step_per_collect steps_per_collect collection_step_num_env_steps rollout_fragment_length num_steps rollout_length'
        ' rollout_steps steps_per_epoch frames_per_batch horizon_length collect_steps train_freq train_frequency',
        ((f'{COLLECT}n_sample',),),
    ),
    ('n_steps', (('policy.nstep',), (f'{COLLECT}n_sample',))),
    ('episode_per_collect episodes_per_collect', ((f'{COLLECT}n_episode',),)),
    (
        'learning_starts start_training start_steps warmup_steps warm_up initial_random_steps start_timesteps'
        ' num_steps_sampled_before_learning_starts random_steps min_buffer_size',
        (('policy.random_collect_size',),),
    ),
    (
        'exploration_fraction exploration_initial_eps exploration_final_eps exploration_rate epsilon eps_train eps_start'
        ' eps_end eps_decay start_e end_e epsilon_start epsilon_end epsilon_decay initial_epsilon final_epsilon eps_test',
        (('policy.other.eps',),),
    ),
    ('action_noise exploration_noise expl_noise act_noise', ((f'{COLLECT}noise_sigma',),)),
    # returns
    ('gamma discount discount_rate', (('policy.discount_factor',), (f'{COLLECT}discount_factor',))),
    ('lambda lambda_ gae_lam lam td_lambda gae', ((f'{COLLECT}gae_lambda',),)),
    (
        'n_step multi_step estimation_step nstep_return n_step_return n_step_return_horizon',
        (('policy.nstep',),),
    ),
    # updates
    (
        'lr learning_rate step_size',
        ((f'{LEARN}learning_rate',), (f'{LEARN}learning_rate_actor', f'{LEARN}learning_rate_critic')),
    ),
    (
        'learning_rate_policy policy_lr actor_lr lr_actor pi_lr lr_pi actor_learning_rate lr_policy',
        ((f'{LEARN}learning_rate_actor',), (f'{LEARN}learning_rate',)),
    ),
    (
        'learning_rate_q learning_rate_value critic_lr lr_critic q_lr vf_lr value_lr qf_lr critic_learning_rate',
        ((f'{LEARN}learning_rate_critic',), (f'{LEARN}learning_rate',)),
    ),
    ('lr_alpha ent_coef_lr alpha_learning_rate', ((f'{LEARN}learning_rate_alpha',),)),
    (
        'minibatch_size mini_batch_size sgd_minibatch_size num_minibatches n_minibatches train_batch_size'
        ' train_batch_size_per_learner optimizer_batch_size',
        ((f'{LEARN}batch_size',),),
    ),
    (
        'n_epochs num_epochs update_epochs repeat_per_collect num_sgd_iter ppo_epochs update_epoch k_epochs noptepochs',
        ((f'{LEARN}epoch_per_collect',),),
    ),
    (
        'gradient_steps update_per_step utd_ratio updates_per_step n_updates update_step_num_gradient_steps_per_sample'
        ' replay_ratio training_intensity utd',
        ((f'{LEARN}update_per_collect',),),
    ),
    (
        'max_grad_norm grad_clip clip_grad_norm max_norm gradient_clip grad_norm grad_clip_value clip_grad grad_norm_clip',
        ((f'{LEARN}grad_clip_norm',),),
    ),
    ('optim optimizer_class optimiser optimizer_type', ((f'{LEARN}optimizer',),)),
    ('clip_range clip_coef eps_clip clip_param clip_eps epsilon_clip ratio_clip', ((f'{LEARN}clip_ratio',),)),
    ('clip_range_vf clip_vloss vf_clip_param value_clip_range clip_value', ((f'{LEARN}value_clip',),)),
    (
        'vf_coef vf_loss_coeff value_coef vf_loss_weight value_loss_coef critic_coef',
        ((f'{LEARN}value_weight',),),
    ),
    (
        'ent_coef entropy_coeff ent_weight entropy_coef entropy_cost entropy_loss_weight entropy_bonus',
        ((f'{LEARN}entropy_weight',), (f'{LEARN}alpha',)),
    ),
    ('initial_alpha alpha_init init_temperature', ((f'{LEARN}init_alpha',),)),
    ('autotune auto_alpha auto_entropy temperature', ((f'{LEARN}alpha',),)),
    ('kl_target max_kl kl_limit dkl', ((f'{LEARN}target_kl',),)),
    (
        'normalize_advantage norm_adv advantage_normalization norm_advantage adv_norm normalize_advantages',
        ((f'{LEARN}advantage_norm',),),
    ),
    (
        'target_update_interval target_network_frequency target_network_update_freq target_update target_update_period',
        ((f'{LEARN}target_update_freq',),),
    ),
    ('tau polyak soft_update target_update_tau polyak_coef', ((f'{LEARN}target_theta',),)),
    (
        'policy_delay policy_frequency policy_freq actor_delay update_actor_freq',
        ((f'{LEARN}actor_update_freq',),),
    ),
    ('target_policy_noise policy_noise', ((f'{LEARN}target_noise',),)),
    ('noise_clip target_policy_noise_clip noise_range', ((f'{LEARN}target_noise_clip',),)),
    # networks
    (
        'net_arch policy_kwargs hidden_sizes hidden_size hidden_dim hidden_units fcnet_hiddens layers hidden_layers'
        ' num_hidden hidden_dims mlp_units encoder_hidden_sizes actor_hidden_size',
        (('policy.model.encoder_hidden_size_list',),),
    ),
    ('activation_fn act_fn nonlinearity fcnet_activation', (('policy.model.activation',),)),
    ('conv_filters cnn_layers channels', (('policy.model.conv_layers',),)),
    (
        'lstm_hidden lstm_cell_size cell_size rnn_hidden_size recurrent_hidden_size lstm_hidden_size core_hidden_size',
        (('policy.model.lstm_hidden_size',), ('policy.model.core_hidden_size',)),
    ),
    ('use_lstm use_rnn recurrent rnn rnn_type lstm_type cell_type', (('policy.model.core',),)),
    ('dueling_dqn is_dueling use_dueling dueling_network', (('policy.model.dueling',),)),
    ('double_dqn is_double double_q use_double_dqn', (('policy.double',),)),
    ('noisy_net noisy_dqn use_noisy', (('policy.model.noisy',),)),
    ('num_atoms atoms n_atoms', (('policy.model.n_atom',),)),
    ('n_quantiles quantiles', (('policy.model.num_quantiles',),)),
    ('use_sde log_std init_log_std', (('policy.model.log_std_init',),)),
    ('obs_norm normalize_observation norm_obs normalise_obs obs_rms', (('policy.normalize_obs',),)),
    (
        'rew_norm reward_normalization norm_reward reward_norm normalise_reward',
        (('policy.normalize_reward',),),
    ),
    # replay buffers
    (
        'buffer_size memory_size replay_size capacity max_size replay_capacity buffer_capacity memory_capacity'
        ' replay_buffer_capacity',
        ((f'{BUFFER}replay_buffer_size',),),
    ),
    ('prioritized prioritized_replay use_per per prioritised_replay', (('policy.priority',),)),
    ('per_alpha prioritized_replay_alpha priority_alpha', ((f'{BUFFER}alpha',),)),
    ('per_beta prioritized_replay_beta beta0 prioritized_replay_beta0', ((f'{BUFFER}beta',),)),
)
"""Option names of Stable-Baselines3, CleanRL, Tianshou, RLlib and DI-engine, and rlframe's options."""

SYNONYMS: dict[str, Alternatives] = {name: keys for names, keys in ROWS for name in names.split()}
"""Options that may be meant, by foreign name in lower case."""


def meant_keys(name: str, known: Collection[str]) -> list[str] | None:
    """Returns the options that a foreign name may mean.

    Args:
        name: The last part of an unknown key.
        known: Dotted keys of all known options: of a whole config, or of one component, which start further in.

    Returns:
        Their dotted keys, as they stand in ``known``; empty if those options do not exist there, and None if the
        name itself is unknown.
    """
    alternatives = SYNONYMS.get(name.lower().replace('-', '_'))
    if alternatives is None:
        return None
    is_whole = 'policy' in known or 'env' in known
    for keys in alternatives:
        found = [_as_known(key, known, is_whole) for key in keys]
        if all(found):
            return found
    return []


def _as_known(key: str, known: Collection[str], is_whole: bool) -> str:
    """Returns a dotted key as the component that has it names it; an empty string if none has it."""
    if is_whole:
        return key if key in known else ''
    return next((own for own in known if key.endswith(f'.{own}')), '')
