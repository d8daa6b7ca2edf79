"""PPO with counts of what is carried on EnvPool's MiniGrid-PutNear-6x6-N2-v0: return 0.711, seeds 0-2 (worst 0.691), 1,003,520 env steps, 301 s of CPU time.

The mission names a thing and where to put it. Random actions reach that in one of 80 episodes, so what the agent picks up
is paid a little, right or wrong; to tell them apart is learned by the reward.
"""

main_config = dict(
    exp_name='minigrid_putnear_ppo',
    max_env_step=1_000_000,
    reward_model=dict(
        counts=dict(
            features=['image[3, 6, 0]'],  # the kind of what the agent carries, which it sees at its own place
            lifelong=False,
            once=True,  # paid once in an episode
            weight=0.05,
        ),
    ),
    env=dict(
        env_id='MiniGrid-PutNear-6x6-N2-v0',
        collector_env_num=64,
        evaluator_env_num=50,
        n_evaluator_episode=100,
    ),
    policy=dict(
        cuda=False,
        model=dict(
            encoder='grid',  # embeds the cells in view, and the letters of the mission
            encoder_hidden_size_list=[128, 64],
            activation='relu',
        ),
        learn=dict(
            epoch_per_collect=4,
            batch_size=512,
            learning_rate=dict(type='linear', start=1e-3, end=1e-4, decay=1_000_000),  # env steps
            entropy_weight=0.005,
        ),
        collect=dict(
            n_sample=4096,  # 64 steps of each of 64 envs
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
