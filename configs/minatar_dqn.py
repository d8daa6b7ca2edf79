"""DQN on MinAtar: return 4.4 (MinAtar Asterix), 7.2 (MinAtar Breakout), 52.1 (MinAtar Freeway), 1.440 (MinAtar Seaquest), 38.1 (MinAtar SpaceInvaders), seeds 0-2, 300,000 env steps, 213 s of CPU time.

For another game: `env.env_id=MinAtar/Asterix-v1`, Freeway, Seaquest or SpaceInvaders.
"""

main_config = dict(
    exp_name='minatar_dqn',
    max_env_step=300_000,
    env=dict(
        env_id='MinAtar/Breakout-v1',
        collector_env_num=8,
        evaluator_env_num=10,
        n_evaluator_episode=20,
        stop_value=28,  # of Breakout; published for PPO and 10M env steps
    ),
    policy=dict(
        cuda=False,
        discount_factor=0.99,
        model=dict(encoder_hidden_size_list=[128], dueling=False),
        learn=dict(
            update_per_collect=2,  # train iterations
            batch_size=32,
            learning_rate=2.5e-4,
            target_update_freq=1000,  # train iterations
            learner=dict(hook=dict(log_show_after_iter=500, save_ckpt_after_run=True)),
        ),
        collect=dict(n_sample=8),  # training samples per round, over all envs
        eval=dict(evaluator=dict(eval_freq=12500)),  # train iterations
        other=dict(
            eps=dict(type='linear', start=1.0, end=0.05, decay=100_000),  # decay in env steps
            replay_buffer=dict(replay_buffer_size=100_000),  # transitions
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
