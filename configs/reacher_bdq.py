"""BDQ on Reacher-v5: return -8.4, seeds 0-2 (worst -8.6), 50,000 env steps, 50 s of CPU time."""

main_config = dict(
    exp_name='reacher_bdq',  # the run folder adds the seed, and a number where it exists already
    max_env_step=50_000,
    env=dict(
        env_id='Reacher-v5',
        # each of the two torques is one of nine levels
        wrappers=[dict(type='gymnasium.wrappers:DiscretizeAction', bins=9, multidiscrete=True)],
        collector_env_num=8,
        evaluator_env_num=20,
        n_evaluator_episode=100,
    ),
    policy=dict(
        cuda=False,
        discount_factor=0.95,
        nstep=3,  # env steps
        random_collect_size=1_000,  # training samples
        model=dict(encoder_hidden_size_list=[128, 128]),  # sizes of in- and output come from the env
        learn=dict(
            update_per_collect=4,  # train iterations
            batch_size=128,
            learning_rate=1e-3,
            target_update_freq=200,  # train iterations
            learner=dict(hook=dict(log_show_after_iter=1000, save_ckpt_after_run=True)),
        ),
        collect=dict(n_sample=8),  # training samples per round, over all envs
        eval=dict(evaluator=dict(eval_freq=2500)),  # train iterations
        other=dict(
            eps=dict(type='linear', start=1.0, end=0.05, decay=20_000),  # decay in env steps
            replay_buffer=dict(replay_buffer_size=50_000),  # transitions
        ),
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='bdq'),
    collector=dict(type='sample'),
    replay_buffer=dict(type='naive'),
)
