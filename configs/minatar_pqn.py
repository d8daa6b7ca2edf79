"""PQN on MinAtar: return 63.8 (MinAtar Asterix), 47.0 (MinAtar Breakout), 66.3 (MinAtar Freeway), 126.1 (MinAtar Seaquest), 642.8 (MinAtar SpaceInvaders), seeds 0-2, 6,000,640 env steps, 391 s of CPU time.

For another game: `env.env_id=MinAtar/Asterix-v1`, Freeway, Seaquest or SpaceInvaders.
"""

main_config = dict(
    exp_name='minatar_pqn',
    max_env_step=6_000_000,
    env=dict(
        env_id='MinAtar/Breakout-v1',
        collector_env_num=128,
        evaluator_env_num=20,
        n_evaluator_episode=20,
    ),
    policy=dict(
        cuda=False,
        discount_factor=0.99,
        model=dict(encoder_hidden_size_list=[128]),  # after a convolution of 16 channels
        learn=dict(
            epoch_per_collect=2,
            batch_size=256,
            learning_rate=dict(type='linear', start=1e-3, end=1e-5, decay=6_000_000),  # env steps
        ),
        collect=dict(n_sample=4096, q_lambda=0.65),  # 32 steps of each of 128 envs
        eval=dict(evaluator=dict(eval_freq=3200)),  # train iterations: a hundred rounds
        other=dict(eps=dict(type='linear', start=1.0, end=0.01, decay=600_000)),  # env steps
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='pqn'),
    collector=dict(type='sample'),
)
