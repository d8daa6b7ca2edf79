"""BCO from 10 demonstrated episodes, whose actions are not read, on CartPole-v1: return 500.0, seeds 0-2 (worst 500.0), 10,000 env steps, 18 s of CPU time."""

main_config = dict(
    exp_name='cartpole_bco',
    max_env_step=10_000,
    env=dict(
        env_id='CartPole-v1',
        collector_env_num=8,
        evaluator_env_num=10,
        n_evaluator_episode=100,
        stop_value=475,
    ),
    policy=dict(
        cuda=False,
        random_collect_size=1_000,  # training samples
        model=dict(encoder_hidden_size_list=[128, 128]),
        learn=dict(update_per_collect=4, batch_size=128, learning_rate=1e-3),
        collect=dict(n_sample=8),  # training samples per round, over all envs
        eval=dict(evaluator=dict(eval_freq='1_000 env steps')),
        other=dict(
            replay_buffer=dict(
                replay_buffer_size=20_000,  # transitions
                init_from='rlframe.envs.recorded_play:cartpole_demos',  # or the path of data
            ),
        ),
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='bco'),
    collector=dict(type='sample'),
    replay_buffer=dict(type='naive'),
)
