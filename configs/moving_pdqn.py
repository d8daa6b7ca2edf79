"""P-DQN on Moving-v0: return 1.682, seeds 0-2 (worst 1.643), 400,056 env steps, 255 s of CPU time."""

main_config = dict(
    exp_name='moving_pdqn',  # the run folder adds the seed, and a number where it exists already
    max_env_step=400_000,
    env=dict(
        env_id='rlframe/Moving-v0',
        collector_env_num=8,
        evaluator_env_num=20,
        n_evaluator_episode=100,
    ),
    policy=dict(
        cuda=False,
        discount_factor=0.98,
        nstep=8,  # braking to a halt takes many steps
        # sizes of in- and output come from the env
        model=dict(
            encoder_hidden_size_list=[128, 128],
            dueling=False,
            multi_pass=True,
            action_mask=[[1, 0], [0, 1], [0, 0]],  # acceleration and rotation belong to the first two choices
        ),
        learn=dict(
            update_per_collect=8,  # train iterations
            batch_size=128,
            learning_rate=dict(type='linear', start=1e-3, end=1e-4, decay=400_000),  # decay in env steps
            learning_rate_actor=1e-4,
            target_theta=0.005,
            learner=dict(hook=dict(log_show_after_iter=1000, save_ckpt_after_run=True)),
        ),
        collect=dict(
            n_sample=64,  # training samples per round, over all envs
            noise_sigma=dict(type='linear', start=0.3, end=0.02, decay=160_000),
        ),
        eval=dict(evaluator=dict(eval_freq=3000)),  # train iterations
        other=dict(
            eps=dict(type='linear', start=1.0, end=0.02, decay=60_000),
            replay_buffer=dict(replay_buffer_size=400_000),  # transitions
        ),
    ),
)

create_config = dict(
    import_names=[],  # modules to import so that they register components of your own
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='pdqn'),
    collector=dict(type='sample'),
    replay_buffer=dict(type='naive'),
)
