"""PPO on Breakout: not measured yet.

Games as OpenAI Baselines set them, 84 x 84 gray pixels and 4 frames, in ALE's own threads. In EnvPool
(`pip install 'rlframe[envpool]'`): `env_manager=dict(type='env_pool')`.
"""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name='breakout_ppo',  # the run folder adds the seed, and a number where it exists already
        max_env_step=5_000_000,
        env=dict(
            env_id='ALE/Breakout-v5',
            protocol='baselines',  # no-op starts, and in training an end with each life and clipped rewards
            collector_env_num=8,
            evaluator_env_num=5,
            n_evaluator_episode=10,
            stop_value=400,
        ),
        policy=dict(
            cuda=False,
            model=dict(
                encoder='nature', encoder_hidden_size_list=[512], activation='relu', share_encoder=True
            ),
            learn=dict(
                epoch_per_collect=4,
                batch_size=256,
                learning_rate=dict(
                    type='linear', start=2.5e-4, end=2.5e-5, decay=5_000_000
                ),  # decay in env steps
                clip_ratio=0.1,
                value_clip=0.1,
                entropy_weight=0.01,
                grad_clip_norm=0.5,
                learner=dict(hook=dict(log_show_after_iter=500, save_ckpt_after_run=True)),
            ),
            collect=dict(n_sample=1024, discount_factor=0.99, gae_lambda=0.95),  # env steps per round
            eval=dict(evaluator=dict(eval_freq=1600)),  # train iterations
        ),
    )
)

create_config = EasyDict(
    dict(
        import_names=[],  # modules to import so that they register components of your own
        env=dict(type='atari'),
        env_manager=dict(type='gym_vector'),
        policy=dict(type='ppo'),
        collector=dict(type='sample'),
    )
)
