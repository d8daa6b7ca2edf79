"""PPO on MinAtar: return 2.1 (MinAtar Asterix), 22.0 (MinAtar Breakout), 39.4 (MinAtar Freeway), 4.2 (MinAtar Seaquest), 136.3 (MinAtar SpaceInvaders), seeds 0-2, 2,007,040 env steps, 278 s of CPU time.

For another game: `env.env_id=MinAtar/Asterix-v1`, Freeway, Seaquest or SpaceInvaders.
"""

main_config = dict(
    exp_name='minatar_ppo',
    max_env_step=2_000_000,
    env=dict(
        env_id='MinAtar/Breakout-v1',
        collector_env_num=64,
        evaluator_env_num=20,
        n_evaluator_episode=20,
        stop_value=28,  # of Breakout; published for 10M env steps
    ),
    policy=dict(
        cuda=False,
        model=dict(
            encoder_hidden_size_list=[256, 256],
            conv_layers=[],  # on so small a grid, one vector is as good
            activation='relu',
        ),
        learn=dict(
            epoch_per_collect=4,
            batch_size=1024,
            learning_rate=dict(type='linear', start=5e-3, end=1e-4, decay=2_000_000),  # env steps
            entropy_weight=0.01,
            grad_clip_norm=0.5,
        ),
        collect=dict(
            n_sample=8192,  # 128 steps of each of 64 envs
            discount_factor=0.99,
            gae_lambda=0.95,
        ),
        eval=dict(evaluator=dict(eval_freq=640)),  # train iterations: twenty rounds
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='ppo'),
    collector=dict(type='sample'),
)
