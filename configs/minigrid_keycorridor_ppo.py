"""PPO with counts of visits on EnvPool's MiniGrid-KeyCorridorS3R3-v0: return 0.906, seeds 0-2 (worst 0.902), 1,003,520 env steps, 264 s of CPU time.

A ball is locked in one of six rooms, its key lies in another. New places pay, and so does what the agent carries and what is in front
of it at a place: a key, or a door that it opened. For another env: `env.env_id=MiniGrid-KeyCorridorS4R3-v0`.
"""

main_config = dict(
    exp_name='minigrid_keycorridor_ppo',
    max_env_step=1_000_000,
    reward_model=dict(
        counts=dict(
            infos=['agent_pos'],
            # the kind of what is carried; kind and state of what is in front
            features=['image[3, 6, 0]', 'image[3, 5, 0]', 'image[3, 5, 2]'],
            once=True,  # only the first visit of an episode is paid, the less the more often the run has been there
            weight=0.01,
        ),
    ),
    env=dict(
        env_id='MiniGrid-KeyCorridorS3R3-v0',
        collector_env_num=32,
        evaluator_env_num=50,
        n_evaluator_episode=100,
    ),
    policy=dict(
        cuda=False,
        model=dict(
            encoder='grid',
            encoder_width=0.5,
            encoder_hidden_size_list=[64],
            activation='relu',
        ),
        learn=dict(
            epoch_per_collect=3,
            batch_size=256,
            learning_rate=7e-4,
            entropy_weight=0.01,
        ),
        collect=dict(
            n_sample=4096,  # 128 steps of each of 32 envs
            discount_factor=0.99,
            gae_lambda=0.95,
        ),
        eval=dict(
            deterministic=False,  # who sees only a part of the grid can get stuck
            evaluator=dict(eval_freq='100000 env steps'),
        ),
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='env_pool', num_threads=1),
    policy=dict(type='ppo'),
    collector=dict(type='sample'),
)
