"""PPO on Pong-v5: not measured yet.

Four frames of 42 x 42 grey pixels, from EnvPool (`pip install 'rlframe[envpool]'`).
"""

from easydict import EasyDict

main_config = EasyDict(
    dict(
        exp_name='pong_ppo',  # the run folder adds the seed, and a number where it exists already
        max_env_step=5_000_000,
        env=dict(
            env_id='Pong-v5',
            kwargs=dict(img_height=42, img_width=42, repeat_action_probability=0.25),  # as in ALE/Pong-v5
            collector_env_num=16,
            evaluator_env_num=10,
            n_evaluator_episode=10,
            stop_value=20,  # of 21
        ),
        policy=dict(
            cuda=False,
            model=dict(encoder_hidden_size_list=[256], activation='relu', share_encoder=True),
            learn=dict(
                epoch_per_collect=4,
                batch_size=256,
                learning_rate=5e-4,
                clip_ratio=0.1,
                entropy_weight=0.01,
                grad_clip_norm=0.5,
                learner=dict(hook=dict(log_show_after_iter=500, save_ckpt_after_run=True)),
            ),
            collect=dict(n_sample=2048, discount_factor=0.99, gae_lambda=0.95),  # env steps per round
            eval=dict(evaluator=dict(eval_freq=1600)),  # train iterations
        ),
    )
)

create_config = EasyDict(
    dict(
        import_names=[],  # modules to import so that they register components of your own
        env=dict(type='gym'),
        env_manager=dict(type='env_pool'),
        policy=dict(type='ppo'),
        collector=dict(type='sample'),
    )
)
