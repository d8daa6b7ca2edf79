"""Ape-X DQN on LunarLander-v3: return 222.2, seeds 0-2 (worst 217.1), 100,000 env steps, on Ray with 2 actors and 2 shards."""

main_config = dict(
    exp_name='lunarlander_apex',
    max_env_step=100_000,
    env=dict(
        env_id='LunarLander-v3',
        collector_env_num=4,  # of each of the two collectors
        evaluator_env_num=10,
        n_evaluator_episode=20,
        stop_value=220,  # the threshold is 200
    ),
    policy=dict(
        cuda=False,
        priority=True,
        priority_IS_weight=True,
        first_priority='error',  # which the collectors compute
        discount_factor=0.99,
        nstep=3,
        model=dict(encoder_hidden_size_list=[128, 128], dueling=True),
        learn=dict(
            update_per_collect=32,  # train iterations
            batch_size=128,
            learning_rate=1e-3,
            target_update_freq=None,  # instead, the target follows a little after each iteration:
            target_theta=0.01,
            grad_clip_norm=10,
            learner=dict(hook=dict(log_show_after_iter=500, save_ckpt_after_run=True)),
        ),
        collect=dict(
            n_sample=64,  # training samples per round, over all collectors
            collector=dict(backend='ray', num_collectors=2),
        ),
        eval=dict(evaluator=dict(eval_freq=2500)),  # train iterations
        other=dict(
            eps=dict(type='linear', start=1.0, end=0.4, decay=20_000),  # decay in env steps
            eps_ladder=7,  # from eps of the first collector to eps ** 8 of the last
            replay_buffer=dict(
                replay_buffer_size=100_000,  # transitions, in all shards
                anneal_step=50_000,
                backend='ray',
                num_shards=2,
            ),
        ),
    ),
)

create_config = dict(
    import_names=[],  # modules to import so that they register components of your own
    env=dict(type='gym'),
    env_manager=dict(type='base'),
    policy=dict(type='dqn'),
    collector=dict(type='sample'),
    replay_buffer=dict(type='advanced'),
)
