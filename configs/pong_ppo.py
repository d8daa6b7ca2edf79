"""PPO on Pong: return -16.1, seeds 0-2 (worst -19.2), 600,486 of 2,000,000 env steps, 898 s of CPU time.

Games as OpenAI Baselines set them, in ALE's own threads, but with frames of 42 x 42 pixels and a small network: on a CPU an update
takes a tenth of the time. As in the papers: `env.screen_size=84`, and for the model `conv_layers=None`, `encoder='nature'` and
`encoder_hidden_size_list=[512]`. In EnvPool (`pip install 'rlframe[envpool]'`): `env_manager=dict(type='env_pool')`.
"""

main_config = dict(
    exp_name='pong_ppo',  # the run folder adds the seed, and a number where it exists already
    max_env_step=2_000_000,
    env=dict(
        env_id='ALE/Pong-v5',
        protocol='baselines',  # no-op starts, and in training an end with each life and clipped rewards
        screen_size=42,  # pixels; 84 in the papers
        collector_env_num=8,
        evaluator_env_num=5,
        n_evaluator_episode=10,
        stop_value=20,  # of 21
    ),
    policy=dict(
        cuda=False,
        model=dict(
            conv_layers=[[16, 6, 4], [32, 3, 2]],  # channels, kernel, stride
            encoder_hidden_size_list=[256],
            activation='relu',
            share_encoder=True,
        ),
        learn=dict(
            epoch_per_collect=4,
            batch_size=256,
            learning_rate=dict(type='linear', start=1e-3, end=1e-4, decay=2_000_000),  # decay in env steps
            clip_ratio=0.2,
            value_clip=0.2,
            entropy_weight=0.01,
            grad_clip_norm=0.5,
            learner=dict(hook=dict(log_show_after_iter=500, save_ckpt_after_run=True)),
        ),
        collect=dict(n_sample=1024, discount_factor=0.99, gae_lambda=0.95),  # env steps per round
        eval=dict(evaluator=dict(eval_freq=1600)),  # train iterations
    ),
)

create_config = dict(
    import_names=[],  # modules to import so that they register components of your own
    env=dict(type='atari'),
    env_manager=dict(type='gym_vector'),
    policy=dict(type='ppo'),
    collector=dict(type='sample'),
)
