"""SAC on LunarLanderContinuous-v3: return 232.5, seeds 0-9 (worst 103.5), 100,000 env steps, 124 s of CPU time."""

main_config = dict(
    exp_name='lunarlander_continuous_sac',  # the run folder adds the seed, and a number where it exists already
    max_env_step=100_000,
    env=dict(
        env_id='LunarLanderContinuous-v3',
        collector_env_num=4,
        evaluator_env_num=10,
        n_evaluator_episode=30,
        stop_value=240,  # its own reward threshold is 200
    ),
    policy=dict(
        cuda=False,
        discount_factor=0.99,
        nstep=5,
        random_collect_size=5_000,  # training samples
        model=dict(
            encoder_hidden_size_list=[128, 128],  # sizes of in- and output come from the env
            twin_critic=False,  # in place of the smaller value of two
        ),
        learn=dict(
            update_per_collect=2,  # train iterations: one for every second env step
            batch_size=256,
            learning_rate_actor=dict(type='linear', start=1e-3, end=1e-4, decay=100_000),  # in env steps
            learning_rate_critic=dict(type='linear', start=1e-3, end=1e-4, decay=100_000),  # in env steps
            learning_rate_alpha=dict(type='linear', start=1e-3, end=1e-4, decay=100_000),  # in env steps
            target_entropy=-0.5,  # nats; -2 by default, which explores less
            target_theta=0.01,
            learner=dict(hook=dict(log_show_after_iter=500, save_ckpt_after_run=True)),
        ),
        collect=dict(
            n_sample=4,  # training samples per round, over all envs
            noise_correlation=0.9,  # with that of the env step before
        ),
        eval=dict(evaluator=dict(eval_freq=5_000)),  # train iterations: 10,000 env steps
        other=dict(replay_buffer=dict(replay_buffer_size=100_000)),  # transitions
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='sac'),
    collector=dict(type='sample'),
    replay_buffer=dict(type='naive'),
)
