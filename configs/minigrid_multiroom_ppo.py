"""PPO with counts of visits on MiniGrid-MultiRoom-N4-S5-v0: return 0.656, seeds 0-2 (worst 0.600), 200,704 env steps, 89 s of CPU time.

Its six rooms lie elsewhere in each episode, so visits count in the episode alone. EnvPool 1.2 has this id too, but most of its mazes
have doors that lead to walls.
"""

main_config = dict(
    exp_name='minigrid_multiroom_ppo',
    max_env_step=200_000,
    reward_model=dict(
        counts=dict(
            infos=['agent_pos'],  # a state is a place
            lifelong=False,
            once=True,  # only the first visit of an episode is paid
            weight=0.01,
        ),
    ),
    env=dict(
        env_id='MiniGrid-MultiRoom-N4-S5-v0',
        wrappers=[
            # the mission is always the same
            dict(type='FilterObservation', filter_keys=['direction', 'image']),
            dict(type='rlframe.envs.wrappers:AttributeInfo', name='agent_pos'),
        ],
        collector_env_num=32,
        evaluator_env_num=25,
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
            evaluator=dict(eval_freq='50000 env steps'),
        ),
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='ppo'),
    collector=dict(type='sample'),
)
