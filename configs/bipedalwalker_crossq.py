"""CrossQ on BipedalWalker-v3: return 317.7, seeds 0-9 (worst 306.5), 250,000 env steps, 801 s of CPU time."""

main_config = dict(
    exp_name='bipedalwalker_crossq',  # the run folder adds the seed, and a number where it exists already
    max_env_step=250_000,
    env=dict(
        env_id='BipedalWalker-v3',
        collector_env_num=4,
        evaluator_env_num=10,
        n_evaluator_episode=20,
        stop_value=320,  # its authors ask for 300
    ),
    policy=dict(
        cuda=False,
        discount_factor=0.98,
        nstep=3,
        random_collect_size=5_000,  # training samples
        model=dict(
            encoder_hidden_size_list=[128, 128],  # sizes of in- and output come from the env
            num_quantiles=25,  # of the return, as in TQC
        ),
        learn=dict(
            update_per_collect=2,  # train iterations: one for every second env step
            batch_size=256,
            dropped_quantiles=2,
            learning_rate_actor=dict(type='linear', start=1e-3, end=1e-4, decay=250_000),  # in env steps
            learning_rate_critic=dict(type='linear', start=1e-3, end=1e-4, decay=250_000),  # in env steps
            learner=dict(hook=dict(log_show_after_iter=1000, save_ckpt_after_run=True)),
        ),
        collect=dict(
            n_sample=4,  # training samples per round, over all envs
            noise_correlation=0.8,  # with that of the env step before: without it, 85,000 env steps taught nothing
        ),
        eval=dict(evaluator=dict(eval_freq=5_000)),  # train iterations: 10,000 env steps
        other=dict(replay_buffer=dict(replay_buffer_size=250_000)),  # transitions
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='crossq'),
    collector=dict(type='sample'),
    replay_buffer=dict(type='naive'),
)
