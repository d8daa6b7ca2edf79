"""SAC on FetchReach-v4 of EnvPool, a robot's arm that reaches for a goal: return -17.8, seeds 0-2 (worst -48.6), 15,000 env steps, 183 s of CPU time."""

main_config = dict(
    exp_name='fetch_sac',
    max_env_step=15_000,
    env=dict(
        env_id='FetchReach-v4',  # of EnvPool: pip install "rlframe[envpool]"
        collector_env_num=8,
        evaluator_env_num=10,
        n_evaluator_episode=50,
    ),
    policy=dict(
        cuda=False,
        discount_factor=0.95,
        random_collect_size=1000,
        model=dict(encoder_hidden_size_list=[256, 256]),
        learn=dict(
            update_per_collect=8,  # train iterations
            batch_size=256,
            learning_rate_actor=3e-4,
            learning_rate_critic=1e-3,
        ),
        collect=dict(n_sample=8),
        eval=dict(evaluator=dict(eval_freq=2000)),  # train iterations
        other=dict(replay_buffer=dict(replay_buffer_size=100_000)),
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='env_pool', num_threads=1),
    policy=dict(type='sac'),
    collector=dict(type='sample'),
    replay_buffer=dict(type='naive'),
)
