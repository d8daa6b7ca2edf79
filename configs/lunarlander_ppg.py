"""PPG on LunarLander-v3: return 253.3, seeds 0-2 (worst 248.6), 229,376 env steps, 60 s of CPU time."""

main_config = dict(
    exp_name='lunarlander_ppg',
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
            value_norm=True,  # so that the joint loss weighs values and the divergence alike
            entropy_weight=0.01,
            aux_freq=4,  # rounds of a policy phase
            aux_train_epoch=3,
        ),
        collect=dict(
            n_sample=8192,  # 512 steps of each of 16 envs
            discount_factor=0.999,
            gae_lambda=0.98,
        ),
        eval=dict(evaluator=dict(eval_freq=3584)),  # train iterations: four rounds with their auxiliary phase
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='ppg'),
    collector=dict(type='sample'),
)
