"""GAIL by PPO on CartPole-v1: return 500.0, seeds 0-2 (worst 500.0), 100,352 env steps, 15 s of CPU time.

It imitates a controller written by hand, of which 20 episodes are recorded when the run begins, and never sees the env's reward.
"""

main_config = dict(
    exp_name='cartpole_gail',
    max_env_step=100_000,
    env=dict(
        env_id='CartPole-v1',
        collector_env_num=8,
        evaluator_env_num=10,
        n_evaluator_episode=20,
        stop_value=500,  # the longest episode
    ),
    reward_model=dict(type='gail', data='rlframe.envs.cartpole_expert:demonstrations'),
    policy=dict(
        cuda=False,
        model=dict(encoder_hidden_size_list=[64, 64]),
        learn=dict(
            epoch_per_collect=6,
            batch_size=128,
            learning_rate=dict(type='linear', start=2e-3, end=0.0, decay=100_000),  # decay in env steps
            clip_ratio=dict(type='linear', start=0.2, end=0.01, decay=100_000),
            entropy_weight=0.0,
        ),
        collect=dict(
            n_sample=512,  # training samples per round: 64 steps of each of 8 envs
            discount_factor=0.98,
            gae_lambda=0.8,
        ),
        eval=dict(evaluator=dict(eval_freq=240)),  # train iterations: 5,120 env steps
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='ppo'),
    collector=dict(type='sample'),
)
