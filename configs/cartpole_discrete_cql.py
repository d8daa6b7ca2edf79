"""CQL for discrete actions on data of CartPole-v1: return 494.6 (data of CartPole-v1), 230.4 (data of LunarLander-v3), seeds 0-2, 639,008 to 2,047,950, 35 s of CPU time."""

main_config = dict(
    exp_name='cartpole_discrete_cql',
    max_train_iter=10_000,
    env=dict(env_id='CartPole-v1', evaluator_env_num=10, n_evaluator_episode=100),
    policy=dict(
        cuda=False,
        discount_factor=0.99,
        model=dict(encoder_hidden_size_list=[64, 64], dueling=False),
        learn=dict(batch_size=64, learning_rate=1e-3),
        eval=dict(evaluator=dict(eval_freq=2_500)),  # train iterations
    ),
)

create_config = dict(
    env=dict(type='gym'),
    policy=dict(type='discrete_cql'),
    collector=dict(
        type='dataset',
        data='rlframe.envs.recorded_play:cartpole',  # or the path of data
    ),
)
