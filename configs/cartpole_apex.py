"""Ape-X DQN on CartPole-v1: return 500.0, seeds 0-2 (worst 500.0), 9,152 of 50,000 env steps, on Ray with 2 actors and 2 shards."""

main_config = dict(
    exp_name='cartpole_apex',
    max_env_step=50_000,
    env=dict(
        env_id='CartPole-v1',
        collector_env_num=4,  # of each of the two collectors
        evaluator_env_num=50,
        n_evaluator_episode=100,
        stop_value=500,  # the longest episode
    ),
    policy=dict(
        cuda=False,
        priority=True,
        priority_IS_weight=True,
        first_priority='error',  # which the collectors compute
        discount_factor=0.99,
        model=dict(encoder_hidden_size_list=[128, 128], dueling=False),
        learn=dict(
            update_per_collect=40,  # train iterations
            batch_size=64,
            learning_rate=2e-3,
            target_update_freq=20,  # train iterations
            learner=dict(hook=dict(log_show_after_iter=200, save_ckpt_after_run=True)),
        ),
        collect=dict(
            n_sample=64,  # training samples per round, over all collectors
            collector=dict(backend='ray', num_collectors=2),
        ),
        eval=dict(evaluator=dict(eval_freq=500)),  # train iterations
        other=dict(
            eps=dict(type='exp', start=0.95, end=0.4, decay=1500),  # decay in env steps
            eps_ladder=7,  # from eps of the first collector to eps ** 8 of the last
            replay_buffer=dict(
                replay_buffer_size=20_000,  # transitions, in all shards
                anneal_step=30_000,
                backend='ray',
                num_shards=2,
                prefetch=2,  # batches
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
