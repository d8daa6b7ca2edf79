"""PPO with an LSTM on CartPoleNoVelocity-v1: return 499.6, seeds 0-9 (worst 497.5), 100,352 env steps, 58 s of CPU time."""

main_config = dict(
    exp_name='cartpole_novel_ppo',
    max_env_step=100_000,
    env=dict(
        env_id='rlframe/CartPoleNoVelocity-v1',
        collector_env_num=8,
        evaluator_env_num=100,
        n_evaluator_episode=400,
        stop_value=500,  # the longest episode
    ),
    policy=dict(
        cuda=False,
        normalize_obs=True,
        model=dict(
            encoder_hidden_size_list=[64],
            core='lstm',
            core_hidden_size=64,
        ),
        learn=dict(
            epoch_per_collect=10,
            batch_size=256,  # env steps, in whole sequences
            learning_rate=dict(type='linear', start=1e-3, end=0.0, decay=100_000),  # decay in env steps
            clip_ratio=dict(type='linear', start=0.2, end=0.0, decay=100_000),
            value_norm=True,
            entropy_weight=0.0,
        ),
        collect=dict(
            n_sample=1024,  # env steps: sequences of at most 128 steps of each of 8 envs
            discount_factor=0.98,
            gae_lambda=0.95,
        ),
        eval=dict(evaluator=dict(eval_freq=800)),  # train iterations
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='ppo'),
    collector=dict(type='sample'),
)
