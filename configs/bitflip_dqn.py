"""DQN with hindsight replay on BitFlip-v0: return 0.997 (BitFlip-v0, 15 bits), 0.987 (BitFlip-v0, 20 bits), seeds 0-2, 28,504 to 56,504 env steps, 31 s of CPU time."""

main_config = dict(
    exp_name='bitflip_dqn',  # the run folder adds the seed, and a number where it exists already
    max_env_step=60_000,
    env=dict(
        env_id='rlframe/BitFlip-v0',
        kwargs=dict(n_bits=15),
        collector_env_num=8,
        evaluator_env_num=10,
        n_evaluator_episode=100,
        stop_success=0.99,
    ),
    policy=dict(
        cuda=False,
        discount_factor=0.98,
        random_collect_size=500,
        # sizes of in- and output come from the env
        model=dict(encoder_hidden_size_list=[256], dueling=False),
        learn=dict(
            update_per_collect=4,  # train iterations
            batch_size=128,
            learning_rate=1e-3,
            target_update_freq=200,  # train iterations
            learner=dict(hook=dict(log_show_after_iter=1000, save_ckpt_after_run=True)),
        ),
        collect=dict(n_sample=8, collector=dict(mark_episodes=True)),
        eval=dict(evaluator=dict(eval_freq=2000)),  # train iterations
        other=dict(
            eps=dict(type='linear', start=0.2, end=0.0, decay=40_000),  # decay in env steps
            replay_buffer=dict(
                replay_buffer_size=100_000,  # transitions
                hindsight=dict(strategy='future', share=0.8),
            ),
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
