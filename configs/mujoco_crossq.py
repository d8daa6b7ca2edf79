"""CrossQ on MuJoCo: return 3259.3 (Hopper-v4, half of each batch recorded), 3176.6 (Ant-v5), 9992.4 (HalfCheetah-v5), 3366.0 (Hopper-v5), 4410.8 (Walker2d-v5), seeds 0-2, 40,000 to 200,000 env steps, 1,765 s of CPU time.

For another robot: `env.env_id=Hopper-v5`, Walker2d-v5 or Ant-v5.
"""

main_config = dict(
    exp_name='mujoco_crossq',
    max_env_step=200_000,
    env=dict(
        env_id='HalfCheetah-v5',
        collector_env_num=4,
        evaluator_env_num=5,
        n_evaluator_episode=10,
    ),
    policy=dict(
        cuda=False,
        discount_factor=0.99,
        random_collect_size=5_000,  # training samples
        model=dict(
            encoder_hidden_size_list=[256, 256]
        ),  # the paper's critics have 2,048, which one core cannot pay
        learn=dict(
            update_per_collect=4,  # train iterations: one for each env step
            batch_size=256,
            learner=dict(hook=dict(log_show_after_iter=1000, save_ckpt_after_run=True)),
        ),
        collect=dict(n_sample=4),  # training samples per round, over all envs
        eval=dict(evaluator=dict(eval_freq=10_000)),  # train iterations
        other=dict(replay_buffer=dict(replay_buffer_size=1_000_000)),  # transitions
    ),
)

create_config = dict(
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='crossq'),
    collector=dict(type='sample'),
    replay_buffer=dict(type='naive'),
)
