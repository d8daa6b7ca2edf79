"""R2D2 on CartPoleNoVelocity-v1: return 499.2, seeds 0-2 (worst 497.4), 100,000 of 200,000 env steps, 130 s of CPU time."""

main_config = dict(
    exp_name='cartpole_novel_r2d2',
    max_env_step=200_000,
    env=dict(
        env_id='rlframe/CartPoleNoVelocity-v1',
        collector_env_num=8,
        evaluator_env_num=50,
        n_evaluator_episode=100,
        stop_value=475,  # the threshold of CartPole-v1
    ),
    policy=dict(
        cuda=False,
        priority=True,
        priority_IS_weight=True,
        discount_factor=0.99,
        nstep=5,
        value_rescale=True,  # or else values of up to 100 make learning unstable
        model=dict(encoder_hidden_size_list=[64], lstm_hidden_size=64),
        learn=dict(
            update_per_collect=1,  # train iterations
            batch_size=32,  # sequences
            learning_rate=dict(type='linear', start=1e-3, end=1e-4, decay=100_000),  # decay in env steps
            target_update_freq=200,  # train iterations
            grad_clip_norm=10.0,
            learner=dict(hook=dict(log_show_after_iter=200, save_ckpt_after_run=True)),
        ),
        collect=dict(n_sample=8, collector=dict(mark_episodes=True)),
        eval=dict(evaluator=dict(eval_freq=1250)),  # train iterations
        other=dict(
            eps=dict(type='exp', start=0.95, end=0.02, decay=3000),  # decay in env steps
            replay_buffer=dict(
                replay_buffer_size=50_000,  # env steps
                unroll_len=20,
                burn_in=10,
                priority=True,
            ),
        ),
    ),
)

create_config = dict(
    import_names=[],  # modules to import so that they register components of your own
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='r2d2'),
    collector=dict(type='sample'),
    replay_buffer=dict(type='sequence'),
)
