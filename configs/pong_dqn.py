"""DQN on Pong: return -16.1, seeds 0-2 (worst -21.0), 300,006 of 2,000,000 env steps, 1,876 s of CPU time.

Games as Mnih et al. (2015) set them, in ALE's own threads, but with frames of 42 x 42 pixels and a small network: on a CPU an update
takes a tenth of the time. As in the papers: `env.screen_size=84`, and for the model `conv_layers=None`, `encoder='nature'` and
`encoder_hidden_size_list=[512]`.
"""

main_config = dict(
    exp_name='pong_dqn',  # the run folder adds the seed, and a number where it exists already
    max_env_step=2_000_000,
    env=dict(
        env_id='ALE/Pong-v5',
        protocol='mnih2015',  # no-op starts, and in training an end with each life and clipped rewards
        screen_size=42,  # pixels; 84 in the paper
        collector_env_num=8,
        evaluator_env_num=5,
        n_evaluator_episode=10,
        stop_value=20,  # of 21
    ),
    policy=dict(
        cuda=False,
        discount_factor=0.99,
        nstep=3,
        random_collect_size=5_000,
        model=dict(
            conv_layers=[[16, 6, 4], [32, 3, 2]],  # channels, kernel, stride
            encoder_hidden_size_list=[256],
        ),
        learn=dict(
            update_per_collect=4,  # train iterations
            batch_size=32,
            learning_rate=3e-4,
            target_update_freq=500,  # train iterations
            grad_clip_norm=10.0,
            learner=dict(hook=dict(log_show_after_iter=500, save_ckpt_after_run=True)),
        ),
        collect=dict(n_sample=8),  # training samples per round, over all envs
        eval=dict(evaluator=dict(eval_freq=25_000)),  # train iterations
        other=dict(
            eps=dict(type='linear', start=1.0, end=0.01, decay=50_000),  # decay in env steps
            replay_buffer=dict(replay_buffer_size=100_000),  # transitions
        ),
    ),
)

create_config = dict(
    import_names=[],  # modules to import so that they register components of your own
    env=dict(type='atari'),
    env_manager=dict(type='gym_vector'),
    policy=dict(type='dqn'),
    collector=dict(type='sample'),
    replay_buffer=dict(type='naive'),
)
