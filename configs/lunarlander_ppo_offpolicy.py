"""PPO from a replay buffer on LunarLander-v3: return 237.7, seeds 0-2 (worst 232.9), 1,007,616 env steps, 238 s of CPU time."""

main_config = dict(
    exp_name='lunarlander_ppo_offpolicy',
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
            update_per_collect=512,  # train iterations: each row is drawn four times on average
            batch_size=64,
            learning_rate=3e-4,
            entropy_weight=0.01,
        ),
        collect=dict(
            n_sample=8192,  # 512 steps of each of 16 envs
            discount_factor=0.999,
            gae_lambda=0.98,
        ),
        eval=dict(evaluator=dict(eval_freq=2048)),  # train iterations: four rounds
        other=dict(replay_buffer=dict(replay_buffer_size=16_384)),  # transitions: two rounds
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='ppo_offpolicy'),
    collector=dict(type='sample'),
    replay_buffer=dict(type='naive'),
)
